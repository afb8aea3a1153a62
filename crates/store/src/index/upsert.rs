//! Statements that write rows of the index.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::Row;
use trunkline_core::event::Receipt;

use super::statement::Statement;
use crate::columns::{WriteColumns, write_columns};
use crate::error::StoreError;
use crate::log::{KeyClaim, LogPosition};
use crate::run_index::{RunRow, number, receipt_json};
use crate::session_state::{ClientId, SessionHead, SessionKey, SessionRow, SessionState, path_text};
use crate::time::Time;
use crate::transaction::Transaction;

write_columns!(SessionRow, row =>
    id: &row.id.0,
    owner: row.owner.as_str(),
    model: &row.model,
    provider: &row.provider,
    repo: path_text(&row.repo),
    native: row.native.as_ref().map(|native| &*native.0),
    title: &row.title,
    parent = "(SELECT id FROM sessions WHERE id = new.parent)": row.parent.as_ref().map(|parent| parent.0.as_str()),
    created: row.created.millis(),
    used: row.used.millis(),
    turns: number(row.turns),
);

struct HeadRow<'a> {
    state: &'a SessionState,
    head: &'a SessionHead,
}

write_columns!(HeadRow<'_>, row =>
    owner: row.state.session.owner.as_str(),
    model: &row.state.asked,
    hash: row.head.hash.as_slice(),
    messages: number(row.head.messages as u64),
    created: row.state.session.used.millis(),
    session: &row.state.session.id.0,
);

/// The key of a run.
#[derive(Debug)]
pub(super) struct KeyRow {
    pub(super) owner: ClientId,
    pub(super) claim: KeyClaim,
    pub(super) run: String,
    pub(super) created: Time,
}

write_columns!(KeyRow, row =>
    owner: row.owner.as_str(),
    key: row.claim.key.as_slice(),
    request: row.claim.request.as_slice(),
    run: &row.run,
    created: row.created.millis(),
);

static WRITE_RUNS: LazyLock<Statement> = LazyLock::new(|| {
    let columns = RunRow::COLUMNS_TO_WRITE.iter().map(|column| column.name).filter(|name| *name != "run");
    let set: Vec<String> = columns
        .map(|name| match name {
            // Both may be unknown to the caller: a session that does not exist yet is read as none.
            "workspace" | "session" => format!("{name} = coalesce(excluded.{name}, turns.{name})"),
            name => format!("{name} = excluded.{name}"),
        })
        .collect();
    let on_conflict = format!(
        "(run) DO UPDATE SET {} WHERE excluded.ended IS NOT NULL
             OR (turns.ended IS NULL AND (turns.started IS NULL OR excluded.started IS NOT NULL))",
        set.join(", ")
    );
    Statement::insert::<RunRow>("turns", "new", &on_conflict)
});

/// Writes rows of runs. A row of a run that has ended is never replaced by one of the time before.
pub(crate) async fn runs(transaction: &mut Transaction, rows: &[&RunRow]) -> Result<(), StoreError> {
    WRITE_RUNS.execute(transaction, rows).await
}

static WRITE_SESSIONS: LazyLock<Statement> = LazyLock::new(|| {
    Statement::insert::<SessionRow>(
        "sessions",
        "new",
        "(id) DO UPDATE SET provider = excluded.provider, repo = excluded.repo, used = excluded.used,
         native = coalesce(excluded.native, native), turns = max(turns, excluded.turns)
         WHERE owner = excluded.owner AND excluded.used >= used RETURNING id",
    )
});

/// Writes sessions, unless the database has later states of them. Returns the ids of the sessions that were written. A
/// session must be listed after the one that it was forked from.
pub(super) async fn sessions(
    transaction: &mut Transaction,
    rows: &[&SessionRow],
) -> Result<HashSet<SessionKey>, StoreError> {
    let mut written = HashSet::new();
    // A statement does not see the rows that it inserts, so a fork needs another one.
    let is_fork_of = |row: &SessionRow, earlier: &[&SessionRow]| {
        row.parent.as_ref().is_some_and(|parent| earlier.iter().any(|earlier| earlier.id == *parent))
    };
    let mut rest = rows;
    while !rest.is_empty() {
        let end = (1..rest.len()).find(|at| is_fork_of(rest[*at], &rest[..*at])).unwrap_or(rest.len());
        for row in WRITE_SESSIONS.fetch(transaction, &rest[..end]).await? {
            written.insert(SessionKey(row.try_get("id")?));
        }
        rest = &rest[end..];
    }
    Ok(written)
}

