//! The kinds of failure, and what may follow on each.

use crate::vocabulary::named_enum;

named_enum! {
    /// Why a turn failed. Each question about it is one `match` without `_`, so that a new category does not compile until
    /// it has answered them all.
    pub enum Category {
        Quota = "quota",
        RateLimit = "rate_limit",
        Authentication = "authentication",
        Validation = "validation",
        Network = "network",
        Server = "server",
        Timeout = "timeout",
        NotFound = "not_found",
        Configuration = "configuration",
        Unknown = "unknown",
        /// The caller went away or asked to stop.
        Cancelled = "cancelled",
    }
}

/// What a router may do after a failure, while nothing has been shown to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailurePolicy {
    pub retry: bool,
    pub fallback: bool,
}

impl Category {
    #[must_use]
    pub const fn policy(self) -> FailurePolicy {
        match self {
            Self::RateLimit => FailurePolicy { retry: true, fallback: false },
            Self::Network | Self::Server | Self::Timeout => FailurePolicy { retry: true, fallback: true },
            Self::Quota | Self::NotFound | Self::Unknown => FailurePolicy { retry: false, fallback: true },
            Self::Authentication | Self::Validation | Self::Configuration | Self::Cancelled => {
                FailurePolicy { retry: false, fallback: false }
            }
        }
    }
}
