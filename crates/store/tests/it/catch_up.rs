//! Tests that the log of a killed process is indexed, wherever it was killed.

use trunkline_core::event::Receipt;
use trunkline_store::{
    ClaimResult, ClientId, DATABASE_FILE, IdempotencyClaim, KeyClaim, LogRecord, RunAccepted, RunEnded, RunFilter,
    RunState, RunWorkspace, SessionKey, Store, Time,
};

use crate::fixture::{
    TestProcess, TestRecord, accepted, delete_database, end, event, finished, open, started, state, text,
};

const KEY: KeyClaim = KeyClaim { key: [9; 32], request: [9; 32] };

/// The records of a run, in order.
fn records(run: &str) -> Vec<LogRecord> {
    let session = SessionKey("s".into());
    let accepted = RunAccepted { key: Some(KEY), ..accepted(run, Some(&session)) };
    let receipt = Receipt { base: "b".into(), ..Receipt::default() };
    let workspace = LogRecord::Workspace(Box::new(RunWorkspace { at: Time::now(), receipt }));
    let ended = RunEnded { session: Some(session), ..end() };
    vec![
        TestRecord::from(accepted).0,
        started(),
        event(0, text("hi")),
        event(1, finished("answer")),
        workspace,
        TestRecord::from(state("s", 7, &[1])).0,
        TestRecord::from(ended).0,
    ]
}

async fn key_is_known(store: &Store) -> bool {
    let owner = ClientId::local();
    let claim = IdempotencyClaim {
        owner: &owner,
        key: &KEY.key,
        request: &KEY.request,
        run: "test",
        gateway: "g",
        since: Time::from_millis(0),
    };
    let known = matches!(store.claim(&claim).await.unwrap(), ClaimResult::Known { run, .. } if run == "r");
    store.unclaim("test").await.unwrap();
    known
}

/// Checks a store that has the first `count` records.
async fn check(store: &Store, count: usize, case: &str) {
    let Some(row) = store.run("r", None).await.unwrap() else {
        assert_eq!(count, 0, "{case}");
        return;
    };
    let expected = match count {
        0 => panic!("{case}: {row:?}"),
        1 => RunState::Queued,
        2..7 => RunState::Running,
        _ => RunState::Finished,
    };
    assert_eq!(row.state, expected, "{case}");
    assert_eq!(row.workspace.is_some(), count > 4, "{case}");
    assert_eq!(store.events("r", 0).await.unwrap().len(), usize::from(count > 2), "{case}");
    let answer = store.turn("r").await.unwrap().unwrap().answer;
    assert_eq!(answer.as_deref(), (count > 6).then_some("answer"), "{case}");
    let session = store.session(&SessionKey("s".into()), &ClientId::local()).await.unwrap();
    assert_eq!(session.map(|session| session.turns), (count > 5).then_some(7), "{case}");
    let head = store.chain_find(&ClientId::local(), "m", &[[1; 32]]).await.unwrap();
    assert_eq!(head.is_some(), count > 5, "{case}");
    assert_eq!(row.session.is_some(), count > 5, "{case}: a session that exists");
    assert!(key_is_known(store).await, "{case}");
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new(), "{case}");
}

/// For each number of records in the index, and each larger number of records in the log.
#[tokio::test]
async fn rest_of_a_killed_process_is_indexed() {
    let all = records("r");
    for indexed in 0..=all.len() {
        for written in indexed..=all.len() {
            let folder = tempfile::tempdir().unwrap();
            let process = TestProcess::start(folder.path()).await;
            if indexed > 0 {
                // The engine claims the key in the database before it accepts the run.
                let (owner, since) = (ClientId::local(), Time::from_millis(0));
                let claim = IdempotencyClaim {
                    owner: &owner,
                    key: &KEY.key,
                    request: &KEY.request,
                    run: "r",
                    gateway: "g",
                    since,
                };
                process.store.claim(&claim).await.unwrap();
            }
            for record in &all[..indexed] {
                process.try_write("r", record).unwrap();
            }
            process.feed.flush().await.unwrap();
            // Only to the log: the process is killed before its task writes the rows.
            let mut lines = Vec::new();
            for record in &all[indexed..written] {
                trunkline_store::log_line(&mut lines, "r", record);
            }
            if !lines.is_empty() {
                process.log.append(&lines, trunkline_store::Purpose::Continue, |_| ()).unwrap();
            }
            process.kill().await;
            for rebuilt in [false, true] {
                let store = if rebuilt {
                    Store::in_memory_with_log(folder.path()).await.unwrap()
                } else {
                    open(folder.path()).await
                };
                check(&store, written, &format!("{indexed} of {written} indexed, rebuilt: {rebuilt}")).await;
                store.close().await;
            }
        }
    }
}

