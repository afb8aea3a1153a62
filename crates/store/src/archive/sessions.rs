//! Writes what turns have made of their sessions to the database.

use super::statement::Statement;
use super::write::{Age, split_repeats};
use crate::chain::Hash;
use crate::columns::write_columns;
use crate::error::StoreError;
use crate::run_index::number;
use crate::session_turn::{Leads, SessionTurn};
use crate::transaction::Transaction;

/// A turn that is over, and whether its histories lead to its session.
#[derive(Clone, Copy)]
pub(super) struct EndedTurn<'a> {
    pub(super) turn: &'a SessionTurn,
    pub(super) leads: &'a Leads,
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
struct Unchained<'a>(&'a SessionTurn);

write_columns!(Unchained<'_>, unchained =>
    id: &unchained.0.id.0,
    owner: unchained.0.owner.as_str(),
);

/// A history that leads to the session of a turn.
struct Chain<'a> {
    turn: &'a SessionTurn,
    hash: &'a Hash,
    messages: usize,
}

write_columns!(Chain<'_>, chain =>
    owner: chain.turn.owner.as_str(),
    model: &chain.turn.asked,
    hash: chain.hash.as_slice(),
    messages: number(chain.messages as u64),
    created: chain.turn.time.millis(),
    session: &chain.turn.id.0,
);

/// Returns how many sessions were changed.
pub(super) async fn write(transaction: &mut Transaction, ended: &[EndedTurn<'_>], age: Age) -> Result<u64, StoreError> {
    let mut changed = 0;
    for part in split_repeats(ended, |ended| ended.turn.id.0.as_str()) {
        // Asked only now that no other process can write: see `Leads`.
        let turns: Vec<_> = part.iter().map(|ended| (ended.turn, ended.leads.hold())).collect();
        let turns = write_sessions(transaction, turns, age, &mut changed).await?;
        write_chains(transaction, &turns).await?;
    }
    Ok(changed)
}

/// Returns the turns that are the latest of their session. Only their chains are to be written.
async fn write_sessions<'a>(
    transaction: &mut Transaction,
    turns: Vec<(&'a SessionTurn, bool)>,
    age: Age,
    changed: &mut u64,
) -> Result<Vec<(&'a SessionTurn, bool)>, StoreError> {
    match age {
        Age::New => {
            let note = Statement::insert::<SessionTurn>(
                "sessions",
                "new",
                "(id) DO UPDATE SET used = max(used, excluded.used), native = coalesce(excluded.native, native),
                 turns = turns + excluded.turns WHERE owner = excluded.owner",
            );
            let records: Vec<_> = turns.iter().map(|(turn, _)| *turn).collect();
            *changed += note.execute(transaction, &records).await?;
            Ok(turns)
        }
        Age::Left => {
            // A record of an ended process may have been written before, or the session may have been used since: then
            // the record is out of date.
            let note = Statement::insert::<SessionTurn>(
                "sessions",
                "new",
                "(id) DO UPDATE SET used = excluded.used, native = coalesce(excluded.native, native),
                 turns = turns + excluded.turns WHERE owner = excluded.owner AND excluded.used > used",
            );
            let mut latest = Vec::new();
            for turn in turns {
                if note.execute(transaction, &[turn.0]).await? > 0 {
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
    let remove = Statement::new::<Unchained<'_>>(
        "DELETE FROM chains WHERE session IN
         (SELECT sessions.id FROM new CROSS JOIN sessions ON sessions.id = new.id AND sessions.owner = new.owner)",
    );
    let sessions: Vec<_> = turns.iter().map(|(turn, _)| Unchained(turn)).collect();
    remove.execute(transaction, &sessions.iter().collect::<Vec<_>>()).await?;
    let add = Statement::insert::<Chain<'_>>(
        "chains",
        "new CROSS JOIN sessions ON sessions.id = new.session AND sessions.owner = new.owner",
        "(owner, model, hash, session) DO UPDATE SET messages = excluded.messages, created = excluded.created",
    );
    let chains: Vec<_> = turns
        .iter()
        .filter(|(_, lead)| *lead)
        .flat_map(|(turn, _)| turn.chains.iter().map(move |(hash, messages)| Chain { turn, hash, messages: *messages }))
        .collect();
    add.execute(transaction, &chains.iter().collect::<Vec<_>>()).await?;
    Ok(())
}
