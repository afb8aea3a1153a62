//! Runs of this process that have not ended: their progress, the clients that wait for them, and how to stop them.

use std::collections::HashMap;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use trunkline_core::event::Event;
use trunkline_core::turn::{ClientId, OnDisconnect};
use trunkline_store::{CurrentAttempt, RunExtents};

use crate::start_error::StartError;
use crate::worktree::Worktree;

/// Time that a client gets to read the end of its cancelled run before the engine takes the run over.
const CLIENT_READ_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs of this process that have not ended, by id.
#[derive(Default)]
pub(crate) struct RunRegistry {
    runs: Mutex<HashMap<String, Arc<ActiveRun>>>,
    /// Notified when a run is removed.
    removed: watch::Sender<()>,
}

/// A run that has not ended.
pub(crate) struct ActiveRun {
    pub(crate) id: String,
    pub(crate) owner: ClientId,
    /// Policy for when no client waits for the run any more. `None` for a run that its client pulls: it ends with the
    /// client.
    on_disconnect: Mutex<Option<OnDisconnect>>,
    waiting_clients: AtomicUsize,
    /// Number of clients that have ever waited for the run.
    clients_seen: AtomicUsize,
    progress: watch::Sender<RunProgress>,
    /// Lines of the run in the log.
    extents: Arc<RunExtents>,
    stop: CancellationToken,
    /// Resources that keep the run from being gone: its processes, its worktree, its record.
    holds: TaskTracker,
    worktree: Mutex<Option<Worktree>>,
    /// The driver that the client pulls.
    pull: Mutex<Option<Weak<dyn Drain>>>,
}

/// Takes a pulled run away from its client and pulls it to its end.
pub(super) trait Drain: Send + Sync {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Progress of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunProgress {
    /// Bytes of the log that can be read.
    pub(super) written: u64,
    /// Whether the run is in the log.
    pub(super) recorded: bool,
    /// Set when the first attempt has started.
    pub(super) current: Option<CurrentAttempt>,
    pub(super) end: Option<RunEnding>,
    pub(super) durability: EndDurability,
}

/// Whether the end of a run may be shown to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EndDurability {
    /// As soon as it is in the log.
    #[default]
    Reached,
    /// The disk does not have it yet.
    Pending,
    /// The disk refused it: the end in the log does not count.
    Failed,
}

/// End of a run.
#[derive(Debug, Clone)]
pub(crate) enum RunEnding {
    /// The last event is in the log.
    Logged,
    /// The last event. The log lacks it, for example because the disk is full.
    Event(Arc<Event>),
    /// No attempt was started.
    Refused(StartError),
}

/// Keeps a run in the registry until it is dropped.
pub(crate) struct RunRegistration {
    live: Arc<ActiveRun>,
    registry: Arc<RunRegistry>,
    _hold: TaskTrackerToken,
}

