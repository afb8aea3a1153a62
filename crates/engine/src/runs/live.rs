//! The runs of this process that are not over: how far their logs are, who waits for them, and how to stop one.

use std::collections::HashMap;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use trunkline_core::event::Event;
use trunkline_core::turn::{OnDisconnect, Owner};

use super::entry::By;
use crate::start_error::StartError;
use crate::worktree::Worktree;

/// How long a client may take to learn that its run was stopped.
const PULLED: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct RunRegistry {
    runs: Mutex<HashMap<String, Arc<ActiveRun>>>,
    /// Changes whenever one goes.
    gone: watch::Sender<()>,
}

/// A run that is not over.
pub(crate) struct ActiveRun {
    pub(crate) id: String,
    pub(crate) owner: Owner,
    /// What happens when nobody is interested in it any more. None of a run that its client pulls: it ends with him.
    on_disconnect: Option<OnDisconnect>,
    interested: AtomicUsize,
    progress: watch::Sender<Progress>,
    /// Its last event is out; what is left is to write that down.
    over: AtomicBool,
    stop: CancellationToken,
    /// What is not over before it is: its processes, its worktree, its record.
    holds: TaskTracker,
    tree: Mutex<Option<Worktree>>,
    /// What its client pulls.
    pull: Mutex<Option<Weak<dyn Drain>>>,
}

/// A run that its client pulls. Takes the run away from the client and pulls it to its end.
pub(super) trait Drain: Send + Sync {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// How far a run is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// How many bytes of its log can be read.
    pub(super) written: u64,
    /// It has a row.
    pub(super) recorded: bool,
    /// It has begun: whether it can was the first thing to wait for.
    pub(super) by: Option<By>,
    pub(super) end: Option<End>,
}

#[derive(Debug, Clone)]
pub(crate) enum End {
    /// Its last event, which the log may lack if the disk is full.
    Event(Arc<Event>),
    /// It never began.
    Refused(StartError),
}

/// A run's place in the registry: it is there until the last of these is dropped.
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
        owner: &Owner,
        on_disconnect: Option<OnDisconnect>,
    ) -> Arc<RunRegistration> {
        let live = Arc::new(ActiveRun {
            id: id.to_owned(),
            owner: owner.clone(),
            on_disconnect,
            interested: AtomicUsize::new(0),
            progress: watch::Sender::default(),
            over: AtomicBool::new(false),
            stop: CancellationToken::new(),
            holds: TaskTracker::new(),
            tree: Mutex::default(),
            pull: Mutex::default(),
        });
        self.lock().insert(id.to_owned(), Arc::clone(&live));
        Arc::new(RunRegistration { _hold: live.hold(), live, registry: Arc::clone(self) })
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<ActiveRun>> {
        self.lock().get(id).cloned()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Stops those that nobody pulls: the others end with whoever does.
    pub(crate) fn stop_driven(&self) {
        self.lock().values().filter(|live| live.on_disconnect.is_some()).for_each(|live| live.stop());
    }

    /// Returns when those that have ended by now are written down as such.
    pub(crate) async fn concluded(&self) {
        let mut gone = self.gone.subscribe();
        let ending: Vec<Arc<ActiveRun>> =
            self.lock().values().filter(|live| live.over.load(Ordering::Acquire)).map(Arc::clone).collect();
        while ending.iter().any(|live| self.lock().contains_key(&live.id)) {
            if gone.changed().await.is_err() {
                return;
            }
        }
    }

    /// Changes whenever one goes.
    pub(crate) fn goings(&self) -> watch::Receiver<()> {
        self.gone.subscribe()
    }

    /// Returns when there are none that nobody pulls.
    pub(crate) async fn settled(&self) {
        let mut gone = self.gone.subscribe();
        while self.lock().values().any(|live| live.on_disconnect.is_some()) {
            if gone.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ActiveRun>>> {
        self.runs.lock().expect("no panic while holding the lock")
    }
}

impl ActiveRun {
    /// Asks it to end.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns when it is asked to end. Cancel safe.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Whether it goes on when nobody waits for it.
    pub(crate) fn is_detached(&self) -> bool {
        self.on_disconnect == Some(OnDisconnect::Detach)
    }

    /// Keeps it from being gone.
    pub(crate) fn hold(&self) -> TaskTrackerToken {
        self.holds.token()
    }

    /// Returns when nothing of it is left. Cancel safe.
    pub(crate) async fn gone(&self) {
        self.holds.close();
        self.holds.wait().await;
    }

    pub(super) fn pulled_by(&self, pull: Weak<dyn Drain>) {
        *self.pull.lock().expect("no panic while holding the lock") = Some(pull);
    }

    /// Stops it, and returns when nothing of it is left. A client that does not read does not pull either: the run is
    /// taken from him.
    pub(super) async fn end(&self) {
        self.stop();
        if timeout(PULLED, self.gone()).await.is_ok() {
            return;
        }
        let pull = self.pull.lock().expect("no panic while holding the lock").as_ref().and_then(Weak::upgrade);
        let taken = async {
            if let Some(pull) = pull {
                pull.drain().await;
            }
        };
        tokio::select! {
            () = self.gone() => {}
            () = async { taken.await; self.gone().await } => {}
        }
    }

    pub(crate) fn works_in(&self, tree: Option<Worktree>) {
        *self.tree.lock().expect("no panic while holding the lock") = tree;
    }

    pub(crate) fn tree(&self) -> Option<Worktree> {
        self.tree.lock().expect("no panic while holding the lock").clone()
    }

    pub(crate) fn recorded(&self) {
        self.progress.send_modify(|progress| progress.recorded = true);
    }

    /// Returns when it has a row; an error says why it never will.
    pub(super) async fn known(&self) -> Result<(), StartError> {
        let known = |progress: &Progress| progress.recorded || progress.end.is_some();
        let mut progress = self.progress();
        // The sender is ours, so there is always an answer.
        match progress.wait_for(known).await.as_deref() {
            Ok(Progress { recorded: false, end: Some(End::Refused(error)), .. }) => Err(error.clone()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn begun(&self, by: &By) {
        self.progress.send_modify(|progress| progress.by = Some(by.clone()));
    }

    pub(crate) fn has_written(&self, bytes: u64) {
        self.progress.send_modify(|progress| progress.written = bytes);
    }

    pub(crate) fn concludes(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn ended(&self, end: End) {
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(end);
        });
    }

    /// It never began: that says more than how its record ends.
    pub(super) fn refused(&self, error: StartError) {
        self.progress.send_modify(|progress| progress.end = Some(End::Refused(error)));
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Whoever wants its answer says so.
    pub(super) fn interest(self: &Arc<Self>) -> Interest {
        self.interested.fetch_add(1, Ordering::AcqRel);
        Interest(Arc::clone(self))
    }
}

/// Somebody waits for a run's answer.
pub(super) struct Interest(Arc<ActiveRun>);

impl Drop for Interest {
    fn drop(&mut self) {
        let last = self.0.interested.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && self.0.on_disconnect == Some(OnDisconnect::Cancel) {
            self.0.stop();
        }
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
        self.registry.gone.send_replace(());
    }
}
