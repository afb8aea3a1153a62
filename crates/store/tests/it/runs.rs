//! Tests the run index and idempotency keys.

use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{
    ClaimResult, ClientId, IdempotencyClaim, LogRecord, LogState, RunAccepted, RunEnded, RunFilter, RunOutcome, RunRow,
    RunState, RunWorkspace, Store, Time,
};

use crate::fixture::{TestProcess, TestRecord, accepted, end, open, started};

fn accepted_by(run: &str, owner: &str, gateway: &str) -> RunAccepted {
    RunAccepted { owner: ClientId::new(owner), gateway: gateway.into(), ..accepted(run, None) }
}

fn failed(category: Category) -> RunEnded {
    let (outcome, log) = (RunOutcome::Failed(category), Some(LogState::Incomplete));
    RunEnded { outcome, message: Some("why".into()), log, ..end() }
}

fn workspace(receipt: &Receipt) -> LogRecord {
    LogRecord::Workspace(Box::new(RunWorkspace { at: Time::now(), receipt: receipt.clone() }))
}

#[tokio::test]
async fn row_follows_the_states_of_its_run() {
    let receipt = Receipt { base: "b".into(), branch: Some("trunkline/e".into()), ..Receipt::default() };
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for run in ["a", "b", "c", "d", "e"] {
        process.write(run, accepted(run, None));
    }
    process.write("b", started());
    process.write("c", started());
    process.write("c", end());
    process.write("d", failed(Category::Cancelled));
    process.write("e", workspace(&receipt));
    process.write("e", failed(Category::Server));
    let all = RunFilter { limit: 10, ..RunFilter::default() };
    let pending = process.store.runs(&all).await.unwrap();
    let store = process.end().await;
    let rows = store.runs(&all).await.unwrap();
    assert_eq!(rows, pending, "rows are the same before and after they are in the database");
    let states: Vec<(&str, RunState)> = rows.iter().map(|row| (row.id.as_str(), row.state)).collect();
    let expected = [
        ("e", RunState::Failed),
        ("d", RunState::Cancelled),
        ("c", RunState::Finished),
        ("b", RunState::Running),
        ("a", RunState::Queued),
    ];
    assert_eq!(states, expected);
    assert_eq!((rows[0].workspace.as_ref(), rows[0].log), (Some(&receipt), Some(LogState::Incomplete)));
    let error = rows[0].error.as_ref().unwrap();
    assert_eq!((error.category, error.message.as_str()), (Category::Server, "why"));
    assert_eq!((rows[2].error.as_ref(), rows[2].duration_ms, rows[2].attempts), (None, Some(1234), 1));
    let open: Vec<String> = store.open_runs().await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(open, ["a", "b"]);
}

/// Another process may write the row of a run that it has read from the log before the latest records.
#[tokio::test]
async fn row_is_never_replaced_by_an_earlier_state_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let [process, other] = [TestProcess::start(folder.path()).await, TestProcess::start(folder.path()).await];
    let mut states = Vec::new();
    for record in [TestRecord::from(accepted("r", None)), started().into(), end().into()] {
        process.write("r", record);
        states.push(process.store.run("r", None).await.unwrap().unwrap());
    }
    for (present, row) in states.iter().enumerate() {
        for (arriving, late) in states.iter().enumerate() {
            let id = format!("{present}-{arriving}");
            process.feed.add(RunRow { id: id.clone(), ..row.clone() });
            process.feed.flush().await.unwrap();
            other.feed.add(RunRow { id: id.clone(), ..late.clone() });
            other.feed.flush().await.unwrap();
            let stored = open(folder.path()).await.run(&id, None).await.unwrap().unwrap();
            assert_eq!(stored, RunRow { id, ..states[present.max(arriving)].clone() });
        }
    }
}

#[tokio::test]
async fn work_that_is_saved_late_is_added_to_a_run_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    process.write_run("r", None);
    process.feed.flush().await.unwrap();
    let receipt = Receipt { base: "late".into(), ..Receipt::default() };
    process.write("r", workspace(&receipt));
    let store = process.end().await;
    let row = store.run("r", None).await.unwrap().unwrap();
    assert_eq!((row.state, row.workspace), (RunState::Finished, Some(receipt)));
}

