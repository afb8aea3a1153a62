//! Tests a disk that becomes full at any operation of the log: a record that was reported as written is in the index, and
//! in one that is rebuilt after a restart; one that was refused is in neither.

use std::collections::BTreeSet;

use trunkline_store::{
    ClientId, Durability, LogRecord, LogWriter, RunEnded, RunFilter, RunState, SessionFilter, SessionRow, SessionState,
    Store,
};

use crate::fixture::{TestProcess, TestRecord, accepted, end, event, state, text};

/// Bytes that the failing write stores.
const STORED_BYTES: [u64; 4] = [0, 9, 100, u64::MAX];

const RUNS: usize = 2;

/// A record, with the name under which [`content`] lists it.
fn records(at: usize) -> [(&'static str, LogRecord); 4] {
    let (run, session) = (run(at), session(at));
    [
        ("accepted", TestRecord::from(accepted(&run, None)).0),
        ("event", event(0, text(&format!("event of {run}")))),
        ("session", TestRecord::from(session.clone()).0),
        ("ended", TestRecord::from(RunEnded { session: Some(session.session.id), ..end() }).0),
    ]
}

fn run(at: usize) -> String {
    format!("r{at}")
}

/// The session after a run. All runs are turns of one session.
fn session(at: usize) -> SessionState {
    let time = i64::try_from(at).unwrap() + 1;
    state("s", time, &[u8::try_from(time).unwrap()])
}

/// The records that a store has, as `run kind`, and the session as of its latest record.
async fn content(store: &Store) -> (BTreeSet<String>, Option<SessionRow>) {
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let mut content = BTreeSet::new();
    let sessions = store.sessions(&SessionFilter::default()).await.unwrap();
    let session = sessions.first().cloned();
    for row in store.runs(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap() {
        content.insert(format!("{} accepted", row.id));
        if row.ended.is_some() {
            assert_eq!((row.state, row.usage), (RunState::Finished, end().usage));
            assert_eq!(row.session, session.as_ref().map(|session| session.id.clone()), "{}", row.id);
            content.insert(format!("{} ended", row.id));
        }
        for event in store.events(&row.id, 0).await.unwrap() {
            assert_eq!(event.event, text(&format!("event of {}", row.id)));
            content.insert(format!("{} event", row.id));
        }
    }
    for hash in 1..=u8::try_from(RUNS).unwrap() {
        let found = store.chain_find(&ClientId::local(), "m", &[[hash; 32]]).await.unwrap();
        let is_latest = session.as_ref().is_some_and(|session| session.turns == u64::from(hash));
        assert_eq!(found.is_some(), is_latest, "the history {hash} leads to the session as of its latest record only");
    }
    assert!(sessions.len() <= 1);
    (content, session)
}

/// Returns whether the failure happened.
async fn check(operations: u64, failures: u64, stored: u64, durability: Durability) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_memory_with_log(folder.path()).await.unwrap();
    let log = LogWriter::new(folder.path(), durability).segment_bytes(300);
    let process = TestProcess::start_with(store, log);
    process.log.fail_after(operations, failures, stored);
    let mut promised = (BTreeSet::new(), None);
    let mut refused: u64 = 0;
    for at in 0..RUNS {
        let run = run(at);
        for (kind, record) in records(at) {
            // As the engine does: a run that was not accepted has no further records.
            if kind != "accepted" && !promised.0.contains(&format!("{run} accepted")) {
                continue;
            }
            match process.try_write(&run, &record) {
                Ok(()) if kind == "session" => promised.1 = Some(session(at).session),
                Ok(()) => drop(promised.0.insert(format!("{run} {kind}"))),
                Err(_) => refused += 1,
            }
        }
    }
    let failed = process.log.has_failed();
    assert_eq!(process.log.failed_writes(), refused);
    // A failure to start another segment does not refuse the end of a run.
    assert!(refused <= failures, "{refused} of {failures}");
    let case = format!("operation {operations}, {failures} failures, {stored} bytes, {durability:?}");
    process.feed.flush().await.unwrap();
    assert_eq!(content(&process.store).await, promised, "while the process runs: {case}");
    process.kill().await;
    let rebuilt = Store::in_memory_with_log(folder.path()).await.unwrap();
    assert_eq!(content(&rebuilt).await, promised, "rebuilt: {case}");
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
        assert!(operations > 5 * RUNS as u64, "{operations}: each write, and some segments");
    }
}
