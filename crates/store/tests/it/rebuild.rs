//! Tests that a database that was deleted is rebuilt from the log.

use std::path::Path;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{
    ClaimResult, ClientId, IdempotencyClaim, KeyClaim, LogRecord, RunAccepted, RunContinued, RunEnded, RunFilter,
    RunOutcome, RunState, RunWorkspace, SessionFilter, SessionKey, Store, Time,
};

use crate::fixture::{TestProcess, accepted, delete_database, end, event, finished, open, started, state, text};

fn key(number: u8) -> KeyClaim {
    KeyClaim { key: [number; 32], request: [number; 32] }
}

/// Everything that can be asked of a store about runs and sessions.
#[derive(Debug, PartialEq)]
struct Content {
    runs: Vec<trunkline_store::RunRow>,
    turns: Vec<Option<trunkline_store::TurnRow>>,
    events: Vec<Vec<trunkline_store::EventRow>>,
    sessions: Vec<trunkline_store::SessionRow>,
    heads: Vec<Option<SessionKey>>,
    keys: Vec<ClaimResult>,
}

impl Content {
    async fn of(store: &Store) -> Self {
        let runs = store.runs(&RunFilter { limit: 10_000, ..RunFilter::default() }).await.unwrap();
        let (mut turns, mut events) = (Vec::new(), Vec::new());
        for run in &runs {
            turns.push(store.turn(&run.id).await.unwrap());
            events.push(store.events(&run.id, 0).await.unwrap());
        }
        let owner = ClientId::local();
        let (mut heads, mut keys) = (Vec::new(), Vec::new());
        for number in 0..20 {
            let found = store.chain_find(&owner, "m", &[[number; 32]]).await.unwrap();
            heads.push(found.map(|(_, session)| session));
            // A key that is new is claimed by this, and released again.
            let KeyClaim { key, request } = key(number);
            let claim = IdempotencyClaim {
                owner: &owner,
                key: &key,
                request: &request,
                run: "test",
                gateway: "g",
                since: Time::from_millis(0),
            };
            keys.push(match store.claim(&claim).await.unwrap() {
                // The log does not have the process that claimed the key.
                ClaimResult::Known { run, gateway: _ } => ClaimResult::Known { run, gateway: None },
                other @ (ClaimResult::New | ClaimResult::Other) => other,
            });
            store.unclaim("test").await.unwrap();
        }
        Self { runs, turns, events, sessions: store.sessions(&SessionFilter::default()).await.unwrap(), heads, keys }
    }
}

/// Claims a key and accepts a run with it, as the engine does.
async fn accept_with_key(process: &TestProcess, run: &str, number: u8) {
    let KeyClaim { key: digest, request } = key(number);
    let owner = ClientId::local();
    let claim = IdempotencyClaim {
        owner: &owner,
        key: &digest,
        request: &request,
        run,
        gateway: "g",
        since: Time::from_millis(0),
    };
    assert_eq!(process.store.claim(&claim).await.unwrap(), ClaimResult::New);
    process.write(run, RunAccepted { key: Some(key(number)), ..accepted(run, None) });
}

/// Writes runs of every kind. Names begin with `prefix`, and numbers of hashes and keys with `first`.
async fn write_all(process: &TestProcess, prefix: &str, first: u8) {
    let name = |name: &str| format!("{prefix}-{name}");
    let session = SessionKey(name("session"));
    process.write_run(&name("plain"), None);

    let run = name("in-session");
    process.write(&run, accepted(&run, Some(&session)));
    process.write(&run, started());
    process.write(&run, event(0, text("hi")));
    process.write(&run, event(1, finished("answer")));
    process.write(&run, state(&session.0, 1, &[first, first + 1]));
    process.write(&run, RunEnded { session: Some(session.clone()), ..end() });

    let run = name("continues");
    process.write(&run, accepted(&run, None));
    let continued = RunContinued { at: Time::from_millis(2), session: session.clone(), prompt: "last message".into() };
    process.write(&run, LogRecord::Continued(continued));
    process.feed.take_heads(&session);
    let mut second = state(&session.0, 3, &[first + 2]);
    second.session.native = None;
    process.write(&run, second);
    process.write(&run, end());

    let mut fork = state(&name("fork"), 4, &[first + 3]);
    fork.session.parent = Some(session);
    process.write(&run, fork);

    let run = name("failed");
    accept_with_key(process, &run, first).await;
    let receipt = Receipt { base: "b".into(), ..Receipt::default() };
    process.write(&run, LogRecord::Workspace(Box::new(RunWorkspace { at: Time::now(), receipt: receipt.clone() })));
    process
        .write(&run, RunEnded { outcome: RunOutcome::Failed(Category::Timeout), message: Some("why".into()), ..end() });

    let run = name("released");
    accept_with_key(process, &run, first + 1).await;
    process.write(&run, RunEnded { key_released: true, ..end() });
    process.feed.flush().await.unwrap();
    process.store.unclaim(&run).await.unwrap();
    accept_with_key(process, &name("released-again"), first + 1).await;

    process.write(&name("queued"), accepted(&name("queued"), None));
    process.write(&name("running"), accepted(&name("running"), None));
    process.write(&name("running"), started());
    process.write(&name("plain"), LogRecord::Workspace(Box::new(RunWorkspace { at: Time::now(), receipt })));
    process.feed.flush().await.unwrap();
}

