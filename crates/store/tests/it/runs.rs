//! Tests the run index and idempotency keys.

use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{
    ArchiveRecord, ClaimResult, ClientId, IdempotencyClaim, LogState, RunFilter, RunOutcome, RunState, Store, Time,
    TurnBegun, TurnEnded,
};

use crate::fixture::{TestArchive, begun, ended};

async fn stored(records: Vec<ArchiveRecord>) -> Store {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    archive.send_all(records).await;
    assert_eq!(archive.end().await.lost, 0);
    store
}

fn begun_by(run: &str, owner: &str, gateway: &str) -> ArchiveRecord {
    let ArchiveRecord::Begun(begun) = begun(run, None) else { panic!("not a beginning") };
    ArchiveRecord::Begun(TurnBegun { owner: ClientId::new(owner), gateway: gateway.into(), ..begun })
}

fn started(run: &str) -> ArchiveRecord {
    ArchiveRecord::Started { run: run.into(), provider: "codex".into(), time: Time::now() }
}

fn failed(run: &str, category: Category) -> ArchiveRecord {
    let ArchiveRecord::Ended(ended) = ended(run) else { panic!("not an end") };
    let (outcome, log) = (RunOutcome::Failed(category), Some(LogState::Incomplete));
    ArchiveRecord::Ended(TurnEnded { outcome, answer: "why".into(), log, ..ended })
}

#[tokio::test]
async fn row_follows_the_states_of_its_run() {
    let receipt = Receipt { base: "b".into(), branch: Some("trunkline/e".into()), ..Receipt::default() };
    let store = stored(vec![
        begun("a", None),
        begun("b", None),
        started("b"),
        begun("c", None),
        started("c"),
        ended("c"),
        // Of a second attempt: must not change a run that is over.
        started("c"),
        begun("d", None),
        failed("d", Category::Cancelled),
        begun("e", None),
        ArchiveRecord::Workspace { run: "e".into(), receipt: receipt.clone() },
        failed("e", Category::Server),
    ])
    .await;
    let rows = store.runs(&RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap();
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

#[tokio::test]
async fn runs_are_filtered_and_belong_to_one_client() {
    let store =
        stored(vec![begun_by("1a", "x", ""), begun_by("1b", "y", ""), begun_by("2c", "x", ""), started("2c")]).await;
    let ids = async |filter: RunFilter| -> Vec<String> {
        store.runs(&RunFilter { limit: 10, ..filter }).await.unwrap().into_iter().map(|row| row.id).collect()
    };
    let x = Some(ClientId::new("x"));
    assert_eq!(ids(RunFilter { owner: x.clone(), ..RunFilter::default() }).await, ["2c", "1a"]);
    assert_eq!(ids(RunFilter { owner: x.clone(), after: Some("2c".into()), ..RunFilter::default() }).await, ["1a"]);
    assert_eq!(ids(RunFilter { state: Some(RunState::Running), ..RunFilter::default() }).await, ["2c"]);
    assert_eq!(ids(RunFilter { begins: Some("1".into()), ..RunFilter::default() }).await, ["1b", "1a"]);
    assert_eq!(ids(RunFilter { model: Some("%".into()), ..RunFilter::default() }).await, Vec::<String>::new());
    assert!(store.run("1b", x.as_ref()).await.unwrap().is_none());
    assert!(store.run("1b", None).await.unwrap().is_some());
}

#[tokio::test]
async fn run_is_interrupted_once_and_never_after_its_end() {
    let store = stored(vec![begun_by("a", "x", "gone"), begun("b", None), ended("b")]).await;
    let why = Failure::new(Category::Server, "interrupted");
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
        let claim = IdempotencyClaim { owner, key: &[7; 32], request: &[request; 32], run, since };
        store.claim(&claim).await.unwrap()
    };
    assert_eq!(claim(&owner, 1, "a", since).await, ClaimResult::New);
    assert_eq!(claim(&owner, 1, "b", since).await, ClaimResult::Known("a".into()));
    assert_eq!(claim(&owner, 2, "b", since).await, ClaimResult::Other);
    assert_eq!(claim(&other, 2, "c", since).await, ClaimResult::New);
    store.unclaim("a").await.unwrap();
    assert_eq!(claim(&owner, 2, "d", since).await, ClaimResult::New);
    let later = Time::from_millis(Time::now().millis() + 60_000);
    assert_eq!(claim(&owner, 1, "e", later).await, ClaimResult::New, "an old key has expired");
}
