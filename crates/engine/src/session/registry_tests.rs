//! The book, without a store, with one, with one that fails, and with one that somebody else writes to.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

fn owner(name: &str) -> Owner {
    Owner::of_key(name)
}

fn after(id: &str, heads: &[u8]) -> After {
    let known = Known {
        id: SessionId(id.into()),
        owner: owner("a"),
        model: "m".into(),
        provider: "codex".into(),
        repo: "/repo".into(),
        native: Some(SessionId(format!("native-{id}"))),
    };
    let heads = heads.iter().map(|head| chain(*head)).collect();
    After { known, succeeded: true, asked: "m".into(), begins: "Hi".into(), heads }
}

fn chain(hash: u8) -> Chain {
    Chain { hash: [hash; 32], messages: 2 }
}

async fn noted(book: &Arc<SessionRegistry>, after: After) {
    let sent = book.keep(book.note(after)).await;
    if let Some((_, writer)) = book.kept.get() {
        // Sooner than by itself; what it says is said by the other, too.
        let _lost = writer.flush().await;
    }
    sent.kept().await;
}

/// A book whose turns go into this store.
fn in_store(store: Store) -> Arc<SessionRegistry> {
    let (book, (writer, keeping)) = (Arc::<SessionRegistry>::default(), store.writer());
    TaskTracker::new().spawn(keeping.run(CancellationToken::new()));
    book.keep_in(store, writer);
    book
}

async fn found(book: &SessionRegistry, whose: &str, model: &str, hash: u8) -> Option<String> {
    book.by_history(&owner(whose), model, &chain(hash)).await.map(|claim| claim.id.0.clone())
}

async fn with_and_without_a_store() -> [Arc<SessionRegistry>; 2] {
    [Arc::default(), in_store(Store::in_memory().await.unwrap())]
}

#[tokio::test]
async fn a_conversation_is_its_owners_and_found_by_its_latest_state_alone() {
    for book in with_and_without_a_store().await {
        let first = after("s", &[1, 2]);
        noted(&book, first.clone()).await;
        assert_eq!(book.find(&first.known.id, &owner("a")).await, Some(first.known.clone()));
        assert_eq!(book.find(&first.known.id, &owner("b")).await, None);
        let native = first.known.native.clone().unwrap();
        assert_eq!(book.by_native("codex", &native, &owner("a")).await, Some(first.known.id.clone()));
        assert_eq!(book.by_native("claude", &native, &owner("a")).await, None);
        assert_eq!(book.by_native("codex", &native, &owner("b")).await, None);
        for (whose, model, hash, expected) in
            [("a", "m", 1, Some("s")), ("a", "m", 2, Some("s")), ("a", "n", 1, None), ("b", "m", 1, None)]
        {
            assert_eq!(found(&book, whose, model, hash).await.as_deref(), expected, "{whose} {model} {hash}");
        }
        noted(&book, after("s", &[3])).await;
        assert_eq!(found(&book, "a", "m", 1).await, None);
        assert_eq!(found(&book, "a", "m", 3).await.as_deref(), Some("s"));
    }
}

#[tokio::test]
async fn who_comes_while_somebody_speaks_finds_nothing() {
    for book in with_and_without_a_store().await {
        let first = after("s", &[1]);
        noted(&book, first.clone()).await;
        let claim = book.by_history(&owner("a"), "m", &chain(1)).await.unwrap();
        assert_eq!(found(&book, "a", "m", 1).await, None, "it is claimed");
        let heads = book.speak(&claim.id);
        claim.spoken();
        assert_eq!(found(&book, "a", "m", 1).await, None, "a turn is on its way");
        book.unspoken(&first.known.id, &owner("a"), "m", heads);
        assert!(book.is_head(&first.known.id, &owner("a"), "m", &chain(1)).await);
        assert_eq!(found(&book, "a", "m", 1).await.as_deref(), Some("s"), "it never began");
    }
}

#[tokio::test]
async fn another_process_that_speaks_in_it_is_noticed() {
    let store = Store::in_memory().await.unwrap();
    let [one, other] = [in_store(store.clone()), in_store(store)];
    let first = after("s", &[1]);
    noted(&one, first.clone()).await;
    assert_eq!(found(&other, "a", "m", 1).await.as_deref(), Some("s"), "it is known there, too");
    noted(&other, after("s", &[2])).await;
    assert!(!one.is_head(&first.known.id, &owner("a"), "m", &chain(1)).await);
    assert!(one.is_head(&first.known.id, &owner("a"), "m", &chain(2)).await);
}

