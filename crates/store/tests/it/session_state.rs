//! Tests the effects of turns on their sessions, through the feed.

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use trunkline_store::{ClientId, DATABASE_FILE, HeadCondition, RunEnded, SessionKey, SessionRow, SessionState, Store};

use crate::fixture::{TestProcess, accepted, end, open, owner, state};

async fn found(store: &Store, hash: u8) -> Option<String> {
    store.chain_find(&ClientId::local(), "m", &[[hash; 32]]).await.unwrap().map(|(_, id)| id.0)
}

/// Returns the number of turns of a session, and the provider's id.
async fn turns_and_native(store: &Store, id: &str) -> Option<(u64, String)> {
    let row = store.session(&SessionKey(id.into()), &ClientId::local()).await.unwrap()?;
    Some((row.turns, row.native?.0.to_string()))
}

/// Writes the states of sessions in one transaction.
async fn write(process: &TestProcess, states: impl IntoIterator<Item = SessionState>) {
    for state in states {
        process.write("r", state);
    }
    process.feed.flush().await.unwrap();
}

#[tokio::test]
async fn session_is_found_by_its_latest_history_only() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let store = &process.store;
    let (id, local) = (SessionKey("s".into()), ClientId::local());
    write(&process, [state("s", 1, &[1, 2])]).await;
    assert_eq!((found(store, 1).await.as_deref(), found(store, 2).await.as_deref()), (Some("s"), Some("s")));

    let mut nameless = state("s", 2, &[3]);
    nameless.session.native = None;
    write(&process, [nameless.clone(), state("other", 2, &[4]), SessionState { heads: Vec::new(), ..nameless }]).await;
    let hashes = [found(store, 1).await, found(store, 2).await, found(store, 3).await, found(store, 4).await];
    assert_eq!(hashes, [None, None, None, Some("other".to_owned())]);
    assert_eq!(turns_and_native(store, "s").await, Some((2, "native at 1".to_owned())), "an id is kept");

    write(&process, [state("s", 4, &[1, 2]), state("twin", 4, &[1])]).await;
    assert_eq!(found(store, 1).await, None, "the same history leads to two sessions");
    store.chains_forget(&SessionKey("twin".into())).await.unwrap();
    let take = async |hash: u8| store.chain_take(&local, "m", &[hash; 32], &id).await.unwrap();
    assert_eq!((take(9).await, found(store, 1).await.is_some()), (false, true), "the hash does not lead there");
    assert_eq!(
        (take(1).await, take(1).await, found(store, 2).await),
        (true, false, None),
        "the first caller takes all chains"
    );

    let mut stolen = state("s", 6, &[6]);
    stolen.session.owner = owner("thief");
    write(&process, [state("s", 5, &[5]), stolen.clone()]).await;
    write(&process, [stolen, state("s", 3, &[3])]).await;
    assert_eq!(turns_and_native(store, "s").await, Some((5, "native at 5".to_owned())));
    assert_eq!((found(store, 5).await.as_deref(), found(store, 6).await), (Some("s"), None));
    assert_eq!(found(store, 3).await, None, "an earlier state does not replace a later one");
    process.end().await;
}

#[tokio::test]
async fn heads_are_not_stored_when_their_condition_is_false() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for (hash, valid) in [(1, true), (2, false)] {
        let condition = HeadCondition::when(move || valid);
        process.write_session("r", state("s", hash.into(), &[hash]), condition).committed().await.unwrap();
        assert_eq!(found(&process.store, hash).await.is_some(), valid);
        assert_eq!(found(&process.store, 1).await.is_some(), valid, "earlier heads are removed in any case");
    }
    process.end().await;
}

#[tokio::test]
async fn heads_are_not_stored_when_the_next_turn_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let (process, task) = TestProcess::without_task(folder.path()).await;
    process.write("r", state("s", 1, &[1]));
    process.feed.take_heads(&SessionKey("s".into()));
    process.write("r", state("t", 1, &[2]));
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    task.run(stop).await;
    assert_eq!((found(&process.store, 1).await, found(&process.store, 2).await), (None, Some("t".into())));
}

#[tokio::test]
async fn fork_refers_to_its_parent_when_both_are_stored_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let chain: Vec<String> = (0..20).map(|at| format!("{at:02}")).collect();
    for pair in chain.windows(2).rev() {
        let mut fork = state(&pair[1], 1, &[]);
        fork.session.parent = Some(SessionKey(pair[0].clone()));
        process.write("r", fork);
    }
    process.write("r", state("00", 1, &[]));
    let store = process.end().await;
    let rebuilt = Store::in_memory_with_log(folder.path()).await.unwrap();
    for (store, pair) in
        [&store, &rebuilt].into_iter().flat_map(|store| chain.windows(2).map(move |pair| (store, pair)))
    {
        let row: SessionRow = store.session(&SessionKey(pair[1].clone()), &ClientId::local()).await.unwrap().unwrap();
        assert_eq!(row.parent, Some(SessionKey(pair[0].clone())));
    }
}

#[tokio::test]
async fn turn_is_shown_in_a_session_that_became_known_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    process.write("r", accepted("r", None));
    process.write("r", state("s", 1, &[]));
    process.write("r", RunEnded { session: Some(SessionKey("s".into())), ..end() });
    process.feed.flush().await.unwrap();
    assert_eq!(process.store.turns(&SessionKey("s".into())).await.unwrap().len(), 1);
    process.end().await;
}

#[tokio::test]
async fn case_74_rest_is_left_to_the_next_start_when_database_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let mut other = SqliteConnectOptions::new().filename(folder.path().join(DATABASE_FILE)).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    process.write("r", accepted("r", None));
    let sent = process.write_session("r", state("s", 1, &[1]), HeadCondition::default());
    process.write("r", RunEnded { session: Some(SessionKey("s".into())), ..end() });
    let (log, feed) = (std::sync::Arc::clone(&process.log), process.feed.clone());
    let store = process.end().await;
    assert!(feed.is_blocked() && feed.flush().await.is_err());
    assert_eq!(store.run("r", None).await.unwrap().unwrap().duration_ms, Some(1234), "the row is still pending");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    store.close().await;
    // The rows were neither written nor lost.
    drop((store, feed));
    assert!(sent.committed().await.is_err());
    drop(log);

    let store = open(folder.path()).await;
    assert_eq!(found(&store, 1).await.as_deref(), Some("s"));
    assert_eq!(store.turns(&SessionKey("s".into())).await.unwrap().len(), 1);
}
