//! Owner of the background tasks: ending programs whose caller dropped them, reaping keepers, ticking the clock.
//!
//! Every task is spawned here and awaited by [`Janitor::close`], so that a shutdown leaves none behind.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::runtime::{EnterGuard, Handle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::link::KeeperHandle;

/// Tracks the background tasks and every keeper that is not reaped yet.
#[derive(Debug)]
pub(crate) struct Janitor {
    tasks: TaskTracker,
    /// Kept because a program may be dropped outside of the runtime.
    runtime: Handle,
    /// Every keeper that is not reaped yet: idle, busy or lost.
    keepers: Mutex<HashMap<Pid, Arc<KeeperHandle>>>,
    closing: CancellationToken,
}

impl Janitor {
    pub(crate) fn new(runtime: Handle) -> Arc<Self> {
        let (tasks, keepers) = (TaskTracker::new(), Mutex::default());
        Arc::new(Self { tasks, runtime, keepers, closing: CancellationToken::new() })
    }

    pub(crate) fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn_on(task, &self.runtime)
    }

    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Registers a keeper, so that [`close`](Self::close) ends it unless something else does before.
    pub(crate) fn register(&self, keeper: &Arc<KeeperHandle>) {
        self.keepers().insert(keeper.pid, Arc::clone(keeper));
        if self.closing.is_cancelled() {
            keeper.hang_up();
        }
    }

    pub(crate) fn unregister(&self, pid: Pid) {
        self.keepers().remove(&pid);
    }

    /// Ends every keeper and waits for all background tasks. Programs that are already being stopped keep their grace
    /// period.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        let stopping = |keeper: &&Arc<KeeperHandle>| keeper.stopping.load(Ordering::Relaxed);
        self.keepers().values().filter(|keeper| !stopping(keeper)).for_each(|keeper| keeper.hang_up());
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn keepers(&self) -> MutexGuard<'_, HashMap<Pid, Arc<KeeperHandle>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
