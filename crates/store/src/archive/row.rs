//! A record as the database takes it.

use serde::{Deserialize, Serialize};
use trunkline_core::event::Receipt;

use super::bound::Bounded;
use super::{TurnBegun, TurnEnded};
use crate::error::StoreError;
use crate::run::{LogState, RunState, receipt_json};
use crate::session::SessionKey;
use crate::store::Store;
use crate::time::{Time, millis_of};
use crate::transaction::Transaction;

/// Bounded, and with a text in one piece.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Row {
    Begun(TurnBegun),
    Started {
        run: String,
        provider: String,
        time: Time,
    },
    GoesOn {
        run: String,
        session: SessionKey,
        prompt: String,
    },
    Workspace {
        run: String,
        receipt: Receipt,
    },
    /// Not in the journal: a run's log has it.
    #[serde(skip)]
    Event {
        run: String,
        sequence: u64,
        event: Bounded,
    },
    Ended(TurnEnded),
}

impl Row {
    pub(super) fn run(&self) -> &str {
        match self {
            Self::Begun(TurnBegun { run, .. })
            | Self::Started { run, .. }
            | Self::GoesOn { run, .. }
            | Self::Workspace { run, .. }
            | Self::Event { run, .. }
            | Self::Ended(TurnEnded { run, .. }) => run,
        }
    }
}

/// All of them or none; how many rows of the database are others now.
pub(super) async fn write(store: &Store, batch: &[Row]) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let mut changed = 0;
    for row in batch {
        changed += insert(&mut transaction, row).await?;
    }
    transaction.commit().await?;
    Ok(changed)
}

/// Nothing here fails because of what it is given: a session that has been deleted meanwhile, or is another
/// owner's, is none, and what belongs to a turn that has been deleted is left out.
async fn insert(transaction: &mut Transaction, row: &Row) -> Result<u64, StoreError> {
    let query = match row {
        Row::Begun(begun) => sqlx::query(
            "INSERT INTO turns (run, session, owner, surface, place, model, prompt, begun, gateway, detached, state)
             VALUES (?1, (SELECT id FROM sessions WHERE id = ?2 AND owner = ?3), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (run) DO NOTHING",
        )
        .bind(&begun.run)
        .bind(begun.session.as_ref().map(|session| session.0.as_str()))
        .bind(begun.owner.as_str())
        .bind(begun.surface.name())
        .bind(&begun.place)
        .bind(&begun.model)
        .bind(&begun.prompt)
        .bind(begun.time.millis())
        .bind(&begun.gateway)
        .bind(begun.detached)
        .bind(RunState::Queued.name()),
        Row::Started { run, provider, time } => {
            let query = "UPDATE turns SET state = ?2, provider = ?3, started = ?4 WHERE run = ?1 AND state = ?5";
            let query = sqlx::query(query).bind(run).bind(RunState::Running.name()).bind(provider);
            query.bind(time.millis()).bind(RunState::Queued.name())
        }
        Row::GoesOn { run, session, prompt } => {
            let query = "UPDATE turns SET prompt = ?3, session = (SELECT id FROM sessions WHERE id = ?2
                 AND owner = turns.owner) WHERE run = ?1";
            sqlx::query(query).bind(run).bind(&session.0).bind(prompt)
        }
        Row::Workspace { run, receipt } => {
            sqlx::query("UPDATE turns SET workspace = ?2 WHERE run = ?1").bind(run).bind(receipt_json(receipt))
        }
        Row::Event { run, sequence, event } => sqlx::query(
            "INSERT INTO events (turn, sequence, event, cut) SELECT id, ?2, ?3, ?4 FROM turns WHERE run = ?1
             ON CONFLICT (turn, sequence) DO NOTHING",
        )
        .bind(run)
        .bind(number(*sequence))
        .bind(&event.json)
        .bind(event.cut.map(|size| number(size as u64))),
        Row::Ended(ended) => sqlx::query(
            "UPDATE turns SET provider = ?3, outcome = ?4,
                 session = coalesce((SELECT id FROM sessions WHERE id = ?2 AND owner = turns.owner), session),
                 answer = ?5, input_tokens = ?6, output_tokens = ?7, cached_tokens = ?8, estimated = ?9,
                 duration = ?10, state = ?11, ended = ?12, attempts = ?13, log = ?14 WHERE run = ?1",
        )
        .bind(&ended.run)
        .bind(ended.session.as_ref().map(|session| session.0.as_str()))
        .bind(&ended.provider)
        .bind(ended.outcome.name())
        .bind(&ended.answer)
        .bind(number(ended.usage.input_tokens))
        .bind(number(ended.usage.output_tokens))
        .bind(number(ended.usage.cached_tokens))
        .bind(ended.usage.estimated)
        .bind(millis_of(ended.duration))
        .bind(RunState::of(ended.outcome).name())
        .bind(ended.time.millis())
        .bind(ended.attempts)
        .bind(ended.log.map(LogState::name)),
    };
    Ok(query.execute(&mut **transaction).await?.rows_affected())
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
