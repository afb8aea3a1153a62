//! Tests of the records of a turn, and of masked secrets in them.

use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::failure::Category;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{Message, Role, Turn};
use trunkline_store::{CurrentAttempt, DATABASE_FILE, LogState, RunOutcome, RunState};

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
        key: None,
    }
}

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

async fn opened(state: &Path) -> (StoreWriter, Store) {
    let store = Store::open(&state.join(DATABASE_FILE)).await.unwrap();
    let writer = StoreWriter::new(state, Durability::Process);
    writer.open(&store);
    (writer, store)
}

#[tokio::test]
async fn masks_secrets_in_records_when_they_are_split_between_events() {
    let state = tempfile::tempdir().unwrap();
    let (writer, store) = opened(state.path()).await;
    let secrets = Secrets::new([SECRET.to_owned()]);
    let turn = turn();
    let (mut recorder, recorded) = writer.record(run_start(&turn, "r"), &secrets);
    recorded.unwrap();
    recorder.started("codex");
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
    writer.end(recorder, RunEnd { provider: "codex", session: None, result: Ok(&answer), write: None }).unwrap();
    drop(writer.record(run_start(&turn, "cancelled"), &secrets));

    // Before and after the index is written.
    for _ in 0..2 {
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
        writer.close().await;
    }
}

#[tokio::test]
async fn run_is_recorded_as_ended_in_this_process_when_its_log_cannot_be_written() {
    let state = tempfile::tempdir().unwrap();
    let (writer, store) = opened(state.path()).await;
    let turn = turn();
    std::fs::write(state.path().join("log"), "in the way").unwrap();
    let (mut recorder, recorded) = writer.record(run_start(&turn, "r"), &Secrets::default());
    assert!(recorded.is_err());
    recorder.started("codex");
    recorder.events(&[text("x")], &CurrentAttempt::default());
    let answer = Answer::new("x", Usage::default(), Finish::Stop);
    let ended = writer.end(recorder, RunEnd { provider: "codex", session: None, result: Ok(&answer), write: None });
    ended.unwrap();
    assert!(store.run("r", None).await.unwrap().is_none(), "a run without its first record does not exist");
    std::fs::remove_file(state.path().join("log")).unwrap();
    let (recorder, recorded) = writer.record(run_start(&turn, "next"), &Secrets::default());
    recorded.unwrap();
    drop(recorder);
    assert_eq!(store.run("next", None).await.unwrap().unwrap().state, RunState::Cancelled);
    assert!(writer.lost() > 0);
    writer.close().await;
}

#[tokio::test]
async fn run_has_failed_when_its_end_cannot_be_written() {
    let state = tempfile::tempdir().unwrap();
    let (writer, store) = opened(state.path()).await;
    let turn = turn();
    let (mut recorder, recorded) = writer.record(run_start(&turn, "r"), &Secrets::default());
    recorded.unwrap();
    recorder.started("codex");
    writer.log.fail_after(0, u64::MAX, 10);
    let answer = Answer::new("x", Usage::default(), Finish::Stop);
    let ended = writer.end(recorder, RunEnd { provider: "codex", session: None, result: Ok(&answer), write: None });
    assert!(ended.is_err());
    let row = store.run("r", None).await.unwrap().unwrap();
    assert_eq!(row.state, RunState::Failed);
    assert!(row.error.unwrap().message.contains("could not be recorded"));
    writer.close().await;
}

#[tokio::test]
async fn run_without_a_store_is_recorded_in_the_log() {
    let state = tempfile::tempdir().unwrap();
    let writer = StoreWriter::new(state.path(), Durability::Fsync);
    let turn = turn();
    let (mut recorder, recorded) = writer.record(run_start(&turn, "r"), &Secrets::default());
    recorded.unwrap();
    recorder.started("codex");
    recorder.events(&[text("x")], &CurrentAttempt::default());
    let failure = cancelled_by_client();
    writer.end(recorder, RunEnd { provider: "codex", session: None, result: Err(&failure), write: None }).unwrap();
    writer.sync().await.unwrap();
    writer.close().await;
    drop(writer);
    let store = Store::open(&state.path().join(DATABASE_FILE)).await.unwrap();
    let row = store.run("r", None).await.unwrap().unwrap();
    assert_eq!((row.state, row.log), (RunState::Cancelled, Some(LogState::Complete)));
}
