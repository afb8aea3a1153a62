//! What is let go of when nothing runs: what only makes the next turn faster, and memory that is free.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::engine::Engine;

/// Memory is given back when no run has ended for so long: much of it is of use for the next one,
const REST: Duration = Duration::from_secs(5);

/// or has been of use for this long.
const BUSY: Duration = Duration::from_secs(60);

/// After that, what is let go of only when it was not needed for a while.
const LATER: Duration = Duration::from_secs(20);

/// How long threads may take to wake and to sleep again.
const WAKING: Duration = Duration::from_millis(20);

impl Engine {
    /// Gives back what runs took when they are over. Never returns.
    pub async fn give_back_memory(&self) {
        let mut goings = self.shared.runs.registry.removals();
        // Some of it goes only later: keepers and threads that nobody needs any more.
        let mut again = false;
        loop {
            let wait = if again { LATER } else { Duration::MAX };
            match timeout(wait, goings.changed()).await {
                Ok(Ok(())) => {
                    let since = Instant::now();
                    // Not told of each: where there are many, that is work of its own.
                    loop {
                        goings.mark_unchanged();
                        sleep(REST).await;
                        if !goings.has_changed().unwrap_or(false) || since.elapsed() >= BUSY {
                            break;
                        }
                    }
                    again = true;
                }
                Ok(Err(_)) => return,
                Err(_elapsed) => again = false,
            }
            self.shared.sessions.lighten();
            if let Some(store) = self.shared.store_writer.store() {
                // One that is busy keeps its memory for now.
                let _busy = store.shrink().await;
            }
            call_workers_in(&self.shared.tasks.tracker).await;
            let _it_does_not_panic = tokio::task::spawn_blocking(trunkline_memory::give_back).await;
        }
    }
}

/// Every thread that runs tasks brings the memory it has kept for itself.
async fn call_workers_in(tracker: &TaskTracker) {
    trunkline_memory::call_in();
    // To be woken is enough: on their way back to sleep they hear of it.
    let workers = Handle::current().metrics().num_workers();
    for _ in 0..2 * workers {
        tracker.spawn(async {});
    }
    sleep(WAKING).await;
}
