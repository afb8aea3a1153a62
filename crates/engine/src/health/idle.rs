//! Frees caches and unused heap while the engine is idle.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::engine::Engine;

/// Memory is freed when no run has ended for this long, because the next run could reuse much of it,
const QUIET_TIME: Duration = Duration::from_secs(5);

/// or when runs have kept ending for this long.
const MAX_BUSY_TIME: Duration = Duration::from_secs(60);

/// Delay of a second pass, for keepers and threads that end only after some idle time.
const SECOND_PASS_DELAY: Duration = Duration::from_secs(20);

/// Time for worker threads to wake up, flush their caches and sleep again.
const WORKER_WAKE_TIME: Duration = Duration::from_millis(20);

impl Engine {
    /// Frees memory after runs have ended. Never returns.
    pub async fn give_back_memory(&self) {
        let mut ends = self.shared.runs.registry.goings();
        // Whether a second pass is due, for keepers and threads that end only later.
        let mut again = false;
        loop {
            let wait = if again { SECOND_PASS_DELAY } else { Duration::MAX };
            match timeout(wait, ends.changed()).await {
                Ok(Ok(())) => {
                    let since = Instant::now();
                    // One pass for many ends: waking up for each would cost more than it frees.
                    loop {
                        ends.mark_unchanged();
                        sleep(QUIET_TIME).await;
                        if !ends.has_changed().unwrap_or(false) || since.elapsed() >= MAX_BUSY_TIME {
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
                // A busy store keeps its memory for now.
                let _ = store.shrink().await;
            }
            flush_worker_caches(&self.shared.tasks.tracker).await;
            let _ = tokio::task::spawn_blocking(trunkline_memory::give_back).await;
        }
    }
}

/// Makes every worker thread flush its own heap cache.
async fn flush_worker_caches(tracker: &TaskTracker) {
    trunkline_memory::call_in();
    // Waking a thread is enough: it flushes before it sleeps again.
    let workers = Handle::current().metrics().num_workers();
    for _ in 0..2 * workers {
        tracker.spawn(async {});
    }
    sleep(WORKER_WAKE_TIME).await;
}
