//! The registry without a store, with a store, with one that fails, and with one that another process writes to.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

fn client(name: &str) -> ClientId {
    ClientId::of_key(name)
}

fn update(id: &str, heads: &[u8]) -> SessionUpdate {
    let known = KnownSession {
        id: SessionId(id.into()),
        owner: client("a"),
        model: "m".into(),
        provider: "codex".into(),
        repo: "/repo".into(),
        native: Some(SessionId(format!("native-{id}").into())),
        earlier: None,
    };
    let heads = heads.iter().map(|head| chain(*head)).collect();
    SessionUpdate { known, succeeded: true, asked: "m".into(), first_message: "Hi".into(), heads }
}

fn chain(hash: u8) -> MessageChain {
    MessageChain { hash: [hash; 32], messages: 2 }
}

/// Records an update and waits until it is saved, or the store has failed.
async fn record(registry: &Arc<SessionRegistry>, update: SessionUpdate) {
    save(registry, registry.record(update)).await;
}

async fn save(registry: &Arc<SessionRegistry>, (update, state): (NumberedUpdate, SessionState)) {
    let Some((_, feed)) = registry.store.get() else { return };
    let update = Arc::new(update);
    let in_flight = feed.add_session(state, registry.head_condition(&update));
    let flushed = feed.flush().await;
    registry.write_finished(&update, if flushed.is_ok() { in_flight.committed().await } else { flushed });
}

/// The session of a client as it was before its turns.
async fn known(registry: &SessionRegistry, id: &SessionId, client_name: &str) -> Option<KnownSession> {
    let known = registry.find(id, &client(client_name)).await?;
    assert!(known.earlier.is_some());
    Some(KnownSession { earlier: None, ..known })
}

/// A registry that saves its updates in this store.
fn in_store(store: Store) -> Arc<SessionRegistry> {
    let (registry, (feed, task)) = (Arc::<SessionRegistry>::default(), store.index(None));
    TaskTracker::new().spawn(task.run(CancellationToken::new()));
    registry.set_store(store, feed);
    registry
}

async fn found(registry: &SessionRegistry, client_name: &str, model: &str, hash: u8) -> Option<String> {
    registry.by_history(&client(client_name), model, &chain(hash)).await.map(|claim| claim.id.to_string())
}

async fn with_and_without_a_store() -> [Arc<SessionRegistry>; 2] {
    [Arc::default(), in_store(Store::in_memory().await.unwrap())]
}

#[tokio::test]
async fn finds_session_only_for_its_client_and_by_its_latest_head() {
    for registry in with_and_without_a_store().await {
        let first = update("s", &[1, 2]);
        record(&registry, first.clone()).await;
        assert_eq!(known(&registry, &first.known.id, "a").await, Some(first.known.clone()));
        assert_eq!(known(&registry, &first.known.id, "b").await, None);
        let native = first.known.native.clone().unwrap();
        assert_eq!(registry.by_native("codex", &native, &client("a")).await, Some(first.known.id.clone()));
        assert_eq!(registry.by_native("claude", &native, &client("a")).await, None);
        assert_eq!(registry.by_native("codex", &native, &client("b")).await, None);
        for (client, model, hash, expected) in
            [("a", "m", 1, Some("s")), ("a", "m", 2, Some("s")), ("a", "n", 1, None), ("b", "m", 1, None)]
        {
            assert_eq!(found(&registry, client, model, hash).await.as_deref(), expected, "{client} {model} {hash}");
        }
        record(&registry, update("s", &[3])).await;
        assert_eq!(found(&registry, "a", "m", 1).await, None);
        assert_eq!(found(&registry, "a", "m", 3).await.as_deref(), Some("s"));
    }
}

#[tokio::test]
async fn session_is_not_found_by_history_during_a_turn() {
    for registry in with_and_without_a_store().await {
        let first = update("s", &[1]);
        record(&registry, first.clone()).await;
        let claim = registry.by_history(&client("a"), "m", &chain(1)).await.unwrap();
        assert_eq!(found(&registry, "a", "m", 1).await, None, "the session is claimed");
        let heads = registry.start_turn(&claim.id);
        claim.turn_started();
        assert_eq!(found(&registry, "a", "m", 1).await, None, "a turn is running");
        registry.restore(&first.known.id, &client("a"), "m", heads);
        assert!(registry.is_head(&first.known.id, &client("a"), "m", &chain(1)).await);
        assert_eq!(found(&registry, "a", "m", 1).await.as_deref(), Some("s"), "the turn never started");
    }
}

#[tokio::test]
async fn head_changes_when_another_process_runs_a_turn() {
    let store = Store::in_memory().await.unwrap();
    let [one, other] = [in_store(store.clone()), in_store(store)];
    let first = update("s", &[1]);
    record(&one, first.clone()).await;
    assert_eq!(found(&other, "a", "m", 1).await.as_deref(), Some("s"), "the other process finds the session");
    record(&other, update("s", &[2])).await;
    assert!(!one.is_head(&first.known.id, &client("a"), "m", &chain(1)).await);
    assert!(one.is_head(&first.known.id, &client("a"), "m", &chain(2)).await);
}

