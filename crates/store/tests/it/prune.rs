//! Tests that old rows are deleted with everything that belongs to them, from the database and from the log.

use std::fs;
use std::path::Path;

use serde_json::json;
use trunkline_store::{Binding, ClientId, InboxState, Pruned, RunFilter, Store, Time};

use crate::fixture::{TestProcess, accepted, begin, delete_database, end, event, open, segments, state, text};

/// Waits until the clock, which has milliseconds, has moved.
async fn next_millisecond() -> Time {
    let before = Time::from_millis(Time::now().millis() + 1);
    while Time::now() < before {
        tokio::task::yield_now().await;
    }
    before
}

fn contains(folder: &Path, words: &str) -> bool {
    let database = ["trunkline.db", "trunkline.db-wal"].map(|name| folder.join(name));
    let mut files = segments(folder).into_iter().chain(database).filter_map(|path| fs::read(path).ok());
    files.any(|bytes| bytes.windows(words.len()).any(|part| part == words.as_bytes()))
}

#[tokio::test]
async fn old_sessions_are_deleted_with_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let owner = ClientId::local();
    let mut old = Vec::new();
    for at in 0..250 {
        let (session, run) = (begin(&process.store, &owner).await.id, format!("old-{at}"));
        process.write(&run, accepted(&run, Some(&session)));
        process.write(&run, event(0, text(&"x".repeat(1000))));
        process.write(&run, end());
        old.push(session);
    }
    process.write("alone", accepted("alone", None));
    process.write("alone", end());
    process.write("running", accepted("running", None));
    let store = process.end().await;
    store.chain_remember(&owner, "m", &[1; 32], 1, &old[0]).await.unwrap();
    let bridge = store.bridge().await.unwrap();
    for message in ["1", "2"] {
        bridge.inbox_add("c", message, &json!({})).await.unwrap();
    }
    bridge.inbox_state("1", InboxState::Answered, None).await.unwrap();
    bridge.set_binding("c", &Binding { session: Some(old[1].clone()), ..Binding::default() }).await.unwrap();

    let before = next_millisecond().await;
    let process = TestProcess::start(folder.path()).await;
    process.store.session_succeeded(&old[249], None).await.unwrap();
    let new = begin(&process.store, &owner).await.id;
    process.write("new", accepted("new", Some(&new)));
    process.write("new-alone", accepted("new-alone", None));
    process.feed.flush().await.unwrap();
    let store = &process.store;
    assert_eq!(store.prune(Time::from_millis(0)).await.unwrap(), Pruned::default());

    assert_eq!(store.prune(before).await.unwrap(), Pruned { sessions: 249, turns: 250, messages: 1, channels: 1 });
    for (session, stays) in [(&old[0], false), (&old[248], false), (&old[249], true), (&new, true)] {
        assert_eq!(store.session(session, &owner).await.unwrap().is_some(), stays, "{session}");
    }
    for (run, stays) in
        [("old-0", false), ("alone", false), ("running", true), ("old-249", true), ("new", true), ("new-alone", true)]
    {
        assert_eq!(store.turn(run).await.unwrap().is_some(), stays, "{run}");
        assert_eq!(contains(folder.path(), &format!("prompt of {run}")), stays, "{run}");
    }
    assert_eq!(
        store.events("old-249", 0).await.unwrap()[0].event,
        text(&"x".repeat(1000)),
        "its segment was rewritten"
    );
    assert_eq!(store.chain_find(&owner, "m", &[[1; 32]]).await.unwrap(), None);
    let bridge = store.bridge().await.unwrap();
    assert_eq!((bridge.binding("c").await.unwrap(), bridge.cursor("c").await.unwrap().as_deref()), (None, Some("2")));
    let pending: Vec<_> = bridge.inbox_pending(None).await.unwrap().into_iter().map(|row| row.message).collect();
    assert_eq!(pending, ["2"], "an unanswered message is kept");
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    process.end().await.close().await;
    delete_database(folder.path());
    let rebuilt = open(folder.path()).await;
    assert_eq!(runs(&rebuilt).await, ["running", "old-249", "new-alone", "new"]);
}

async fn runs(store: &Store) -> Vec<String> {
    let rows = store.runs(&RunFilter { limit: 1000, ..RunFilter::default() }).await.unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

#[tokio::test]
async fn runs_in_a_segment_that_is_being_written_are_deleted_from_the_log_later() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    process.write_run("old", None);
    process.feed.flush().await.unwrap();
    let before = next_millisecond().await;
    process.write_run("new", None);
    process.feed.flush().await.unwrap();
    let one = Pruned { turns: 1, ..Pruned::default() };
    assert_eq!(process.store.prune(before).await.unwrap(), one);
    assert_eq!((runs(&process.store).await, contains(folder.path(), "prompt of old")), (vec!["new".to_owned()], true));
    process.write_run("newer", None);
    let store = process.end().await;
    assert_eq!(store.prune(before).await.unwrap(), Pruned::default());
    assert!(!contains(folder.path(), "prompt of old"));
    assert_eq!(store.turn("new").await.unwrap().unwrap().answer.as_deref(), Some("answer of new"));
}

#[tokio::test]
async fn nothing_is_lost_when_runs_are_deleted_before_a_killed_process_is_indexed() {
    let folder = tempfile::tempdir().unwrap();
    let killed = TestProcess::start(folder.path()).await;
    killed.write("old", accepted("old", None));
    killed.write("old", end());
    killed.feed.flush().await.unwrap();
    let before = next_millisecond().await;
    let other = open(folder.path()).await;
    let (log, feed) = (std::sync::Arc::clone(&killed.log), killed.feed.clone());
    killed.kill().await;
    drop(feed);
    // Written after the last transaction, and before the end of the process.
    let mut line = Vec::new();
    trunkline_store::log_line(&mut line, "new", &trunkline_store::LogRecord::Accepted(accepted("new", None).into()));
    trunkline_store::log_line(&mut line, "new", &trunkline_store::LogRecord::Session(state("s", 1, &[1]).into()));
    log.append(&line, trunkline_store::Purpose::Accept, |_| ()).unwrap();
    drop(log);
    assert_eq!(other.prune(before).await.unwrap().turns, 1);
    other.catch_up(None).await.unwrap();
    assert_eq!(runs(&other).await, ["new"]);
    assert_eq!(other.turn("new").await.unwrap().unwrap().prompt, "prompt of new");
    assert_eq!(other.prune(before).await.unwrap().turns, 0);
    assert!(!contains(folder.path(), "prompt of old"));
}
