//! The kinds of failure, and what may follow on each.

use serde::{Deserialize, Serialize};

/// Why a turn failed. Each question about it is one `match` without `_`, so that a new category does not compile until
/// it has answered them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Quota,
    RateLimit,
    Authentication,
    Validation,
    Network,
    Server,
    Timeout,
    NotFound,
    Configuration,
    Unknown,
    /// The caller went away or asked to stop.
    Cancelled,
}

/// What a router may do after a failure, while nothing has been shown to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub retry: bool,
    pub fallback: bool,
}

impl Category {
    pub const ALL: [Self; 11] = [
        Self::Quota,
        Self::RateLimit,
        Self::Authentication,
        Self::Validation,
        Self::Network,
        Self::Server,
        Self::Timeout,
        Self::NotFound,
        Self::Configuration,
        Self::Unknown,
        Self::Cancelled,
    ];

    #[must_use]
    pub const fn policy(self) -> Policy {
        match self {
            Self::RateLimit => Policy { retry: true, fallback: false },
            Self::Network | Self::Server | Self::Timeout => Policy { retry: true, fallback: true },
            Self::Quota | Self::NotFound | Self::Unknown => Policy { retry: false, fallback: true },
            Self::Authentication | Self::Validation | Self::Configuration | Self::Cancelled => {
                Policy { retry: false, fallback: false }
            }
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::RateLimit => "rate_limit",
            Self::Authentication => "authentication",
            Self::Validation => "validation",
            Self::Network => "network",
            Self::Server => "server",
            Self::Timeout => "timeout",
            Self::NotFound => "not_found",
            Self::Configuration => "configuration",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}
