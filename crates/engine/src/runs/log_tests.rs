//! A log, however it is cut, is read as the beginning of what was written, without gaps and without doubles.

use proptest::prelude::*;
use trunkline_core::event::{Answer, Finish, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_store::Store;

use super::super::follow::Follow;
use super::super::live::{End, RunRegistry};
use super::*;
use std::sync::Arc;

const RUN: &str = "01a1e236-cb98-7728-9788-183752c3d846";

fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

fn finished(content: &str) -> Event {
    Event::Finished(Answer::new(content, Usage::default(), Finish::Stop))
}

fn by(provider: &str) -> By {
    By { provider: provider.into(), attempts: 1, session: None }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// All that a reader sees of a run that nobody knows: the log, and an end of its own.
fn read(state: &Path, from: u64) -> Vec<entry::Entry> {
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
    fn a_log_that_is_cut_is_a_beginning(
        events in proptest::collection::vec(any_event(), 0..12),
        batch in 1..4_usize,
        cut in 0.0..=1.0_f64,
        from in 0..6_u64,
    ) {
        let state = tempfile::tempdir().unwrap();
        let mut log = Log::new(state.path(), RUN, Secrets::default());
        let all: Vec<Event> = events.into_iter().chain([finished("done")]).collect();
        for batch in all.chunks(batch) {
            log.append(batch, &by("codex"));
        }
        let path = entry::path(state.path(), RUN).unwrap();
        let whole = fs::read(&path).unwrap();
        prop_assert_eq!(whole.len() as u64, log.written);
        let cut = (whole.len() as f64 * cut) as usize;
        fs::write(&path, &whole[..cut]).unwrap();

        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let mut seen = read(state.path(), from);
        if lines < all.len() {
            // Nobody knows of the run: its reader is told so, as the last thing.
            prop_assert!(seen.pop().unwrap().event.is_end());
        }
        let first = usize::try_from(from).unwrap().min(lines);
        let expected: Vec<(u64, Event)> =
            all[first..lines].iter().enumerate().map(|(at, event)| ((first + at) as u64, event.clone())).collect();
        let seen: Vec<(u64, Event)> = seen.into_iter().map(|entry| (entry.seq, entry.event)).collect();
        prop_assert_eq!(seen, expected);

        // What a crash has cut is given an end, once, and is whole again.
        let last = Event::Failed(Failure::new(Category::Server, "interrupted"));
        add_last(&path, &last).unwrap();
        add_last(&path, &last).unwrap();
        let mended: Vec<(u64, Event)> = read(state.path(), 0).into_iter().map(|entry| (entry.seq, entry.event)).collect();
        let end = (lines < all.len()).then_some(last);
        let expected: Vec<(u64, Event)> = (0..).zip(all[..lines].iter().cloned().chain(end)).collect();
        prop_assert_eq!(mended, expected);
    }

    /// Whenever somebody begins to read, he sees everything once, in order.
    #[test]
    fn whoever_attaches_sees_everything_once(
        events in proptest::collection::vec(any_event(), 0..12),
        attach in proptest::collection::vec(0..12_usize, 1..4),
    ) {
        let state = tempfile::tempdir().unwrap();
        let all: Vec<Event> = events.into_iter().chain([finished("done")]).collect();
        block_on(async {
            let presence = Arc::<RunRegistry>::default().begin(RUN, &Default::default(), None);
            let mut log = Log::new(state.path(), RUN, Secrets::default());
            let mut readers = tokio::task::JoinSet::new();
            for (at, event) in all.iter().enumerate() {
                for _ in attach.iter().filter(|when| **when == at) {
                    let mut follow = Follow::live(state.path(), &presence, 0);
                    readers.spawn(async move {
                        let mut seen = Vec::new();
                        while let Some(entry) = follow.next().await {
                            seen.push((entry.seq, entry.event));
                        }
                        seen
                    });
                }
                tokio::task::yield_now().await;
                presence.has_written(log.append([event], &by("codex")));
            }
            let expected: Vec<(u64, Event)> = (0..).zip(all.iter().cloned()).collect();
            while let Some(seen) = readers.join_next().await {
                assert_eq!(seen.unwrap(), expected);
            }
        });
    }
}

#[test]
fn who_is_at_work_is_said_when_it_changes() {
    let state = tempfile::tempdir().unwrap();
    let mut log = Log::new(state.path(), RUN, Secrets::default());
    log.append([&text("a"), &text("b")], &by("codex"));
    log.append([&text("c"), &finished("c")], &by("claude"));
    let said: Vec<Option<String>> = read(state.path(), 0).into_iter().map(|entry| Some(entry.by?.provider)).collect();
    assert_eq!(said, [Some("codex".into()), None, Some("claude".into()), None]);
}

#[test]
fn no_secret_is_in_a_log_and_nobody_else_reads_it() {
    use std::os::unix::fs::PermissionsExt;
    let state = tempfile::tempdir().unwrap();
    let secret = "hunter2-hunter2";
    let mut log = Log::new(state.path(), RUN, Secrets::new([secret.to_owned()]));
    let input = serde_json::json!({"command": ["echo", secret]});
    log.append(
        [&text(secret), &Event::ToolStarted { id: "1".into(), name: "b".into(), input }, &finished(secret)],
        &by("codex"),
    );
    let path = entry::path(state.path(), RUN).unwrap();
    let written = fs::read_to_string(&path).unwrap();
    assert!(!written.contains("hunter2") && written.contains("***"), "{written}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_log_is_bounded_and_its_end_is_there() {
    let state = tempfile::tempdir().unwrap();
    let mut log = Log::up_to(1000, entry::path(state.path(), RUN), Secrets::default());
    for _ in 0..100 {
        log.append([&text("0123456789")], &by("codex"));
    }
    log.append([&finished("all of it")], &by("codex"));
    assert!(log.written < 2000 && log.state() == LogState::Incomplete);
    let seen = read(state.path(), 0);
    let [.., said, last] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(matches!(&said.event, Event::Notice { message } if message.contains("events are not in the log")));
    assert_eq!(last.event, finished("all of it"));
}

/// The folder cannot be made: as good as a full disk.
#[tokio::test]
async fn a_disk_that_takes_nothing_costs_the_log_and_not_the_answer() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("runs"), "in the way").unwrap();
    let mut log = Log::new(state.path(), RUN, Secrets::default());
    let presence = Arc::<RunRegistry>::default().begin(RUN, &Default::default(), None);
    presence.has_written(log.append([&text("a")], &by("codex")));
    presence.has_written(log.append([&finished("a")], &by("codex")));
    assert_eq!(log.state(), LogState::Incomplete);
    presence.ended(End::Event(finished("a").into()));
    let mut follow = Follow::live(state.path(), &presence, 0);
    assert_eq!(follow.next().await.map(|entry| entry.event), Some(finished("a")));
    assert_eq!(follow.next().await, None);
}
