//! Tests the journal: records that were queued when their process was killed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use tokio_util::sync::CancellationToken;
use trunkline_store::{ArchiveRecord, DATABASE_FILE, RunOutcome, RunState, Store, Writer, WriterTask};

use crate::fixture::{TestArchive, begun, ended};

/// Opens a store with a writer whose task does not run, so that records only reach the journal.
async fn without_task(folder: &Path) -> (Store, Writer, WriterTask) {
    let store = Store::open(&folder.join(DATABASE_FILE)).await.unwrap();
    let (writer, task) = store.writer();
    (store, writer, task)
}

fn journals(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.join("journal")).map_or_else(|_| Vec::new(), |all| all.map(|one| one.unwrap().path()).collect())
}

#[tokio::test]
async fn queued_records_are_recovered_when_the_file_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, task) = without_task(folder.path()).await;
    writer.send(begun("begun", None)).await.unwrap();
    writer.try_send(begun("over", None)).unwrap();
    writer.send(ended("over")).await.unwrap();
    let early = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    assert_eq!(early.turn("begun").await.unwrap(), None, "its writer is alive");
    drop((store, writer, task));

    let store = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    let run = store.run("begun", None).await.unwrap().unwrap();
    assert_eq!((run.state, run.prompt.as_str()), (RunState::Queued, "prompt of begun"));
    let over = store.turn("over").await.unwrap().unwrap();
    assert_eq!((over.outcome, over.answer.as_deref()), (Some(RunOutcome::Ok), Some("answer of over")));
    assert_eq!(journals(folder.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn incomplete_line_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, task) = without_task(folder.path()).await;
    writer.send(begun("whole", None)).await.unwrap();
    drop((store, writer, task));
    let page = journals(folder.path())[0].join("0");
    OpenOptions::new()
        .append(true)
        .open(page)
        .unwrap()
        .write_all(b"{\"count\":1,\"row\":{\"Begun\":{\"run\":")
        .unwrap();
    let store = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    assert!(store.turn("whole").await.unwrap().is_some());
    assert_eq!(journals(folder.path()).len(), 0);
}

#[tokio::test]
async fn journal_is_emptied_once_records_are_in_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    let archive = TestArchive::new(&store);
    for turn in 0..40 {
        // Enough to fill a file several times.
        let ArchiveRecord::Begun(mut long) = begun(&turn.to_string(), None) else { unreachable!() };
        long.prompt = "x".repeat(100_000);
        archive.send_all([ArchiveRecord::Begun(long), ended(&turn.to_string())]).await;
    }
    archive.writer.flush().await.unwrap();
    let journal = journals(folder.path());
    let size =
        |path: &Path| fs::read_dir(path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    assert_eq!(journal.iter().map(|path| size(path)).sum::<u64>(), 0);
    archive.end().await;
    assert_eq!(journals(folder.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn records_of_both_files_are_recovered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, task) = without_task(folder.path()).await;
    let ArchiveRecord::Begun(mut long) = begun("long", None) else { unreachable!() };
    long.prompt = "x".repeat(1_000_000);
    for run in ["1", "2"] {
        writer
            .send(ArchiveRecord::Begun(trunkline_store::TurnBegun { run: run.into(), ..long.clone() }))
            .await
            .unwrap();
    }
    writer.send(begun("short", None)).await.unwrap();
    writer.send(ended("1")).await.unwrap();
    assert_eq!(fs::read_dir(&journals(folder.path())[0]).unwrap().count(), 2);
    drop((store, writer, task));
    let store = Store::open(&folder.path().join(DATABASE_FILE)).await.unwrap();
    for (run, state) in [("1", RunState::Finished), ("2", RunState::Queued), ("short", RunState::Queued)] {
        assert_eq!(store.run(run, None).await.unwrap().unwrap().state, state, "{run}");
    }
}

#[tokio::test]
async fn records_that_the_database_refused_are_removed_from_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, task) = without_task(folder.path()).await;
    writer.send(begun("refused", None)).await.unwrap();
    store.close().await;
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(task.run(stop).await.lost, 1);
    assert_eq!(journals(folder.path()), Vec::<std::path::PathBuf>::new());
}
