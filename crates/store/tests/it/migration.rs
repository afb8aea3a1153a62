//! Tests that a database that an earlier version has written is migrated without loss.

use std::fs;
use std::path::Path;

use serde_json::json;
use trunkline_core::event::SessionId;
use trunkline_core::failure::Category;
use trunkline_store::{ClientId, DATABASE_FILE, DatabaseStatus, RunOutcome, SessionFilter, SessionKey, Store, Surface};

/// Written by version 1:
///
/// - two sessions of the local client, of which the second was forked from the first, and a chain `[7; 32]` to the second,
/// - `run-1`, a finished turn of the second session with two events, and `run-2`, an unfinished turn without a session,
/// - in the place `discord:20`, message 10 (answered), message 11 (tried once), and a binding to the second session.
const VERSION_1: &[u8] = include_bytes!("../data/version-1.db");

async fn opened(folder: &Path) -> Store {
    let path = folder.join(DATABASE_FILE);
    fs::write(&path, VERSION_1).unwrap();
    assert_eq!(DatabaseStatus::of(&path).await.unwrap().version, Some(1));
    Store::open(&path).await.unwrap()
}

#[tokio::test]
async fn case_81_database_of_version_1_is_read_completely() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path()).await;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let owner = ClientId::local();
    let sessions = store.sessions(&SessionFilter::default()).await.unwrap();
    let known: Vec<_> = sessions.iter().map(|row| (row.title.as_str(), row.turns, row.native.is_some())).collect();
    assert_eq!(known, [("Hello there", 1, true), ("Hello there", 0, false)]);
    let used = &sessions[0];
    assert_eq!((used.native.as_ref(), used.provider.as_str()), (Some(&SessionId("native-1".into())), "codex"));
    assert_eq!(sessions[0].parent, Some(sessions[1].id.clone()));
    let found = store.chain_find(&owner, "m", &[[7; 32]]).await.unwrap();
    assert_eq!(found, Some((0, used.id.clone())));

    let turns = store.turns(&used.id).await.unwrap();
    assert_eq!(turns.len(), 1);
    let turn = &turns[0];
    assert_eq!((turn.run.as_str(), turn.outcome, turn.surface), ("run-1", Some(RunOutcome::Ok), Some(Surface::Http)));
    assert_eq!((turn.prompt.as_str(), turn.answer.as_deref()), ("prompt of run-1", Some("answer of run-1")));
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.cached_tokens), (10, 5, 2));
    assert_eq!(store.events("run-1", 0).await.unwrap().len(), 2);
    let without_session = store.turn("run-2").await.unwrap().unwrap();
    let interrupted = Some(RunOutcome::Failed(Category::Server));
    assert_eq!((without_session.session, without_session.outcome), (None::<SessionKey>, interrupted));

    let bridge = store.bridge().await.unwrap();
    assert_eq!(bridge.cursor("discord:20").await.unwrap().as_deref(), Some("11"));
    let pending = bridge.inbox_pending(None).await.unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!((pending[0].message.as_str(), &pending[0].payload), ("11", &json!({"text": "wait"})));
    assert_eq!(pending[0].detail, Some(json!({"attempts": 1})));
    let binding = bridge.binding("discord:20").await.unwrap().unwrap();
    assert_eq!((binding.session, binding.model.as_deref()), (Some(used.id.clone()), Some("m")));
    assert_eq!(binding.more, json!({"epoch": 2}));
}

#[tokio::test]
async fn old_database_is_migrated_once_and_stays_writable() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path()).await;
    store.bridge().await.unwrap().set_cursor("discord:20", "12").await.unwrap();
    store.close().await;
    let new = tempfile::tempdir().unwrap();
    Store::open(&new.path().join(DATABASE_FILE)).await.unwrap().close().await;
    let version = async |folder: &Path| DatabaseStatus::of(&folder.join(DATABASE_FILE)).await.unwrap().version;
    assert_eq!(version(folder.path()).await, version(new.path()).await, "the version of a new database");
    let again = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    assert_eq!(again.bridge().await.unwrap().cursor("discord:20").await.unwrap().as_deref(), Some("12"));
}
