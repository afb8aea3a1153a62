//! Readers get every event once, in order, whenever they attach.

use proptest::prelude::*;
use trunkline_core::event::{Answer, Finish, Usage};
use trunkline_store::{Durability, RunAccepted};

use super::super::follow::Follow;
use super::super::live::{RunEnding, RunRegistration, RunRegistry};
use super::*;

const RUN: &str = "01a1e236-cb98-7728-9788-183752c3d846";

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn finished(content: &str) -> Event {
    Event::Finished(Answer::new(content, Usage::default(), Finish::Stop))
}

fn by(provider: &str) -> CurrentAttempt {
    CurrentAttempt { provider: provider.into(), attempts: 1, session: None }
}

/// A run whose first record is written.
fn begin(state: &std::path::Path, secrets: Secrets) -> (Arc<RunRegistration>, RunLog) {
    let registration = Arc::<RunRegistry>::default().begin(RUN, &Default::default(), None);
    let writer = Arc::new(LogWriter::new(state, Durability::Process));
    let mut log = RunLog::new(writer, RUN, secrets, registration.extents());
    // A failure disables the log.
    let _ = log.accept(&LogRecord::Accepted(RunAccepted::default().into()), |_| {});
    (registration, log)
}

fn append(registration: &RunRegistration, log: &mut RunLog, events: &[Event], provider: &str) {
    log.push_events(events, &by(provider));
    let _ = log.write(Purpose::Continue, |_| {});
    registration.set_written(log.written());
}

async fn read(registration: &RunRegistration, from: u64) -> Vec<trunkline_store::RunLogEntry> {
    let mut follow = Follow::live(registration, from);
    let mut seen = Vec::new();
    while let Some(entry) = follow.next().await {
        seen.push(entry);
    }
    seen
}

/// Texts end with a space: the end of a text that may be the beginning of a key is held back.
fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        "\\PC{0,40} ".prop_map(|delta| Event::Text { delta }),
        "(?s).{0,40} ".prop_map(|delta| Event::Thinking { delta }),
        ("[a-z]{1,4}", ".{0,20}").prop_map(|(id, output)| Event::ToolFinished { id, output, ok: true }),
        ".{0,20}".prop_map(|line| Event::Unknown { line }),
        ".{0,20}".prop_map(|command| Event::ToolStarted {
            id: "1".into(),
            name: "bash".into(),
            input: serde_json::json!({"command": command}),
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reader_gets_every_event_once_whenever_it_attaches(
        events in proptest::collection::vec(any_event(), 0..12),
        attach in proptest::collection::vec((0..12_usize, 0..6_u64), 1..4),
    ) {
        let state = tempfile::tempdir().unwrap();
        let all: Vec<Event> = events.into_iter().chain([finished("done")]).collect();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (registration, mut log) = begin(state.path(), Secrets::default());
            let mut readers = tokio::task::JoinSet::new();
            for (at, event) in all.iter().enumerate() {
                for (_, from) in attach.iter().filter(|(when, _)| *when == at) {
                    let (registration, from) = (Arc::clone(&registration), *from);
                    readers.spawn(async move { (from, read(&registration, from).await) });
                }
                tokio::task::yield_now().await;
                append(&registration, &mut log, std::slice::from_ref(event), "codex");
            }
            while let Some(read) = readers.join_next().await {
                let (from, seen) = read.unwrap();
                let seen: Vec<(u64, Event)> = seen.into_iter().map(|entry| (entry.seq, entry.event)).collect();
                let all = (0..).zip(all.iter().cloned());
                assert_eq!(seen, all.filter(|(seq, _)| *seq >= from).collect::<Vec<_>>());
            }
        });
    }
}

#[tokio::test]
async fn entry_names_the_attempt_only_when_it_has_changed() {
    let state = tempfile::tempdir().unwrap();
    let (registration, mut log) = begin(state.path(), Secrets::default());
    append(&registration, &mut log, &[text("a"), text("b")], "codex");
    append(&registration, &mut log, &[text("c"), finished("c")], "claude");
    let providers: Vec<Option<String>> =
        read(&registration, 0).await.into_iter().map(|entry| Some(entry.by?.provider)).collect();
    assert_eq!(providers, [Some("codex".into()), None, Some("claude".into()), None]);
}

#[tokio::test]
async fn log_is_masked_and_readable_only_by_its_owner() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    let state = tempfile::tempdir().unwrap();
    let secret = "hunter2-hunter2";
    let (registration, mut log) = begin(state.path(), Secrets::new([secret.to_owned()]));
    let input = serde_json::json!({"command": ["echo", secret]});
    for event in [
        text(secret),
        text(" hunter2-"),
        text("hunter2"),
        Event::ToolStarted { id: "1".into(), name: "b".into(), input },
        finished(secret),
    ] {
        append(&registration, &mut log, &[event], "codex");
    }
    let folder = state.path().join("log");
    let segment = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.into_iter().find(|path| path.extension().is_some_and(|end| end == "log")).unwrap();
    let written = fs::read_to_string(&segment).unwrap();
    assert!(!written.contains("hunter2") && written.contains("***"), "{written}");
    assert_eq!(fs::metadata(&segment).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn log_has_its_last_event_when_it_exceeds_its_size_limit() {
    let state = tempfile::tempdir().unwrap();
    let (registration, mut log) = begin(state.path(), Secrets::default());
    log.max_bytes = 2000;
    for _ in 0..100 {
        append(&registration, &mut log, &[text("0123456789 ")], "codex");
    }
    append(&registration, &mut log, &[finished("all of it")], "codex");
    assert!(log.written() < 3000 && log.state() == LogState::Incomplete);
    let seen = read(&registration, 0).await;
    let [.., notice, last] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(matches!(&notice.event, Event::Notice { message } if message.contains("events are not in the log")));
    assert_eq!(last.event, finished("all of it"));
}

/// The log folder cannot be created, as on a full disk.
#[tokio::test]
async fn run_ends_normally_when_its_log_cannot_be_written() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("log"), "in the way").unwrap();
    let (registration, mut log) = begin(state.path(), Secrets::default());
    append(&registration, &mut log, &[text("a")], "codex");
    append(&registration, &mut log, &[finished("a")], "codex");
    assert_eq!(log.state(), LogState::Incomplete);
    registration.set_end(RunEnding::Event(finished("a").into()));
    let mut follow = Follow::live(&registration, 0);
    assert_eq!(follow.next().await.map(|entry| entry.event), Some(finished("a")));
    assert_eq!(follow.next().await, None);
}