#[tokio::test]
async fn what_the_store_does_not_take_is_known_until_the_end() {
    let store = Store::in_memory().await.unwrap();
    let book = in_store(store.clone());
    noted(&book, after("before", &[1])).await;
    store.close().await;
    let late = after("late", &[2]);
    noted(&book, late).await;
    for (id, hash) in [("before", 1), ("late", 2)] {
        let id = SessionId(id.into());
        assert!(book.find(&id, &owner("a")).await.is_some(), "{id}");
        assert!(book.is_head(&id, &owner("a"), "m", &chain(hash)).await, "{id}");
    }
}

#[tokio::test]
async fn what_the_store_has_need_not_be_in_memory() {
    let book = Arc::default();
    noted(&book, after("nowhere else", &[9])).await;
    book.lighten();
    assert!(book.memory().sessions.contains_key(&SessionId("nowhere else".into())), "there is no store");
    let book = in_store(Store::in_memory().await.unwrap());
    for (id, heads) in [("a", &[1][..]), ("b", &[2]), ("c", &[2])] {
        noted(&book, after(id, heads)).await;
    }
    let unsaved = book.note(after("unsaved", &[3]));
    noted(&book, after("speaking", &[4])).await;
    book.speak(&SessionId("speaking".into()));
    book.lighten();
    let mut left: Vec<String> = book.memory().sessions.keys().map(|id| id.0.clone()).collect();
    left.sort();
    assert_eq!((left, book.memory().order.len()), (vec!["speaking".to_owned(), "unsaved".to_owned()], 2));
    // All is found as before.
    assert!(book.find(&SessionId("a".into()), &owner("a")).await.is_some());
    let found = async |hash| book.by_history(&owner("a"), "m", &chain(hash)).await.map(|claim| claim.id.0.clone());
    assert_eq!((found(1).await, found(2).await, found(3).await), (Some("a".into()), None, Some("unsaved".into())));
    book.keep(unsaved).await.kept().await;
    assert!(book.is_head(&SessionId("unsaved".into()), &owner("a"), "m", &chain(3)).await);
}

#[tokio::test]
async fn memory_is_bounded() {
    let book = SessionRegistry::default();
    for n in 0..MANY + 2 {
        book.note(after(&n.to_string(), &[]));
    }
    let memory = book.memory();
    assert_eq!((memory.sessions.len(), memory.order.len()), (MANY, MANY));
}

#[tokio::test]
async fn what_is_still_to_be_written_leads_nowhere_once_somebody_speaks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let store = Store::open(&path).await.unwrap();
    let book = in_store(store.clone());
    let (first, found) = (after("s", &[1]), |hash: u8| {
        let (store, owner) = (store.clone(), whose(&owner("a")));
        async move { store.chain_find(&owner, "m", &[[hash; 32]]).await.unwrap() }
    });
    for speaks in [true, false] {
        let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        let noted = book.note(first.clone());
        let keeping = book.keep(noted).await.kept();
        tokio::pin!(keeping);
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut keeping).await.is_err(), "the store is locked");
        assert_eq!(book.find(&first.known.id, &owner("a")).await, Some(first.known.clone()), "and yet it is known");
        assert!(book.is_head(&first.known.id, &owner("a"), "m", &chain(1)).await);
        let heads = if speaks { book.speak(&first.known.id) } else { Vec::new() };
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
        keeping.await;
        assert_eq!(found(1).await.is_none(), speaks, "spoken: {speaks}");
        assert!(store.session(&key(&first.known.id), &whose(&owner("a"))).await.unwrap().is_some());
        book.unspoken(&first.known.id, &owner("a"), "m", heads);
    }
}

/// In whichever order turns come to their ends, a conversation keeps its own name with the provider, and its owner.
#[test]
fn names_never_cross_from_one_conversation_to_another() {
    let turns = proptest::collection::vec((0..4_usize, 0..2_u8), 1..20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whose = ["a", "a", "b", "b"];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let check = |turns: Vec<(usize, u8)>| {
        runtime.block_on(async {
            for book in with_and_without_a_store().await {
                let mut native = [const { None }; 4];
                for (turn, (session, renamed)) in turns.iter().enumerate() {
                    // A provider may call it by another name after each turn, or by the same.
                    if native[*session].is_none() || *renamed == 1 {
                        native[*session] = Some(SessionId(format!("native-{turn}")));
                    }
                    let mut after = after(&session.to_string(), &[]);
                    after.known.owner = owner(whose[*session]);
                    after.known.native.clone_from(&native[*session]);
                    noted(&book, after).await;
                    for (session, native) in native.iter().enumerate() {
                        let id = SessionId(session.to_string());
                        for asks in ["a", "b"] {
                            let found = book.find(&id, &owner(asks)).await.and_then(|known| known.native);
                            let expected = native.as_ref().filter(|_| whose[session] == asks);
                            prop_assert_eq!(found.as_ref(), expected);
                            let Some(native) = native else { continue };
                            let by_native = book.by_native("codex", native, &owner(asks)).await;
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
