//! Writes the effects of turns on their sessions: the session itself, and the chains that lead to it.

use super::statement::Statement;
use super::write::{RecordOrigin, split_repeats};
use crate::chain::HistoryHash;
use crate::columns::write_columns;
use crate::error::StoreError;
use crate::run_index::number;
use crate::session_turn::{ChainCondition, SessionTurn};
use crate::transaction::Transaction;

/// A turn that is over, and the condition for storing its chains.
#[derive(Clone, Copy)]
pub(super) struct EndedTurn<'a> {
    pub(super) turn: &'a SessionTurn,
    pub(super) condition: &'a ChainCondition,
}

write_columns!(SessionTurn, turn =>
    id: &turn.id.0,
    owner: turn.owner.as_str(),
    model: &turn.model,
    provider: &turn.provider,
    repo: &turn.repo,
    title: &turn.begins,
    created: turn.time.millis(),
    used: turn.time.millis(),
    native: turn.native.as_ref().map(|native| native.0.as_str()),
    turns: i64::from(turn.succeeded),
);

/// The session of a turn, to remove the chains that lead to it.
struct ClearedSession<'a>(&'a SessionTurn);

write_columns!(ClearedSession<'_>, session =>
    id: &session.0.id.0,
    owner: session.0.owner.as_str(),
);

/// A history that leads to the session of a turn.
struct ChainRow<'a> {
    turn: &'a SessionTurn,
    hash: &'a HistoryHash,
    messages: usize,
}

write_columns!(ChainRow<'_>, chain =>
    owner: chain.turn.owner.as_str(),
    model: &chain.turn.asked,
    hash: chain.hash.as_slice(),
    messages: number(chain.messages as u64),
    created: chain.turn.time.millis(),
    session: &chain.turn.id.0,
);

/// Returns how many sessions were changed.
pub(super) async fn write(
    transaction: &mut Transaction,
    ended: &[EndedTurn<'_>],
    origin: RecordOrigin,
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for part in split_repeats(ended, |ended| ended.turn.id.0.as_str()) {
        // Evaluated only now that no other process can write: see `ChainCondition`.
        let turns: Vec<_> = part.iter().map(|ended| (ended.turn, ended.condition.holds())).collect();
        let turns = write_sessions(transaction, turns, origin, &mut changed).await?;
        write_chains(transaction, &turns).await?;
    }
    Ok(changed)
}

/// Returns the turns that are the latest of their session. Only their chains are to be written.
async fn write_sessions<'a>(
    transaction: &mut Transaction,
    turns: Vec<(&'a SessionTurn, bool)>,
    origin: RecordOrigin,
    changed: &mut u64,
) -> Result<Vec<(&'a SessionTurn, bool)>, StoreError> {
    match origin {
        RecordOrigin::Live => {
            let upsert = Statement::insert::<SessionTurn>(
                "sessions",
                "new",
                "(id) DO UPDATE SET used = max(used, excluded.used), native = coalesce(excluded.native, native),
                 turns = turns + excluded.turns WHERE owner = excluded.owner",
            );
            let records: Vec<_> = turns.iter().map(|(turn, _)| *turn).collect();
            *changed += upsert.execute(transaction, &records).await?;
            Ok(turns)
        }
        RecordOrigin::Recovered => {
            // A record of an ended process may have been written before, or the session may have been used since: then
            // the record is out of date.
            let upsert = Statement::insert::<SessionTurn>(
                "sessions",
                "new",
                "(id) DO UPDATE SET used = excluded.used, native = coalesce(excluded.native, native),
                 turns = turns + excluded.turns WHERE owner = excluded.owner AND excluded.used > used",
            );
            let mut latest = Vec::new();
            for turn in turns {
                if upsert.execute(transaction, &[turn.0]).await? > 0 {
                    latest.push(turn);
                }
            }
            *changed += latest.len() as u64;
            Ok(latest)
        }
    }
}

/// Replaces the chains of each session by those of its turn.
async fn write_chains(transaction: &mut Transaction, turns: &[(&SessionTurn, bool)]) -> Result<(), StoreError> {
    let remove = Statement::new::<ClearedSession<'_>>(
        "DELETE FROM chains WHERE session IN
         (SELECT sessions.id FROM new CROSS JOIN sessions ON sessions.id = new.id AND sessions.owner = new.owner)",
    );
    let sessions: Vec<_> = turns.iter().map(|(turn, _)| ClearedSession(turn)).collect();
    remove.execute(transaction, &sessions.iter().collect::<Vec<_>>()).await?;
    let add = Statement::insert::<ChainRow<'_>>(
        "chains",
        "new CROSS JOIN sessions ON sessions.id = new.session AND sessions.owner = new.owner",
        "(owner, model, hash, session) DO UPDATE SET messages = excluded.messages, created = excluded.created",
    );
    let chains: Vec<_> = turns
        .iter()
        .filter(|(_, valid)| *valid)
        .flat_map(|(turn, _)| {
            turn.chains.iter().map(move |(hash, messages)| ChainRow { turn, hash, messages: *messages })
        })
        .collect();
    add.execute(transaction, &chains.iter().collect::<Vec<_>>()).await?;
    Ok(())
}
