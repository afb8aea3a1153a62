//! Tests a log whose last write was cut short, at every byte.

use std::fs;
use std::path::Path;

use trunkline_store::{RunFilter, SessionKey, Store};

use crate::fixture::{
    TestProcess, accepted, delete_database, end, event, finished, open, segments, started, state, text,
};

/// Content of a store: rows of runs, sessions, and events.
async fn content(store: &Store) -> Vec<String> {
    let runs = store.runs(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    let mut content = Vec::new();
    for run in runs {
        let events = store.events(&run.id, 0).await.unwrap();
        let turn = store.turn(&run.id).await.unwrap().unwrap();
        content.push(format!("{run:?} {turn:?} {events:?}"));
    }
    for row in store.sessions(&trunkline_store::SessionFilter::default()).await.unwrap() {
        content.push(format!("{row:?}"));
    }
    content
}

/// Writes the records of two runs, and returns the segment with the offsets at which its lines end.
async fn written(folder: &Path) -> (Vec<u8>, Vec<usize>) {
    let (process, _task) = TestProcess::without_task(folder).await;
    let session = SessionKey("s".into());
    process.write("a", accepted("a", Some(&session)));
    process.write("b", accepted("b", None));
    process.write("a", started());
    process.write("b", event(0, text("hi")));
    process.write("a", event(0, finished("answer of a")));
    process.write("a", state("s", 1, &[1]));
    process.write("a", end());
    process.kill().await;
    let bytes = fs::read(&segments(folder)[0]).unwrap();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    (bytes, ends)
}

/// Every byte of the last two records, which end the session and the run, and of the others those near their ends.
fn is_checked(length: usize, ends: &[usize]) -> bool {
    let is_near = |end: &usize| (end.saturating_sub(3)..end + 13).contains(&length);
    length >= ends[ends.len() - 3] || length < 13 || length.is_multiple_of(16) || ends.iter().any(is_near)
}

#[tokio::test]
async fn complete_records_are_read_when_the_last_one_is_torn_at_any_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, ends) = written(folder.path()).await;
    let path = segments(folder.path()).remove(0);
    let lock = path.with_file_name(path.file_name().unwrap().to_str().unwrap().replace(".0.log", ".lock"));
    let mut expected = (0, Vec::new());
    let mut checked = 0;
    for length in (0..=bytes.len()).filter(|length| is_checked(*length, &ends)) {
        let complete = ends.iter().copied().take_while(|end| *end <= length).last().unwrap_or(0);
        fs::write(&path, &bytes[..length]).unwrap();
        // A killed process leaves its lock.
        fs::write(&lock, "").unwrap();
        let store = Store::in_memory_with_log(folder.path()).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), &bytes[..complete], "the tail is cut at {length}");
        assert!(!lock.exists());
        let content = content(&store).await;
        if length == complete {
            expected = (complete, content);
            checked += 1;
        } else {
            assert_eq!((complete, &content), (expected.0, &expected.1), "torn at {length}");
        }
    }
    assert_eq!(checked, ends.len() + 1);
    assert_eq!(expected.1.len(), 3, "two runs and a session");
}

#[tokio::test]
async fn new_process_continues_behind_a_torn_tail() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, _) = written(folder.path()).await;
    fs::write(&segments(folder.path())[0], &bytes[..bytes.len() - 5]).unwrap();
    let process = TestProcess::start(folder.path()).await;
    let row = process.store.run("a", None).await.unwrap().unwrap();
    assert_eq!(row.ended, None, "the torn record was its end");
    process.write("a", end());
    process.write_run("c", None);
    process.end().await.close().await;
    for rebuilt in [false, true] {
        if rebuilt {
            delete_database(folder.path());
        }
        let store = open(folder.path()).await;
        let state = async |run| store.run(run, None).await.unwrap().unwrap().ended.is_some();
        assert_eq!((state("a").await, state("b").await, state("c").await), (rebuilt, false, true));
        assert_eq!(store.turn("c").await.unwrap().unwrap().answer.as_deref(), Some("answer of c"));
        store.close().await;
    }
}
