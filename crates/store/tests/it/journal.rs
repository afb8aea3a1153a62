//! What was on its way into the database when its process was killed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use tokio_util::sync::CancellationToken;
use trunkline_store::{FILE, Keeping, Outcome, Record, RunState, Store, Writer};

use crate::world::{Archive, begun, ended};

/// A writer whose records get no further than the journal.
async fn stuck(folder: &Path) -> (Store, Writer, Keeping) {
    let store = Store::open(&folder.join(FILE)).await.unwrap();
    let (writer, keeping) = store.writer();
    (store, writer, keeping)
}

fn journals(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.join("journal")).map_or_else(|_| Vec::new(), |all| all.map(|one| one.unwrap().path()).collect())
}

#[tokio::test]
async fn the_next_to_open_the_file_finds_what_was_on_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, keeping) = stuck(folder.path()).await;
    writer.send(begun("begun", None)).await.unwrap();
    writer.try_send(begun("over", None)).unwrap();
    writer.send(ended("over")).await.unwrap();
    let early = Store::open(&folder.path().join(FILE)).await.unwrap();
    assert_eq!(early.turn("begun").await.unwrap(), None, "its writer lives");
    drop((store, writer, keeping));

    let store = Store::open(&folder.path().join(FILE)).await.unwrap();
    let run = store.run("begun", None).await.unwrap().unwrap();
    assert_eq!((run.state, run.prompt.as_str()), (RunState::Queued, "prompt of begun"));
    let over = store.turn("over").await.unwrap().unwrap();
    assert_eq!((over.outcome, over.answer.as_deref()), (Some(Outcome::Ok), Some("answer of over")));
    assert_eq!(journals(folder.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn half_a_line_is_no_record_and_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, keeping) = stuck(folder.path()).await;
    writer.send(begun("whole", None)).await.unwrap();
    drop((store, writer, keeping));
    let page = journals(folder.path())[0].join("0");
    OpenOptions::new()
        .append(true)
        .open(page)
        .unwrap()
        .write_all(b"{\"count\":1,\"row\":{\"Begun\":{\"run\":")
        .unwrap();
    let store = Store::open(&folder.path().join(FILE)).await.unwrap();
    assert!(store.turn("whole").await.unwrap().is_some());
    assert_eq!(journals(folder.path()).len(), 0);
}

#[tokio::test]
async fn what_is_in_the_database_is_not_in_the_journal_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join(FILE)).await.unwrap();
    let archive = Archive::new(&store);
    for turn in 0..40 {
        // Enough to fill a file several times.
        let Record::Begun(mut long) = begun(&turn.to_string(), None) else { unreachable!() };
        long.prompt = "x".repeat(100_000);
        archive.send_all([Record::Begun(long), ended(&turn.to_string())]).await;
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
async fn records_of_both_files_are_put_in_in_the_order_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, keeping) = stuck(folder.path()).await;
    let Record::Begun(mut long) = begun("long", None) else { unreachable!() };
    long.prompt = "x".repeat(1_000_000);
    for run in ["1", "2"] {
        writer.send(Record::Begun(trunkline_store::TurnBegun { run: run.into(), ..long.clone() })).await.unwrap();
    }
    writer.send(begun("short", None)).await.unwrap();
    writer.send(ended("1")).await.unwrap();
    assert_eq!(fs::read_dir(&journals(folder.path())[0]).unwrap().count(), 2);
    drop((store, writer, keeping));
    let store = Store::open(&folder.path().join(FILE)).await.unwrap();
    for (run, state) in [("1", RunState::Finished), ("2", RunState::Queued), ("short", RunState::Queued)] {
        assert_eq!(store.run(run, None).await.unwrap().unwrap().state, state, "{run}");
    }
}

#[tokio::test]
async fn what_the_database_refused_does_not_stay_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let (store, writer, keeping) = stuck(folder.path()).await;
    writer.send(begun("refused", None)).await.unwrap();
    store.close().await;
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(keeping.run(stop).await.lost, 1);
    assert_eq!(journals(folder.path()), Vec::<std::path::PathBuf>::new());
}
