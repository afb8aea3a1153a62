//! The traits through which the server uses an engine: models, runs that yield events, queries, health and metrics.
//!
//! Implemented by the engine of this process, and by a scripted one in the tests that starts no processes. A remote engine can
//! implement them too: no method hands out the concrete engine.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::event::{Event, Resumption};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::phase::Phase;
use trunkline_core::turn::{ClientId, Patience, Turn};
use trunkline_engine::{
    Allowance, CancelOutcome, DeleteOutcome, Depth, DiffError, EmbeddingError, EmbeddingRequest, Engine, Explanation,
    Follow, HealthReport, IdempotencyError, IdempotentTurn, JoinedRun, Metrics, ModelAbilities, Run, RunFilter,
    RunLogEntry, RunQueryError, RunRow, StartError,
};

/// An engine as the server sees it.
pub trait Door: Send + Sync + 'static {
    type Run: RunEvents;
    type Feed: RunFeed;

    /// Names of the models, in order.
    fn models(&self) -> Vec<String>;

    /// Display name of the upstream model of a name.
    fn display_name(&self, model: &str) -> Option<String> {
        let _ = model;
        None
    }

    /// Whether a name is valid: in the list, or one that the router accepts.
    fn knows(&self, model: &str) -> bool {
        self.models().iter().any(|name| name == model)
    }

    /// Abilities of the provider that is tried first for this name; `None` for an unknown name.
    fn abilities(&self, model: &str) -> Option<ModelAbilities> {
        self.knows(model).then(ModelAbilities::default)
    }

    /// Whether a provider behind this name keeps sessions.
    fn keeps_sessions(&self, _model: &str) -> bool {
        true
    }

    /// Whether a provider behind this name can give several answers to one request. True for an unknown name.
    fn gives_choices(&self, _model: &str) -> bool {
        true
    }

    /// Reason why the state folder takes no writes; `None` while it does.
    fn storage_trouble(&self) -> impl Future<Output = Option<String>> + Send {
        std::future::ready(None)
    }

    /// Starts a turn. Dropping the future cancels it.
    fn start(&self, turn: Turn) -> impl Future<Output = Result<Self::Run, StartError>> + Send;

    /// Starts a turn under an idempotency key: the same request under the same key is the same run.
    fn once(
        &self,
        once: IdempotentTurn,
    ) -> impl Future<Output = Result<JoinedRun<Self::Run>, IdempotencyError>> + Send {
        let _ = once;
        async { Err(StartError::from(Failure::new(Category::Configuration, "keys are not remembered here")).into()) }
    }

    /// Client and purpose of a turn, if it is a request that the client sends on its own.
    fn side_request(&self, _turn: &Turn, _user_agent: Option<&str>) -> Option<Arc<str>> {
        None
    }

    /// Whether repeated requests for this model join the run of the first one.
    fn joins_repeats(&self, _model: &str) -> bool {
        false
    }

    /// Joins a run of a client that an earlier request has started. `None` if there is no answer to wait for.
    fn join(
        &self,
        owner: &ClientId,
        run: &str,
        patience: Option<Patience>,
    ) -> impl Future<Output = Option<JoinedRun<Self::Run>>> + Send {
        let _ = (owner, run, patience);
        async { None }
    }

    /// Starts a run that no client waits for, and returns its id once the run can be found by it.
    fn launch(&self, turn: Turn) -> impl Future<Output = Result<String, StartError>> + Send {
        let _ = turn;
        async { Err(Failure::new(Category::Configuration, "runs are not kept here").into()) }
    }

    /// RunFilter of a client, the newest first.
    fn runs(
        &self,
        owner: &ClientId,
        wanted: RunFilter,
    ) -> impl Future<Output = Result<Vec<RunRow>, RunQueryError>> + Send {
        let _ = (owner, wanted);
        async { Err(RunQueryError::NoMemory) }
    }

    fn run(&self, owner: &ClientId, id: &str) -> impl Future<Output = Result<RunRow, RunQueryError>> + Send {
        let _ = (owner, id);
        async { Err(RunQueryError::NoMemory) }
    }

    /// Events of a run from number `from` on, including events that are still to come.
    fn events(
        &self,
        owner: &ClientId,
        id: &str,
        from: u64,
    ) -> impl Future<Output = Result<Self::Feed, RunQueryError>> + Send {
        let _ = (owner, id, from);
        async { Err(RunQueryError::NoMemory) }
    }

    /// A run from its first event on, as its log has it, including events that are still to come. Dropping it does not stop the
    /// run.
    fn read_run(&self, owner: &ClientId, id: &str) -> impl Future<Output = Result<Self::Run, RunQueryError>> + Send {
        let _ = (owner, id);
        async { Err(RunQueryError::NoMemory) }
    }

    /// The request of a run in the words of its API dialect, if it was recorded.
    fn request(
        &self,
        owner: &ClientId,
        id: &str,
    ) -> impl Future<Output = Result<Option<String>, RunQueryError>> + Send {
        let _ = (owner, id);
        async { Err(RunQueryError::NoMemory) }
    }

    /// Deletes a run with everything about it. A run in progress is cancelled first.
    fn delete(&self, owner: &ClientId, id: &str) -> impl Future<Output = Result<DeleteOutcome, RunQueryError>> + Send {
        let _ = (owner, id);
        async { Err(RunQueryError::NoMemory) }
    }

    /// Whether a client has deleted a run with this id.
    fn was_deleted(&self, owner: &ClientId, id: &str) -> bool {
        let _ = (owner, id);
        false
    }

    /// Cancels a run, and returns when nothing of it is left.
    fn cancel(&self, owner: &ClientId, id: &str) -> impl Future<Output = Result<CancelOutcome, RunQueryError>> + Send {
        let _ = (owner, id);
        async { Err(RunQueryError::NoMemory) }
    }

    /// The changes of a run as a patch.
    fn diff(&self, owner: &ClientId, id: &str) -> impl Future<Output = Result<Vec<u8>, DiffError>> + Send {
        let _ = (owner, id);
        async { Err(RunQueryError::NoMemory.into()) }
    }

    /// Computes embeddings. Returns the body of the service's answer.
    fn embed(&self, request: EmbeddingRequest) -> impl Future<Output = Result<Vec<u8>, EmbeddingError>> + Send {
        let _ = request;
        async { Err(EmbeddingError::NoService { models: Vec::new() }) }
    }

    /// Counters and gauges, for `/metrics`.
    fn metrics(&self) -> Metrics {
        Metrics::default()
    }

    /// Number of turns that wait for a slot.
    fn waiting(&self) -> usize {
        0
    }

    /// Requests that a client may still make in this minute; `None` if that is not limited.
    fn allowance(&self, _owner: &ClientId) -> Option<Allowance> {
        None
    }

    /// The order in which a turn for this name would be tried; `None` for an unknown name.
    fn explain(&self, model: &str) -> Option<Explanation>;

    fn health(&self, depth: Depth) -> impl Future<Output = HealthReport> + Send;
}

