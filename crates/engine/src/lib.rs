//! Runs a turn: finds its model, makes its workspace, starts its CLI, and hands out its events.
//!
//! [`Engine::start`] is the one door for every surface.

use std::sync::Arc;
use std::time::Duration;

use trunkline_core::event::Event;
use trunkline_core::failure::Failure;
use trunkline_core::turn::Turn;

/// Everything that can run, and the limits under which it does.
pub struct Engine {
    models: Arc<Vec<String>>,
}

/// Why a turn did not even start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("Unknown model")]
    UnknownModel { near: Vec<String> },
    /// The gateway itself is full: all slots busy and the queue too long.
    #[error("{message}")]
    Busy { message: String, retry_after: Duration },
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// A turn on its way. Dropping it stops the CLI.
pub struct Run {
    id: String,
    provider: String,
}

impl Engine {
    /// The names clients can ask for, in order.
    pub fn models(&self) -> Vec<String> {
        self.models.to_vec()
    }

    pub async fn start(&self, _turn: Turn) -> Result<Run, StartError> {
        Err(StartError::UnknownModel { near: Vec::new() })
    }
}

impl Run {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        None
    }
}
