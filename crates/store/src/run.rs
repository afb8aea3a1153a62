//! Runs: a turn of the archive, seen as a thing that has a state.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use trunkline_core::event::{Receipt, Usage};
use trunkline_core::failure::{Category, Failure};

use crate::archive::{Outcome, Surface};
use crate::error::StoreError;
use crate::session::{Owner, SessionKey};
use crate::store::Store;
use crate::time::Time;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It waits for a slot, or for its session.
    Queued,
    Running,
    Finished,
    Failed,
    /// Its client went away, or somebody stopped it.
    Cancelled,
    /// Its gateway ended before it did.
    Interrupted,
}

impl RunState {
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Finished, Self::Failed, Self::Cancelled, Self::Interrupted];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing more comes of it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Finished | Self::Failed | Self::Cancelled | Self::Interrupted => true,
        }
    }

    pub(crate) const fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok => Self::Finished,
            Outcome::Failed(Category::Cancelled) => Self::Cancelled,
            Outcome::Failed(_) => Self::Failed,
        }
    }
}

/// Whether a run's log has every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    Complete,
    Incomplete,
}

impl LogState {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
        }
    }
}

/// A run without its texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    pub id: String,
    pub state: RunState,
    pub model: String,
    pub provider: Option<String>,
    pub session: Option<SessionKey>,
    /// None if it is one that only a later version knows.
    pub surface: Option<Surface>,
    /// The folder it works in, or works on.
    pub place: String,
    /// The beginning of what was asked.
    pub prompt: String,
    pub begun: Time,
    pub started: Option<Time>,
    pub ended: Option<Time>,
    pub duration_ms: Option<u64>,
    pub attempts: u64,
    /// Why it has no answer.
    pub error: Option<RunFailure>,
    pub usage: Usage,
    pub workspace: Option<Receipt>,
    pub detached: bool,
    pub log: Option<LogState>,
    #[serde(skip, default = "Owner::local")]
    pub owner: Owner,
    /// The mark of the process that runs it, or did.
    #[serde(skip)]
    pub gateway: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    pub category: Category,
    pub message: String,
}

/// Which runs; what is not named does not matter.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    pub owner: Option<Owner>,
    pub state: Option<RunState>,
    pub model: Option<String>,
    pub session: Option<String>,
    /// Only those whose name begins like this.
    pub begins: Option<String>,
    /// Only those further down than this one.
    pub after: Option<String>,
    pub limit: u32,
}

/// A failure is told, an answer is not; of a prompt only the beginning.
const COLUMNS: &str = "run, state, model, provider, session, surface, place, substr(prompt, 1, 200) AS prompt, begun,
    started, ended, duration, attempts, outcome, iif(outcome = 'ok', NULL, substr(answer, 1, 4000)) AS failure,
    input_tokens, output_tokens, cached_tokens, estimated, workspace, detached, log, owner, gateway";

impl Store {
    /// The newest first: names of runs are in the order of time.
    pub async fn runs(&self, which: &Runs) -> Result<Vec<RunRow>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM turns WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR state = ?2)
             AND (?3 IS NULL OR model = ?3) AND (?4 IS NULL OR session = ?4) AND (?5 IS NULL OR run < ?5)
             AND (?6 IS NULL OR substr(run, 1, length(?6)) = ?6) ORDER BY run DESC LIMIT ?7"
        );
        // The columns are ours; what a caller names is bound.
        let query = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(which.owner.as_ref().map(Owner::as_str))
            .bind(which.state.map(RunState::name))
            .bind(&which.model)
            .bind(&which.session)
            .bind(&which.after)
            .bind(&which.begins)
            .bind(which.limit);
        Ok(query.fetch_all(self.reading()).await?)
    }

    /// A run, if there is one and it is this owner's, should that matter.
    pub async fn run(&self, id: &str, owner: Option<&Owner>) -> Result<Option<RunRow>, StoreError> {
        let query = format!("SELECT {COLUMNS} FROM turns WHERE run = ?1 AND (?2 IS NULL OR owner = ?2)");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(query)).bind(id).bind(owner.map(Owner::as_str));
        Ok(query.fetch_optional(self.reading()).await?)
    }

    /// The runs that are not over, as far as is known here.
    pub async fn open_runs(&self) -> Result<Vec<RunRow>, StoreError> {
        let query = format!("SELECT {COLUMNS} FROM turns WHERE state IN ('queued', 'running') ORDER BY run");
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(query)).fetch_all(self.reading()).await?)
    }

    /// The end of a run whose gateway is no more; says whether it had none. Of several who say so, one is first.
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

pub(crate) fn receipt_json(receipt: &Receipt) -> String {
    serde_json::to_string(receipt).expect("a receipt is plain data")
}

impl<'r> FromRow<'r, SqliteRow> for RunRow {
    fn from_row(row: &'r SqliteRow) -> sqlx::Result<Self> {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let time = |name: &str| row.try_get::<Option<i64>, _>(name).map(|millis| millis.map(Time::from_millis));
        let outcome = row.try_get::<Option<&str>, _>("outcome")?.map(Outcome::from_name);
        let error = match outcome {
            Some(Outcome::Failed(category)) => {
                let message = row.try_get::<Option<String>, _>("failure")?.unwrap_or_default();
                Some(RunFailure { category, message })
            }
            Some(Outcome::Ok) | None => None,
        };
        Ok(Self {
            id: row.try_get("run")?,
            // One that only a later version knows is not one that runs.
            state: RunState::from_name(row.try_get("state")?).unwrap_or(RunState::Interrupted),
            model: row.try_get("model")?,
            provider: row.try_get::<Option<String>, _>("provider")?.filter(|provider| !provider.is_empty()),
            session: row.try_get::<Option<String>, _>("session")?.map(SessionKey),
            surface: Surface::from_name(row.try_get("surface")?),
            place: row.try_get("place")?,
            prompt: row.try_get("prompt")?,
            begun: Time::from_millis(row.try_get("begun")?),
            started: time("started")?,
            ended: time("ended")?,
            duration_ms: row.try_get::<Option<i64>, _>("duration")?.map(count),
            attempts: count(row.try_get("attempts")?),
            error,
            usage: Usage {
                input_tokens: count(row.try_get("input_tokens")?),
                output_tokens: count(row.try_get("output_tokens")?),
                cached_tokens: count(row.try_get("cached_tokens")?),
                estimated: row.try_get("estimated")?,
            },
            workspace: row
                .try_get::<Option<&str>, _>("workspace")?
                .and_then(|receipt| serde_json::from_str(receipt).ok()),
            detached: row.try_get("detached")?,
            log: match row.try_get::<Option<&str>, _>("log")? {
                Some("complete") => Some(LogState::Complete),
                Some(_) => Some(LogState::Incomplete),
                None => None,
            },
            owner: Owner::new(row.try_get::<String, _>("owner")?),
            gateway: row.try_get("gateway")?,
        })
    }
}

impl RunRow {
    /// How long it took, or takes.
    #[must_use]
    pub fn duration(&self, now: Time) -> Duration {
        let so_far = || u64::try_from(now.millis() - self.begun.millis()).unwrap_or(0);
        Duration::from_millis(self.duration_ms.unwrap_or_else(so_far))
    }
}
