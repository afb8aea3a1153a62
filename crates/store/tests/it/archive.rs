//! Tests writing, reading and exporting turns.

use std::time::Duration;

use serde_json::{Value, json};
use trunkline_core::event::Event;
use trunkline_core::failure::Category;
use trunkline_store::{
    ArchiveRecord, ArchiveTotals, ClientId, ExportFilter, NotQueued, RunOutcome, SessionKey, Store, StoreError,
    Surface, Time, TurnBegun, TurnEnded,
};

use crate::fixture::{TestArchive, begin, begun, ended, event, text};

fn notice(message: &str) -> Event {
    Event::Notice { message: message.into() }
}

#[tokio::test]
async fn turn_is_read_as_it_was_written() {
    let store = Store::in_memory().await.unwrap();
    let session = begin(&store, &ClientId::local()).await.id;
    let archive = TestArchive::new(&store);
    archive.send_all([begun("r", Some(&session)), event("r", 0, text("Hel")), event("r", 1, text("lo"))]).await;
    archive.writer.flush().await.unwrap();
    let running = store.turn("r").await.unwrap().unwrap();
    assert_eq!((running.outcome, running.answer, running.duration), (None, None, None));
    archive
        .send_all([event("r", 2, text("!")), event("r", 3, notice("n")), event("r", 4, text("?")), ended("r")])
        .await;
    assert_eq!(archive.end().await, ArchiveTotals { rows: 6, lost: 0 });
    let turn = store.turn("r").await.unwrap().unwrap();
    assert_eq!(store.turns(&session).await.unwrap(), std::slice::from_ref(&turn));
    assert_eq!(
        (turn.surface, turn.prompt.as_str(), turn.place.as_str()),
        (Some(Surface::Http), "prompt of r", "/repo")
    );
    assert_eq!((turn.outcome, turn.answer.as_deref()), (Some(RunOutcome::Ok), Some("answer of r")));
    assert_eq!((turn.provider.as_deref(), turn.duration), (Some("codex"), Some(Duration::from_millis(1234))));
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.cached_tokens), (10, 5, 2));
    let events = async |from| {
        let rows = store.events("r", from).await.unwrap();
        rows.into_iter().map(|row| (row.sequence, row.event)).collect::<Vec<_>>()
    };
    // A flush closes an open text.
    let all = [(0, text("Hello")), (2, text("!")), (3, notice("n")), (4, text("?"))];
    assert_eq!(events(0).await, all);
    assert_eq!(events(3).await, all[2..]);
    assert_eq!(store.turn("none").await.unwrap(), None);
    assert_eq!(store.events("none", 0).await.unwrap(), []);
}

#[tokio::test]
async fn concurrent_runs_are_kept_apart() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    let runs: Vec<String> = (0..50).map(|at| format!("run-{at}")).collect();
    let all = |record: fn(&str) -> ArchiveRecord| runs.iter().map(move |run| record(run));
    archive.send_all(all(|run| begun(run, None))).await;
    archive.send_all(all(|run| event(run, 0, notice(run)))).await;
    archive.send_all(all(ended)).await;
    assert_eq!(archive.end().await, ArchiveTotals { rows: 150, lost: 0 });
    for run in &runs {
        let turn = store.turn(run).await.unwrap().unwrap();
        assert_eq!((turn.prompt, turn.answer), (format!("prompt of {run}"), Some(format!("answer of {run}"))));
        let events = store.events(run, 0).await.unwrap();
        assert_eq!(events.into_iter().map(|row| row.event).collect::<Vec<_>>(), [notice(run)]);
    }
}