impl RunRegistry {
    /// Registers a run.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &str,
        owner: &ClientId,
        on_disconnect: Option<OnDisconnect>,
    ) -> Arc<RunRegistration> {
        let live = Arc::new(ActiveRun {
            id: id.to_owned(),
            owner: owner.clone(),
            on_disconnect: Mutex::new(on_disconnect),
            waiting_clients: AtomicUsize::new(0),
            clients_seen: AtomicUsize::new(0),
            progress: watch::Sender::default(),
            extents: Arc::default(),
            stop: CancellationToken::new(),
            holds: TaskTracker::new(),
            worktree: Mutex::default(),
            pull: Mutex::default(),
        });
        self.lock().insert(id.to_owned(), Arc::clone(&live));
        Arc::new(RunRegistration { _hold: live.hold(), live, registry: Arc::clone(self) })
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<ActiveRun>> {
        self.lock().get(id).cloned()
    }

    /// Number of runs.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Stops the runs that the engine drives. The others end with their clients.
    pub(crate) fn stop_driven(&self) {
        self.lock().values().filter(|live| live.on_disconnect().is_some()).for_each(|live| live.stop());
    }

    /// Notified when a run is removed.
    pub(crate) fn removals(&self) -> watch::Receiver<()> {
        self.removed.subscribe()
    }

    /// Waits until no run is left that the engine drives.
    pub(crate) async fn wait_for_driven(&self) {
        let mut removed = self.removed.subscribe();
        while self.lock().values().any(|live| live.on_disconnect().is_some()) {
            if removed.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ActiveRun>>> {
        self.runs.lock().expect("no panic while holding the lock")
    }
}

impl ActiveRun {
    /// Asks the run to end.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until the run is asked to end. Cancel safe.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the run continues without a client.
    pub(crate) fn is_detached(&self) -> bool {
        self.on_disconnect() == Some(OnDisconnect::Detach)
    }

    /// Keeps the run from being gone until the token is dropped.
    pub(crate) fn hold(&self) -> TaskTrackerToken {
        self.holds.token()
    }

    /// Waits until the run has released everything it held. Cancel safe.
    pub(crate) async fn gone(&self) {
        self.holds.close();
        self.holds.wait().await;
    }

    pub(super) fn pulled_by(&self, pull: Weak<dyn Drain>) {
        *self.pull.lock().expect("no panic while holding the lock") = Some(pull);
    }

    /// Stops the run and waits until it is gone. A client that does not read does not pull the run to its end, so after
    /// [`CLIENT_READ_TIMEOUT`] the engine does that instead.
    pub(super) async fn stop_and_wait(&self) {
        self.stop();
        if timeout(CLIENT_READ_TIMEOUT, self.gone()).await.is_ok() {
            return;
        }
        let pull = self.pull.lock().expect("no panic while holding the lock").as_ref().and_then(Weak::upgrade);
        let drained = async {
            if let Some(pull) = pull {
                pull.drain().await;
            }
        };
        tokio::select! {
            () = self.gone() => {}
            () = async { drained.await; self.gone().await } => {}
        }
    }

    pub(crate) fn set_worktree(&self, worktree: Option<Worktree>) {
        *self.worktree.lock().expect("no panic while holding the lock") = worktree;
    }

    pub(crate) fn worktree(&self) -> Option<Worktree> {
        self.worktree.lock().expect("no panic while holding the lock").clone()
    }

    pub(crate) fn set_recorded(&self) {
        self.progress.send_modify(|progress| progress.recorded = true);
    }

    /// Waits until the run is in the log. An error is the reason why it will never be.
    pub(super) async fn wait_until_recorded(&self) -> Result<(), StartError> {
        let decided = |progress: &RunProgress| progress.recorded || progress.end.is_some();
        let mut progress = self.progress();
        // `self` holds the sender, so this never fails.
        match progress.wait_for(decided).await.as_deref() {
            Ok(RunProgress { recorded: false, end: Some(RunEnding::Refused(error)), .. }) => Err(error.clone()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn set_begun(&self, current: &CurrentAttempt) {
        self.progress.send_modify(|progress| progress.current = Some(current.clone()));
    }

    pub(crate) fn set_written(&self, bytes: u64) {
        self.progress.send_modify(|progress| progress.written = bytes);
    }

    /// Lines of the run in the log.
    pub(crate) fn extents(&self) -> Arc<RunExtents> {
        Arc::clone(&self.extents)
    }

    /// Sets the end of the run, unless it is set already.
    pub(crate) fn set_end(&self, end: RunEnding) {
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(end);
        });
    }

    /// Keeps readers from showing the end of the run until [`end_is_durable`](Self::end_is_durable) or
    /// [`end_failed`](Self::end_failed).
    pub(super) fn await_durability(&self) {
        self.progress.send_modify(|progress| progress.durability = EndDurability::Pending);
    }

    pub(super) fn end_is_durable(&self) {
        self.progress.send_modify(|progress| progress.durability = EndDurability::Reached);
    }

    /// Replaces the end of the run, because the disk refused its record.
    pub(super) fn end_failed(&self, last: Event) {
        self.progress.send_modify(|progress| {
            progress.durability = EndDurability::Failed;
            progress.end = Some(RunEnding::Event(Arc::new(last)));
        });
    }

    /// Replaces the end of the run with the reason why no attempt was started.
    pub(super) fn set_refused(&self, error: StartError) {
        self.progress.send_modify(|progress| progress.end = Some(RunEnding::Refused(error)));
    }

    pub(super) fn progress(&self) -> watch::Receiver<RunProgress> {
        self.progress.subscribe()
    }

    /// Policy for when no client waits for the run any more. `None` for a run that its client pulls.
    pub(super) fn on_disconnect(&self) -> Option<OnDisconnect> {
        *self.on_disconnect.lock().expect("no panic while holding the lock")
    }

    /// Makes the run, which its client pulled, one that is stopped when no client waits for it.
    pub(super) fn stop_without_clients(&self) {
        *self.on_disconnect.lock().expect("no panic while holding the lock") = Some(OnDisconnect::Cancel);
    }

    pub(super) fn client_came(&self) {
        self.clients_seen.fetch_add(1, Ordering::AcqRel);
        self.waiting_clients.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether it was the last client.
    pub(super) fn client_left(&self) -> bool {
        self.waiting_clients.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(super) fn has_no_clients(&self) -> bool {
        self.waiting_clients.load(Ordering::Acquire) == 0
    }

    /// Number of clients that have ever waited for the run.
    pub(super) fn clients_seen(&self) -> usize {
        self.clients_seen.load(Ordering::Acquire)
    }

    /// Waits until the run has ended. Cancel safe.
    pub(super) async fn ended(&self) {
        // `self` holds the sender, so this never fails.
        let _ = self.progress().wait_for(|progress| progress.end.is_some()).await;
    }
}

impl Deref for RunRegistration {
    type Target = Arc<ActiveRun>;

    fn deref(&self) -> &Arc<ActiveRun> {
        &self.live
    }
}

impl Drop for RunRegistration {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.live.id);
        self.registry.removed.send_replace(());
    }
}
