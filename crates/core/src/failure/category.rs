//! Categories of failures, and whether a retry or a fallback may follow each.

use crate::vocabulary::named_enum;

named_enum! {
    /// Category of a failure. Every policy that depends on it is a `match` without `_`, so that a new category does not
    /// compile until each policy handles it.
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
        /// The client disconnected or cancelled the turn.
        Cancelled = "cancelled",
    }
}

/// What a router may do after a failure, as long as the caller has seen nothing.
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