async fn rebuilt(folder: &Path) -> Content {
    delete_database(folder);
    let store = open(folder).await;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let content = Content::of(&store).await;
    store.close().await;
    content
}

#[tokio::test]
async fn rebuilt_database_has_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    write_all(&process, "a", 0).await;
    let store = process.end().await;
    let before = Content::of(&store).await;
    store.close().await;
    assert_eq!((before.runs.len(), before.sessions.len()), (8, 2));
    assert_eq!(before.heads.iter().flatten().count(), 2);
    assert_eq!(before.keys.iter().filter(|claim| matches!(claim, ClaimResult::Known { .. })).count(), 2);
    assert_eq!(rebuilt(folder.path()).await, before);
    assert_eq!(rebuilt(folder.path()).await, before, "once more");
}

#[tokio::test]
async fn database_is_rebuilt_from_the_logs_of_several_processes_while_one_lives() {
    let folder = tempfile::tempdir().unwrap();
    let ended = TestProcess::start(folder.path()).await;
    write_all(&ended, "a", 0).await;
    let alive = TestProcess::start(folder.path()).await;
    write_all(&alive, "b", 4).await;
    ended.end().await.close().await;
    let why = RunEnded::interrupted(&Failure::new(Category::Server, "interrupted"), Time::now());
    // The living process ends a run of the other one.
    assert!(alive.store.interrupt_run("a-running", &why, None).await.unwrap());
    alive.write("a-running", why);
    alive.feed.flush().await.unwrap();
    let before = Content::of(&alive.store).await;
    assert_eq!((before.runs.len(), before.sessions.len()), (16, 4));
    assert_eq!(rebuilt(folder.path()).await, before);

    // The process continues to write to the deleted file. Its rows are indexed again once it has ended.
    alive.write("b-running", end());
    alive.write_run("b-last", None);
    alive.end().await.close().await;
    let store = open(folder.path()).await;
    for run in ["b-running", "b-last"] {
        assert_eq!(store.run(run, None).await.unwrap().unwrap().state, RunState::Finished, "{run}");
    }
}

#[tokio::test]
async fn killed_process_is_indexed_by_another_that_lives() {
    let folder = tempfile::tempdir().unwrap();
    let (killed, _task) = TestProcess::without_task(folder.path()).await;
    let other = TestProcess::start(folder.path()).await;
    killed.write_run("a", None);
    other.write_run("b", None);
    other.store.catch_up(Some(&other.log)).await.unwrap();
    assert_eq!(other.store.run("a", None).await.unwrap().unwrap().state, RunState::Finished, "not known before");
    killed.write("c", accepted("c", None));
    other.store.catch_up(Some(&other.log)).await.unwrap();
    assert_eq!(other.store.run("c", None).await.unwrap().unwrap().state, RunState::Queued);
    killed.write("c", end());
    killed.kill().await;
    drop(_task);
    other.store.catch_up(Some(&other.log)).await.unwrap();
    assert_eq!(other.store.run("c", None).await.unwrap().unwrap().state, RunState::Finished);
    let store = other.end().await;
    assert_eq!(store.runs(&RunFilter { limit: 9, ..RunFilter::default() }).await.unwrap().len(), 3);
}
