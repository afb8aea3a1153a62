//! Queries of the run index, and the end of a run whose gateway is gone.

use trunkline_core::event::Receipt;
use trunkline_core::failure::Failure;

use crate::error::StoreError;
use crate::run::RunState;
use crate::run_index::{RunRow, receipt_json};
use crate::session::ClientId;
use crate::store::Store;
use crate::time::Time;

/// Filter for [`Store::runs`]. A field that is `None` matches every run.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    pub owner: Option<ClientId>,
    pub state: Option<RunState>,
    pub model: Option<String>,
    pub session: Option<String>,
    /// Only runs whose name starts with this.
    pub begins: Option<String>,
    /// Only runs that are listed after this one: the cursor of the next page.
    pub after: Option<String>,
    pub limit: u32,
}

impl Store {
    /// Lists runs, the newest first: names of runs sort by time.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let query = select(
            "(?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR state = ?2)
             AND (?3 IS NULL OR model = ?3) AND (?4 IS NULL OR session = ?4) AND (?5 IS NULL OR run < ?5)
             AND (?6 IS NULL OR substr(run, 1, length(?6)) = ?6) ORDER BY run DESC LIMIT ?7",
        );
        let query = sqlx::query_as(query)
            .bind(filter.owner.as_ref().map(ClientId::as_str))
            .bind(filter.state.map(RunState::name))
            .bind(&filter.model)
            .bind(&filter.session)
            .bind(&filter.after)
            .bind(&filter.begins)
            .bind(filter.limit);
        Ok(query.fetch_all(self.reading()).await?)
    }

    /// Returns a run; with an owner, only if it belongs to that owner.
    pub async fn run(&self, id: &str, owner: Option<&ClientId>) -> Result<Option<RunRow>, StoreError> {
        let query = sqlx::query_as(select("run = ?1 AND (?2 IS NULL OR owner = ?2)"));
        Ok(query.bind(id).bind(owner.map(ClientId::as_str)).fetch_optional(self.reading()).await?)
    }

    /// Lists the runs that are queued or running according to their rows, the oldest first.
    pub async fn open_runs(&self) -> Result<Vec<RunRow>, StoreError> {
        let query = sqlx::query_as(select("state IN ('queued', 'running') ORDER BY run"));
        Ok(query.fetch_all(self.reading()).await?)
    }

    /// Ends a run whose gateway is gone. Returns whether the run was open: of several callers, one gets true.
    pub async fn interrupt_run(
        &self,
        id: &str,
        why: &Failure,
        workspace: Option<&Receipt>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "UPDATE turns SET state = 'interrupted', outcome = ?2, answer = ?3, ended = ?4, duration = ?4 - begun,
                 workspace = coalesce(?5, workspace) WHERE run = ?1 AND state IN ('queued', 'running')",
        );
        let query = query.bind(id).bind(why.category.name()).bind(&why.message).bind(Time::now().millis());
        let query = query.bind(workspace.map(receipt_json));
        Ok(query.execute(self.writing()).await?.rows_affected() > 0)
    }
}

/// Safe: both parts are constants, and the caller's values are bound.
fn select(condition: &'static str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(format!("SELECT {} FROM turns WHERE {condition}", RunRow::COLUMNS))
}