static ADD_HEADS: LazyLock<Statement> = LazyLock::new(|| {
    Statement::insert::<HeadRow<'_>>(
        "chains",
        "new",
        "(owner, model, hash, session) DO UPDATE SET messages = excluded.messages, created = excluded.created",
    )
});

/// Replaces the heads of sessions.
pub(super) async fn heads(
    transaction: &mut Transaction,
    states: &[(&SessionState, &[SessionHead])],
) -> Result<(), StoreError> {
    forget_all_heads(transaction, states.iter().map(|(state, _)| &state.session.id)).await?;
    let rows: Vec<HeadRow<'_>> =
        states.iter().flat_map(|(state, heads)| heads.iter().map(|head| HeadRow { state, head })).collect();
    ADD_HEADS.execute(transaction, &rows.iter().collect::<Vec<_>>()).await
}

/// Removes the heads of sessions.
pub(super) async fn forget_all_heads(
    transaction: &mut Transaction,
    sessions: impl Iterator<Item = &SessionKey>,
) -> Result<(), StoreError> {
    let sessions: Vec<&str> = sessions.map(|session| session.0.as_str()).collect();
    if !sessions.is_empty() {
        let list = serde_json::Value::from(sessions).to_string();
        let query = sqlx::query("DELETE FROM chains WHERE session IN (SELECT value FROM json_each(?1))");
        query.bind(list).execute(&mut **transaction).await?;
    }
    Ok(())
}

/// Removes the heads of a session from before a time, or only those of a client.
pub(super) async fn forget_heads(
    transaction: &mut Transaction,
    session: &SessionKey,
    owner: Option<&ClientId>,
    before: Time,
) -> Result<(), StoreError> {
    let query = sqlx::query("DELETE FROM chains WHERE session = ?1 AND (?2 IS NULL OR owner = ?2) AND created <= ?3");
    let query = query.bind(&session.0).bind(owner.map(ClientId::as_str)).bind(before.millis());
    query.execute(&mut **transaction).await?;
    Ok(())
}

static WRITE_KEYS: LazyLock<Statement> = LazyLock::new(|| {
    Statement::insert::<KeyRow>(
        "repeats",
        "new",
        "(owner, key) DO UPDATE SET request = excluded.request, run = excluded.run, created = excluded.created
         WHERE excluded.created > repeats.created",
    )
});

/// Writes keys of runs. The latest run with a key has it: the key had expired before.
pub(super) async fn keys(transaction: &mut Transaction, rows: &[&KeyRow]) -> Result<(), StoreError> {
    WRITE_KEYS.execute(transaction, rows).await
}

pub(super) async fn release_key(transaction: &mut Transaction, run: &str) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM repeats WHERE run = ?1").bind(run).execute(&mut **transaction).await?;
    Ok(())
}

pub(super) async fn workspace(transaction: &mut Transaction, run: &str, receipt: &Receipt) -> Result<(), StoreError> {
    let query = sqlx::query("UPDATE turns SET workspace = ?2 WHERE run = ?1");
    query.bind(run).bind(receipt_json(receipt)).execute(&mut **transaction).await?;
    Ok(())
}

/// Stores up to which position the segments of a process are indexed.
pub(super) async fn indexed(transaction: &mut Transaction, end: &LogPosition) -> Result<(), StoreError> {
    let query = sqlx::query(
        "INSERT INTO segments (process, segment, position) VALUES (?1, ?2, ?3) ON CONFLICT (process)
         DO UPDATE SET segment = excluded.segment, position = excluded.position
         WHERE (excluded.segment, excluded.position) > (segments.segment, segments.position)",
    );
    query.bind(&*end.process).bind(end.segment).bind(number(end.offset)).execute(&mut **transaction).await?;
    Ok(())
}
