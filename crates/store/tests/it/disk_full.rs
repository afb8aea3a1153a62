//! Tests a disk that becomes full at any operation of the log: a record that was reported as written is there after a
//! restart, and one that was refused is not.

use std::collections::BTreeSet;

use trunkline_store::{Durability, LogRecord, LogWriter, RunFilter, Store};

use crate::fixture::{TestProcess, TestRecord, accepted, end, event, text};

/// Bytes that the failing write stores.
const STORED_BYTES: [u64; 4] = [0, 9, 100, u64::MAX];

const RUNS: usize = 3;

/// The records of a run, with the name of the run.
fn records(at: usize) -> Vec<(String, LogRecord)> {
    let run = format!("r{at}");
    let records = [
        TestRecord::from(accepted(&run, None)).0,
        event(0, text(&format!("event of {run}"))),
        TestRecord::from(end()).0,
    ];
    records.into_iter().map(|record| (run.clone(), record)).collect()
}

/// The records that a store has, as `run kind`.
async fn content(store: &Store) -> BTreeSet<String> {
    let mut content = BTreeSet::new();
    for row in store.runs(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap() {
        content.insert(format!("{} accepted", row.id));
        if row.ended.is_some() {
            content.insert(format!("{} ended", row.id));
        }
        for event in store.events(&row.id, 0).await.unwrap() {
            assert_eq!(event.event, text(&format!("event of {}", row.id)));
            content.insert(format!("{} event", row.id));
        }
    }
    content
}

/// Returns whether the failure happened.
async fn check(operations: u64, failures: u64, stored: u64, durability: Durability) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory_with_log(folder.path()).await.unwrap();
    let log = LogWriter::new(folder.path(), durability).segment_bytes(300);
    let (process, _task) = TestProcess::with_log(store, log);
    process.log.fail_after(operations, failures, stored);
    let mut promised = BTreeSet::new();
    let mut refused: u64 = 0;
    for at in 0..RUNS {
        for (run, record) in records(at) {
            let kind = match &record {
                LogRecord::Accepted(_) => "accepted",
                LogRecord::Event(_) => "event",
                LogRecord::Started(_)
                | LogRecord::Continued(_)
                | LogRecord::Workspace(_)
                | LogRecord::Session(_)
                | LogRecord::Ended(_) => "ended",
            };
            // As the engine does: a run that was not accepted has no further records.
            if kind != "accepted" && !promised.contains(&format!("{run} accepted")) {
                continue;
            }
            match process.try_write(&run, &record) {
                Ok(()) => drop(promised.insert(format!("{run} {kind}"))),
                Err(_) => refused += 1,
            }
        }
    }
    let failed = process.log.has_failed();
    assert_eq!(process.log.failed_writes(), refused);
    // A failure to start another segment does not refuse the end of a run.
    assert!(refused <= failures, "{refused} of {failures}");
    process.kill().await;
    let store = Store::in_memory_with_log(folder.path()).await.unwrap();
    let case = format!("operation {operations}, {failures} failures, {stored} bytes, {durability:?}");
    assert_eq!(content(&store).await, promised, "{case}");
    failed
}

#[tokio::test]
async fn what_was_promised_is_kept_when_any_operation_finds_the_disk_full() {
    let one = (1, 9);
    let several: Vec<_> = STORED_BYTES.iter().flat_map(|stored| [(1, *stored), (2, *stored)]).collect();
    for (durability, cases) in [(Durability::Process, several.as_slice()), (Durability::Fsync, &[one])] {
        let mut operations = 0;
        loop {
            let mut failed = false;
            for (failures, stored) in cases {
                failed |= check(operations, *failures, *stored, durability).await;
            }
            if !failed {
                break;
            }
            operations += 1;
        }
        assert!(operations > 4 * RUNS as u64, "{operations}: each write, and some segments");
    }
}
