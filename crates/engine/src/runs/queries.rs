//! Who asks about runs, and wants one stopped.

use trunkline_core::turn::Owner;
use trunkline_store::{RunRow, Runs, Store, StoreError};

use super::follow::Follow;
use super::sweep::{self, run_seen, runs_seen};
use crate::engine::Engine;
use crate::session::whose;

/// Why there is nothing to say about a run.
#[derive(Debug, thiserror::Error)]
pub enum NoRun {
    #[error("there is no such run")]
    Unknown,
    #[error("runs are not remembered here: the database could not be opened")]
    NoMemory,
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// What became of the wish to stop a run.
#[derive(Debug)]
pub enum Cancelled {
    /// Nothing of it is left.
    Stopped(Box<RunRow>),
    /// There was nothing to stop.
    WasOver(Box<RunRow>),
    /// Another process runs it.
    Elsewhere(Box<RunRow>),
}

impl Engine {
    /// The runs of an owner, the newest first.
    pub async fn runs(&self, owner: &Owner, which: Runs) -> Result<Vec<RunRow>, NoRun> {
        let store = self.memory().await?;
        Ok(runs_seen(store, &self.shared.settings.state, Runs { owner: Some(whose(owner)), ..which }).await?)
    }

    pub async fn run(&self, owner: &Owner, id: &str) -> Result<RunRow, NoRun> {
        let row = self.memory().await?.run(id, Some(&whose(owner))).await?.ok_or(NoRun::Unknown)?;
        Ok(run_seen(&self.shared.settings.state, row))
    }

    /// The events of a run from this number on, and those that are still to come.
    pub async fn events(&self, owner: &Owner, id: &str, from: u64) -> Result<Follow, NoRun> {
        let state = &self.shared.settings.state;
        if let Some(live) = self.shared.runs.registry.find(id).filter(|live| live.owner == *owner) {
            return Ok(Follow::live(state, &live, from));
        }
        let row = self.run(owner, id).await?;
        Ok(Follow::kept(state, self.memory().await?.clone(), &row.id, from))
    }

    /// Stops a run, and returns when nothing of it is left.
    pub async fn cancel(&self, owner: &Owner, id: &str) -> Result<Cancelled, NoRun> {
        let live = self.shared.runs.registry.find(id).filter(|live| live.owner == *owner);
        if let Some(live) = &live {
            live.end().await;
        }
        let row = Box::new(self.run(owner, id).await?);
        Ok(match live {
            Some(_) => Cancelled::Stopped(row),
            None if row.state.is_over() => Cancelled::WasOver(row),
            None => Cancelled::Elsewhere(row),
        })
    }

    /// The store, with everything that was sent to it so far, also by gateways that died.
    pub(super) async fn memory(&self) -> Result<&Store, NoRun> {
        sweep::after_deaths(&self.shared).await;
        self.shared.runs.registry.concluded().await;
        self.shared.store_writer.flush().await;
        self.shared.store_writer.store().ok_or(NoRun::NoMemory)
    }
}
