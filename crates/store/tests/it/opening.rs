//! Tests opening a database that is missing, newer, damaged, in use, or not accessible.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use tokio::task::JoinSet;
use trunkline_store::{ClientId, DATABASE_FILE, DatabaseStatus, SessionFilter, Store, StoreError};

use crate::fixture::begin;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state").join(DATABASE_FILE);
    (folder, path)
}

async fn sql(path: &Path, statement: &'static str) -> Vec<i64> {
    let mut connection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let answer = sqlx::query_scalar(statement).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    answer
}

/// Lists the files in the folder of the database whose names start with `prefix`.
fn names(path: &Path, prefix: &str) -> Vec<String> {
    let all = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    all.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with(prefix)).collect()
}

async fn count(store: &Store) -> usize {
    store.sessions(&SessionFilter::default()).await.unwrap().len()
}

#[tokio::test]
async fn new_database_is_private_and_can_be_truncated() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    begin(&store, &ClientId::local()).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let files = names(&path, "");
    assert!(files.contains(&"trunkline.db-wal".to_owned()), "{files:?}");
    for file in files {
        assert_eq!(mode(&path.with_file_name(&file)), 0o600, "{file}");
    }
    store.close().await;
    assert_eq!(sql(&path, "PRAGMA auto_vacuum").await, [2], "incremental");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let again = Store::open(&path).await.unwrap();
    assert_eq!((mode(&path), count(&again).await), (0o600, 1));
}

#[tokio::test]
async fn case_74_database_of_a_newer_version_is_refused_and_unchanged() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    store.close().await;
    sql(&path, "PRAGMA user_version = 99").await;
    let before = fs::read(&path).unwrap();
    let refused = Store::open(&path).await;
    let Err(error @ StoreError::Newer { found: 99, .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("newer version of trunkline (format 99"), "{error}");
    assert!(fs::read(&path).unwrap() == before);
    let status = DatabaseStatus::of(&path).await.unwrap();
    assert_eq!((status.version, status.wrong.len()), (Some(99), 1), "{status:?}");
}

#[tokio::test]
async fn case_74_damaged_database_is_refused_and_unchanged() {
    let (_folder, good) = place();
    let store = Store::open(&good).await.unwrap();
    begin(&store, &ClientId::local()).await;
    store.close().await;
    let good = fs::read(good).unwrap();
    let damaged = |from: usize| {
        let mut bytes = good.clone();
        bytes[from..].fill(0xa5);
        bytes
    };
    let cases = [
        ("not a database", b"hello, I am a text\n".repeat(500)),
        ("truncated", good[..good.len() / 2].to_vec()),
        ("the tables are garbage", damaged(100)),
        ("all of it is garbage", damaged(0)),
    ];
    for (case, bytes) in cases {
        let (_folder, path) = place();
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, &bytes).unwrap();
        fs::write(path.with_file_name("trunkline.db-wal"), "not a log").unwrap();
        for _ in 0..2 {
            let refused = Store::open(&path).await;
            let Err(error @ StoreError::Damaged { .. }) = refused else { panic!("{case}: {refused:?}") };
            assert!(error.remedy().unwrap().contains(&format!("move {}", path.display())), "{case}: {error}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "{case}");
        }
        let status = DatabaseStatus::of(&path).await.unwrap();
        assert!(!status.wrong.is_empty(), "{case}: {status:?}");
    }
}

#[tokio::test]
async fn database_is_refused_when_damage_was_found_while_it_was_in_use() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    for _ in 0..200 {
        begin(&store, &ClientId::local()).await;
    }
    store.close().await;
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let store = Store::open(&path).await.unwrap();
    assert_ne!(store.check().await.unwrap(), Vec::<String>::new());
    store.close().await;
    for _ in 0..2 {
        let refused = Store::open(&path).await;
        assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn status_of_an_intact_database_has_no_problems() {
    let (_folder, path) = place();
    assert_eq!(DatabaseStatus::of(&path).await, None, "the check does not create a file");
    assert!(!path.exists());
    let store = Store::open(&path).await.unwrap();
    begin(&store, &ClientId::local()).await;
    let found = DatabaseStatus::of(&path).await.unwrap();
    assert!(found.size > 4096 && found.free.unwrap() > 0 && found.version >= Some(1), "{found:?}");
    assert_eq!(found.wrong, Vec::<String>::new());
}

#[tokio::test]
async fn intact_database_is_opened_when_it_was_marked_suspect() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    begin(&store, &ClientId::local()).await;
    store.close().await;
    fs::write(path.with_file_name("trunkline.db-suspect"), "").unwrap();
    assert_eq!(count(&Store::open(&path).await.unwrap()).await, 1);
    assert_eq!(names(&path, "trunkline.db-suspect"), Vec::<String>::new());
}

#[tokio::test]
async fn database_can_be_opened_several_times_at_once() {
    let (_folder, path) = place();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let path = path.clone();
        tasks.spawn(async move {
            let store = Store::open(&path).await.unwrap();
            begin(&store, &ClientId::local()).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(count(&Store::open(&path).await.unwrap()).await, 8);
}

#[tokio::test]
async fn open_fails_when_path_is_not_accessible() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    fs::create_dir(folder.path().join(DATABASE_FILE)).unwrap();
    for path in [
        folder.path().join("file").join(DATABASE_FILE),
        folder.path().join(DATABASE_FILE),
        Path::new("/proc/nowhere").join(DATABASE_FILE),
    ] {
        let refused = Store::open(&path).await;
        assert!(matches!(refused, Err(StoreError::Open { .. })), "{}: {refused:?}", path.display());
    }
}
