//! A record as the database takes it.

use super::bound::Bounded;
use super::{TurnBegun, TurnEnded};
use crate::error::StoreError;
use crate::store::Store;
use crate::time::millis_of;
use crate::transaction::Transaction;

/// Bounded, and with a text in one piece.
#[derive(Debug)]
pub(super) enum Row {
    Begun(TurnBegun),
    Event { run: String, sequence: u64, event: Bounded },
    Ended(TurnEnded),
}

impl Row {
    pub(super) fn run(&self) -> &str {
        match self {
            Self::Begun(TurnBegun { run, .. }) | Self::Event { run, .. } | Self::Ended(TurnEnded { run, .. }) => run,
        }
    }
}

/// All of them or none.
pub(super) async fn write(store: &Store, batch: &[Row]) -> Result<(), StoreError> {
    let mut transaction = store.transaction().await?;
    for row in batch {
        insert(&mut transaction, row).await?;
    }
    transaction.commit().await
}

/// Nothing here fails because of what it is given: a session that has been deleted meanwhile, or is another
/// owner's, is none, and what belongs to a turn that has been deleted is left out.
async fn insert(transaction: &mut Transaction, row: &Row) -> Result<(), StoreError> {
    let query = match row {
        Row::Begun(begun) => sqlx::query(
            "INSERT INTO turns (run, session, owner, surface, place, model, prompt, begun)
             VALUES (?1, (SELECT id FROM sessions WHERE id = ?2 AND owner = ?3), ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (run) DO NOTHING",
        )
        .bind(&begun.run)
        .bind(begun.session.as_ref().map(|session| session.0.as_str()))
        .bind(begun.owner.as_str())
        .bind(begun.surface.name())
        .bind(&begun.place)
        .bind(&begun.model)
        .bind(&begun.prompt)
        .bind(begun.time.millis()),
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
                 duration = ?10 WHERE run = ?1",
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
        .bind(millis_of(ended.duration)),
    };
    query.execute(&mut **transaction).await?;
    Ok(())
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