#[tokio::test]
async fn records_are_written_when_sent_before_the_stop_and_refused_afterwards() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    archive.send_all((0..1000).map(|at| begun(&at.to_string(), None))).await;
    let writer = archive.writer.clone();
    assert_eq!(archive.end().await, ArchiveTotals { rows: 1000, lost: 0 });
    let after = writer.send(begun("late", None)).await;
    assert!(matches!(after, Err(StoreError::Closed)), "{after:?}");
    assert!(matches!(writer.flush().await, Err(StoreError::Closed)));
    assert!(matches!(writer.try_send(begun("late", None)), Err(NotQueued::Closed)));
    assert_eq!(store.export(&ExportFilter::default(), &mut Vec::new()).await.unwrap(), 1000);
}

#[tokio::test]
async fn record_is_returned_when_queue_is_full() {
    let store = Store::in_memory().await.unwrap();
    let (writer, task) = store.writer();
    let mut queued = 0;
    let back = loop {
        match writer.try_send(begun(&queued.to_string(), None)) {
            Ok(()) => queued += 1,
            Err(NotQueued::Full(record)) => break *record,
            Err(closed @ NotQueued::Closed) => panic!("{closed}"),
        }
    };
    assert!(queued > 10_000, "the queue has room for a busy second: {queued}");
    let ArchiveRecord::Begun(TurnBegun { run, .. }) = &back else { panic!("{back:?}") };
    assert_eq!(*run, queued.to_string());
    let (_, totals) = tokio::join!(
        async {
            // Waits for room, which the task makes.
            writer.send(back).await.unwrap();
            drop(writer);
        },
        task.run(tokio_util::sync::CancellationToken::new())
    );
    assert_eq!(totals, ArchiveTotals { rows: queued + 1, lost: 0 });
}

#[tokio::test]
async fn queue_is_bounded_in_bytes() {
    let store = Store::in_memory().await.unwrap();
    let (writer, task) = store.writer();
    let ArchiveRecord::Begun(mut long) = begun("long", None) else { unreachable!() };
    long.prompt = "x".repeat(10_000_000);
    let sent = (0..100).take_while(|_| writer.try_send(ArchiveRecord::Begun(long.clone())).is_ok()).count();
    assert!((8..20).contains(&sent), "{sent} records of one MiB each");
    // The task writes the queued records and makes room again.
    let (all, totals) = tokio::join!(
        async {
            for _ in 0..30 {
                writer.send(ArchiveRecord::Begun(long.clone())).await.unwrap();
            }
            drop(writer);
            sent + 30
        },
        task.run(tokio_util::sync::CancellationToken::new())
    );
    assert_eq!((totals.rows, totals.lost), (all as u64, 0));
}

#[tokio::test]
async fn record_of_a_deleted_turn_or_session_is_no_error() {
    let store = Store::in_memory().await.unwrap();
    let owner = ClientId::local();
    let session = begin(&store, &owner).await.id;
    let archive = TestArchive::new(&store);
    archive.send_all([begun("r", Some(&session)), begun("s", Some(&SessionKey("none".into())))]).await;
    archive.writer.flush().await.unwrap();
    store.session_delete(&session, &owner).await.unwrap();
    archive.send_all([event("r", 0, notice("late")), ended("r"), begun("s", None), event("s", 0, notice("n"))]).await;
    archive.send_all([event("s", 0, notice("twice")), ended("s")]).await;
    archive.writer.flush().await.unwrap();
    assert_eq!(store.turn("r").await.unwrap(), None);
    let turn = store.turn("s").await.unwrap().unwrap();
    assert_eq!((turn.session, turn.outcome), (None, Some(RunOutcome::Ok)));
    assert_eq!(store.events("s", 0).await.unwrap()[0].event, notice("n"), "the first of two events is kept");
    assert_eq!(archive.end().await.lost, 0);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn turn_is_not_added_to_the_session_of_another_client() {
    let store = Store::in_memory().await.unwrap();
    let theirs = begin(&store, &ClientId::new("b")).await.id;
    let archive = TestArchive::new(&store);
    let ArchiveRecord::Ended(end) = ended("r") else { unreachable!() };
    let end = TurnEnded { session: Some(theirs.clone()), ..end };
    archive.send_all([begun("r", Some(&theirs)), ArchiveRecord::Ended(end)]).await;
    archive.end().await;
    let turn = store.turn("r").await.unwrap().unwrap();
    assert_eq!((turn.session, turn.outcome), (None, Some(RunOutcome::Ok)));
    assert_eq!(store.turns(&theirs).await.unwrap(), []);
}

#[tokio::test]
async fn long_texts_are_cut_with_a_note() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    let ArchiveRecord::Begun(turn) = begun("r", None) else { unreachable!() };
    archive.send_all([ArchiveRecord::Begun(TurnBegun { prompt: "é".repeat(1024 * 1024), ..turn })]).await;
    let output = "x".repeat(1024 * 1024);
    archive.send_all([event("r", 0, Event::ToolFinished { id: "1".into(), output, ok: true })]).await;
    archive.end().await;
    let prompt = store.turn("r").await.unwrap().unwrap().prompt;
    assert!(prompt.ends_with("é… [1048576 bytes left out]") && prompt.len() < 1024 * 1024 + 40);
    let row = store.events("r", 0).await.unwrap().remove(0);
    assert!(row.cut.is_some_and(|size| size > 1024 * 1024), "{:?}", row.cut);
}

