//! Tests reading and exporting the texts and events of runs.

use std::time::Duration;

use serde_json::{Value, json};
use trunkline_core::event::Event;
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{
    ClientId, ExportFilter, LogRecord, RunContinued, RunEnded, RunOutcome, SessionKey, Surface, Time,
};

use crate::fixture::{TestProcess, accepted, begin, end, event, finished, started, text};

fn notice(message: &str) -> Event {
    Event::Notice { message: message.into() }
}

#[tokio::test]
async fn turn_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let session = begin(&process.store, &ClientId::local()).await.id;
    process.write("r", accepted("r", Some(&session)));
    for (sequence, piece) in [(0, text("Hel")), (1, text("lo"))] {
        process.write("r", event(sequence, piece));
    }
    let running = process.store.turn("r").await.unwrap().unwrap();
    assert_eq!((running.outcome, running.answer, running.duration), (None, None, None));
    process.write("r", started());
    for (sequence, piece) in [(2, text("!")), (3, notice("n")), (4, text("?")), (5, finished("answer of r"))] {
        process.write("r", event(sequence, piece));
    }
    process.write("r", end());
    let store = process.end().await;
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
    let all = [(0, text("Hello!")), (3, notice("n")), (4, text("?"))];
    assert_eq!(events(0).await, all);
    assert_eq!(events(3).await, all[1..]);
    assert_eq!(store.turn("none").await.unwrap(), None);
    assert_eq!(store.events("none", 0).await.unwrap(), []);
}

#[tokio::test]
async fn concurrent_runs_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let runs: Vec<String> = (0..50).map(|at| format!("run-{at}")).collect();
    for run in &runs {
        process.write(run, accepted(run, None));
    }
    for run in &runs {
        process.write(run, event(0, notice(run)));
        process.write(run, event(1, finished(&format!("answer of {run}"))));
    }
    for run in &runs {
        process.write(run, end());
    }
    let store = process.end().await;
    for run in &runs {
        let turn = store.turn(run).await.unwrap().unwrap();
        assert_eq!((turn.prompt, turn.answer), (format!("prompt of {run}"), Some(format!("answer of {run}"))));
        let events = store.events(run, 0).await.unwrap();
        assert_eq!(events.into_iter().map(|row| row.event).collect::<Vec<_>>(), [notice(run)]);
    }
}

#[tokio::test]
async fn prompt_is_as_the_session_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let session = begin(&process.store, &ClientId::local()).await.id;
    process.write("r", accepted("r", None));
    let continued = RunContinued { at: Time::now(), session: session.clone(), prompt: "only the last message".into() };
    process.write("r", LogRecord::Continued(continued));
    process.write("r", end());
    let store = process.end().await;
    let turn = store.turns(&session).await.unwrap().remove(0);
    assert_eq!((turn.prompt.as_str(), turn.session), ("only the last message", Some(session)));
}

#[tokio::test]
async fn turn_is_not_shown_in_the_session_of_another_client() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let theirs = begin(&process.store, &ClientId::new("b")).await.id;
    process.write("r", accepted("r", Some(&theirs)));
    process.write("r", RunEnded { session: Some(theirs.clone()), ..end() });
    process.write("s", accepted("s", Some(&SessionKey("none".into()))));
    process.write("s", end());
    let store = process.end().await;
    for run in ["r", "s"] {
        let turn = store.turn(run).await.unwrap().unwrap();
        assert_eq!((turn.session, turn.outcome), (None, Some(RunOutcome::Ok)));
    }
    assert_eq!(store.turns(&theirs).await.unwrap(), []);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn export_has_a_line_of_json_for_each_turn() {
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    let session = begin(&process.store, &ClientId::local()).await.id;
    let names: Vec<String> = (0..150).map(|at| format!("r{at:03}")).collect();
    for (at, run) in names.iter().enumerate() {
        process.write_run(run, (at == 7).then_some(&session));
    }
    let store = process.end().await;
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
    assert_eq!(runs, names);
    let mut one = export(ExportFilter { session: Some(session.clone()), ..ExportFilter::default() }).await.remove(0);
    assert!(one["begun"].take().is_i64());
    let expected = json!({
        "run": "r007", "session": session.0, "owner": "local", "surface": "http", "place": "/repo", "model": "m",
        "prompt": "prompt of r007", "begun": null, "provider": "codex", "outcome": "ok", "answer": "answer of r007",
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
    let folder = tempfile::tempdir().unwrap();
    let process = TestProcess::start(folder.path()).await;
    for (at, category) in Category::ALL.into_iter().enumerate() {
        let run = at.to_string();
        process.write(&run, accepted(&run, None));
        process.write(&run, event(0, Event::Failed(Failure::new(category, "why"))));
        let outcome = RunOutcome::Failed(category);
        process.write(&run, RunEnded { outcome, message: Some("why".into()), ..end() });
    }
    let store = process.end().await;
    for (at, category) in Category::ALL.into_iter().enumerate() {
        let turn = store.turn(&at.to_string()).await.unwrap().unwrap();
        assert_eq!((turn.outcome, turn.answer.as_deref()), (Some(RunOutcome::Failed(category)), Some("why")));
    }
}
