//! Pool of warm processes: starts them, hands them to turns, and keeps them for the next turn of their session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::event::SessionId;
use trunkline_core::live::LiveProtocol;
use trunkline_core::secret::Secrets;
use trunkline_process::Keepers;

use super::boot::WarmTarget;
use super::inventory::{HeldProcess, WarmHandle, WarmInventory};
use super::session_marks::SessionMarks;
use super::stats::{WarmCounters, WarmStats};
use super::usage::IDLE_TIMEOUT;
use super::{BootSpec, FileStamps, WarmBudget, WarmProcess};
use crate::attempt::scratch::Scratch;
use crate::settings::EngineSettings;

/// Time for which a process is kept for the next turn of its session.
const SESSION_HOLD_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Start time that is assumed for a provider before one was measured.
const INITIAL_BOOT_TIME: Duration = Duration::from_secs(5);

/// Pool of warm processes.
pub(crate) struct WarmPool {
    /// Not set while warm processes are disabled.
    budget: OnceLock<WarmBudget>,
    inventory: Mutex<WarmInventory>,
    marks: SessionMarks,
    pub(crate) counters: WarmCounters,
    /// Held while a process starts: one at a time, because each keeps a core busy.
    booting: Semaphore,
    closing: CancellationToken,
    keepers: Keepers,
    tracker: TaskTracker,
    secrets: Secrets,
    state_folder: PathBuf,
    linger: Duration,
}

/// A warm process that was handed to a turn.
pub(crate) struct TakenProcess {
    pub(crate) process: WarmProcess,
    /// Whether the process has run no turn yet. The turn must then name the session to resume.
    pub(crate) fresh: bool,
}

impl WarmPool {
    pub(crate) fn new(settings: &EngineSettings, keepers: Keepers, tracker: TaskTracker) -> Self {
        Self {
            marks: SessionMarks::new(&settings.state),
            state_folder: settings.state.clone(),
            secrets: settings.secrets.clone(),
            linger: settings.linger,
            keepers,
            tracker,
            budget: OnceLock::new(),
            inventory: Mutex::default(),
            counters: WarmCounters::default(),
            booting: Semaphore::new(1),
            closing: CancellationToken::new(),
        }
    }

    /// Keeps warm processes from now on, within `budget`. Only the first call has an effect.
    pub(crate) fn open(&self, budget: WarmBudget) {
        let _ = self.budget.set(budget);
    }

    /// Whether warm processes are enabled.
    pub(crate) fn is_open(&self) -> bool {
        self.budget.get().is_some_and(|budget| budget.lines > 0) && !self.closing.is_cancelled()
    }

