//! `trunkline sessions` and `trunkline history`, on data that other processes wrote.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_store::{
    ClientId, DATABASE_FILE, Durability, LogRecord, LogWriter, NewSession, Purpose, RunAccepted, RunEnded, RunLogEntry,
    RunOutcome, SessionKey, Store, Surface, Time, log_line,
};

use crate::observe::until;
use crate::test_gateway::TestGateway;

/// Writes sessions and turns to the store, as a gateway would.
struct ArchiveWriter {
    runtime: Runtime,
    store: Store,
    state: PathBuf,
}

impl ArchiveWriter {
    fn new(gateway: &TestGateway) -> Self {
        let runtime = Runtime::new().unwrap();
        let state = gateway.path("state");
        let store = runtime.block_on(Store::open(&state.join(DATABASE_FILE))).unwrap();
        Self { runtime, store, state }
    }

    fn session(&self, repo: &Path, model: &str, begins: &str) -> SessionKey {
        let owner = ClientId::local();
        let new = NewSession { owner: &owner, model, provider: "codex", repo, begins, parent: None };
        self.runtime.block_on(async {
            let session = self.store.session_begin(&new).await.unwrap();
            self.store.session_succeeded(&session.id, None).await.unwrap();
            session.id
        })
    }

    fn turn(
        &self,
        run: &str,
        session: Option<&SessionKey>,
        prompt: &str,
        events: &[Event],
        end: Option<(RunOutcome, &str)>,
    ) {
        let accepted = RunAccepted {
            at: Time::now(),
            owner: ClientId::local(),
            surface: Surface::Repl,
            place: "/".into(),
            model: "m".into(),
            prompt: prompt.into(),
            session: session.cloned(),
            ..RunAccepted::default()
        };
        let entry = |(event, seq): (&Event, u64)| {
            LogRecord::Event(Box::new(RunLogEntry { seq, at: 0, by: None, event: event.clone() }))
        };
        let mut records = vec![LogRecord::Accepted(accepted.clone().into())];
        records.extend(events.iter().zip(0..).map(entry));
        if let Some((outcome, answer)) = end {
            let usage = Usage { input_tokens: 330, output_tokens: 64, ..Usage::default() };
            let last = match outcome {
                RunOutcome::Ok => Event::Finished(Answer::new(answer, usage, Finish::Stop)),
                RunOutcome::Failed(category) => Event::Failed(Failure::new(category, answer)),
            };
            records.push(entry((&last, events.len() as u64)));
            records.push(LogRecord::Ended(Box::new(RunEnded {
                at: Time::now(),
                provider: "codex".into(),
                outcome,
                message: matches!(outcome, RunOutcome::Failed(_)).then(|| answer.to_owned()),
                interrupted: false,
                usage,
                duration: Duration::from_millis(1250),
                session: None,
                attempts: 1,
                log: None,
                key_released: false,
            })));
        }
        let mut lines = Vec::new();
        records.iter().for_each(|record| log_line(&mut lines, run, record));
        let log = LogWriter::new(&self.state, Durability::Process);
        log.append(&lines, Purpose::Accept, |_| {}).unwrap();
        drop(log);
        self.runtime.block_on(self.store.catch_up(None)).unwrap();
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sessions_and_history_are_empty_and_create_no_database_when_nothing_has_run() {
    let gateway = TestGateway::new();
    let ran = gateway.run(&["sessions"]).exits(0);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("", "no sessions in this folder; --all shows those of other folders\n")
    );
    assert_eq!(gateway.run(&["sessions", "--prune", "90d"]).exits(0).stdout, "deleted 0 sessions, 0 turns\n");
    assert_eq!(gateway.run(&["history", "--export"]).exits(0).stdout, "");
    let ran = gateway.run(&["history", "01a"]).exits(1);
    assert_eq!(ran.stderr, "trunkline: no session begins with \"01a\"; see: trunkline sessions --all\n");
    assert!(!gateway.path("state").join(DATABASE_FILE).exists());
}

#[test]
fn sessions_lists_only_those_of_this_folder_unless_all_is_given() {
    let gateway = TestGateway::new();
    let archive = ArchiveWriter::new(&gateway);
    let here = archive.session(&gateway.repo(), "m", "Why does\nthe build fail?");
    let other = archive.session(Path::new("/elsewhere"), "n", "\u{1b}[31mHello");
    let shown = gateway.run(&["sessions"]).exits(0).stdout;
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 2, "{shown}");
    assert!(rows[0].starts_with("session "), "{shown}");
    assert!(rows[1].starts_with(&here.0[..13]) && rows[1].ends_with("  m      1      Why does"), "{shown}");
    let shown = gateway.run(&["sessions", "--all"]).exits(0).stdout;
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 3, "{shown}");
    assert!(rows[1].contains("  /elsewhere  ") && rows[1].ends_with("  Hello"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let one = gateway.run(&["sessions", "--all", "--model", "n", "--json"]).exits(0);
    let listed = json_lines(&one.stdout);
    assert_eq!(listed.len(), 1, "{one:?}");
    assert_eq!(
        (&listed[0]["id"], &listed[0]["repo"], &listed[0]["turns"]),
        (&json!(other.0), &json!("/elsewhere"), &json!(1))
    );
    let few = gateway.run(&["sessions", "--all", "--limit", "1"]).exits(0);
    assert_eq!((few.stdout.lines().count(), few.stderr.as_str()), (2, "there are more: --limit N shows N of them\n"));
    assert_eq!(gateway.run(&["sessions", "--all", "--limit", "2"]).exits(0).stderr, "");
}

#[test]
fn history_shows_the_turns_of_a_session() {
    let gateway = TestGateway::new();
    let archive = ArchiveWriter::new(&gateway);
    let session = archive.session(&gateway.repo(), "m", "List it");
    let text = |delta: &str| Event::Text { delta: delta.into() };
    let events = [
        text("I'll "),
        text("look."),
        Event::ToolStarted { id: "1".into(), name: "bash".into(), input: json!({"command": "ls"}) },
        Event::ToolFinished { id: "1".into(), output: "no such\nfolder".into(), ok: false },
        text("It is \u{1b}[2Jempty."),
    ];
    archive.turn("r1", Some(&session), "List it", &events, Some((RunOutcome::Ok, "It is \u{1b}[2Jempty.")));
    archive.turn("r2", Some(&session), "And now?", &[], Some((RunOutcome::Failed(Category::Quota), "no credit")));
    archive.turn("r3", Some(&session), "Still there?", &[], None);
    archive.turn("r4", Some(&session), "Again", &[], Some((RunOutcome::Ok, "Yes.")));
    let shown = gateway.run(&["history", &session.0[..20]]).exits(0).stdout;
    let without_time = |row: &str| row.starts_with("· ").then(|| row.split_once(" repl: ").unwrap().1.to_owned());
    let rows: Vec<String> = shown.lines().map(|row| without_time(row).unwrap_or_else(|| row.to_owned())).collect();
    let heading = format!("session {session}: m by codex in {}, begun ", gateway.repo().display());
    assert!(rows[0].starts_with(&heading), "{shown}");
    let expected = [
        "",
        "m by codex, ok, 1.2 s, 330 tokens in, 64 out",
        "You: List it",
        "Agent: I'll look.",
        "[Tool: bash(\"ls\")]",
        "[bash failed; output: no such]",
        "Agent: It is empty.",
        "",
        "m by codex, quota, 1.2 s, 330 tokens in, 64 out",
        "You: And now?",
        "failed (quota): no credit",
        "",
        "m, unfinished",
        "You: Still there?",
        "(still running, or interrupted when its gateway ended)",
        "",
        "m by codex, ok, 1.2 s, 330 tokens in, 64 out",
        "You: Again",
        "Agent: Yes.",
    ];
    assert_eq!(rows[1..], expected);
    let each = gateway.run(&["history", "--events", &session.0]).exits(0).stdout;
    assert!(each.contains("    0  {\"type\":\"text\",\"delta\":\"I'll look.\"}\n"), "{each}");
    let turns = json_lines(&gateway.run(&["history", "--json", &session.0]).exits(0).stdout);
    let runs: Vec<_> = turns.iter().map(|turn| turn["run"].as_str().unwrap()).collect();
    assert_eq!(runs, ["r1", "r2", "r3", "r4"]);
    assert_eq!(turns[0].get("events"), None);
    let turns = json_lines(&gateway.run(&["history", "--json", "--events", &session.0]).exits(0).stdout);
    assert_eq!(turns[0]["events"].as_array().unwrap().len(), 4);
}

#[test]
fn history_lists_the_candidates_when_a_prefix_is_ambiguous() {
    let gateway = TestGateway::new();
    let archive = ArchiveWriter::new(&gateway);
    let names = [archive.session(&gateway.repo(), "m", "One"), archive.session(&gateway.repo(), "m", "Two")];
    let ran = gateway.run(&["history", &names[0].0[..6]]).exits(1);
    assert!(names.iter().all(|name| ran.stderr.contains(&name.0)) && ran.stderr.contains("several"), "{ran:?}");
}

#[test]
fn archive_can_be_exported_and_pruned() {
    let gateway = TestGateway::new();
    let archive = ArchiveWriter::new(&gateway);
    let session = archive.session(&gateway.repo(), "m", "Hi");
    archive.turn("r1", Some(&session), "Hi", &[Event::Text { delta: "Hello".into() }], Some((RunOutcome::Ok, "Hello")));
    archive.turn("r2", None, "Alone", &[], Some((RunOutcome::Ok, "Yes")));
    let all = json_lines(&gateway.run(&["history", "--export", "-", "--since", "1h"]).exits(0).stdout);
    assert_eq!((all.len(), &all[0]["prompt"], &all[1]["session"]), (2, &json!("Hi"), &Value::Null));
    let file = gateway.path("archive.jsonl");
    let ran = gateway.run(&["history", "--export", file.to_str().unwrap()]).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr), ("", format!("wrote 2 turns to {}\n", file.display())));
    assert_eq!(json_lines(&fs::read_to_string(&file).unwrap()), all);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(gateway.run(&["sessions", "--prune", "1d"]).exits(0).stdout, "deleted 0 sessions, 0 turns\n");
    assert_eq!(gateway.run(&["sessions", "--prune", "0d"]).exits(0).stdout, "deleted 1 session, 2 turns\n");
    assert_eq!(gateway.run(&["history", "--export"]).exits(0).stdout, "");
}

