//! Tests that a state folder of version 2 is upgraded completely, also when the upgrade is killed.

use std::fs::{self, File};
use std::path::Path;

use sqlx::Connection;
use trunkline_core::event::Event;
use trunkline_core::failure::Category;
use trunkline_store::{
    ClaimResult, ClientId, DATABASE_FILE, ExportFilter, IdempotencyClaim, RunFilter, RunOutcome, RunState,
    SessionFilter, SessionKey, Store, StoreError, Time,
};

use crate::fixture::{TestProcess, delete_database, open, segments, text};
use crate::version_2::{JOURNALED, TORN_LOG, WITH_LOG, connect, version_2, write_journal, write_logs};

/// Everything about runs and sessions, as text.
async fn content(store: &Store) -> String {
    let mut content = String::new();
    for mut row in store.runs(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap() {
        assert!(row.position.take().is_some(), "{} is in the log", row.id);
        content += &format!("{row:?}\n");
    }
    content += &format!("{:?}\n", store.sessions(&SessionFilter::default()).await.unwrap());
    let mut export = Vec::new();
    store.export(&ExportFilter::default(), &mut export).await.unwrap();
    content + &String::from_utf8(export).unwrap()
}

async fn check(store: &Store) {
    let runs = store.runs(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    let states: Vec<_> = runs.iter().map(|row| (row.id.as_str(), row.state)).collect();
    let expected = [
        ("table-2", RunState::Interrupted),
        ("table-1", RunState::Failed),
        ("open", RunState::Running),
        (JOURNALED, RunState::Finished),
        (TORN_LOG, RunState::Finished),
        (WITH_LOG, RunState::Finished),
    ];
    assert_eq!(states, expected);
    let first = runs.last().unwrap();
    let times = [Some(first.begun), first.started, first.ended].map(|time| time.unwrap().millis());
    assert_eq!((times, first.attempts, first.detached, first.usage.input_tokens), ([50, 55, 70], 2, true, 7));
    assert_eq!(first.workspace.as_ref().unwrap().base, "b");
    let turn = async |run| store.turn(run).await.unwrap().unwrap();
    let answers = [turn(WITH_LOG).await, turn(TORN_LOG).await, turn(JOURNALED).await, turn("table-1").await];
    let answers = answers.map(|turn| (turn.prompt, turn.answer.unwrap()));
    let expected = [("first", "yes"), ("second", "whole"), ("journaled", "late"), ("third", "too slow")];
    assert_eq!(answers, expected.map(|(prompt, answer)| (prompt.to_owned(), answer.to_owned())));
    assert_eq!(turn("table-1").await.outcome, Some(RunOutcome::Failed(Category::Timeout)));
    let events = async |run| {
        let events = store.events(run, 0).await.unwrap();
        events.into_iter().map(|row| (row.sequence, row.event)).collect::<Vec<_>>()
    };
    assert_eq!(events(WITH_LOG).await, [(0, text("yes"))]);
    assert_eq!(events(TORN_LOG).await, [(0, text("who"))]);
    let unknown = Event::Unknown { line: "{\"type\":\"later\"}".into() };
    assert_eq!(events("table-1").await, [(0, text("merged")), (5, unknown)]);

    let local = ClientId::local();
    let session = async |id: &str| store.session(&SessionKey(id.into()), &local).await.unwrap().unwrap();
    let (one, fork) = (session("s1").await, session("s2").await);
    assert_eq!((one.turns, &*one.native.unwrap().0, one.used.millis()), (3, "native-1", 90));
    assert_eq!((fork.turns, &*fork.native.unwrap().0, fork.used.millis()), (1, "native-2", 95));
    assert_eq!(fork.parent, Some(one.id));
    for (model, hash, id) in [("asked", 7, "s1"), ("m", 5, "s2")] {
        let found = store.chain_find(&local, model, &[[hash; 32]]).await.unwrap();
        assert_eq!(found, Some((0, SessionKey(id.into()))));
    }
    let (key, request, since) = ([9; 32], [8; 32], Time::from_millis(0));
    let claim = IdempotencyClaim { owner: &local, key: &key, request: &request, run: "x", gateway: "g", since };
    assert_eq!(store.claim(&claim).await.unwrap(), ClaimResult::Known { run: "table-1".into(), gateway: None });
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

fn assert_old_files_are_gone(state: &Path) {
    assert!(!state.join("journal").exists() && !state.join("runs/0198f").exists());
    assert!(state.join("runs/4711-99/scratch").exists(), "belongs to a gateway");
}

#[tokio::test]
async fn state_of_version_2_is_upgraded_completely() {
    let folder = version_2().await;
    let store = open(folder.path()).await;
    check(&store).await;
    assert_old_files_are_gone(folder.path());
    let before = content(&store).await;
    store.close().await;
    // Once: a second start changes nothing, and the database can be rebuilt.
    let bytes = fs::read(&segments(folder.path())[0]).unwrap();
    for _ in 0..2 {
        let store = open(folder.path()).await;
        check(&store).await;
        assert_eq!(content(&store).await, before);
        store.close().await;
        delete_database(folder.path());
    }
    assert_eq!(fs::read(&segments(folder.path())[0]).unwrap(), bytes);
    let process = TestProcess::start(folder.path()).await;
    process.write_run("z-new", None);
    assert_eq!(process.end().await.export(&ExportFilter::default(), &mut std::io::sink()).await.unwrap(), 7);
}

/// Copies the files of a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn upgrade_is_completed_when_it_was_killed_at_any_step() {
    let done = version_2().await;
    open(done.path()).await.close().await;
    let upgraded = segments(done.path()).remove(0);

    // Before the segment has its name.
    let folder = version_2().await;
    fs::create_dir(folder.path().join("log")).unwrap();
    fs::write(folder.path().join("log/00000000-upgrade.0.upgrade"), &fs::read(&upgraded).unwrap()[..100]).unwrap();
    check(&open(folder.path()).await).await;
    assert_old_files_are_gone(folder.path());

    // Before the commit: the segment may be of an attempt that wrote more.
    let folder = version_2().await;
    copy(&done.path().join("log"), &folder.path().join("log"));
    for (number, old) in [(0, fs::read(&upgraded).unwrap()), (1, fs::read(&upgraded).unwrap())] {
        fs::write(folder.path().join(format!("log/00000000-upgrade.{number}.log")), old).unwrap();
    }
    check(&open(folder.path()).await).await;
    assert_eq!(segments(folder.path()).len(), 1);
    assert_old_files_are_gone(folder.path());

    // Before the index is written, and before the old files are removed.
    for indexed in [false, true] {
        write_logs(done.path());
        write_journal(done.path());
        if !indexed {
            let mut connection = connect(done.path()).await;
            let undo =
                "DELETE FROM segments; UPDATE turns SET log_process = NULL, log_segment = NULL, log_offset = NULL";
            sqlx::raw_sql(undo).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
        let store = open(done.path()).await;
        check(&store).await;
        store.close().await;
        assert_old_files_are_gone(done.path());
    }
}

#[tokio::test]
async fn upgrade_is_refused_while_an_earlier_version_runs() {
    let folder = version_2().await;
    let lock = File::open(folder.path().join("journal/0198f000")).unwrap();
    lock.lock().unwrap();
    let refused = Store::open(&folder.path().join(DATABASE_FILE)).await;
    assert!(matches!(refused, Err(StoreError::InUse)), "{refused:?}");
    assert!(folder.path().join("runs/0198f").exists());
    drop(lock);
    check(&open(folder.path()).await).await;
}

#[tokio::test]
async fn files_are_kept_when_their_database_is_gone() {
    let folder = version_2().await;
    delete_database(folder.path());
    open(folder.path()).await.close().await;
    assert!(folder.path().join("runs/0198f").exists() && folder.path().join("journal").exists());
}
