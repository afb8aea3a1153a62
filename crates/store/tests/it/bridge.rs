//! Tests the cursors, the inbox and the bindings of a bridge.

use serde_json::json;
use trunkline_store::{Binding, InboxState, SessionKey, Store};

use crate::fixture::{begin, owner};

#[tokio::test]
async fn message_is_stored_once_and_advances_the_cursor() {
    let store = Store::in_memory().await.unwrap();
    let bridge = store.bridge().await.unwrap();
    assert_eq!(bridge.cursor("c").await.unwrap(), None);
    assert!(bridge.inbox_add("c", "99", &json!({"n": 1})).await.unwrap());
    assert!(bridge.inbox_add("c", "100", &json!({"n": 2})).await.unwrap());
    assert!(!bridge.inbox_add("c", "99", &json!({"n": 3})).await.unwrap());
    assert_eq!(bridge.cursor("c").await.unwrap().as_deref(), Some("100"), "the cursor does not move back");
    assert!(bridge.inbox_add("d", "7", &json!(null)).await.unwrap());
    let pending = async |place| {
        let rows = bridge.inbox_pending(place).await.unwrap();
        rows.into_iter().map(|row| row.message).collect::<Vec<_>>()
    };
    assert_eq!(pending(Some("c")).await, ["99", "100"]);
    assert_eq!(pending(None).await, ["7", "99", "100"]);
    assert_eq!(bridge.inbox_message("99").await.unwrap().unwrap().payload, json!({"n": 1}));
    bridge.set_cursor("c", "5").await.unwrap();
    assert_eq!(bridge.cursor("c").await.unwrap().as_deref(), Some("5"), "set_cursor may move back");
}

#[tokio::test]
async fn state_of_a_message_only_moves_forward() {
    use InboxState::{Answered, Answering, Failed, Received};
    let steps = [
        (vec![Answering, Answered], [false, false, false, false]),
        (vec![Answering, Failed], [false, false, false, false]),
        (vec![Answering], [false, true, true, true]),
        (vec![], [true, true, true, true]),
    ];
    for (path, allowed) in steps {
        for (next, allowed) in [Received, Answering, Answered, Failed].into_iter().zip(allowed) {
            let store = Store::in_memory().await.unwrap();
            let bridge = store.bridge().await.unwrap();
            bridge.inbox_add("c", "1", &json!({})).await.unwrap();
            for state in &path {
                assert!(bridge.inbox_state("1", *state, Some(&json!("before"))).await.unwrap());
            }
            assert_eq!(bridge.inbox_state("1", next, None).await.unwrap(), allowed, "{path:?} {next:?}");
            let row = bridge.inbox_message("1").await.unwrap().unwrap();
            let expected = if allowed { Some(next) } else { path.last().copied() };
            assert_eq!(Some(row.state), expected, "{path:?} {next:?}");
            assert_eq!(row.detail, (!path.is_empty()).then(|| json!("before")), "the detail is kept if none is given");
            let is_pending = !bridge.inbox_pending(None).await.unwrap().is_empty();
            assert_eq!(is_pending, matches!(row.state, Received | Answering));
        }
    }
    let store = Store::in_memory().await.unwrap();
    let bridge = store.bridge().await.unwrap();
    assert!(!bridge.inbox_state("1", Answering, None).await.unwrap());
}

#[tokio::test]
async fn binding_loses_its_session_when_that_is_deleted() {
    let store = Store::in_memory().await.unwrap();
    let bridge = store.bridge().await.unwrap();
    let ours = owner("a");
    let session = begin(&store, &ours).await.id;
    assert_eq!(bridge.binding("c").await.unwrap(), None);
    let binding = Binding { session: Some(session.clone()), model: Some("m".into()), more: json!({"thread": "7"}) };
    bridge.set_binding("c", &binding).await.unwrap();
    assert_eq!(bridge.binding("c").await.unwrap(), Some(binding.clone()));
    store.session_delete(&session, &ours).await.unwrap();
    assert_eq!(bridge.binding("c").await.unwrap(), Some(Binding { session: None, ..binding.clone() }));
    let gone = Binding { session: Some(SessionKey("gone".into())), ..Binding::default() };
    bridge.set_binding("c", &gone).await.unwrap();
    assert_eq!(bridge.binding("c").await.unwrap(), Some(Binding::default()));
}
