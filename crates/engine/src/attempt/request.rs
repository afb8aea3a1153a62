//! The request for one attempt, the error if it cannot begin, and the steps that CLIs and the built-in agent share.

use std::sync::Arc;

use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::Model;
use trunkline_core::prompt::Prompt;
use trunkline_core::provider::Provider;
use trunkline_core::turn::Turn;
use trunkline_process::{Keepers, RunningProcess, SpawnError, Spec};

use crate::attempt::resources::AttemptResources;
use crate::router::RetryPolicy;
use crate::router::models::Models;
use crate::session::{self, SessionPlace};
use crate::worktree::{WorktreePolicy, WorktreeRequest};

/// Everything that is needed to begin one attempt.
pub(crate) struct AttemptRequest<'a> {
    pub(crate) turn: &'a Turn,
    pub(crate) model: &'a Arc<Model>,
    pub(crate) models: &'a Models,
    /// Id of the attempt; names its workspace and its files.
    pub(crate) id: &'a str,
    /// Id of the run.
    pub(crate) run: &'a str,
    /// The session and its guard, held until nothing of the attempt is left.
    pub(crate) session: Option<(SessionId, Arc<session::SessionGuard>)>,
    /// Worktree and commit at which the session continues.
    pub(crate) place: Option<SessionPlace>,
    /// Whether an earlier attempt of the same turn was made.
    pub(crate) again: bool,
    /// Schema of the answer, for a CLI that may pass it on to its model.
    pub(crate) schema: Option<NativeSchema>,
    /// Set when another candidate could take over: the policy that decides whether it does.
    pub(crate) standby: Option<Arc<RetryPolicy>>,
}

/// Schema that a CLI passes on to its model, if the process that runs the turn can take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NativeSchema {
    /// The schema, as JSON text.
    pub(crate) text: String,
    /// Addition to the prompt for a process that cannot take the schema. None if the session knows it.
    pub(crate) instruction: Option<String>,
}

impl NativeSchema {
    /// The prompt for a process that cannot take the schema.
    pub(crate) fn instruct(&self, prompt: &Prompt) -> Prompt {
        let mut prompt = prompt.clone();
        if let Some(instruction) = &self.instruction {
            prompt.text.push_str("\n\n");
            prompt.text.push_str(instruction);
        }
        prompt
    }
}

/// Error of an attempt that did not begin.
pub(crate) enum BeginError {
    Failed(Failure),
    /// The machine is out of processes, files or memory. The provider is not to blame.
    Exhausted(String),
}

impl From<Failure> for BeginError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn could_not_start(error: SpawnError, provider: &str) -> BeginError {
    let category = match &error {
        SpawnError::Exhausted(source) => {
            tracing::error!(%source, "no process can be started");
            return BeginError::Exhausted(format!("this machine cannot start another process now: {source}"));
        }
        SpawnError::NotFound { .. } => Category::NotFound,
        SpawnError::NotExecutable { .. } | SpawnError::BadDirectory { .. } => Category::Configuration,
        SpawnError::TooLong { .. } => Category::Validation,
        SpawnError::Unconfined { .. } | SpawnError::Other { .. } | SpawnError::Keeper(_) | SpawnError::ShutDown => {
            Category::Server
        }
    };
    let because = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    let failure = Failure::new(category, format!("cannot start {provider}: {error}{because}"));
    failure.hint("try: trunkline doctor").into()
}

pub(crate) async fn start_process(
    keepers: &Keepers,
    spec: Spec,
    provider: &Provider,
) -> Result<RunningProcess, BeginError> {
    keepers.spawn_spooled(spec).await.map_err(|error| could_not_start(error, &provider.name))
}

/// Adds a worktree. Dropping the future kills git; a background task removes what git has created so far.
pub(crate) async fn with_worktree(
    mut resources: AttemptResources,
    attempt: &AttemptRequest<'_>,
) -> Result<AttemptResources, Failure> {
    let AttemptRequest { model, place, again, .. } = attempt;
    let after = WorktreePolicy {
        keep: model.keep_worktree,
        log_helpers: model.log_helpers,
        forbid_helpers: model.forbid_helpers,
    };
    let shared = Arc::clone(&resources.shared);
    let wanted = WorktreeRequest {
        repo: model.repo.clone(),
        run: attempt.id.to_owned(),
        session: attempt.session.as_ref().map(|(session, _)| session.clone()),
        place: place.clone(),
        again: *again,
        spare: model.warm != Some(0),
    };
    let cancelled = shared.tasks.stopping.child_token();
    let _on_drop = cancelled.clone().drop_guard();
    let worktrees = Arc::clone(&shared.worktrees);
    let making = shared.tasks.tracker.spawn(async move {
        let worktree = worktrees.add(wanted, &cancelled).await?;
        resources.work_in(worktree, after);
        Ok(resources)
    });
    making.await.unwrap_or_else(|error| Err(Failure::new(Category::Server, format!("no worktree: {error}"))))
}
