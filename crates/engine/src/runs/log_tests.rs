//! A log that was cut anywhere reads as a prefix of what was written, without gaps or duplicates.

use proptest::prelude::*;
use trunkline_core::event::{Answer, Finish, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_store::Store;

use super::super::follow::Follow;
use super::super::live::{RunEnding, RunRegistry};
use super::*;
use std::sync::Arc;

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

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Reads the log of a run that the store does not know: its entries, and a failure if the log has no end.
fn read(state: &Path, from: u64) -> Vec<RunLogEntry> {
    block_on(async {
        let mut follow = Follow::kept(state, Store::in_memory().await.unwrap(), RUN, from);
        let mut seen = Vec::new();
        while let Some(entry) = follow.next().await {
            seen.push(entry);
        }
        seen
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        "\\PC{0,40}".prop_map(|delta| Event::Text { delta }),
        "(?s).{0,40}".prop_map(|delta| Event::Thinking { delta }),
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
    fn truncated_log_reads_as_a_prefix(
        events in proptest::collection::vec(any_event(), 0..12),
        batch in 1..4_usize,
        cut in 0.0..=1.0_f64,
        from in 0..6_u64,
    ) {
        let state = tempfile::tempdir().unwrap();
        let mut log = RunLog::new(state.path(), RUN, Secrets::default());
        let all: Vec<Event> = events.into_iter().chain([finished("done")]).collect();
        for batch in all.chunks(batch) {
            log.append(batch, &by("codex"));
        }
        let path = log_entry::path(state.path(), RUN).unwrap();
        let whole = fs::read(&path).unwrap();
        prop_assert_eq!(whole.len() as u64, log.written);
        let cut = (whole.len() as f64 * cut) as usize;
        fs::write(&path, &whole[..cut]).unwrap();

        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let mut seen = read(state.path(), from);
        if lines < all.len() {
            // The store does not know the run, so the reader ends with a failure.
            prop_assert!(seen.pop().unwrap().event.is_end());
        }
        let first = usize::try_from(from).unwrap().min(lines);
        let expected: Vec<(u64, Event)> =
            all[first..lines].iter().enumerate().map(|(at, event)| ((first + at) as u64, event.clone())).collect();
        let seen: Vec<(u64, Event)> = seen.into_iter().map(|entry| (entry.seq, entry.event)).collect();
        prop_assert_eq!(seen, expected);

        // `add_last` completes a truncated log, and changes a complete one in no way.
        let last = Event::Failed(Failure::new(Category::Server, "interrupted"));
        add_last(&path, &last).unwrap();
        add_last(&path, &last).unwrap();
        let completed = read(state.path(), 0).into_iter();
        let completed: Vec<(u64, Event)> = completed.map(|entry| (entry.seq, entry.event)).collect();
        let end = (lines < all.len()).then_some(last);
        let expected: Vec<(u64, Event)> = (0..).zip(all[..lines].iter().cloned().chain(end)).collect();
        prop_assert_eq!(completed, expected);
    }

    #[test]
    fn reader_gets_every_event_once_whenever_it_attaches(
        events in proptest::collection::vec(any_event(), 0..12),
        attach in proptest::collection::vec(0..12_usize, 1..4),
    ) {
        let state = tempfile::tempdir().unwrap();
        let all: Vec<Event> = events.into_iter().chain([finished("done")]).collect();
        block_on(async {
            let registration = Arc::<RunRegistry>::default().begin(RUN, &Default::default(), None);
            let mut log = RunLog::new(state.path(), RUN, Secrets::default());
            let mut readers = tokio::task::JoinSet::new();
            for (at, event) in all.iter().enumerate() {
                for _ in attach.iter().filter(|when| **when == at) {
                    let mut follow = Follow::live(state.path(), &registration, 0);
                    readers.spawn(async move {
                        let mut seen = Vec::new();
                        while let Some(entry) = follow.next().await {
                            seen.push((entry.seq, entry.event));
                        }
                        seen
                    });
                }
                tokio::task::yield_now().await;
                registration.set_written(log.append([event], &by("codex")));
            }
            let expected: Vec<(u64, Event)> = (0..).zip(all.iter().cloned()).collect();
            while let Some(seen) = readers.join_next().await {
                assert_eq!(seen.unwrap(), expected);
            }
        });
    }
}

#[test]
fn entry_names_the_attempt_only_when_it_has_changed() {
    let state = tempfile::tempdir().unwrap();
    let mut log = RunLog::new(state.path(), RUN, Secrets::default());
    log.append([&text("a"), &text("b")], &by("codex"));
    log.append([&text("c"), &finished("c")], &by("claude"));
    let providers: Vec<Option<String>> =
        read(state.path(), 0).into_iter().map(|entry| Some(entry.by?.provider)).collect();
    assert_eq!(providers, [Some("codex".into()), None, Some("claude".into()), None]);
}

#[test]
fn log_is_masked_and_readable_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let state = tempfile::tempdir().unwrap();
    let secret = "hunter2-hunter2";
    let mut log = RunLog::new(state.path(), RUN, Secrets::new([secret.to_owned()]));
    let input = serde_json::json!({"command": ["echo", secret]});
    log.append(
        [&text(secret), &Event::ToolStarted { id: "1".into(), name: "b".into(), input }, &finished(secret)],
        &by("codex"),
    );
    let path = log_entry::path(state.path(), RUN).unwrap();
    let written = fs::read_to_string(&path).unwrap();
    assert!(!written.contains("hunter2") && written.contains("***"), "{written}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn log_has_its_last_event_when_it_exceeds_its_size_limit() {
    let state = tempfile::tempdir().unwrap();
    let mut log = RunLog::with_max_bytes(1000, log_entry::path(state.path(), RUN), Secrets::default());
    for _ in 0..100 {
        log.append([&text("0123456789")], &by("codex"));
    }
    log.append([&finished("all of it")], &by("codex"));
    assert!(log.written < 2000 && log.state() == LogState::Incomplete);
    let seen = read(state.path(), 0);
    let [.., notice, last] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(matches!(&notice.event, Event::Notice { message } if message.contains("events are not in the log")));
    assert_eq!(last.event, finished("all of it"));
}

/// The log folder cannot be created, as on a full disk.
#[tokio::test]
async fn run_ends_normally_when_its_log_cannot_be_written() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("runs"), "in the way").unwrap();
    let mut log = RunLog::new(state.path(), RUN, Secrets::default());
    let registration = Arc::<RunRegistry>::default().begin(RUN, &Default::default(), None);
    registration.set_written(log.append([&text("a")], &by("codex")));
    registration.set_written(log.append([&finished("a")], &by("codex")));
    assert_eq!(log.state(), LogState::Incomplete);
    registration.set_end(RunEnding::Event(finished("a").into()));
    let mut follow = Follow::live(state.path(), &registration, 0);
    assert_eq!(follow.next().await.map(|entry| entry.event), Some(finished("a")));
    assert_eq!(follow.next().await, None);
}
