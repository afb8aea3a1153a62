//! Files as they are found: none, old, newer, broken, in use, in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use tokio::task::JoinSet;
use trunkline_store::{Condition, FILE, Filter, Owner, Store, StoreError};

use crate::world::begin;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state").join(FILE);
    (folder, path)
}

async fn sql(path: &Path, statement: &'static str) -> Vec<i64> {
    let mut connection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let answer = sqlx::query_scalar(statement).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    answer
}

/// The names in the database's folder that begin like this.
fn names(path: &Path, prefix: &str) -> Vec<String> {
    let all = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    all.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with(prefix)).collect()
}

async fn count(store: &Store) -> usize {
    store.sessions(&Filter::default()).await.unwrap().len()
}

#[tokio::test]
async fn a_new_one_is_private_and_can_shrink() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    begin(&store, &Owner::local()).await;
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
async fn case_74_one_of_a_newer_version_is_refused_and_left_alone() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    store.close().await;
    sql(&path, "PRAGMA user_version = 99").await;
    let before = fs::read(&path).unwrap();
    let refused = Store::open(&path).await;
    let Err(error @ StoreError::Newer { found: 99, .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("newer version of trunkline (format 99"), "{error}");
    assert!(fs::read(&path).unwrap() == before);
    let condition = Condition::of(&path).await.unwrap();
    assert_eq!((condition.version, condition.wrong.len()), (Some(99), 1), "{condition:?}");
}

#[tokio::test]
async fn case_74_a_broken_one_is_refused_and_left_alone() {
    let (_folder, good) = place();
    let store = Store::open(&good).await.unwrap();
    begin(&store, &Owner::local()).await;
    store.close().await;
    let good = fs::read(good).unwrap();
    let damaged = |from: usize| {
        let mut bytes = good.clone();
        bytes[from..].fill(0xa5);
        bytes
    };
    let cases = [
        ("no database at all", b"hello, I am a text\n".repeat(500)),
        ("cut off", good[..good.len() / 2].to_vec()),
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
        let condition = Condition::of(&path).await.unwrap();
        assert!(!condition.wrong.is_empty(), "{case}: {condition:?}");
    }
}

#[tokio::test]
async fn damage_that_is_found_later_is_seen_to_by_the_next_to_open() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    for _ in 0..200 {
        begin(&store, &Owner::local()).await;
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
async fn one_that_is_well_is_said_to_be() {
    let (_folder, path) = place();
    assert_eq!(Condition::of(&path).await, None, "looking does not make one");
    assert!(!path.exists());
    let store = Store::open(&path).await.unwrap();
    begin(&store, &Owner::local()).await;
    let found = Condition::of(&path).await.unwrap();
    assert!(found.size > 4096 && found.free.unwrap() > 0 && found.version >= Some(1), "{found:?}");
    assert_eq!(found.wrong, Vec::<String>::new());
}

#[tokio::test]
async fn a_suspicion_that_is_wrong_costs_nothing() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    begin(&store, &Owner::local()).await;
    store.close().await;
    fs::write(path.with_file_name("trunkline.db-suspect"), "").unwrap();
    assert_eq!(count(&Store::open(&path).await.unwrap()).await, 1);
    assert_eq!(names(&path, "trunkline.db-suspect"), Vec::<String>::new());
}

#[tokio::test]
async fn many_who_open_it_at_once_share_one() {
    let (_folder, path) = place();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let path = path.clone();
        tasks.spawn(async move {
            let store = Store::open(&path).await.unwrap();
            begin(&store, &Owner::local()).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(count(&Store::open(&path).await.unwrap()).await, 8);
}

#[tokio::test]
async fn a_place_where_nothing_can_be_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    fs::create_dir(folder.path().join(FILE)).unwrap();
    for path in [folder.path().join("file").join(FILE), folder.path().join(FILE), Path::new("/proc/nowhere").join(FILE)]
    {
        let refused = Store::open(&path).await;
        assert!(matches!(refused, Err(StoreError::Open { .. })), "{}: {refused:?}", path.display());
    }
}
