//! Tests sessions and the chains that lead to them.

use trunkline_core::event::SessionId;
use trunkline_store::{NewSession, SessionFilter, SessionKey, Store, StoreError};

use crate::fixture::{begin, new, owner};

#[tokio::test]
async fn session_belongs_to_one_client() {
    let store = Store::in_memory().await.unwrap();
    let (ours, theirs) = (owner("a"), owner("b"));
    let session = begin(&store, &ours).await;
    assert_eq!((session.title.as_str(), session.turns, &session.native), ("Hello there", 0, &None));
    assert_eq!(store.session(&session.id, &ours).await.unwrap(), Some(session.clone()));
    assert_eq!(store.session(&session.id, &theirs).await.unwrap(), None);
    assert!(!store.session_delete(&session.id, &theirs).await.unwrap());
    let theirs_too = NewSession { parent: Some(&session.id), ..new(&theirs, "m") };
    assert_eq!(
        store.session_begin(&theirs_too).await.unwrap().parent,
        None,
        "a client cannot fork the session of another"
    );
    assert!(store.session_delete(&session.id, &ours).await.unwrap());
    assert_eq!(store.session(&session.id, &ours).await.unwrap(), None);
}

#[tokio::test]
async fn session_can_be_resumed_once_a_turn_has_succeeded() {
    let store = Store::in_memory().await.unwrap();
    let (ours, native) = (owner("a"), SessionId("n-1".into()));
    let session = begin(&store, &ours).await;
    let by_native = async |provider: &str, who: &str| {
        let found = store.session_by_native(provider, &native, &owner(who)).await.unwrap();
        found.map(|session| session.id)
    };
    assert_eq!(by_native("codex", "a").await, None);
    store.session_succeeded(&session.id, Some(&native)).await.unwrap();
    assert_eq!(by_native("codex", "a").await, Some(session.id.clone()));
    assert_eq!(by_native("codex", "b").await, None);
    assert_eq!(by_native("claude", "a").await, None);
    store.session_succeeded(&session.id, None).await.unwrap();
    let after = store.session(&session.id, &ours).await.unwrap().unwrap();
    assert_eq!((after.turns, after.native), (2, Some(native)), "a turn without an id keeps the present one");
    let unknown = store.session_succeeded(&SessionKey("none".into()), None).await;
    assert!(matches!(unknown, Err(StoreError::NoSuchSession)), "{unknown:?}");
}

#[tokio::test]
async fn sessions_are_listed_page_by_page() {
    let store = Store::in_memory().await.unwrap();
    let (ours, theirs) = (owner("a"), owner("b"));
    let mut expected = Vec::new();
    for at in 0..10 {
        let model = if at % 2 == 0 { "m" } else { "n" };
        expected.insert(0, store.session_begin(&new(&ours, model)).await.unwrap().id);
        begin(&store, &theirs).await;
    }
    let mut filter = SessionFilter { owner: Some(ours.clone()), limit: Some(3), ..SessionFilter::default() };
    let mut listed = Vec::new();
    loop {
        let page = store.sessions(&filter).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some(last.position());
        listed.extend(page.into_iter().map(|session| session.id));
    }
    // Several have the same millisecond: their ids decide.
    assert_eq!(listed, expected);
    let count = async |filter: SessionFilter| store.sessions(&filter).await.unwrap().len();
    assert_eq!(count(SessionFilter::default()).await, 20);
    assert_eq!(count(SessionFilter { model: Some("n".into()), ..SessionFilter::default() }).await, 5);
    for (repos, expected) in [(vec!["/repo"], 20), (vec!["/other", "/repo"], 20), (vec!["/other"], 0), (vec![], 0)] {
        let repos = repos.into_iter().map(Into::into).collect();
        assert_eq!(count(SessionFilter { repos: Some(repos), ..SessionFilter::default() }).await, expected);
    }
    assert_eq!(store.session_repos().await.unwrap(), [std::path::PathBuf::from("/repo")]);
    let prefix = &expected[0].0[..20];
    let named = store.sessions_beginning(prefix, 100).await.unwrap();
    assert!(!named.is_empty() && named.iter().all(|session| session.id.0.starts_with(prefix)));
    assert_eq!(store.sessions_beginning("%", 1).await.unwrap(), []);
}

#[tokio::test]
async fn longest_known_chain_of_the_client_is_found() {
    let store = Store::in_memory().await.unwrap();
    let (ours, theirs) = (owner("a"), owner("b"));
    let (first, second) = (begin(&store, &ours).await.id, begin(&store, &ours).await.id);
    let hash = |byte| [byte; 32];
    store.chain_remember(&ours, "m", &hash(1), 1, &first).await.unwrap();
    store.chain_remember(&ours, "m", &hash(2), 2, &second).await.unwrap();
    let find = async |who, model, hashes: &[u8]| {
        let hashes: Vec<_> = hashes.iter().map(|&byte| hash(byte)).collect();
        store.chain_find(who, model, &hashes).await.unwrap()
    };
    assert_eq!(find(&ours, "m", &[3, 2, 1]).await, Some((1, second.clone())));
    assert_eq!(find(&ours, "m", &[1, 2]).await, Some((0, first.clone())));
    assert_eq!(find(&ours, "m", &[]).await, None);
    assert_eq!(find(&ours, "m", &[9]).await, None);
    assert_eq!(find(&ours, "n", &[1, 2]).await, None);
    assert_eq!(find(&theirs, "m", &[1, 2]).await, None);
    let not_theirs = store.chain_remember(&theirs, "m", &hash(1), 1, &first).await;
    assert!(matches!(not_theirs, Err(StoreError::NoSuchSession)), "{not_theirs:?}");
    store.chain_remember(&ours, "m", &hash(2), 2, &first).await.unwrap();
    assert_eq!(find(&ours, "m", &[2]).await, None, "the same messages may belong to different conversations");
    assert_eq!(find(&ours, "m", &[2, 1]).await, Some((1, first.clone())));
    store.session_delete(&first, &ours).await.unwrap();
    assert_eq!(find(&ours, "m", &[2, 1]).await, Some((0, second)));
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}
