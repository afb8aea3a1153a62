//! A state folder as version 2 of the database left it.

use std::fs;
use std::path::Path;

use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;
use trunkline_core::event::Event;
use trunkline_store::DATABASE_FILE;

use crate::fixture::{finished, text};

pub(crate) const WITH_LOG: &str = "0198f000-0000-7000-8000-000000000001";
pub(crate) const TORN_LOG: &str = "0198f000-0000-7000-8000-000000000002";
pub(crate) const JOURNALED: &str = "0198f000-0000-7000-8000-000000000003";

/// Rows as version 2 wrote them.
const ROWS: &str = "
    INSERT INTO sessions VALUES ('s1', 'local', 'm', 'codex', '/repo', 'native-1', 'Hello', NULL, 10, 90, 3);
    INSERT INTO sessions VALUES ('s2', 'local', 'm', 'codex', '/repo', NULL, 'Fork', 's1', 20, 80, 0);
    INSERT INTO chains VALUES ('local', 'asked', x'0707070707070707070707070707070707070707070707070707070707070707', 's1', 4, 90);
    INSERT INTO turns (run, session, owner, surface, place, model, prompt, begun, provider, outcome, answer, input_tokens,
        duration, state, started, ended, attempts, workspace, gateway, detached, log) VALUES
        ('0198f000-0000-7000-8000-000000000001', 's1', 'local', 'discord', '/repo', 'm', 'first', 50, 'codex', 'ok', 'yes',
         7, 20, 'finished', 55, 70, 2, '{\"base\":\"b\"}', 'g', 1, 'complete'),
        ('0198f000-0000-7000-8000-000000000002', NULL, 'local', 'http', '/repo', 'm', 'second', 51, 'codex', 'ok', 'whole',
         0, 1, 'finished', 51, 52, 1, NULL, 'g', 0, 'incomplete'),
        ('table-1', 's1', 'local', 'http', '/repo', 'm', 'third', 52, 'codex', 'timeout', 'too slow', 0, 5, 'failed', 52, 57,
         1, NULL, 'g', 0, NULL),
        ('table-2', NULL, 'local', 'http', '/repo', 'm', 'fourth', 53, NULL, 'server', 'gone', 0, 9, 'interrupted', NULL, 62,
         0, NULL, 'g', 0, NULL),
        ('open', NULL, 'b', 'http', '/repo', 'm', 'fifth', 54, 'codex', NULL, NULL, 0, NULL, 'running', 54, NULL, 0, NULL,
         'g', 0, NULL);
    INSERT INTO events SELECT id, 0, '{\"type\":\"text\",\"delta\":\"merged\"}', NULL FROM turns WHERE run = 'table-1';
    INSERT INTO events SELECT id, 5, '{\"type\":\"later\"}', NULL FROM turns WHERE run = 'table-1';
    INSERT INTO repeats VALUES ('local', x'0909090909090909090909090909090909090909090909090909090909090909',
        x'0808080808080808080808080808080808080808080808080808080808080808', 'table-1', 52);";

pub(crate) async fn connect(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.join(DATABASE_FILE)).create_if_missing(true);
    options.connect().await.unwrap()
}

/// A state folder as version 2 left it when it was killed.
pub(crate) async fn version_2() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = connect(folder.path()).await;
    for sql in [
        include_str!("../../migrations/0001_first.sql"),
        include_str!("../../migrations/0002_runs.sql"),
        ROWS,
        "PRAGMA user_version = 2",
    ] {
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    write_logs(folder.path());
    write_journal(folder.path());
    folder
}

pub(crate) fn write_logs(state: &Path) {
    let logs = state.join("runs/0198f");
    fs::create_dir_all(&logs).unwrap();
    fs::create_dir_all(state.join("runs/4711-99/scratch")).unwrap();
    let entry = |seq: u64, event: &Event| json!({"seq": seq, "at": 60 + seq, "event": event}).to_string() + "\n";
    let whole = [entry(0, &text("y")), entry(1, &text("es")), entry(2, &finished("yes"))].concat();
    fs::write(logs.join(format!("{WITH_LOG}.jsonl")), whole).unwrap();
    let torn = entry(0, &text("who")) + "{\"seq\":1,\"at\":";
    fs::write(logs.join(format!("{TORN_LOG}.jsonl")), torn).unwrap();
}

pub(crate) fn write_journal(state: &Path) {
    let usage = json!({"input_tokens": 3, "output_tokens": 2, "cached_tokens": 1, "estimated": true});
    let begun = json!({"Begun": {
        "run": JOURNALED, "session": "s2", "owner": "local", "surface": "http", "place": "/repo", "model": "m",
        "prompt": "journaled", "time": 70, "gateway": "g", "detached": false,
    }});
    let records = [
        begun,
        json!({"Started": {"run": JOURNALED, "provider": "codex", "time": 71}}),
        json!({"Workspace": {"run": JOURNALED, "receipt": {"base": "c"}}}),
        json!({"Session": {"turn": {
            "id": "s2", "owner": "local", "model": "m", "provider": "codex", "repo": "/repo", "begins": "Fork",
            "native": "native-2", "succeeded": true, "asked": "m", "chains": [[vec![5; 32], 2]], "time": 95,
        }}}),
        json!({"Ended": {
            "run": JOURNALED, "provider": "codex", "outcome": "ok", "answer": "late", "usage": usage,
            "duration": {"secs": 1, "nanos": 2}, "session": "s2", "time": 95, "attempts": 1, "log": null,
        }}),
        // Was written to the database before: must not change anything.
        json!({"Begun": {
            "run": WITH_LOG, "session": null, "owner": "local", "surface": "http", "place": "", "model": "",
            "prompt": "twice", "time": 70, "gateway": "g", "detached": false,
        }}),
    ];
    let journal = state.join("journal/0198f000");
    fs::create_dir_all(&journal).unwrap();
    let mut files = [String::new(), String::new()];
    for (count, row) in records.iter().enumerate() {
        files[usize::from(count < 2)] += &(json!({"count": count, "row": row}).to_string() + "\n");
    }
    files[0] += "{\"count\":9,\"row\":{\"Begun\":{\"run\":";
    for (name, text) in ["0", "1"].iter().zip(files) {
        fs::write(journal.join(name), text).unwrap();
    }
}
