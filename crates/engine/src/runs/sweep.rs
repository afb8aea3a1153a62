//! Gateways of this state folder that died: their work is saved, their runs are over, and what they left is removed.
//!
//! Each process on the folder does this at its start; a gateway and a bridge do so for as long as they live, every second and
//! before anything is said about runs. Of several processes one is first; the others find nothing left to do. Gateways are known by the
//! locks in [`crate::runs::alive`], which cost one read of a small folder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use trunkline_store::{RunFailure, RunRow, RunState, Runs, Store, StoreError};

use super::alive;
use super::follow::interrupted;
use super::gateway_process::GatewayProcess;
use super::interrupted::{end_interrupted, sweep_worktrees};
use crate::attempt::environment::OWNER;
use crate::attempt::scratch::Scratch;
use crate::engine::Engine;
use crate::shared::Shared;

/// Between two looks for gateways that died.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that a question about runs waits for the work of a dead gateway to be saved.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// After a sweep that could not finish, none is begun for so long.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

impl Engine {
    /// Takes care of what gateways that died left behind.
    pub async fn sweep(&self) {
        let mut unfinished = self.shared.runs.sweep.0.lock().await;
        *unfinished = sweep(&self.shared).await;
    }

    /// As [`sweep`](Self::sweep), now and whenever another gateway dies. Never returns.
    pub async fn keep_sweeping(&self) {
        self.sweep().await;
        loop {
            sleep(LOOK_INTERVAL).await;
            after_deaths(&self.shared).await;
        }
    }
}

/// Sweeps if a gateway has died. Returns when that is done or takes long; it goes on then.
pub(crate) async fn after_deaths(shared: &Arc<Shared>) {
    if alive::dead(&shared.settings.state).is_empty() {
        return;
    }
    let held = Arc::clone(shared);
    let swept = shared.tasks.tracker.spawn(async move {
        let mut unfinished = held.runs.sweep.0.lock().await;
        let waits = unfinished.is_some_and(|since| since.elapsed() < RETRY_INTERVAL);
        // Another may have done it meanwhile.
        if !waits && !alive::dead(&held.settings.state).is_empty() {
            *unfinished = sweep(&held).await;
        }
    });
    let _late_or_done = timeout(SWEEP_TIMEOUT, swept).await;
}

/// The time, if something could not be done.
async fn sweep(shared: &Shared) -> Option<Instant> {
    let state = &shared.settings.state;
    // Only these are forgotten afterwards: another may die meanwhile.
    let dead = alive::dead(state);
    let strays = trunkline_process::end_marked(OWNER, GatewayProcess::is_dead);
    if strays > 0 {
        tracing::warn!(strays, "ended processes of a gateway that died");
    }
    Scratch::sweep(state);
    shared.sessions.places.sweep();
    if let Some(store) = shared.store_writer.store() {
        store.recover().await;
    }
    let left = sweep_worktrees(shared).await;
    if !end_interrupted(shared, &left).await {
        return Some(Instant::now());
    }
    alive::forget(&dead);
    None
}

/// Runs as they are by now, the newest first: one whose gateway is no more is interrupted, whatever its row still says.
pub async fn runs_seen(store: &Store, state: &Path, which: Runs) -> Result<Vec<RunRow>, StoreError> {
    if alive::dead(state).is_empty() {
        return store.runs(&which).await;
    }
    let open = store.open_runs().await?.into_iter().map(|row| run_seen(state, row));
    let ended: Vec<RunRow> = open.filter(|row| row.state.is_over()).collect();
    let more = u32::try_from(ended.len()).unwrap_or(u32::MAX);
    let mut rows = store.runs(&Runs { limit: which.limit.saturating_add(more), ..which.clone() }).await?;
    rows.retain(|row| ended.iter().all(|ended| ended.id != row.id));
    rows.extend(ended.into_iter().filter(|row| is_wanted(row, &which)));
    rows.sort_by(|one, other| other.id.cmp(&one.id));
    rows.truncate(which.limit as usize);
    Ok(rows)
}

/// The same of one run.
#[must_use]
pub fn run_seen(state: &Path, mut row: RunRow) -> RunRow {
    let dead = |mark: &str| alive::is_dead(state, mark);
    if !row.state.is_over() && row.gateway.as_deref().is_some_and(dead) {
        let why = interrupted();
        row.state = RunState::Interrupted;
        row.error = Some(RunFailure { category: why.category, message: why.message });
    }
    row
}

/// The store's own choice, for a row that it knows in another state.
fn is_wanted(row: &RunRow, which: &Runs) -> bool {
    let Runs { owner, state, model, session, begins, after, limit: _ } = which;
    owner.as_ref().is_none_or(|owner| row.owner == *owner)
        && state.is_none_or(|state| row.state == state)
        && model.as_ref().is_none_or(|model| row.model == *model)
        && session.as_ref().is_none_or(|session| row.session.as_ref().is_some_and(|row| row.0 == *session))
        && begins.as_ref().is_none_or(|begins| row.id.starts_with(begins.as_str()))
        && after.as_ref().is_none_or(|after| row.id < *after)
}