#[tokio::test]
async fn session_stays_in_memory_when_store_fails() {
    let store = Store::in_memory().await.unwrap();
    let registry = in_store(store.clone());
    record(&registry, update("before", &[1])).await;
    store.close().await;
    let late = update("late", &[2]);
    record(&registry, late).await;
    for (id, hash) in [("before", 1), ("late", 2)] {
        let id = SessionId(id.into());
        assert!(registry.find(&id, &client("a")).await.is_some(), "{id}");
        assert!(registry.is_head(&id, &client("a"), "m", &chain(hash)).await, "{id}");
    }
}

#[tokio::test]
async fn free_unused_evicts_only_saved_and_idle_sessions() {
    let registry = Arc::default();
    record(&registry, update("nowhere else", &[9])).await;
    registry.free_unused();
    assert!(registry.cache().sessions.contains_key(&SessionId("nowhere else".into())), "evicted without a store");
    let registry = in_store(Store::in_memory().await.unwrap());
    for (id, heads) in [("a", &[1][..]), ("b", &[2]), ("c", &[2])] {
        record(&registry, update(id, heads)).await;
    }
    let unsaved = registry.record(update("unsaved", &[3]));
    record(&registry, update("running", &[4])).await;
    registry.start_turn(&SessionId("running".into()));
    registry.free_unused();
    let mut left: Vec<String> = registry.cache().sessions.keys().map(ToString::to_string).collect();
    left.sort();
    assert_eq!((left, registry.cache().order.len()), (vec!["running".to_owned(), "unsaved".to_owned()], 2));
    // Evicted sessions are found in the store.
    assert!(registry.find(&SessionId("a".into()), &client("a")).await.is_some());
    let found =
        async |hash| registry.by_history(&client("a"), "m", &chain(hash)).await.map(|claim| claim.id.to_string());
    assert_eq!((found(1).await, found(2).await, found(3).await), (Some("a".into()), None, Some("unsaved".into())));
    save(&registry, unsaved).await;
    assert!(registry.is_head(&SessionId("unsaved".into()), &client("a"), "m", &chain(3)).await);
}

#[tokio::test]
async fn evicts_oldest_sessions_when_cache_is_full() {
    let registry = SessionRegistry::default();
    for n in 0..MAX_CACHED_SESSIONS + 2 {
        registry.record(update(&n.to_string(), &[]));
    }
    let cache = registry.cache();
    assert_eq!((cache.sessions.len(), cache.order.len()), (MAX_CACHED_SESSIONS, MAX_CACHED_SESSIONS));
}

#[tokio::test]
async fn heads_are_not_written_when_next_turn_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let store = Store::open(&path).await.unwrap();
    let registry = in_store(store.clone());
    let (first, found) = (update("s", &[1]), |hash: u8| {
        let (store, owner) = (store.clone(), store_client_id(&client("a")));
        async move { store.chain_find(&owner, "m", &[[hash; 32]]).await.unwrap() }
    });
    for turn_started in [true, false] {
        let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        let recorded = registry.record(first.clone());
        let saving = save(&registry, recorded);
        tokio::pin!(saving);
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut saving).await.is_err(), "the store is locked");
        assert_eq!(known(&registry, &first.known.id, "a").await, Some(first.known.clone()), "found in memory");
        assert!(registry.is_head(&first.known.id, &client("a"), "m", &chain(1)).await);
        let heads = if turn_started { registry.start_turn(&first.known.id) } else { Vec::new() };
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
        saving.await;
        assert_eq!(found(1).await.is_none(), turn_started, "turn started: {turn_started}");
        assert!(store.session(&key(&first.known.id), &store_client_id(&client("a"))).await.unwrap().is_some());
        registry.restore(&first.known.id, &client("a"), "m", heads);
    }
}

/// A session keeps its provider's id and its client in whatever order turns end.
#[test]
fn provider_ids_and_clients_are_not_mixed_up_between_sessions() {
    let turns = proptest::collection::vec((0..4_usize, 0..2_u8), 1..20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = ["a", "a", "b", "b"];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let check = |turns: Vec<(usize, u8)>| {
        runtime.block_on(async {
            for registry in with_and_without_a_store().await {
                let mut native = [const { None }; 4];
                for (turn, (session, renamed)) in turns.iter().enumerate() {
                    // A provider may report a new id after each turn, or the same one.
                    if native[*session].is_none() || *renamed == 1 {
                        native[*session] = Some(SessionId(format!("native-{turn}").into()));
                    }
                    let mut update = update(&session.to_string(), &[]);
                    update.known.owner = client(clients[*session]);
                    update.known.native.clone_from(&native[*session]);
                    record(&registry, update).await;
                    for (session, native) in native.iter().enumerate() {
                        let id = SessionId(session.to_string().into());
                        for asks in ["a", "b"] {
                            let found = registry.find(&id, &client(asks)).await.and_then(|known| known.native);
                            let expected = native.as_ref().filter(|_| clients[session] == asks);
                            prop_assert_eq!(found.as_ref(), expected);
                            let Some(native) = native else { continue };
                            let by_native = registry.by_native("codex", native, &client(asks)).await;
                            prop_assert_eq!(by_native.as_ref(), expected.map(|_| &id));
                        }
                    }
                }
            }
            Ok(())
        })
    };
    runner.run(&turns, check).unwrap();
}