#[tokio::test]
async fn export_has_a_line_of_json_for_each_turn() {
    let store = Store::in_memory().await.unwrap();
    let session = begin(&store, &ClientId::local()).await.id;
    let archive = TestArchive::new(&store);
    for at in 0..150 {
        let run = format!("r{at}");
        archive.send_all([begun(&run, (at == 7).then_some(&session)), event(&run, 0, text("hi")), ended(&run)]).await;
    }
    archive.end().await;
    let export = async |filter| {
        let mut bytes = Vec::new();
        let count = store.export(&filter, &mut bytes).await.unwrap();
        let lines: Vec<Value> =
            String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len() as u64, count);
        lines
    };
    let all = export(ExportFilter::default()).await;
    let runs: Vec<_> = all.iter().map(|line| line["run"].as_str().unwrap().to_owned()).collect();
    assert_eq!(runs, (0..150).map(|at| format!("r{at}")).collect::<Vec<_>>());
    let mut one = export(ExportFilter { session: Some(session.clone()), ..ExportFilter::default() }).await.remove(0);
    assert!(one["begun"].take().is_i64());
    let expected = json!({
        "run": "r7", "session": session.0, "owner": "local", "surface": "http", "place": "/repo", "model": "m",
        "prompt": "prompt of r7", "begun": null, "provider": "codex", "outcome": "ok", "answer": "answer of r7",
        "usage": {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 2, "estimated": false}, "duration_ms": 1234,
        "events": [{"sequence": 0, "type": "text", "delta": "hi"}],
    });
    assert_eq!(one, expected);
    let later = Time::from_millis(Time::now().millis() + 60_000);
    assert_eq!(export(ExportFilter { since: Some(later), ..ExportFilter::default() }).await.len(), 0);
    assert_eq!(export(ExportFilter { owner: Some(ClientId::new("b")), ..ExportFilter::default() }).await.len(), 0);
}

#[tokio::test]
async fn every_outcome_is_read_as_it_was_written() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    let outcomes = Category::ALL.map(RunOutcome::Failed).into_iter().chain([RunOutcome::Ok]);
    for (at, outcome) in outcomes.clone().enumerate() {
        let run = at.to_string();
        let ArchiveRecord::Ended(end) = ended(&run) else { unreachable!() };
        archive.send_all([begun(&run, None), ArchiveRecord::Ended(TurnEnded { outcome, ..end })]).await;
    }
    archive.end().await;
    for (at, outcome) in outcomes.enumerate() {
        assert_eq!(store.turn(&at.to_string()).await.unwrap().unwrap().outcome, Some(outcome));
    }
}
