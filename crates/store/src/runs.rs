//! Queries of the run index, and the end of a run whose gateway is gone.

use trunkline_core::event::Receipt;

use crate::error::StoreError;
use crate::index::upsert;
use crate::log::{LogRecord, RunEnded};
use crate::run::RunState;
use crate::run_index::RunRow;
use crate::session_state::ClientId;
use crate::store::Store;

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

impl RunFilter {
    /// Whether the filter matches a row.
    #[must_use]
    pub fn matches(&self, row: &RunRow) -> bool {
        let Self { owner, state, model, session, begins, after, limit: _ } = self;
        owner.as_ref().is_none_or(|owner| row.owner == *owner)
            && state.is_none_or(|state| row.state == state)
            && model.as_ref().is_none_or(|model| row.model == *model)
            && session.as_ref().is_none_or(|session| row.session.as_ref().is_some_and(|row| row.0 == *session))
            && begins.as_ref().is_none_or(|begins| row.id.starts_with(begins.as_str()))
            && after.as_ref().is_none_or(|after| row.id < *after)
    }
}

impl Store {
    /// Lists runs, the newest first: names of runs sort by time.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        // Before the database is read: rows that leave the feed after that are in the database.
        let (pending, late) = (self.feed().runs(), self.feed().late_workspaces());
        // A pending row may replace one that the filter would not match.
        let limit = filter.limit.saturating_add(u32::try_from(pending.len()).unwrap_or(u32::MAX));
        let mut rows = self.indexed_runs(&RunFilter { limit, ..filter.clone() }).await?;
        rows.retain(|row| pending.iter().all(|pending| pending.id != row.id));
        for row in &mut rows {
            set_late_workspace(row, &late);
        }
        rows.extend(pending.into_iter().filter(|row| filter.matches(row)));
        rows.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        rows.truncate(filter.limit as usize);
        Ok(rows)
    }

    async fn indexed_runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let query = select(
            "(?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR state = ?2)
             AND (?3 IS NULL OR model = ?3) AND (?4 IS NULL OR turns.session = ?4) AND (?5 IS NULL OR run < ?5)
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
        Ok(query.fetch_all(&self.indexed().await).await?)
    }

    /// Returns a run; with an owner, only if it belongs to that owner.
    pub async fn run(&self, id: &str, owner: Option<&ClientId>) -> Result<Option<RunRow>, StoreError> {
        if let Some(row) = self.feed().run(id) {
            return Ok(Some(row).filter(|row| owner.is_none_or(|owner| row.owner == *owner)));
        }
        let query = sqlx::query_as(select("run = ?1 AND (?2 IS NULL OR owner = ?2)"));
        let query = query.bind(id).bind(owner.map(ClientId::as_str));
        let late = self.feed().late_workspaces();
        let mut row: Option<RunRow> = query.fetch_optional(&self.indexed().await).await?;
        row.iter_mut().for_each(|row| set_late_workspace(row, &late));
        Ok(row)
    }

    /// Lists the runs that are queued or running according to their rows, the oldest first.
    pub async fn open_runs(&self) -> Result<Vec<RunRow>, StoreError> {
        let query = sqlx::query_as(select("state IN ('queued', 'running') ORDER BY run"));
        Ok(query.fetch_all(&self.indexed().await).await?)
    }

    /// Ends a run whose gateway is gone, in the database. Returns whether the run was open: of several callers, one gets
    /// true.
    pub async fn interrupt_run(
        &self,
        id: &str,
        ended: &RunEnded,
        workspace: Option<&Receipt>,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.transaction().await?;
        let query = sqlx::query_as(select("run = ?1 AND ended IS NULL")).bind(id);
        let found: Option<RunRow> = query.fetch_optional(&mut *transaction).await?;
        let Some(mut row) = found else { return Ok(false) };
        row.apply(&LogRecord::Ended(Box::new(ended.clone())));
        row.workspace = workspace.cloned().or(row.workspace);
        upsert::runs(&mut transaction, &[&row]).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// Adds work that was saved after the run had ended, and that the database does not have yet.
fn set_late_workspace(row: &mut RunRow, late: &[(String, Receipt)]) {
    if let Some((_, receipt)) = late.iter().rfind(|(run, _)| *run == row.id) {
        row.workspace = Some(receipt.clone());
    }
}

/// Safe: both parts are constants, and the caller's values are bound.
fn select(condition: &'static str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(format!("SELECT {} FROM turns WHERE {condition}", RunRow::COLUMNS))
}
