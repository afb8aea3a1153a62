//! Errors of a turn that did not start.

use std::time::Duration;

use trunkline_core::event::Attempted;
use trunkline_core::failure::{Category, Failure};

/// Error of a turn that did not start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    #[error("Unknown model")]
    UnknownModel {
        near: Vec<String>,
        /// Names of all models.
        models: Vec<String>,
        /// Set if the name is that of a CLI that the gateway could run.
        cli: Option<KnownCli>,
    },
    /// A member of the request that the model cannot honour.
    #[error("{message}")]
    InvalidMember {
        /// `invalid_value` or `unsupported_parameter`.
        code: &'static str,
        /// Path of the member, as the client sent it.
        member: String,
        message: String,
    },
    /// All slots are busy and the queue is full.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    /// The client has exceeded one of its limits.
    #[error("{message}")]
    Limited { message: String, retry_after: Duration },
    /// The circuits of all candidates are open.
    #[error("{message}")]
    Unavailable {
        message: String,
        retry_after: Duration,
        /// The last failure that opened one of them.
        last: Option<Failure>,
    },
    /// The state folder takes no writes, so the run could not be recorded.
    #[error("the state folder cannot be written: {reason}")]
    Storage { reason: String, retry_after: Duration },
    #[error("{failure}")]
    Failed {
        failure: Failure,
        /// Id of the run, and its attempts.
        run: String,
        attempts: Vec<Attempted>,
    },
}

/// A CLI that the gateway could run but that is not configured or not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCli {
    pub why: String,
    pub remedy: String,
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        Self::Failed { failure, run: String::new(), attempts: Vec::new() }
    }
}

impl StartError {
    /// Adds the id of the run.
    pub(crate) fn of_run(self, id: &str) -> Self {
        match self {
            Self::Failed { failure, run, attempts } if run.is_empty() => {
                Self::Failed { failure, run: id.to_owned(), attempts }
            }
            Self::Failed { .. }
            | Self::UnknownModel { .. }
            | Self::InvalidMember { .. }
            | Self::Busy { .. }
            | Self::Limited { .. }
            | Self::Unavailable { .. }
            | Self::Storage { .. } => self,
        }
    }

    /// The failure with which a run ends that had begun.
    pub(crate) fn as_failure(&self) -> Failure {
        match self {
            Self::Failed { failure, .. } => failure.clone(),
            Self::Busy { message, retry_after } | Self::Unavailable { message, retry_after, .. } => {
                Failure::new(Category::Server, message.clone()).retry_after(Some(*retry_after))
            }
            Self::Storage { retry_after, .. } => {
                Failure::new(Category::Server, self.to_string()).retry_after(Some(*retry_after))
            }
            Self::Limited { message, retry_after } => {
                Failure::new(Category::RateLimit, message.clone()).retry_after(Some(*retry_after))
            }
            Self::UnknownModel { .. } => Failure::new(Category::NotFound, "Unknown model"),
            Self::InvalidMember { message, .. } => Failure::new(Category::Validation, message.clone()),
        }
    }

    /// The error of a run that was cancelled before it began.
    pub(crate) fn cancelled(run: &str) -> Self {
        Self::Failed { failure: cancelled(), run: run.to_owned(), attempts: Vec::new() }
    }
}

/// The failure of a run that was cancelled through the API.
pub(crate) fn cancelled() -> Failure {
    Failure::new(Category::Cancelled, "the run was cancelled")
}
