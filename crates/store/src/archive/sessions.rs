//! Puts what turns have made of their sessions into the database, several in one statement.

use super::row::Row;
use super::write::{Age, Filling, Statement, apart, number};
use crate::chain::Hash;
use crate::error::StoreError;
use crate::session_turn::SessionTurn;
use crate::transaction::Transaction;

const NOTED: Statement = Statement {
    before: "INSERT INTO sessions (id, owner, model, provider, repo, title, created, used, native, turns)
         SELECT column1, column2, column3, column4, column5, column6, column7, column7, column8, column9 FROM (VALUES ",
    columns: 9,
    after: ") WHERE true ON CONFLICT (id) DO UPDATE SET used = max(used, excluded.used),
         native = coalesce(excluded.native, native), turns = turns + excluded.turns
         WHERE owner = excluded.owner",
};

/// What an earlier process left may have been written before, or another may have gone on since: then it is in the past.
const LEFT: Statement = Statement {
    before: NOTED.before,
    columns: NOTED.columns,
    after: ") WHERE true ON CONFLICT (id) DO UPDATE SET used = excluded.used,
         native = coalesce(excluded.native, native), turns = turns + excluded.turns
         WHERE owner = excluded.owner AND excluded.used > used",
};

const UNCHAINED: Statement = Statement {
    before: "DELETE FROM chains WHERE session IN (SELECT sessions.id FROM (VALUES ",
    columns: 2,
    after: ") CROSS JOIN sessions ON sessions.id = column1 AND sessions.owner = column2)",
};

const CHAINED: Statement = Statement {
    before: "INSERT INTO chains (owner, model, hash, messages, created, session)
         SELECT column1, column2, column3, column4, column5, column6 FROM (VALUES ",
    columns: 6,
    after: ") CROSS JOIN sessions ON sessions.id = column6 AND sessions.owner = column1
         WHERE true ON CONFLICT (owner, model, hash, session) DO UPDATE
         SET messages = excluded.messages, created = excluded.created",
};

/// How many rows of the database are others now.
pub(super) async fn write(transaction: &mut Transaction, rows: &[&Row], age: Age) -> Result<u64, StoreError> {
    let mut changed = 0;
    for part in apart(rows) {
        let mut turns: Vec<_> = part.iter().filter_map(|row| of(row)).collect();
        match age {
            Age::New => changed += NOTED.execute(transaction, &turns, bind).await?,
            Age::Left => {
                let mut later = Vec::new();
                for turn in turns {
                    if LEFT.execute(transaction, &[turn], bind).await? > 0 {
                        later.push(turn);
                    }
                }
                turns = later;
                changed += turns.len() as u64;
            }
        }
        UNCHAINED
            .execute(transaction, &turns, |query, (turn, _)| query.bind(&turn.id.0).bind(turn.owner.as_str()))
            .await?;
        let chains: Vec<_> = turns
            .iter()
            .filter(|(_, lead)| *lead)
            .flat_map(|(turn, _)| {
                turn.chains.iter().map(move |(hash, messages)| Chain { turn, hash, messages: *messages })
            })
            .collect();
        CHAINED.execute(transaction, &chains, bind_chain).await?;
    }
    Ok(changed)
}

/// A turn, and whether its histories lead to its session.
fn of(row: &Row) -> Option<(&SessionTurn, bool)> {
    if let Row::Session { turn, leads } = row { Some((turn, leads.hold())) } else { None }
}

struct Chain<'a> {
    turn: &'a SessionTurn,
    hash: &'a Hash,
    messages: usize,
}

fn bind<'a>(query: Filling<'a>, (turn, _): &(&'a SessionTurn, bool)) -> Filling<'a> {
    query
        .bind(&turn.id.0)
        .bind(turn.owner.as_str())
        .bind(&turn.model)
        .bind(&turn.provider)
        .bind(&turn.repo)
        .bind(&turn.begins)
        .bind(turn.time.millis())
        .bind(turn.native.as_ref().map(|native| native.0.as_str()))
        .bind(i64::from(turn.succeeded))
}

fn bind_chain<'a>(query: Filling<'a>, chain: &Chain<'a>) -> Filling<'a> {
    let Chain { turn, hash, messages } = chain;
    let query = query.bind(turn.owner.as_str()).bind(&turn.asked).bind(hash.as_slice());
    query.bind(number(*messages as u64)).bind(turn.time.millis()).bind(&turn.id.0)
}
