//! Runs: what their rows say, page by page, and who was first under a key.

use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{
    Claim, Claimed, LogState, Outcome, Owner, Record, RunState, Runs, Store, Time, TurnBegun, TurnEnded,
};

use crate::world::{Archive, begun, ended};

async fn kept(records: Vec<Record>) -> Store {
    let store = Store::in_memory().await.unwrap();
    let archive = Archive::new(&store);
    archive.send_all(records).await;
    assert_eq!(archive.end().await.lost, 0);
    store
}

fn begun_by(run: &str, owner: &str, gateway: &str) -> Record {
    let Record::Begun(begun) = begun(run, None) else { panic!("it begins") };
    Record::Begun(TurnBegun { owner: Owner::new(owner), gateway: gateway.into(), ..begun })
}

fn started(run: &str) -> Record {
    Record::Started { run: run.into(), provider: "codex".into(), time: Time::now() }
}

fn failed(run: &str, category: Category) -> Record {
    let Record::Ended(ended) = ended(run) else { panic!("it ends") };
    let (outcome, log) = (Outcome::Failed(category), Some(LogState::Incomplete));
    Record::Ended(TurnEnded { outcome, answer: "why".into(), log, ..ended })
}

#[tokio::test]
async fn a_row_goes_from_state_to_state() {
    let receipt = Receipt { base: "b".into(), branch: Some("trunkline/e".into()), ..Receipt::default() };
    let store = kept(vec![
        begun("a", None),
        begun("b", None),
        started("b"),
        begun("c", None),
        started("c"),
        ended("c"),
        // Late, as of another try.
        started("c"),
        begun("d", None),
        failed("d", Category::Cancelled),
        begun("e", None),
        Record::Workspace { run: "e".into(), receipt: receipt.clone() },
        failed("e", Category::Server),
    ])
    .await;
    let rows = store.runs(&Runs { limit: 10, ..Runs::default() }).await.unwrap();
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
async fn runs_are_found_by_what_they_are_and_are_their_owners() {
    let store =
        kept(vec![begun_by("1a", "x", ""), begun_by("1b", "y", ""), begun_by("2c", "x", ""), started("2c")]).await;
    let ids = async |which: Runs| -> Vec<String> {
        store.runs(&Runs { limit: 10, ..which }).await.unwrap().into_iter().map(|row| row.id).collect()
    };
    let x = Some(Owner::new("x"));
    assert_eq!(ids(Runs { owner: x.clone(), ..Runs::default() }).await, ["2c", "1a"]);
    assert_eq!(ids(Runs { owner: x.clone(), after: Some("2c".into()), ..Runs::default() }).await, ["1a"]);
    assert_eq!(ids(Runs { state: Some(RunState::Running), ..Runs::default() }).await, ["2c"]);
    assert_eq!(ids(Runs { begins: Some("1".into()), ..Runs::default() }).await, ["1b", "1a"]);
    assert_eq!(ids(Runs { model: Some("%".into()), ..Runs::default() }).await, Vec::<String>::new());
    assert!(store.run("1b", x.as_ref()).await.unwrap().is_none());
    assert!(store.run("1b", None).await.unwrap().is_some());
}

#[tokio::test]
async fn a_run_is_interrupted_once_and_never_after_its_end() {
    let store = kept(vec![begun_by("a", "x", "gone"), begun("b", None), ended("b")]).await;
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
async fn the_first_under_a_key_is_the_run() {
    let store = Store::in_memory().await.unwrap();
    let (owner, other) = (Owner::new("x"), Owner::new("y"));
    let since = Time::ago(Duration::from_secs(60));
    let claim = async |owner: &Owner, request: u8, run: &str, since: Time| {
        let claim = Claim { owner, key: &[7; 32], request: &[request; 32], run, since };
        store.claim(&claim).await.unwrap()
    };
    assert_eq!(claim(&owner, 1, "a", since).await, Claimed::New);
    assert_eq!(claim(&owner, 1, "b", since).await, Claimed::Known("a".into()));
    assert_eq!(claim(&owner, 2, "b", since).await, Claimed::Other);
    assert_eq!(claim(&other, 2, "c", since).await, Claimed::New);
    store.unclaim("a").await.unwrap();
    assert_eq!(claim(&owner, 2, "d", since).await, Claimed::New);
    let later = Time::from_millis(Time::now().millis() + 60_000);
    assert_eq!(claim(&owner, 1, "e", later).await, Claimed::New, "what is too old is forgotten");
}
