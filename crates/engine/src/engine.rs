//! The public type: construction, configuration, lifecycle, and read-only questions. Turns are started in `runs/start.rs`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::failure::Failure;
use trunkline_core::model::Model;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{self, Turn};
use trunkline_process::Keepers;
use trunkline_store::Store;

use crate::admission::Allowance;
use crate::attempt::builtin;
use crate::attempt::launch::LaunchRequest;
use crate::attempt::plan::Plan;
use crate::health::report::{Depth, HealthReport};
use crate::health::{self};
use crate::router::circuit_of;
use crate::router::explain::{self, Explanation};
use crate::router::models::Models;
use crate::sandbox::Bounds;
use crate::settings::EngineSettings;
use crate::shared::Shared;
use crate::tools::{ToolEndpoint, ToolPorts};
use crate::warm::{WarmBudget, WarmTarget};

/// Pause before the log is indexed again, after that failed.
const INDEX_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Runs turns on the configured models, within the configured limits. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Creates an engine. Needs a tokio runtime.
    pub fn new(settings: EngineSettings, models: Models, keepers: Keepers) -> Self {
        Self { shared: Arc::new(Shared::new(settings, models, keepers)) }
    }

    /// Persists sessions and runs in `store` from now on. Without a store, sessions last as long as this process.
    pub fn remember_in(&self, store: Store) {
        self.shared.sessions.registry.set_secrets(self.shared.settings.secrets.clone());
        let feed = self.shared.store_writer.open(&store);
        self.shared.sessions.registry.set_store(store, feed);
    }

    /// Like [`remember_in`](Self::remember_in), for a store that was opened without indexing the log: does that in the
    /// background. Turns start at once; queries, sessions and idempotency keys wait for it.
    pub fn remember_and_index(&self, store: Store) {
        self.remember_in(store);
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.tracker.spawn(async move {
            let stopping = shared.tasks.stopping.clone();
            let indexed = async {
                while shared.store_writer.catch_up().await.is_err() {
                    tokio::time::sleep(INDEX_RETRY_INTERVAL).await;
                }
            };
            stopping.run_until_cancelled(indexed).await;
        });
    }

    pub fn models(&self) -> Arc<Models> {
        self.shared.models()
    }

    /// Replaces the models. Runs in flight keep the models they started with.
    pub fn replace_models(&self, models: Models) {
        let known: BTreeSet<String> = models.all().map(|model| circuit_of(model)).collect();
        self.shared.routing.circuits.keep(|name| known.contains(name));
        self.shared.set_models(models);
        self.shared.warm.clear();
        self.shared.worktrees.clear_requested_spares();
        self.warm_up();
    }

    /// Keeps warm processes and spare worktrees from now on, within `budget`. Without this call there are none.
    pub fn keep_warm(&self, budget: WarmBudget) {
        self.shared.warm.open(budget);
        self.shared.worktrees.keep_spares(budget.lines);
        self.warm_up();
    }

    /// The server through which CLIs call the tools of clients, for CLIs that have no other way.
    pub fn serve_tools(&self, endpoint: Arc<dyn ToolEndpoint>) {
        // Only the first one counts.
        let _ = self.shared.tools.endpoint.set(endpoint);
    }

    /// Places where calls of clients' tools are delivered.
    pub fn tool_ports(&self) -> ToolPorts {
        self.shared.tools.ports.clone()
    }

    /// Begins shutdown: removes spare worktrees, stops preparing for later turns, and cuts saves short.
    pub fn retire(&self) {
        self.shared.tasks.draining.cancel();
        self.shared.worktrees.retire_spares();
        self.shared.compile_cache.close();
    }

    /// Starts the warm processes and spare worktrees that models ask for with `warm: N`. A failure is logged; the turn that
    /// needs the process reports it.
    fn warm_up(&self) {
        let (models, turn, shared) = (self.models(), Turn::default(), &self.shared);
        for model in models.all().filter(|model| shared.warm.is_open() && model.warm.is_some_and(|number| number > 0)) {
            if model.worktree {
                // A process cannot be started before its worktree exists.
                shared.worktrees.want_spares(model.repo.clone(), model.warm.unwrap_or_default() as usize);
                continue;
            }
            let Some(provider) = model.backend.program() else { continue };
            let (settings, owner) = (&shared.settings, shared.identity.mark.as_str());
            let launch = LaunchRequest { settings, turn: &turn, models: &models, run: "", owner }.of(model, provider);
            let boot = launch.prompt().and_then(|prompt| launch.own_boot(&prompt, &launch.program()?, &model.repo));
            match boot {
                Ok(Some(boot)) => {
                    let boot = Arc::new(boot);
                    shared.warm.request(&boot, WarmTarget::of(model, &boot));
                }
                Ok(None) => tracing::warn!(model = model.name, "warm: no process of this model can be kept ready"),
                Err(failure) => tracing::warn!(model = model.name, "warm: {failure}"),
            }
        }
    }

    /// Folder in which worktrees are created.
    pub fn worktrees(&self) -> &Path {
        &self.shared.settings.worktrees
    }

    pub fn secrets(&self) -> &Secrets {
        &self.shared.settings.secrets
    }

    /// The command that would run `model` now. `None` if the model is an HTTP upstream.
    pub fn plan(&self, model: &Model) -> Option<Result<Plan, Failure>> {
        let provider = model.backend.program()?;
        let (turn, models) = (Turn::default(), self.models());
        let settings = &self.shared.settings;
        let request = LaunchRequest { settings, turn: &turn, models: &models, run: "<run>", owner: "<gateway>" };
        Some(request.once(model, provider).plan())
    }

    /// The paths that a run of `model` may write. `None` if the model is an HTTP upstream.
    pub fn bounds(&self, model: &Model) -> Option<Result<Bounds, Failure>> {
        builtin::bounds(&self.shared, model, &self.models())
    }

    /// Number of turns that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.shared.admission.waiting()
    }

    /// Requests that a client may still make in this minute. `None` if that is not limited.
    pub fn allowance(&self, owner: &turn::ClientId) -> Option<Allowance> {
        self.shared.admission.allowance(owner)
    }

    /// The order in which a turn for `name` would be tried now, with reasons. `None` for an unknown name.
    pub fn explain(&self, name: &str) -> Option<Explanation> {
        explain::explain(&self.shared.routing.circuits, &self.shared.settings, &self.models(), name)
    }

    /// The state of each provider. `depth` decides whether a provider is asked to answer a turn.
    pub async fn health(&self, depth: Depth) -> HealthReport {
        health::of_all(&self.shared, &self.models(), depth).await
    }

    /// The reason why runs are refused because the state folder takes no writes. `None` while it does.
    pub async fn storage_trouble(&self) -> Option<String> {
        self.shared.store_writer.cached_trouble()
    }

    /// Ends all runs and waits until no run, process or worktree is left.
    pub async fn shutdown(&self) {
        self.shared.runs.registry.stop_driven();
        self.retire();
        self.shared.tasks.stopping.cancel();
        self.shared.warm.close();
        self.shared.tasks.tracker.close();
        self.shared.tasks.tracker.wait().await;
        self.shared.store_writer.close().await;
        self.shared.keepers.shutdown().await;
        // SQLite's files beside the database are folded into it: a later recovery cannot write stale pages over it.
        if let Some(store) = self.shared.store_writer.store() {
            store.close().await;
        }
    }
}
