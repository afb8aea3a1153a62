//! What the server needs of the engine, and no more: models, runs that yield events, and how things stand.
//!
//! Two implementations: the engine, and the scripted one of the tests, which needs no processes.

use std::future::Future;
use std::time::Duration;

use trunkline_core::event::{Event, Resumption};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::phase::Phase;
use trunkline_core::turn::{Owner, Turn};
use trunkline_engine::{Allowance, Depth, Engine, Explanation, Joined, NotOnce, Once, Report, Run, StartError};

/// Where turns are handed in.
pub trait Door: Send + Sync + 'static {
    type Run: Events;

    /// The names clients can ask for, in order.
    fn models(&self) -> Vec<String>;

    /// The display name of the upstream model behind one of these names.
    fn display_name(&self, model: &str) -> Option<String> {
        let _ = model;
        None
    }

    /// Whether a request may ask for this name: one of the list, or one that the router makes up.
    fn knows(&self, model: &str) -> bool {
        self.models().iter().any(|name| name == model)
    }

    /// Whether some provider behind this name keeps sessions.
    fn keeps_sessions(&self, _model: &str) -> bool {
        true
    }

    /// Why the state folder takes no writes; none while it does.
    fn storage_trouble(&self) -> impl Future<Output = Option<String>> + Send {
        std::future::ready(None)
    }

    /// Starts a turn. Dropping the future gives the turn up.
    fn start(&self, turn: Turn) -> impl Future<Output = Result<Self::Run, StartError>> + Send;

    /// Starts a turn that may be asked for again: the same request under the same key is the same run.
    fn once(&self, once: Once) -> impl Future<Output = Result<Joined<Self::Run>, NotOnce>> + Send {
        let _nothing_is_known_here = once;
        async { Err(StartError::from(Failure::new(Category::Configuration, "keys are not remembered here")).into()) }
    }

    /// Whom to ask about runs; none where nobody keeps any.
    fn runs(&self) -> Option<&Engine> {
        None
    }

    /// How many turns wait to be started.
    fn waiting(&self) -> usize {
        0
    }

    /// How many requests an owner may still make in this minute, if that is limited.
    fn allowance(&self, _owner: &Owner) -> Option<Allowance> {
        None
    }

    /// The order in which a turn for this name would be tried, if the name means something.
    fn explain(&self, model: &str) -> Option<Explanation>;

    fn health(&self, depth: Depth) -> impl Future<Output = Report> + Send;
}

/// A turn on its way. Dropping it stops it.
pub trait Events: Send + 'static {
    fn id(&self) -> &str;

    fn provider(&self) -> &str;

    /// How many attempts there were so far.
    fn attempts(&self) -> usize;

    /// How the turn came to its session, as far as that is known.
    fn resumption(&self) -> Option<&Resumption> {
        None
    }

    /// What it is doing, and for how long by now, if that is known.
    fn phase(&self) -> Option<(Phase, Duration)> {
        None
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

impl Door for Engine {
    type Run = Run;

    fn models(&self) -> Vec<String> {
        Self::models(self).names()
    }

    fn display_name(&self, model: &str) -> Option<String> {
        Self::models(self).display_name(model)
    }

    fn knows(&self, model: &str) -> bool {
        Self::models(self).knows(model)
    }

    fn keeps_sessions(&self, model: &str) -> bool {
        Self::models(self).keeps_sessions(model)
    }

    async fn storage_trouble(&self) -> Option<String> {
        Self::storage_trouble(self).await
    }

    fn waiting(&self) -> usize {
        Self::waiting(self)
    }

    fn allowance(&self, owner: &Owner) -> Option<Allowance> {
        Self::allowance(self, owner)
    }

    fn explain(&self, model: &str) -> Option<Explanation> {
        Self::explain(self, model)
    }

    async fn health(&self, depth: Depth) -> Report {
        Self::health(self, depth).await
    }

    async fn start(&self, turn: Turn) -> Result<Run, StartError> {
        Self::start(self, turn).await
    }

    async fn once(&self, once: Once) -> Result<Joined<Run>, NotOnce> {
        Self::once(self, once).await
    }

    fn runs(&self) -> Option<&Engine> {
        Some(self)
    }
}

impl Events for Run {
    fn id(&self) -> &str {
        Self::id(self)
    }

    fn provider(&self) -> &str {
        Self::provider(self)
    }

    fn attempts(&self) -> usize {
        Self::attempts(self)
    }

    fn resumption(&self) -> Option<&Resumption> {
        Self::resumption(self)
    }

    fn phase(&self) -> Option<(Phase, Duration)> {
        Some(Self::phase(self))
    }

    async fn next(&mut self) -> Option<Event> {
        Self::next(self).await
    }
}