/// A run in progress. Dropping it stops the run.
pub trait RunEvents: Send + 'static {
    fn id(&self) -> &str;

    fn provider(&self) -> &str;

    /// Number of attempts so far.
    fn attempts(&self) -> usize;

    /// How the turn was matched to its session, if known.
    fn resumption(&self) -> Option<&Resumption> {
        None
    }

    /// Present phase and the time spent in it, if known.
    fn phase(&self) -> Option<(Phase, Duration)> {
        None
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
}

/// Events of a run as its log has them, for any number of readers.
pub trait RunFeed: Send + 'static {
    /// The next event with its number; `None` after the last. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<RunLogEntry>> + Send;

    /// Whether the last event has been returned.
    fn is_over(&self) -> bool;
}

impl RunFeed for Follow {
    async fn next(&mut self) -> Option<RunLogEntry> {
        Self::next(self).await
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}

impl Door for Engine {
    type Run = Run;
    type Feed = Follow;

    fn models(&self) -> Vec<String> {
        Self::models(self).names()
    }

    fn display_name(&self, model: &str) -> Option<String> {
        Self::models(self).display_name(model)
    }

    fn knows(&self, model: &str) -> bool {
        Self::models(self).knows(model)
    }

    fn abilities(&self, model: &str) -> Option<ModelAbilities> {
        Self::models(self).abilities(model)
    }