#[test]
fn invalid_combinations_of_arguments_are_refused() {
    let gateway = TestGateway::new();
    let wrong: [&[&str]; 8] = [
        &["history"],
        &["history", "x", "--export", "-"],
        &["history", "x", "--since", "7d"],
        &["sessions", "--prune", "90"],
        &["sessions", "--prune", "soon"],
        &["sessions", "--limit", "0"],
        &["sessions", "--prune", "90d", "--model", "m"],
        &["sessions", "extra"],
    ];
    for args in wrong {
        gateway.run(args).exits(2);
    }
}

#[test]
fn database_is_refused_when_a_newer_version_wrote_it() {
    let gateway = TestGateway::new();
    let path = gateway.path("state").join(DATABASE_FILE);
    drop(ArchiveWriter::new(&gateway));
    // The offset of `user_version` in SQLite's header.
    let mut bytes = fs::read(&path).unwrap();
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let ran = gateway.run(&["sessions"]).exits(1);
    assert!(ran.stderr.contains("newer version of trunkline (format 99"), "{ran:?}");
}

#[test]
fn gateway_prunes_old_sessions_when_retention_is_set() {
    let mut gateway = TestGateway::new().start();
    gateway.chat("how are you?").model("agent").send().content();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    let remembered =
        |gateway: &TestGateway| gateway.run(&["sessions", "--json"]).exits(0).stdout.contains("how are you?");
    assert!(remembered(&gateway));
    let gateway = gateway.args(&["--retention", "0d"]).start();
    until("the session is pruned", || !remembered(&gateway));
    until("the agent's transcript is deleted", || fs::read_dir(gateway.path("state/agent")).unwrap().next().is_none());
}

