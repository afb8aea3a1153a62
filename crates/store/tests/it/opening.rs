//! Files as they are found: none, old, newer, broken, in use, in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use tokio::task::JoinSet;
use trunkline_store::{FILE, Filter, Owner, Store, StoreError};

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

const ASIDE: &str = "trunkline.db.broken-";

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
async fn one_of_a_newer_version_is_refused_and_left_alone() {
    let (_folder, path) = place();
    let store = Store::open(&path).await.unwrap();
    store.close().await;
    sql(&path, "PRAGMA user_version = 99").await;
    let before = fs::read(&path).unwrap();
    let refused = Store::open(&path).await;
    let Err(error @ StoreError::Newer { found: 99, .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("newer version of trunkline (format 99"), "{error}");
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(names(&path, ASIDE), Vec::<String>::new());
}

#[tokio::test]
async fn a_broken_one_is_moved_aside_and_a_new_one_begun() {
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
        let store = Store::open(&path).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(count(&store).await, 0, "{case}");
        begin(&store, &Owner::local()).await;
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new(), "{case}");
        let aside = names(&path, ASIDE);
        let kept = aside.iter().find(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
        let kept = kept.unwrap_or_else(|| panic!("{case}: {aside:?}"));
        assert_eq!(fs::read(path.with_file_name(kept)).unwrap(), bytes, "{case}");
        store.close().await;
        let again = Store::open(&path).await.unwrap();
        assert_eq!(count(&again).await, 1, "{case}: the new one is kept");
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
    assert_eq!(names(&path, ASIDE), Vec::<String>::new(), "its first pages are well");
    assert_ne!(store.check().await.unwrap(), Vec::<String>::new());
    store.close().await;
    let store = Store::open(&path).await.unwrap();
    assert_eq!((count(&store).await, store.check().await.unwrap()), (0, Vec::new()));
    assert_eq!(names(&path, ASIDE).len(), 1);
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
    for broken in [false, true] {
        let (_folder, path) = place();
        if broken {
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, "broken ".repeat(1000)).unwrap();
        }
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
        assert_eq!(count(&Store::open(&path).await.unwrap()).await, 8, "broken: {broken}");
        assert_eq!(names(&path, ASIDE).len(), usize::from(broken));
    }
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