#[tokio::test]
async fn runs_are_filtered_and_belong_to_one_client() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for (run, owner) in [("1a", "x"), ("1b", "y"), ("2c", "x")] {
        process.write(run, accepted_by(run, owner, ""));
    }
    process.write("2c", started());
    let check = async |store: &Store| {
        let ids = async |filter: RunFilter| -> Vec<String> {
            store.runs(&RunFilter { limit: 10, ..filter }).await.unwrap().into_iter().map(|row| row.id).collect()
        };
        let x = Some(ClientId::new("x"));
        assert_eq!(ids(RunFilter { owner: x.clone(), ..RunFilter::default() }).await, ["2c", "1a"]);
        assert_eq!(ids(RunFilter { owner: x.clone(), after: Some("2c".into()), ..RunFilter::default() }).await, ["1a"]);
        assert_eq!(ids(RunFilter { state: Some(RunState::Running), ..RunFilter::default() }).await, ["2c"]);
        assert_eq!(ids(RunFilter { begins: Some("1".into()), ..RunFilter::default() }).await, ["1b", "1a"]);
        assert_eq!(ids(RunFilter { model: Some("%".into()), ..RunFilter::default() }).await, Vec::<String>::new());
        let first = store.runs(&RunFilter { limit: 1, ..RunFilter::default() }).await.unwrap();
        assert_eq!(first.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["2c"]);
        assert!(store.run("1b", x.as_ref()).await.unwrap().is_none());
        assert!(store.run("1b", None).await.unwrap().is_some());
    };
    check(&process.store).await;
    check(&process.end().await).await;
}

#[tokio::test]
async fn run_is_interrupted_once_and_never_after_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    process.write("a", accepted_by("a", "x", "gone"));
    process.write_run("b", None);
    process.end().await.close().await;
    let store = open(folder.path()).await;
    let why = RunEnded::interrupted(&Failure::new(Category::Server, "interrupted"), Time::now());
    let receipt = Receipt { base: "b".into(), ..Receipt::default() };
    assert!(store.interrupt_run("a", &why, Some(&receipt)).await.unwrap());
    assert!(!store.interrupt_run("a", &why, None).await.unwrap());
    assert!(!store.interrupt_run("b", &why, None).await.unwrap());
    let row = store.run("a", None).await.unwrap().unwrap();
    assert_eq!(
        (row.state, row.workspace, row.gateway.as_deref()),
        (RunState::Interrupted, Some(receipt), Some("gone"))
    );
    assert_eq!(store.run("b", None).await.unwrap().unwrap().state, RunState::Finished);
}

#[tokio::test]
async fn first_request_with_a_key_is_the_run() {
    let store = Store::in_memory().await.unwrap();
    let (owner, other) = (ClientId::new("x"), ClientId::new("y"));
    let since = Time::ago(Duration::from_secs(60));
    let claim = async |owner: &ClientId, request: u8, run: &str, since: Time| {
        let claim = IdempotencyClaim { owner, key: &[7; 32], request: &[request; 32], run, gateway: "g", since };
        store.claim(&claim).await.unwrap()
    };
    assert_eq!(claim(&owner, 1, "a", since).await, ClaimResult::New);
    assert_eq!(claim(&owner, 1, "b", since).await, ClaimResult::Known { run: "a".into(), gateway: Some("g".into()) });
    assert_eq!(claim(&owner, 2, "b", since).await, ClaimResult::Other);
    assert_eq!(claim(&other, 2, "c", since).await, ClaimResult::New);
    store.unclaim("a").await.unwrap();
    assert_eq!(claim(&owner, 2, "d", since).await, ClaimResult::New);
    let later = Time::from_millis(Time::now().millis() + 60_000);
    assert_eq!(claim(&owner, 1, "e", later).await, ClaimResult::New, "an old key has expired");
}