#[test]
fn prune_leaves_no_trace_of_a_session_in_the_state_folder() {
    let script = "cat >/dev/null; echo >>work; \
        echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; codex_answers 'a quokka'";
    let gateway =
        TestGateway::new().cli("codex", script).model("m", serde_json::json!({"driver": "codex", "worktree": true}));
    gateway.run(&["run", "-m", "m", "about the quokka"]).exits(0);
    let state = gateway.path("state");
    let write = |name: &str| {
        std::fs::create_dir_all(state.join(name).parent().unwrap()).unwrap();
        std::fs::write(state.join(name), "the quokka").unwrap();
    };
    for name in ["chats/1.json", "agent/1.jsonl", "discord/20/30/1-quokka.txt"] {
        write(name);
    }
    let files = |folder: &str| std::fs::read_dir(state.join(folder)).into_iter().flatten().count();
    assert!(files("sessions") > 0, "the session has a folder");
    gateway.run(&["sessions", "--prune", "1d"]).exits(0);
    assert!(files("sessions") > 0 && files("chats") == 1 && files("agent") == 1 && files("discord/20") == 1);
    assert_eq!(gateway.run(&["sessions", "--prune", "0d"]).exits(0).stdout, "deleted 1 session, 1 turn\n");
    assert_eq!(["sessions", "chats", "agent", "discord/20"].map(files), [0; 4]);
    for file in std::fs::read_dir(&state).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        let found = ["quokka", "0a50f5b3"].into_iter().find(|words| text.contains(words));
        assert_eq!(found, None, "in {}", file.display());
    }
}
