//! Tests the file with the state of bridges: its creation, its refusal, and the move of rows that the index had before.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;
use trunkline_store::{
    BRIDGE_FILE, Binding, DATABASE_FILE, DatabaseStatus, InboxRow, InboxState, SessionKey, Store, StoreError, Time,
};

use crate::fixture::{delete_database, open};
use crate::version_2::connect;

const ROWS: &str = r#"
    INSERT INTO sessions VALUES ('s1', 'local', 'm', 'codex', '/repo', 'native-1', 'Hello', NULL, 10, 90, 3);
    INSERT INTO cursors VALUES ('discord:20', '11', 50);
    INSERT INTO inbox VALUES ('10', 'discord:20', '{}', 'answered', '{"how":"sent"}', 40, 45);
    INSERT INTO inbox VALUES ('11', 'discord:20', '{"text":"it''s \"ü\"\n"}', 'answering', '{"attempts":1}', 50, 51);
    INSERT INTO inbox VALUES ('12', 'discord:21', '{"text":"new"}', 'received', NULL, 52, 52);
    INSERT INTO bindings VALUES ('discord:20', 's1', 'm', '{"epoch":2}', 51);
    INSERT INTO bindings VALUES ('discord:21', NULL, NULL, '{}', 52);"#;

/// A state folder as version 3 of the database left it, with these rows.
async fn version_3(rows: &'static str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = connect(folder.path()).await;
    for sql in [
        include_str!("../../migrations/0001_first.sql"),
        include_str!("../../migrations/0002_runs.sql"),
        include_str!("../../migrations/0003_index.sql"),
        rows,
        "PRAGMA user_version = 3",
    ] {
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    folder
}

async fn run(mut connection: SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Tables of the index that have the state of bridges.
async fn old_tables(folder: &Path) -> Vec<String> {
    let mut connection = connect(folder).await;
    let query = "SELECT name FROM sqlite_schema WHERE name IN ('cursors', 'inbox', 'bindings') ORDER BY name";
    let names = sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    names
}

/// Checks that the bridge has exactly [`ROWS`].
async fn check_rows(store: &Store) {
    let bridge = store.bridge().await.unwrap();
    assert_eq!(bridge.cursor("discord:20").await.unwrap().as_deref(), Some("11"));
    assert_eq!(bridge.cursor("discord:21").await.unwrap(), None);
    let row = |message: &str, place: &str, payload, state, detail, received| InboxRow {
        place: place.into(),
        message: message.into(),
        payload,
        state,
        detail,
        received: Time::from_millis(received),
    };
    let attempts = Some(json!({"attempts": 1}));
    let tried = row("11", "discord:20", json!({"text": "it's \"ü\"\n"}), InboxState::Answering, attempts, 50);
    let new = row("12", "discord:21", json!({"text": "new"}), InboxState::Received, None, 52);
    assert_eq!(bridge.inbox_pending(None).await.unwrap(), [tried, new]);
    let answered = row("10", "discord:20", json!({}), InboxState::Answered, Some(json!({"how": "sent"})), 40);
    assert_eq!(bridge.inbox_message("10").await.unwrap(), Some(answered));
    assert_eq!(bridge.bound_places("").await.unwrap(), ["discord:20", "discord:21"]);
    let bound = Binding { session: Some(SessionKey("s1".into())), model: Some("m".into()), more: json!({"epoch": 2}) };
    assert_eq!(bridge.binding("discord:20").await.unwrap(), Some(bound));
    assert_eq!(bridge.binding("discord:21").await.unwrap(), Some(Binding { more: json!({}), ..Binding::default() }));
}

#[tokio::test]
async fn file_is_private_and_created_when_a_bridge_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(BRIDGE_FILE);
    let store = open(folder.path()).await;
    store.prune(Time::now()).await.unwrap();
    assert!(!path.exists(), "only a bridge creates it");
    store.bridge().await.unwrap().set_cursor("c", "1").await.unwrap();
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let file = folder.path().join(format!("{BRIDGE_FILE}{suffix}"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    let status = DatabaseStatus::of(&path).await.unwrap();
    assert_eq!((status.version, status.wrong), (Some(1), Vec::new()));
    store.close().await;
    assert!(matches!(store.bridge().await.unwrap().cursor("c").await, Err(StoreError::Database(_))), "closed with it");
}

#[tokio::test]
async fn state_of_bridges_is_kept_when_the_index_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.bridge().await.unwrap().inbox_add("c", "7", &json!({"n": 1})).await.unwrap();
    store.close().await;
    delete_database(folder.path());
    let store = open(folder.path()).await;
    let bridge = store.bridge().await.unwrap();
    assert_eq!(bridge.cursor("c").await.unwrap().as_deref(), Some("7"));
    assert_eq!(bridge.inbox_pending(None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn unusable_file_is_refused_and_unchanged_and_the_index_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(BRIDGE_FILE);
    let store = open(folder.path()).await;
    store.bridge().await.unwrap().set_cursor("c", "1").await.unwrap();
    store.close().await;
    let good = fs::read(&path).unwrap();
    let mut newer = good.clone();
    // The version, in the header of the file.
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let mut damaged = good.clone();
    damaged[100..].fill(0xa5);
    for bytes in [newer, damaged] {
        fs::write(&path, &bytes).unwrap();
        let store = open(folder.path()).await;
        let refused = store.bridge().await.unwrap_err();
        let is_refused = matches!(refused, StoreError::Newer { found: 99, known: 1, .. } | StoreError::Damaged { .. });
        assert!(is_refused && refused.to_string().contains(BRIDGE_FILE), "{refused:?}");
        assert!(store.prune(Time::now()).await.is_err());
        assert!(store.session(&SessionKey("s".into()), &trunkline_store::ClientId::local()).await.unwrap().is_none());
        assert!(fs::read(&path).unwrap() == bytes);
        assert!(!DatabaseStatus::of(&path).await.unwrap().wrong.is_empty());
        fs::write(&path, &good).unwrap();
        let cursor = store.bridge().await.unwrap().cursor("c").await.unwrap();
        assert_eq!(cursor.as_deref(), Some("1"), "the same process can use it once it is repaired");
        store.close().await;
    }
}

#[tokio::test]
async fn rows_of_an_earlier_version_are_moved_once() {
    let folder = version_3(ROWS).await;
    let store = open(folder.path()).await;
    check_rows(&store).await;
    assert_eq!(old_tables(folder.path()).await, Vec::<String>::new());
    let bridge = store.bridge().await.unwrap();
    bridge.inbox_state("12", InboxState::Answered, None).await.unwrap();
    store.close().await;
    let store = open(folder.path()).await;
    let pending = store.bridge().await.unwrap().inbox_pending(None).await.unwrap();
    assert_eq!(pending.len(), 1, "the second start moves nothing");
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn no_file_is_created_when_an_earlier_version_had_no_bridge() {
    let folder = version_3("INSERT INTO sessions VALUES ('s', 'local', 'm', 'p', '/', NULL, '', NULL, 1, 1, 0)").await;
    open(folder.path()).await.close().await;
    assert_eq!(old_tables(folder.path()).await, Vec::<String>::new());
    assert!(!folder.path().join(BRIDGE_FILE).exists());
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_when_the_move_is_interrupted_at_any_step() {
    // Killed after the file was created.
    let folder = version_3(ROWS).await;
    fs::write(folder.path().join(BRIDGE_FILE), "").unwrap();
    check_rows(&open(folder.path()).await).await;

    // Killed after the tables were created.
    let folder = version_3(ROWS).await;
    let empty = tempfile::tempdir().unwrap();
    let store = open(empty.path()).await;
    store.bridge().await.unwrap();
    store.close().await;
    fs::copy(empty.path().join(BRIDGE_FILE), folder.path().join(BRIDGE_FILE)).unwrap();
    check_rows(&open(folder.path()).await).await;

    // Killed after the rows were committed to the new file, and before they were dropped. A reference to a row makes the
    // transaction that drops it fail.
    let folder = version_3(ROWS).await;
    let block = "CREATE TABLE block (message TEXT REFERENCES inbox (message)); INSERT INTO block VALUES ('10')";
    run(connect(folder.path()).await, block).await;
    for _ in 0..2 {
        let failed = Store::open(&folder.path().join(DATABASE_FILE)).await;
        assert!(matches!(failed, Err(StoreError::Database(_))), "{failed:?}");
        assert_eq!(old_tables(folder.path()).await, ["bindings", "cursors", "inbox"]);
        let elsewhere = tempfile::tempdir().unwrap();
        fs::copy(folder.path().join(BRIDGE_FILE), elsewhere.path().join(BRIDGE_FILE)).unwrap();
        let copy = open(elsewhere.path()).await;
        assert_eq!(copy.bridge().await.unwrap().inbox_pending(None).await.unwrap().len(), 2, "committed before");
    }
    run(connect(folder.path()).await, "DROP TABLE block").await;
    let store = open(folder.path()).await;
    check_rows(&store).await;
    assert_eq!(old_tables(folder.path()).await, Vec::<String>::new());
}

#[tokio::test]
async fn rows_stay_in_the_index_when_the_new_file_cannot_be_written() {
    let folder = version_3(ROWS).await;
    let path = folder.path().join(BRIDGE_FILE);
    fs::create_dir(&path).unwrap();
    let refused = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Open { .. }) && refused.to_string().contains(BRIDGE_FILE), "{refused}");
    assert_eq!(old_tables(folder.path()).await, ["bindings", "cursors", "inbox"]);
    fs::remove_dir(&path).unwrap();
    check_rows(&open(folder.path()).await).await;
}