    fn keeps_sessions(&self, model: &str) -> bool {
        Self::models(self).keeps_sessions(model)
    }

    fn gives_choices(&self, model: &str) -> bool {
        Self::models(self).gives_choices(model)
    }

    async fn storage_trouble(&self) -> Option<String> {
        Self::storage_trouble(self).await
    }

    fn waiting(&self) -> usize {
        Self::waiting(self)
    }

    fn allowance(&self, owner: &ClientId) -> Option<Allowance> {
        Self::allowance(self, owner)
    }

    fn explain(&self, model: &str) -> Option<Explanation> {
        Self::explain(self, model)
    }

    async fn health(&self, depth: Depth) -> HealthReport {
        Self::health(self, depth).await
    }

    async fn start(&self, turn: Turn) -> Result<Run, StartError> {
        Self::start(self, turn).await
    }

    async fn once(&self, once: IdempotentTurn) -> Result<JoinedRun<Run>, IdempotencyError> {
        Self::once(self, once).await
    }

    fn side_request(&self, turn: &Turn, user_agent: Option<&str>) -> Option<Arc<str>> {
        Self::models(self).side_request(turn, user_agent)
    }

    fn joins_repeats(&self, model: &str) -> bool {
        Self::models(self).joins_repeats(model)
    }

    async fn join(&self, owner: &ClientId, run: &str, patience: Option<Patience>) -> Option<JoinedRun<Run>> {
        Self::join_repeated(self, owner, run, patience).await
    }

    async fn launch(&self, turn: Turn) -> Result<String, StartError> {
        Self::launch(self, turn).await
    }

    async fn runs(&self, owner: &ClientId, wanted: RunFilter) -> Result<Vec<RunRow>, RunQueryError> {
        Self::runs(self, owner, wanted).await
    }

    async fn run(&self, owner: &ClientId, id: &str) -> Result<RunRow, RunQueryError> {
        Self::run(self, owner, id).await
    }

    async fn events(&self, owner: &ClientId, id: &str, from: u64) -> Result<Follow, RunQueryError> {
        Self::events(self, owner, id, from).await
    }

    async fn read_run(&self, owner: &ClientId, id: &str) -> Result<Run, RunQueryError> {
        Self::read_run(self, owner, id).await
    }

    async fn request(&self, owner: &ClientId, id: &str) -> Result<Option<String>, RunQueryError> {
        Self::request(self, owner, id).await
    }

    async fn delete(&self, owner: &ClientId, id: &str) -> Result<DeleteOutcome, RunQueryError> {
        Self::delete(self, owner, id).await
    }

    fn was_deleted(&self, owner: &ClientId, id: &str) -> bool {
        Self::was_deleted(self, owner, id)
    }

    async fn cancel(&self, owner: &ClientId, id: &str) -> Result<CancelOutcome, RunQueryError> {
        Self::cancel(self, owner, id).await
    }

    async fn diff(&self, owner: &ClientId, id: &str) -> Result<Vec<u8>, DiffError> {
        Self::diff(self, owner, id).await
    }

    async fn embed(&self, request: EmbeddingRequest) -> Result<Vec<u8>, EmbeddingError> {
        Self::embed(self, request).await
    }

    fn metrics(&self) -> Metrics {
        Self::metrics(self)
    }
}

impl RunEvents for Run {
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
