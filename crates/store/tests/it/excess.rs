//! Tests limits of the number of runs and of the size of the log.

use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_store::{LogLimits, LogRecord, RunFilter, RunWorkspace, SessionKey, Store, Time};

use crate::fixture::{TestProcess, accepted, end, event, state, text};

/// Ids of all runs, the oldest first.
async fn runs(store: &Store) -> Vec<String> {
    let filter = RunFilter { limit: u32::MAX, ..RunFilter::default() };
    let mut runs: Vec<String> = store.runs(&filter).await.unwrap().into_iter().map(|run| run.id).collect();
    runs.reverse();
    runs
}

#[tokio::test]
async fn oldest_runs_are_deleted_except_those_that_a_session_or_a_worktree_needs() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let session = SessionKey("s".into());
    for run in ["0", "1", "2", "3", "4", "5", "6"] {
        process.write(run, accepted(run, ["1", "3"].contains(&run).then_some(&session)));
        if ["1", "3"].contains(&run) {
            process.write(run, LogRecord::Session(state("s", 1, &[1]).into()));
        }
        if run == "2" {
            let receipt = Receipt { path: Some("/kept".into()), ..Receipt::default() };
            process.write(run, LogRecord::Workspace(RunWorkspace { at: Time::now(), receipt }.into()));
        }
        if run != "4" {
            process.write(run, end());
        }
    }
    let store = process.end().await;
    let limits = LogLimits { runs: Some(2), bytes: None };
    assert_eq!(store.delete_excess(limits).await.unwrap(), 4);
    assert_eq!(runs(&store).await, ["2", "3", "4"], "kept worktree, last run of the session, not ended");
    assert_eq!(store.delete_excess(limits).await.unwrap(), 0);
}

#[tokio::test]
async fn log_is_shrunk_to_its_limit_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for at in 0..100 {
        let run = format!("{at:03}");
        process.write(&run, accepted(&run, None));
        process.write(&run, event(0, text(&"some text ".repeat(100))));
        process.write(&run, end());
    }
    let store = process.end().await;
    let size = || -> u64 {
        let files = std::fs::read_dir(folder.path().join("log")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    let before = size();
    let deleted = store.delete_excess(LogLimits { runs: None, bytes: Some(before / 2) }).await.unwrap();
    assert!((40..70).contains(&deleted) && size() <= before / 2, "{deleted} deleted, {} of {before} bytes", size());
    let left = size();
    assert!(store.compress_log(Duration::ZERO).await.unwrap() > left / 2);
    assert!(size() < left / 2);
    assert_eq!(runs(&store).await.len() as u64, 100 - deleted);
    assert_eq!(store.events("099", 0).await.unwrap().len(), 1);
}
