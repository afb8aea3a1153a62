//! Tests of the records of a turn, and of masked secrets in them.

use trunkline_core::event::{Answer, Finish};
use trunkline_core::turn::{Message, Role};

use super::*;

const SECRET: &str = "hunter2-hunter2";

fn turn() -> Turn {
    let messages = vec![Message::new(Role::User, format!("my key is {SECRET}"))];
    Turn { model: "m".into(), messages, ..Turn::default() }
}

fn run_start<'a>(turn: &'a Turn, run: &str) -> RunStart<'a> {
    let presence = Arc::<crate::runs::live::RunRegistry>::default().begin(run, &turn.owner, None);
    RunStart {
        presence,
        session: None,
        place: "/repo".into(),
        provider: "p".into(),
        turn,
        gateway: "",
        detached: false,
    }
}

/// A log that has no file.
fn no_log() -> RunLog {
    RunLog::new("/".as_ref(), "none", Secrets::default())
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

#[tokio::test]
async fn masks_secrets_in_records_when_they_are_split_between_events() {
    let store = Store::in_memory().await.unwrap();
    let archive = StoreWriter::new(Path::new("/nonexistent"));
    archive.open(&store);
    let secrets = Secrets::new([SECRET.to_owned()]);
    let turn = turn();
    let mut recorder = archive.record(run_start(&turn, "r"), no_log(), &secrets);
    let input = serde_json::json!({"command": ["echo", SECRET]});
    for event in [
        text("it is hunter2-"),
        text("hunter2, "),
        text("you say"),
        Event::ToolStarted { id: "1".into(), name: "bash".into(), input },
        Event::ToolFinished { id: "1".into(), output: format!("{SECRET}\n"), ok: true },
        text("done"),
    ] {
        recorder.events(&[event], &CurrentAttempt::default());
    }
    let answer = Answer::new(format!("done {SECRET}"), Usage::estimate("1234", "1234"), Finish::Stop);
    recorder.end(RunEnd { provider: "codex", session: None, result: Ok(&answer) }).await;
    drop(archive.record(run_start(&turn, "cancelled"), no_log(), &secrets));
    archive.close().await;

    let row = store.turn("r").await.unwrap().unwrap();
    assert_eq!((row.prompt.as_str(), row.answer.as_deref()), ("my key is ***", Some("done ***")));
    assert_eq!((row.outcome, row.usage), (Some(RunOutcome::Ok), answer.usage));
    let events: Vec<Event> = store.events("r", 0).await.unwrap().into_iter().map(|row| row.event).collect();
    let input = serde_json::json!({"command": ["echo", "***"]});
    assert_eq!(
        events,
        [
            text("it is ***, you say"),
            Event::ToolStarted { id: "1".into(), name: "bash".into(), input },
            Event::ToolFinished { id: "1".into(), output: "***\n".into(), ok: true },
            text("done"),
        ]
    );
    let cancelled = store.turn("cancelled").await.unwrap().unwrap();
    assert_eq!(cancelled.outcome, Some(RunOutcome::Failed(Category::Cancelled)));
}

#[tokio::test]
async fn drops_records_without_waiting_when_queue_is_full() {
    let store = Store::in_memory().await.unwrap();
    let archive = StoreWriter::new(Path::new("/nonexistent"));
    // The writer task does not run, so that the queue fills up.
    let (writer, _writer_task) = store.writer();
    assert!(archive.kept.set((store.clone(), writer)).is_ok());
    let turn = turn();
    let mut recorder = archive.record(run_start(&turn, "r"), no_log(), &Secrets::default());
    for n in 0..20_000 {
        recorder.events(&[Event::Notice { message: n.to_string() }], &CurrentAttempt::default());
    }
    assert!(archive.lost.load(Ordering::Relaxed) > 3000);
}

#[tokio::test]
async fn records_nothing_and_does_not_wait_without_a_store() {
    let archive = StoreWriter::new(Path::new("/nonexistent"));
    let turn = turn();
    let mut recorder = archive.record(run_start(&turn, "r"), no_log(), &Secrets::default());
    recorder.events(&[text("x")], &CurrentAttempt::default());
    recorder.end(RunEnd { provider: "codex", session: None, result: Err(&cancelled_by_client()) }).await;
    archive.close().await;
}

#[tokio::test]
async fn records_are_truncated_when_output_is_too_long() {
    let store = Store::in_memory().await.unwrap();
    let archive = StoreWriter::new(Path::new("/nonexistent"));
    archive.open(&store);
    let turn = turn();
    let mut recorder = archive.record(run_start(&turn, "r"), no_log(), &Secrets::default());
    for _ in 0..3 * MAX_TEXT_BYTES / 1000 {
        recorder.events(&[text(&"x".repeat(1000))], &CurrentAttempt::default());
    }
    recorder.events(&[Event::Unknown { line: "y".repeat(2 * MAX_DETAIL_BYTES) }], &CurrentAttempt::default());
    recorder.end(RunEnd { provider: "text", session: None, result: Err(&cancelled_by_client()) }).await;
    archive.close().await;
    let events = store.events("r", 0).await.unwrap();
    let recorded: usize = events.iter().map(|row| serde_json::to_string(&row.event).unwrap().len()).sum();
    assert!((MAX_TEXT_BYTES..MAX_TEXT_BYTES + 4 * MAX_DETAIL_BYTES).contains(&recorded), "{recorded}");
    assert!(events.iter().any(|row| matches!(&row.event, Event::Notice { .. })));
    assert_eq!(archive.lost.load(Ordering::Relaxed), 0);
}
