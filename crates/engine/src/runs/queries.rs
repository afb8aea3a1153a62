//! Queries and cancellation of runs.

use trunkline_core::turn::ClientId;
use trunkline_store::{RunFilter, RunRow, RunState, Store, StoreError};

use super::attached::Run;
use super::follow::Follow;
use super::sweep::{self, current_run, current_runs};
use crate::engine::Engine;
use crate::session::store_client_id;

/// Reason why a query about runs cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum RunQueryError {
    #[error("there is no such run")]
    Unknown,
    #[error("runs are not recorded: the database could not be opened")]
    NoMemory,
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Outcome of a cancellation.
#[derive(Debug)]
pub enum CancelOutcome {
    /// The run was stopped, and has released everything it held.
    Stopped(Box<RunRow>),
    /// The run had already ended.
    WasOver(Box<RunRow>),
    /// Another process drives the run.
    Elsewhere(Box<RunRow>),
}

impl Engine {
    /// Lists the runs of a client, newest first.
    pub async fn runs(&self, owner: &ClientId, which: RunFilter) -> Result<Vec<RunRow>, RunQueryError> {
        if which.state == Some(RunState::Parked) {
            return self.parked_runs(owner, &which).await;
        }
        let store = self.settled_store().await?;
        let rows = current_runs(
            store,
            &self.shared.settings.state,
            RunFilter { owner: Some(store_client_id(owner)), ..which },
        )
        .await?;
        Ok(rows.into_iter().map(|row| self.with_parked(row)).collect())
    }

    /// Lists the runs of a client that wait for results of its tools.
    async fn parked_runs(&self, owner: &ClientId, which: &RunFilter) -> Result<Vec<RunRow>, RunQueryError> {
        let store = self.settled_store().await?;
        let any_state = RunFilter { state: None, ..which.clone() };
        let mut ids = self.shared.runs.parked.of(owner);
        ids.sort_unstable_by(|one, other| other.cmp(one));
        let mut rows = Vec::new();
        for id in ids {
            let row = store.run(&id, Some(&store_client_id(owner))).await?;
            rows.extend(row.filter(|row| any_state.matches(row)).map(|row| self.with_parked(row)));
        }
        Ok(rows)
    }

    /// A run that waits for results of the client's tools is not over for its client.
    fn with_parked(&self, row: RunRow) -> RunRow {
        if self.shared.runs.parked.contains(&row.id) { RunRow { state: RunState::Parked, ..row } } else { row }
    }

    pub async fn run(&self, owner: &ClientId, id: &str) -> Result<RunRow, RunQueryError> {
        let row =
            self.settled_store().await?.run(id, Some(&store_client_id(owner))).await?.ok_or(RunQueryError::Unknown)?;
        Ok(self.with_parked(current_run(&self.shared.settings.state, row)))
    }

    /// Follows the events of a run, starting with sequence number `from`.
    pub async fn events(&self, owner: &ClientId, id: &str, from: u64) -> Result<Follow, RunQueryError> {
        if let Some(live) = self.shared.runs.registry.find(id).filter(|live| live.owner == *owner) {
            return Ok(Follow::live(&live, from));
        }
        let row = self.run(owner, id).await?;
        let store = self.shared.store_writer.store().ok_or(RunQueryError::NoMemory)?;
        Ok(Follow::kept(&self.shared.settings.state, store.clone(), &row, from))
    }

    /// Reads the events of a run from the first one on, as if its client had joined it. Dropping the reader does not stop the
    /// run.
    pub async fn read_run(&self, owner: &ClientId, id: &str) -> Result<Run, RunQueryError> {
        Ok(Run::kept(id, String::new(), self.events(owner, id, 0).await?))
    }

    /// Returns the request of a run in the words of its API dialect, as JSON. `None` if none was recorded.
    pub async fn request(&self, owner: &ClientId, id: &str) -> Result<Option<String>, RunQueryError> {
        let row = self.run(owner, id).await?;
        let store = self.shared.store_writer.store().ok_or(RunQueryError::NoMemory)?;
        Ok(store.request(&row)?)
    }

    /// Stops a run and waits until it has released everything it held.
    pub async fn cancel(&self, owner: &ClientId, id: &str) -> Result<CancelOutcome, RunQueryError> {
        let live = self.shared.runs.registry.find(id).filter(|live| live.owner == *owner);
        if let Some(live) = &live {
            live.stop_and_wait().await;
        }
        if self.shared.runs.parked.end(owner, id) {
            return Ok(CancelOutcome::Stopped(Box::new(self.run(owner, id).await?)));
        }
        let row = Box::new(self.run(owner, id).await?);
        Ok(match live {
            Some(_) => CancelOutcome::Stopped(row),
            None if row.state.is_over() => CancelOutcome::WasOver(row),
            None => CancelOutcome::Elsewhere(row),
        })
    }

    /// Returns the store after the sweep of gateways that died.
    pub(super) async fn settled_store(&self) -> Result<&Store, RunQueryError> {
        sweep::sweep_if_gateway_died(&self.shared).await;
        self.shared.store_writer.store().ok_or(RunQueryError::NoMemory)
    }
}
