//! Tests a database that is deleted while processes use it: they continue with a new one, filled from the log.

use std::fs;
use std::path::Path;

use tokio::task::JoinSet;
use trunkline_store::{
    ClaimResult, ClientId, DATABASE_FILE, IdempotencyClaim, KeyClaim, RunAccepted, RunFilter, RunState, SessionKey,
    Store, Time,
};

use crate::fixture::{TestProcess, accepted, delete_database, end, open, started, state};

async fn runs(store: &Store) -> Vec<(String, RunState)> {
    let rows = store.runs(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    rows.into_iter().map(|row| (row.id, row.state)).rev().collect()
}

async fn claim(store: &Store, key: u8, run: &str) -> ClaimResult {
    let owner = ClientId::local();
    let (key, since) = ([key; 32], Time::from_millis(0));
    store.claim(&IdempotencyClaim { owner: &owner, key: &key, request: &key, run, gateway: "g", since }).await.unwrap()
}

/// Claims a key for a run with a session, as the engine does.
async fn write_run(process: &TestProcess, number: u8) {
    let (run, session) = (format!("r{number}"), format!("s{number}"));
    assert_eq!(claim(&process.store, number, &run).await, ClaimResult::New);
    let key = Some(KeyClaim { key: [number; 32], request: [number; 32] });
    process.write(&run, RunAccepted { key, ..accepted(&run, None) });
    process.write(&run, state(&session, number.into(), &[number]));
    process.write(&run, end());
}

/// Checks that the store has the runs with these numbers, with their keys, sessions and histories.
async fn check(store: &Store, numbers: &[u8]) {
    let expected: Vec<_> = numbers.iter().map(|number| (format!("r{number}"), RunState::Finished)).collect();
    assert_eq!(runs(store).await, expected);
    let owner = ClientId::local();
    for number in numbers {
        let (run, session) = (format!("r{number}"), SessionKey(format!("s{number}")));
        assert!(matches!(claim(store, *number, "again").await, ClaimResult::Known { run: found, .. } if found == run));
        assert!(store.session(&session, &owner).await.unwrap().is_some(), "{session}");
        assert_eq!(store.chain_find(&owner, "m", &[[*number; 32]]).await.unwrap(), Some((0, session)));
    }
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

/// The inode of the database.
fn inode(folder: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(folder.join(DATABASE_FILE)).ok().map(|file| file.ino())
}

#[tokio::test]
async fn process_continues_with_a_new_database_when_it_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let other = TestProcess::start(folder.path()).await;
    write_run(&process, 1).await;
    write_run(&other, 2).await;
    process.feed.flush().await.unwrap();
    other.feed.flush().await.unwrap();
    let first = inode(folder.path());

    // Found by a query.
    delete_database(folder.path());
    check(&process.store, &[1, 2]).await;
    assert!(inode(folder.path()).is_some() && inode(folder.path()) != first);

    // Found by the task that writes rows.
    delete_database(folder.path());
    process.write("open", accepted("open", None));
    process.write("open", started());
    process.feed.flush().await.unwrap();
    let rest = vec![("open".to_owned(), RunState::Running), ("r1".into(), RunState::Finished)];
    assert_eq!(runs(&open(folder.path()).await).await[..2], rest);
    process.write("open", end());

    // Both processes have the same file again.
    write_run(&process, 3).await;
    assert!(matches!(claim(&other.store, 3, "again").await, ClaimResult::Known { .. }));
    write_run(&other, 4).await;
    assert!(matches!(claim(&process.store, 4, "again").await, ClaimResult::Known { .. }));
    process.end().await.close().await;
    other.kill().await;
    let store = open(folder.path()).await;
    assert_eq!(runs(&store).await.len(), 5);
    store.close().await;
    delete_database(folder.path());
    assert_eq!(runs(&open(folder.path()).await).await.len(), 5, "the same from the log alone");
}

#[tokio::test]
async fn every_query_is_answered_completely_when_the_database_is_deleted_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for number in 1..=3 {
        write_run(&process, number).await;
    }
    process.feed.flush().await.unwrap();
    for round in 0..5 {
        delete_database(folder.path());
        let mut queries = JoinSet::new();
        for query in 0..8 {
            let store = process.store.clone();
            queries.spawn(async move { assert_eq!(runs(&store).await.len(), 3, "round {round}, query {query}") });
        }
        while let Some(done) = queries.join_next().await {
            done.unwrap();
        }
    }
    check(&process.store, &[1, 2, 3]).await;
    process.end().await;
}

#[tokio::test]
async fn process_uses_the_former_database_while_the_new_one_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    write_run(&process, 1).await;
    process.feed.flush().await.unwrap();
    check(&process.store, &[1]).await;
    delete_database(folder.path());
    let path = folder.path().join(DATABASE_FILE);
    fs::create_dir(&path).unwrap();
    write_run(&process, 2).await;
    process.feed.flush().await.unwrap();
    fs::remove_dir(&path).unwrap();
    check(&process.store, &[1, 2]).await;
    process.end().await.close().await;
    check(&open(folder.path()).await, &[1, 2]).await;
}
