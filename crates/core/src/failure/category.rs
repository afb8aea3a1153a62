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
        /// The answer does not have the form that the client asked for.
        SchemaMismatch = "schema_mismatch",
        /// The client disconnected or cancelled the turn.
        Cancelled = "cancelled",
    }
}

/// Actions that a router may take after a failure, as long as the caller has seen nothing.
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
            Self::Authentication | Self::Validation | Self::Configuration | Self::SchemaMismatch | Self::Cancelled => {
                FailurePolicy { retry: false, fallback: false }
            }
        }
    }
}
