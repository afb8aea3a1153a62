//! What the server needs of the engine, and no more: models, and runs that yield events.
//!
//! Two implementations: the engine, and the scripted one of the tests, which needs no processes.

use std::future::Future;

use trunkline_core::event::Event;
use trunkline_core::turn::Turn;
use trunkline_engine::{Engine, Run, StartError};

/// Where turns are handed in.
pub trait Door: Send + Sync + 'static {
    type Run: Events;

    /// The names clients can ask for, in order.
    fn models(&self) -> Vec<String>;

    /// Starts a turn. Dropping the future gives the turn up.
    fn start(&self, turn: Turn) -> impl Future<Output = Result<Self::Run, StartError>> + Send;
}

/// A turn on its way. Dropping it stops it.
pub trait Events: Send + 'static {
    fn id(&self) -> &str;

    fn provider(&self) -> &str;

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

impl Door for Engine {
    type Run = Run;

    fn models(&self) -> Vec<String> {
        Self::models(self).names().map(str::to_owned).collect()
    }

    async fn start(&self, turn: Turn) -> Result<Run, StartError> {
        Self::start(self, turn).await
    }
}

impl Events for Run {
    fn id(&self) -> &str {
        Self::id(self)
    }

    fn provider(&self) -> &str {
        Self::provider(self)
    }

    async fn next(&mut self) -> Option<Event> {
        Self::next(self).await
    }
}
