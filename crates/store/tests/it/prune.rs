//! Tests that old rows are deleted with everything that belongs to them, and that the file becomes smaller.

use std::fs;

use serde_json::json;
use trunkline_store::{Binding, ClientId, DATABASE_FILE, InboxState, Pruned, Store, Time};

use crate::fixture::{TestArchive, begin, begun, ended, event, text};

#[tokio::test]
async fn old_sessions_are_deleted_with_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let store = Store::open(&path).await.unwrap();
    let owner = ClientId::local();
    let archive = TestArchive::new(&store);
    let mut old = Vec::new();
    for at in 0..250 {
        let (session, run) = (begin(&store, &owner).await.id, format!("old-{at}"));
        archive.send_all([begun(&run, Some(&session)), event(&run, 0, text(&"x".repeat(10_000))), ended(&run)]).await;
        old.push(session);
    }
    archive.send_all([begun("alone", None), event("alone", 0, text("hi"))]).await;
    store.chain_remember(&owner, "m", &[1; 32], 1, &old[0]).await.unwrap();
    for message in ["1", "2"] {
        store.inbox_add("c", message, &json!({})).await.unwrap();
    }
    store.inbox_state("1", InboxState::Answered, None).await.unwrap();
    store.set_binding("c", &Binding { session: Some(old[1].clone()), ..Binding::default() }).await.unwrap();
    archive.writer.flush().await.unwrap();

    // The clock has milliseconds: wait until what follows is later.
    let before = Time::from_millis(Time::now().millis() + 1);
    while Time::now() < before {
        tokio::task::yield_now().await;
    }
    store.session_succeeded(&old[249], None).await.unwrap();
    let new = begin(&store, &owner).await.id;
    archive.send_all([begun("new", Some(&new)), begun("new alone", None)]).await;
    archive.writer.flush().await.unwrap();
    assert_eq!(store.prune(Time::from_millis(0)).await.unwrap(), Pruned::default());
    let size = fs::metadata(&path).unwrap().len();

    assert_eq!(store.prune(before).await.unwrap(), Pruned { sessions: 249, turns: 250, messages: 1, channels: 1 });
    for (session, stays) in [(&old[0], false), (&old[248], false), (&old[249], true), (&new, true)] {
        assert_eq!(store.session(session, &owner).await.unwrap().is_some(), stays, "{session}");
    }
    for (run, stays) in [("old-0", false), ("alone", false), ("old-249", true), ("new", true), ("new alone", true)] {
        assert_eq!(store.turn(run).await.unwrap().is_some(), stays, "{run}");
    }
    assert_eq!(store.chain_find(&owner, "m", &[[1; 32]]).await.unwrap(), None);
    assert_eq!((store.binding("c").await.unwrap(), store.cursor("c").await.unwrap().as_deref()), (None, Some("2")));
    for file in [path.clone(), path.with_extension("db-wal")] {
        let bytes = fs::read(&file).unwrap();
        for (words, stay) in [("prompt of old-0", false), ("prompt of alone", false), ("prompt of new", true)] {
            let found = bytes.windows(words.len()).any(|part| part == words.as_bytes());
            assert!(!found || stay, "{words:?} is still in {}", file.display());
        }
    }
    let pending: Vec<_> = store.inbox_pending(None).await.unwrap().into_iter().map(|row| row.message).collect();
    assert_eq!(pending, ["2"], "an unanswered message is kept");
    let now = fs::metadata(&path).unwrap().len();
    assert!(now < size / 4, "{size} bytes before, {now} after");
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    archive.end().await;
}
