//! Cleanup after gateways on this state folder that died: saves their work, ends their runs and removes their files.
//!
//! Each process on the folder sweeps when it starts. A gateway and a bridge also sweep every second, and before each
//! query about runs. If several processes sweep, the first one does the work and the others find nothing to do. Dead
//! gateways are recognised by the locks in [`crate::runs::alive`], which costs one read of a small folder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use trunkline_store::{RunFailure, RunFilter, RunRow, RunState, Store, StoreError};

use super::alive;
use super::follow::interrupted;
use super::gateway_process::GatewayProcess;
use super::interrupted::{end_interrupted, sweep_worktrees};
use crate::attempt::environment::OWNER;
use crate::attempt::scratch::Scratch;
use crate::engine::Engine;
use crate::shared::Shared;

/// Interval between checks for dead gateways.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time that a query about runs waits for a sweep.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a sweep that could not finish.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

impl Engine {
    /// Cleans up after gateways that died.
    pub async fn sweep(&self) {
        let mut unfinished = self.shared.runs.sweep.0.lock().await;
        *unfinished = sweep(&self.shared).await;
    }

    /// Sweeps now, and again whenever another gateway dies. Never returns.
    pub async fn keep_sweeping(&self) {
        self.sweep().await;
        loop {
            sleep(CHECK_INTERVAL).await;
            sweep_if_gateway_died(&self.shared).await;
        }
    }
}

/// Sweeps if a gateway has died. Returns after [`SWEEP_TIMEOUT`] at the latest; the sweep continues in the background.
pub(crate) async fn sweep_if_gateway_died(shared: &Arc<Shared>) {
    if alive::dead(&shared.settings.state).is_empty() {
        return;
    }
    let owned = Arc::clone(shared);
    let sweeping = shared.tasks.tracker.spawn(async move {
        let mut unfinished = owned.runs.sweep.0.lock().await;
        let paused = unfinished.is_some_and(|since| since.elapsed() < RETRY_INTERVAL);
        // Another task or process may have swept while this one waited for the lock.
        if !paused && !alive::dead(&owned.settings.state).is_empty() {
            *unfinished = sweep(&owned).await;
        }
    });
    // The sweep continues after the timeout.
    let _ = timeout(SWEEP_TIMEOUT, sweeping).await;
}

/// Returns the present time if the sweep could not finish.
async fn sweep(shared: &Shared) -> Option<Instant> {
    let state = &shared.settings.state;
    // Only these locks are removed afterwards: another gateway may die during the sweep.
    let dead = alive::dead(state);
    let strays = trunkline_process::kill_marked_processes(OWNER, GatewayProcess::is_dead);
    if strays > 0 {
        tracing::warn!(strays, "stopped processes that a dead gateway had left running");
    }
    Scratch::sweep(state);
    shared.sessions.places.sweep();
    // A run whose end is in the log must not be marked as interrupted.
    if shared.store_writer.catch_up().await.is_err() {
        return Some(Instant::now());
    }
    let receipts = sweep_worktrees(shared).await;
    if !end_interrupted(shared, &receipts).await {
        return Some(Instant::now());
    }
    alive::remove_locks(&dead);
    None
}

/// Lists runs, newest first. An open run whose gateway has died is reported as interrupted.
pub async fn current_runs(store: &Store, state: &Path, which: RunFilter) -> Result<Vec<RunRow>, StoreError> {
    if alive::dead(state).is_empty() {
        return store.runs(&which).await;
    }
    let open = store.open_runs().await?.into_iter().map(|row| current_run(state, row));
    let ended: Vec<RunRow> = open.filter(|row| row.state.is_over()).collect();
    let extra = u32::try_from(ended.len()).unwrap_or(u32::MAX);
    let mut rows = store.runs(&RunFilter { limit: which.limit.saturating_add(extra), ..which.clone() }).await?;
    rows.retain(|row| ended.iter().all(|ended| ended.id != row.id));
    rows.extend(ended.into_iter().filter(|row| which.matches(row)));
    rows.sort_by(|one, other| other.id.cmp(&one.id));
    rows.truncate(which.limit as usize);
    Ok(rows)
}

/// Returns `row` with its present state: interrupted if its gateway has died.
#[must_use]
pub fn current_run(state: &Path, mut row: RunRow) -> RunRow {
    let dead = |mark: &str| alive::is_dead(state, mark);
    if !row.state.is_over() && row.gateway.as_deref().is_some_and(dead) {
        let failure = interrupted();
        row.state = RunState::Interrupted;
        row.error = Some(RunFailure { category: failure.category, message: failure.message });
    }
    row
}
