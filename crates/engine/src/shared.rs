//! State that every part of the engine shares, grouped by the part that owns it.
//!
//! A part that needs only some of it takes only that. Nothing here starts or decides anything.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_process::Keepers;
use trunkline_upstream::Upstream;

use crate::admission::Admission;
use crate::attempt::compile_cache::CompileCache;
use crate::health::report::HealthCache;
use crate::health::unknown_events::UnknownEvents;
use crate::router::models::Models;
use crate::router::{Circuits, Retries};
use crate::runs::SweepState;
use crate::runs::alive::LivenessLock;
use crate::runs::gateway_process::GatewayProcess;
use crate::runs::live::RunRegistry;
use crate::runs::parked_calls::ParkedRuns;
use crate::session::Sessions;
use crate::settings::EngineSettings;
use crate::store_writer::StoreWriter;
use crate::tools::{ToolEndpoint, ToolPorts};
use crate::warm::WarmPool;
use crate::worktree::Worktrees;
use crate::worktree::git::Git;

pub(crate) struct Shared {
    pub(crate) settings: EngineSettings,
    pub(crate) identity: Identity,
    models: ArcSwap<Models>,
    pub(crate) keepers: Keepers,
    pub(crate) upstream: Upstream,
    pub(crate) admission: Admission,
    pub(crate) routing: Routing,
    pub(crate) health: HealthState,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) store_writer: StoreWriter,
    pub(crate) worktrees: Arc<Worktrees>,
    pub(crate) runs: RunTable,
    pub(crate) warm: Arc<WarmPool>,
    pub(crate) compile_cache: Arc<CompileCache>,
    pub(crate) tools: ToolState,
    pub(crate) tasks: Tasks,
}

/// Tools of clients: the ports of processes, and the server in front of them.
#[derive(Default)]
pub(crate) struct ToolState {
    pub(crate) ports: ToolPorts,
    pub(crate) endpoint: OnceLock<Arc<dyn ToolEndpoint>>,
}

/// Identity of this gateway process among others on the same state folder.
pub(crate) struct Identity {
    /// Mark in the environment of every process that this gateway starts.
    pub(crate) mark: String,
    _alive: LivenessLock,
}

/// State that decides where a turn goes next.
#[derive(Default)]
pub(crate) struct Routing {
    pub(crate) circuits: Arc<Circuits>,
    pub(crate) retries: Retries,
}

/// Observations about providers.
#[derive(Default)]
pub(crate) struct HealthState {
    pub(crate) cache: HealthCache,
    pub(crate) unknown_events: UnknownEvents,
}

/// Runs of this process, and the locks that guard runs across requests and processes.
#[derive(Default)]
pub(crate) struct RunTable {
    pub(crate) registry: Arc<RunRegistry>,
    /// Attempts that wait for results of the client's tools.
    pub(crate) parked: ParkedRuns,
    pub(crate) sweep: SweepState,
    /// Held while the engine decides whether a request is the first under its idempotency key.
    pub(crate) claiming: tokio::sync::Mutex<()>,
}

/// Background tasks of the engine, and the tokens that end them.
#[derive(Clone, Default)]
pub(crate) struct Tasks {
    /// Joined at shutdown.
    pub(crate) tracker: TaskTracker,
    /// Cancelled when the gateway begins to shut down: saves are cut short.
    pub(crate) draining: CancellationToken,
    /// Cancelled when shutdown no longer waits for runs: no more worktrees are created.
    pub(crate) stopping: CancellationToken,
}

impl Shared {
    pub(crate) fn new(settings: EngineSettings, models: Models, keepers: Keepers) -> Self {
        let git = Git::new(keepers.clone(), &settings.env, settings.git_timeout);
        let mark = GatewayProcess::this_process().mark();
        let (state, tasks) = (settings.state.as_path(), Tasks::default());
        let tracker = tasks.tracker.clone();
        Self {
            identity: Identity { _alive: LivenessLock::new(state, &mark), mark },
            models: ArcSwap::from_pointee(models),
            upstream: Upstream::new(),
            admission: Admission::new(settings.caps.clone()),
            routing: Routing::default(),
            health: HealthState::default(),
            sessions: Arc::new(Sessions::new(state)),
            store_writer: StoreWriter::new(state, settings.durability),
            worktrees: Arc::new(Worktrees::new(git, settings.worktrees.clone(), state, tracker.clone())),
            runs: RunTable::default(),
            warm: Arc::new(WarmPool::new(&settings, keepers.clone(), tracker.clone())),
            compile_cache: Arc::new(CompileCache::new(keepers.clone(), tracker)),
            tools: ToolState::default(),
            tasks,
            keepers,
            settings,
        }
    }

    pub(crate) fn models(&self) -> Arc<Models> {
        self.models.load_full()
    }

    pub(crate) fn set_models(&self, models: Models) {
        self.models.store(Arc::new(models));
    }
}
