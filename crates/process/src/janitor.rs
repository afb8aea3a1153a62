//! The owner of everything that goes on behind a caller's back: runs being ended, keepers being buried.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::runtime::{EnterGuard, Handle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::link::Wire;

#[derive(Debug)]
pub(crate) struct Janitor {
    tasks: TaskTracker,
    /// A run may be dropped outside of the runtime.
    runtime: Handle,
    /// Every keeper that is not buried yet, idle, busy or lost.
    keepers: Mutex<HashMap<Pid, Arc<Wire>>>,
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

    /// From here on the keeper is ended by [`close`](Self::close), if nothing else ends it before.
    pub(crate) fn know(&self, wire: &Arc<Wire>) {
        self.keepers().insert(wire.pid, Arc::clone(wire));
        if self.closing.is_cancelled() {
            wire.hang_up();
        }
    }

    pub(crate) fn forget(&self, pid: Pid) {
        self.keepers().remove(&pid);
    }

    /// Ends every keeper, except that runs already being stopped keep the grace they were given; waits for all.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.keepers().values().filter(|wire| !wire.leaving.load(Ordering::Relaxed)).for_each(|wire| wire.hang_up());
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn keepers(&self) -> MutexGuard<'_, HashMap<Pid, Arc<Wire>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