    /// Ends all warm processes, and starts no more.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.clear();
    }

    /// Ends all present warm processes.
    pub(crate) fn clear(&self) {
        let mut inventory = self.inventory();
        inventory.groups.clear();
        inventory.held.clear();
    }

    /// Records that a turn of a session begins. Returns whether the process that holds the session, if there is one,
    /// has seen all of its turns.
    pub(crate) fn begin_turn(&self, provider: &str, session: &SessionId) -> bool {
        self.marks.remove(provider, session)
    }

    /// Returns a process that matches this turn, if there is one. The process that holds the session is ended first if
    /// it does not match.
    pub(crate) async fn take(
        &self,
        boot: &Arc<BootSpec>,
        target: WarmTarget,
        session: Option<&SessionId>,
    ) -> Option<TakenProcess> {
        if !self.is_open() {
            return None;
        }
        let stamps = stamps(boot);
        if let Some(session) = session
            && let Some(process) = self.take_held(boot, &stamps, session).await
        {
            self.counters.note(&boot.provider, |stats| stats.resumed += 1);
            return Some(TakenProcess { process, fresh: false });
        }
        // Only this protocol can resume a session after the process has started.
        if session.is_some() && boot.protocol != LiveProtocol::AppServer {
            return None;
        }
        self.inventory().group(boot, target).usage.used(Instant::now());
        loop {
            let handle = self.inventory().pop(boot, &stamps);
            let Some(handle) = handle else { break };
            if let Some(process) = handle.claim().await {
                self.counters.note(&boot.provider, |stats| stats.hits += 1);
                return Some(TakenProcess { process, fresh: true });
            }
        }
        self.counters.note(&boot.provider, |stats| stats.misses += 1);
        None
    }

    /// Returns the process that holds a session, if it fits `boot`; otherwise the process ends.
    pub(crate) async fn take_session(&self, boot: &BootSpec, session: &SessionId) -> Option<WarmProcess> {
        let process = self.take_held(boot, &stamps(boot), session).await?;
        self.counters.note(&boot.provider, |stats| stats.resumed += 1);
        Some(process)
    }

    /// Starts a process for a turn that waits for it.
    pub(crate) async fn start_now(&self, boot: &Arc<BootSpec>, id: &str) -> Result<WarmProcess, String> {
        self.boot(boot, id).await
    }

    async fn take_held(&self, boot: &BootSpec, stamps: &FileStamps, session: &SessionId) -> Option<WarmProcess> {
        let handle = self.inventory().release(&boot.provider, session)?;
        let process = handle.claim().await?;
        if *process.boot == *boot && process.stamps == *stamps {
            return Some(process);
        }
        process.end(self.linger).await;
        None
    }

    /// Ends the process that holds a session, if there is one: two processes with one session would diverge.
    pub(crate) async fn end_held(&self, provider: &str, session: &SessionId) {
        let handle = self.inventory().release(provider, session);
        if let Some(handle) = handle
            && let Some(process) = handle.claim().await
        {
            process.end(self.linger).await;
        }
    }

    /// Returns the statistics of all providers that have any.
    pub(crate) fn all_stats(&self) -> BTreeMap<String, WarmStats> {
        let providers = self.counters.providers();
        providers.into_iter().filter_map(|name| self.stats(&name).map(|stats| (name, stats))).collect()
    }

    /// Returns the statistics of a provider. `None` if it never used warm processes.
    pub(crate) fn stats(&self, provider: &str) -> Option<WarmStats> {
        let mut stats = self.counters.of(provider)?;
        let inventory = self.inventory();
        let (ready, held) = inventory.of(provider);
        stats.ready = ready.len();
        stats.held = held.len();
        stats.resident_mib = ready.into_iter().chain(held).map(|handle| handle.resident).sum::<u64>() >> 20;
        Some(stats)
    }

    fn inventory(&self) -> MutexGuard<'_, WarmInventory> {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmPool {
    /// Keeps processes of one kind from now on, as `target` asks for.
    pub(crate) fn request(self: &Arc<Self>, boot: &Arc<BootSpec>, target: WarmTarget) {
        if self.is_open() {
            self.inventory().group(boot, target);
            self.refill();
        }
    }

    /// Starts the missing processes in the background.
    pub(crate) fn refill(self: &Arc<Self>) {
        if !self.is_open() {
            return;
        }
        let Some(budget) = self.budget.get() else { return };
        let measured = |provider: &str| self.counters.of(provider).and_then(|known| known.mean_boot_ms);
        let missing = self.inventory().missing(*budget, Instant::now(), |provider| {
            measured(provider).map_or(INITIAL_BOOT_TIME, Duration::from_millis)
        });
        for boot in missing {
            let pool = Arc::clone(self);
            self.tracker.spawn(async move { pool.add(boot).await });
        }
    }

    /// Starts a process and keeps it until a turn takes it or it expires.
    async fn add(self: Arc<Self>, boot: Arc<BootSpec>) {
        let closing = self.closing.clone();
        let id = format!("line-{}", uuid::Uuid::now_v7());
        let starting = async {
            let _permit = self.booting.acquire().await;
            let began = Instant::now();
            match self.boot(&boot, &id).await {
                // The first start of a CLI may migrate its settings. The second start finds them unchanged.
                Ok(stale) if stale.stamps != stamps(&boot) => {
                    stale.end(self.linger).await;
                    let began = Instant::now();
                    (self.boot(&boot, &id).await, began.elapsed())
                }
                process => (process, began.elapsed()),
            }
        };
        let Some((process, took)) = closing.run_until_cancelled(starting).await else {
            self.inventory().booted(&boot, false);
            return;
        };
        let provider = boot.provider.as_str();
        self.inventory().booted(&boot, process.is_ok());
        match process {
            Ok(process) => {
                tracing::debug!(provider, pid = process.running.pid(), ?took, "warm process is ready");
                self.counters.booted(provider, took);
                self.keep_ready(process).await;
            }
            Err(error) => {
                let error = self.secrets.mask(&error);
                tracing::info!(provider, "cannot start a warm process: {error}");
                self.counters.note(provider, |stats| {
                    stats.failed_boots += 1;
                    stats.error = Some(error);
                });
            }
        }
    }

    async fn boot(&self, boot: &Arc<BootSpec>, id: &str) -> Result<WarmProcess, String> {
        let (stamps, scratch) = (stamps(boot), Scratch::new(&self.state_folder, id));
        WarmProcess::boot(Arc::clone(boot), stamps, id, scratch, &self.keepers).await
    }

    /// Adds a process to the inventory, and returns when it was taken or has ended.
    async fn keep_ready(self: &Arc<Self>, process: WarmProcess) {
        let (handle, asked) = WarmHandle::new(&process);
        let (id, boot) = (handle.id, Arc::clone(&process.boot));
        let max_idle = match self.inventory().put(&boot, handle) {
            Some(WarmTarget::Fixed(_)) => None,
            // Without a group the handle was dropped, and the process ends at once.
            Some(WarmTarget::ByUse) | None => Some(IDLE_TIMEOUT),
        };
        process.wait(asked, max_idle, self.linger).await;
        self.inventory().forget(id);
    }

    /// Keeps a process for the next turn of its session.
    pub(crate) fn hold(self: &Arc<Self>, process: WarmProcess, session: SessionId) {
        let (handle, asked) = WarmHandle::new(&process);
        let id = handle.id;
        if let Some(budget) = self.budget.get().filter(|_| self.is_open()) {
            let provider = process.boot.provider.clone();
            match self.marks.set(&provider, &session) {
                Ok(()) => self.inventory().hold(*budget, HeldProcess { session, provider, handle }),
                Err(error) => tracing::warn!(%error, "cannot keep a process for its session"),
            }
        }
        let pool = Arc::clone(self);
        self.tracker.spawn(async move {
            process.wait(asked, Some(SESSION_HOLD_TIMEOUT), pool.linger).await;
            if let Some(held) = pool.inventory().forget(id) {
                pool.marks.remove(&held.provider, &held.session);
            }
        });
    }
}

/// Returns the stamps of the files that such a process reads at its start.
fn stamps(boot: &BootSpec) -> FileStamps {
    let home = boot.spec.env.get("HOME").map(Path::new);
    FileStamps::now(&boot.spec.program, &boot.reads, &boot.spec.cwd, home)
}

impl WarmHandle {
    fn new(process: &WarmProcess) -> (Self, oneshot::Receiver<oneshot::Sender<WarmProcess>>) {
        let (ask, asked) = oneshot::channel();
        let stamps = process.stamps.clone();
        (
            Self {
                id: process.running.keeper(),
                ask,
                stamps,
                resident: process.running.resident(),
                since: Instant::now(),
            },
            asked,
        )
    }

    /// Returns the process, unless it has ended.
    async fn claim(self) -> Option<WarmProcess> {
        let (taker, taken) = oneshot::channel();
        self.ask.send(taker).ok()?;
        taken.await.ok()
    }
}