#[tokio::test]
async fn histories_are_outdated_when_a_killed_process_had_started_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let (process, _task) = TestProcess::without_task(folder.path()).await;
    process.write("r", state("running", 5, &[5]));
    process.write("r", state("continued", 5, &[6]));
    process.write("r", state("done", 5, &[7]));
    process.write("r", state("theirs", 5, &[8]));
    process.write("r1", accepted("r1", Some(&SessionKey("running".into()))));
    process.write("r2", accepted("r2", None));
    let continued =
        trunkline_store::RunContinued { at: Time::now(), session: SessionKey("continued".into()), prompt: "p".into() };
    process.write("r2", LogRecord::Continued(continued));
    process.write("r3", accepted("r3", Some(&SessionKey("done".into()))));
    let mut done = state("done", 6, &[7]);
    done.session.used = Time::now();
    process.write("r3", done);
    process.write("r3", end());
    let other = RunAccepted { owner: ClientId::new("b"), ..accepted("r4", Some(&SessionKey("theirs".into()))) };
    process.write("r4", other);
    process.kill().await;
    let store = open(folder.path()).await;
    let found = async |hash: u8| {
        let found = store.chain_find(&ClientId::local(), "m", &[[hash; 32]]).await.unwrap();
        found.map(|(_, session)| session.0)
    };
    assert_eq!((found(5).await, found(6).await), (None, None), "a turn was running in them");
    assert_eq!(found(7).await.as_deref(), Some("done"));
    assert_eq!(found(8).await.as_deref(), Some("theirs"), "another client cannot take it");
    let session = store.session(&SessionKey("running".into()), &ClientId::local()).await.unwrap();
    assert_eq!(session.map(|session| session.turns), Some(5), "the session is still found by its id");
}

#[tokio::test]
async fn key_belongs_to_the_second_run_when_the_first_released_it() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let (owner, since) = (ClientId::local(), Time::from_millis(0));
    let claim =
        IdempotencyClaim { owner: &owner, key: &KEY.key, request: &KEY.request, run: "first", gateway: "g", since };
    process.store.claim(&claim).await.unwrap();
    process.write("first", RunAccepted { key: Some(KEY), ..accepted("first", None) });
    process.feed.flush().await.unwrap();
    let mut lines = Vec::new();
    let released = TestRecord::from(RunEnded { key_released: true, ..end() }).0;
    trunkline_store::log_line(&mut lines, "first", &released);
    let again = TestRecord::from(RunAccepted { key: Some(KEY), ..accepted("r", None) }).0;
    trunkline_store::log_line(&mut lines, "r", &again);
    process.log.append(&lines, trunkline_store::Purpose::Accept, |_| ()).unwrap();
    process.kill().await;
    for _ in 0..2 {
        let store = open(folder.path()).await;
        assert!(key_is_known(&store).await);
        assert_eq!(store.runs(&RunFilter { limit: 9, ..RunFilter::default() }).await.unwrap().len(), 2);
        store.close().await;
        delete_database(folder.path());
    }
}

#[tokio::test]
async fn run_of_a_living_process_is_found_before_that_process_has_indexed_it() {
    let folder = tempfile::tempdir().unwrap();
    let (process, _task) = TestProcess::without_task(folder.path()).await;
    process.write("first", accepted("first", None));
    let other = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    assert_eq!(other.run("first", None).await.unwrap().unwrap().state, RunState::Queued);
    process.write("first", end());
    process.write("second", accepted("second", None));
    let other = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    assert_eq!(other.run("first", None).await.unwrap().unwrap().state, RunState::Finished);
    assert_eq!(other.run("second", None).await.unwrap().unwrap().state, RunState::Queued);
}
