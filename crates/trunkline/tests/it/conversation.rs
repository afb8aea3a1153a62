//! `trunkline agent`: on a terminal, from a pipe, and with a single task.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::observe::{exists, until_gone};
use crate::test_gateway::TestGateway;
use crate::tty::Tty;

/// The session id that the fake codex reports.
const SESSION: &str = "01a1dc95-866c-7710-94b6-181fa10fa304";

/// Functions of the fake codex, in addition to those of `fake.sh`.
const CODEX_FUNCTIONS: &str = r#"
starts() { printf '{"type":"thread.started","thread_id":"01a1dc95-866c-7710-94b6-181fa10fa304"}\n'; }
uses() {
    if [ "$3" = 0 ]; then status=completed; else status=failed; fi
    printf '{"type":"item.started","item":{"id":"t","type":"command_execution","command":"%s"}}\n' "$1"
    printf '{"type":"item.completed","item":{"id":"t","type":"command_execution","command":"%s","aggregated_output":"%s","exit_code":%s,"status":"%s"}}\n' "$1" "$2" "$3" "$status"
}
"#;

/// A gateway with a model `m` on a codex that runs this script.
fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", &format!("{CODEX_FUNCTIONS}\n{script}")).model("m", json!({"driver": "codex"}))
}

fn with_terminal_type(gateway: TestGateway) -> TestGateway {
    gateway.env("TERM", "xterm-256color")
}

/// Whether codex was last started to resume the session.
fn resumed_session(gateway: &TestGateway) -> bool {
    gateway.argv("codex").ends_with(&["resume".into(), SESSION.into(), "-".into()])
}

#[test]
fn first_screen_starts_every_line_at_column_0_when_its_text_is_wrapped() {
    let gateway = with_terminal_type(TestGateway::new());
    let mut tty = Tty::open(&gateway, &["agent"]);
    tty.prompts("");
    let (screen, raw) = (tty.screen(), tty.raw());
    let wrapped =
        "try \"hello world\". Set\nLLM_BASE_URL, LLM_AUTH_TOKEN and LLM_DEFAULT_MODEL to use a real one.\n\nYou:";
    assert!(screen.contains(wrapped), "{screen}");
    // A line feed without a carriage return would stay in its column.
    let welcome = &raw[..raw.find("You:").unwrap()];
    assert_eq!(welcome.matches('\n').count(), welcome.matches("\r\n").count(), "{welcome:?}");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}

#[test]
fn terminal_shows_a_conversation_and_resumes_it() {
    let script = "note \"$@\"; starts; codex_says 'Let me look.'; uses 'cargo test' 'it does not build' 101; \
                  codex_answers 'It is **done**:\\n\\n- one\\n- two'";
    let gateway = with_terminal_type(gateway(script));
    let mut tty = Tty::open(&gateway, &["agent", "--model", "m"]);
    tty.says("please help");
    let expected = "You: please help\n\nAgent: Let me look.\n\n[Tool: command_execution(\"cargo test\")]\n\
                    · command_execution failed; output: it does not build\n\nAgent: It is done:\n\n• one\n• two\n\n· 3 tokens in, 2 out";
    assert!(tty.screen().contains(expected), "{}", tty.screen());
    assert!(tty.raw().contains("\u{1b}[1mdone\u{1b}[0m"), "{:?}", tty.raw());
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nplease help");
    tty.says("go on");
    assert!(resumed_session(&gateway), "the session continues");
    tty.says("/clear");
    tty.says("once more");
    assert!(!resumed_session(&gateway), "/clear starts a new session");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
    // --state was given, so the hint has to name it.
    let screen = tty.screen().replace('\n', "");
    let hint = format!("Continue with: trunkline agent --state {} --resume ", gateway.path("state").display());
    let (_, session) = screen.split_once(&hint).unwrap_or_else(|| panic!("{screen}"));
    gateway.run_with(&["agent", "--resume", session.trim()], b"and now?\n").exits(0);
    assert!(resumed_session(&gateway), "the id of the hint resumes the session");
}

#[test]
fn terminal_commands_do_not_reach_the_model() {
    let gateway =
        with_terminal_type(gateway("note \"$@\"; codex_answers yes")).model("other", json!({"driver": "codex"}));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.says("");
    tty.says("!echo $((20+22)); pwd; exit 3");
    let folder = gateway.repo().display().to_string();
    assert!(tty.screen().replace('\n', "").contains(&format!("42{folder}[exit code: 3]")), "{}", tty.screen());
    tty.says("/modle");
    tty.shows("no such command: /modle; did you mean /model?");
    tty.says("/model");
    tty.shows("* m\n  other");
    tty.says("/model othr");
    tty.shows("unknown model \"othr\"; did you mean other?");
    tty.says("/model other");
    tty.shows("Talking to other.");
    tty.says("/help");
    tty.shows("run a shell command here; the model does not see it");
    assert!(!gateway.path("seen/codex.argv").exists(), "none of this was sent to the model");
    tty.says("//etc/hosts?");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\n/etc/hosts?");
    tty.prompts("");
    tty.types("/exit\r");
    assert_eq!(tty.wait_for_exit(), Some(0));
    assert!(!tty.screen().contains("Continue with"), "this model keeps no sessions");
}

#[test]
fn first_interrupt_stops_the_answer_and_one_at_the_prompt_exits() {
    let script = "note \"$@\"; starts; [ -e \"$seen/pid\" ] && codex_answers again && exit; codex_says 'half an answer'; tell pid $$; hang";
    let gateway = with_terminal_type(gateway(script));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.prompts("");
    tty.types("work\r");
    let pid = gateway.wait_for_pid("pid");
    tty.shows("half an answer");
    tty.types("\u{3}");
    tty.prompts("");
    tty.shows("Agent: half an answer\n\n· interrupted");
    until_gone(&[pid]);
    tty.says("go on");
    tty.shows("Agent: again");
    assert!(!resumed_session(&gateway), "codex may or may not have saved an interrupted turn");
    assert!(gateway.read_note("codex.stdin").ends_with("[User]\nwork\n\n[Assistant]\nhalf an answer\n\n[User]\ngo on"));
    tty.says("and on");
    assert!(resumed_session(&gateway));
    tty.types("some text");
    tty.prompts("some text");
    tty.types("\u{3}");
    tty.prompts("");
    tty.types("\u{3}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}

#[test]
fn shell_command_can_be_interrupted() {
    let gateway = with_terminal_type(gateway("codex_answers yes"));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.prompts("");
    let notes = gateway.path("seen").display().to_string();
    tty.types(&format!("!echo printed before; echo $$ >'{notes}/.pid'; mv '{notes}/.pid' '{notes}/pid'; sleep 1000\r"));
    let pid = gateway.wait_for_pid("pid");
    tty.shows("running echo");
    tty.types("\u{3}");
    tty.prompts("");
    tty.shows("printed before\n[interrupted]");
    until_gone(&[pid]);
    tty.says("!echo $((40+2))");
    tty.shows("42");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}

#[test]
fn sigterm_and_sighup_end_an_answer_or_a_prompt() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let gateway = with_terminal_type(gateway("starts; codex_says 'half an answer'; tell pid $$; hang"));
        let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
        tty.prompts("");
        tty.types("work\r");
        let pid = gateway.wait_for_pid("pid");
        tty.shows("half an answer");
        tty.signal(signal);
        assert_eq!(tty.wait_for_exit(), Some(status));
        assert!(!exists(pid));
        assert_eq!(transcript_kinds(&gateway), ["user", "session", "assistant", "interrupted"], "{signal:?}");
        assert!(!session(&gateway).is_empty(), "{signal:?}");
        let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
        tty.prompts("");
        tty.signal(signal);
        assert_eq!(tty.wait_for_exit(), Some(status));
        let line_ended = tty.raw().ends_with('\n');
        assert!(line_ended || signal == Signal::HUP, "the shell's prompt starts on a new line");
    }
}

/// The kinds of the records in the only transcript.
fn transcript_kinds(gateway: &TestGateway) -> Vec<String> {
    let mut transcripts = fs::read_dir(gateway.path("state/transcripts")).unwrap();
    let transcript = fs::read_to_string(transcripts.next().unwrap().unwrap().path()).unwrap();
    assert!(transcripts.next().is_none());
    let kind = |record: &str| serde_json::from_str::<Value>(record).unwrap()["kind"].as_str().unwrap().to_owned();
    transcript.lines().map(kind).collect()
}

/// The id of the latest session in the index.
fn session(gateway: &TestGateway) -> String {
    let entry: Value = serde_json::from_str(session_index(gateway).lines().last().unwrap_or("{}")).unwrap();
    entry["session"].as_str().unwrap_or_default().to_owned()
}

/// The file of sessions that can be resumed.
fn session_index(gateway: &TestGateway) -> String {
    fs::read_to_string(gateway.path("state/repl/sessions.jsonl")).unwrap_or_default()
}

#[test]
fn text_pasted_during_an_answer_is_one_message() {
    let gateway = with_terminal_type(gateway(
        "note \"$@\"; [ \"$(counted)\" = 1 ] && tell ready 1 && await go; codex_answers yes",
    ));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.prompts("");
    tty.types("first\r");
    gateway.wait_for_note("ready");
    tty.tells_pastes(true);
    tty.types("\u{1b}[200~one \\\r!echo two\r/exit\u{1b}[201~");
    gateway.leave_note("go");
    tty.shows("   : /exit");
    tty.types("\r");
    tty.prompts("");
    let prompt = gateway.read_note("codex.stdin");
    assert!(prompt.ends_with("one \\\n!echo two\n/exit"), "{prompt:?}");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
    tty.tells_pastes(false);
}

#[test]
fn interrupt_ends_a_history_search() {
    let gateway = with_terminal_type(gateway("codex_answers yes"));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.says("first words");
    tty.types("\u{12}");
    tty.shows("(search");
    tty.types("\u{3}");
    tty.prompts("");
    tty.types("more");
    tty.prompts("more");
    tty.types("\u{3}");
    tty.prompts("");
    tty.types("\u{3}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}

#[test]
fn history_is_remembered_and_pasted_text_is_one_message() {
    let gateway = with_terminal_type(gateway("note \"$@\"; codex_answers yes"));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.says("first words");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
    let history = gateway.path("state/repl/history");
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.prompts("");
    tty.types("\u{1b}[A");
    tty.prompts("first words");
    tty.types("\u{3}");
    tty.prompts("");
    tty.types("\u{1b}[200~one\rtwo\u{1b}[201~");
    tty.shows("   : two");
    tty.types("\u{1b}\rthree\\\rfour\r");
    tty.shows("Agent: yes");
    tty.prompts("");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\none\ntwo\nthree\nfour");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}

#[test]
fn control_sequences_of_an_agent_do_not_reach_the_terminal() {
    let evil = r"\u001b]0;owned\u0007\u009b2J\u001b[31mred\b &#27;]0;owned&#7;&#x9b;2J\u202e";
    for terminal in ["xterm-256color", "dumb"] {
        let gateway =
            gateway(&format!("codex_says '{evil}'; uses '{evil}' '{evil}' 1; codex_ends")).env("TERM", terminal);
        let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
        tty.says("hi");
        tty.types("\u{4}");
        assert_eq!(tty.wait_for_exit(), Some(0));
        let raw = tty.raw();
        assert!(raw.contains("Agent: ") && raw.contains("2Jred") && raw.contains("failed"), "{raw:?}");
        for forbidden in ["\u{1b}]", "\u{1b}[31mred", "\u{7}", "\u{8}", "\u{9b}", "\u{202e}"] {
            assert!(!raw.contains(forbidden), "{forbidden:?} in {raw:?}");
        }
        assert!(terminal != "dumb" || !raw.contains('\u{1b}'), "{raw:?}");
    }
}

#[test]
fn no_colours_are_printed_when_no_color_is_set() {
    let gateway = with_terminal_type(gateway("codex_answers '# Head\\n\\nsome `code`'")).env("NO_COLOR", "1");
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.says("hi");
    tty.shows("Agent: Head\n\nsome code");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
    let raw = tty.raw();
    let styles = raw.split("\u{1b}[").skip(1).filter(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest.starts_with('m')
    });
    // Sequences that reset the style are allowed.
    assert_eq!(styles.filter(|style| !style.starts_with("0m") && !style.starts_with('m')).count(), 0, "{raw:?}");
}

#[test]
fn conversation_continues_when_a_model_fails() {
    let gateway = with_terminal_type(gateway("codex_answers yes"))
        .cli("gemini", "echo broken >&2; exit 1")
        .model("bad", json!({"driver": "gemini"}))
        .model("missing", json!({"driver": "opencode"}));
    let mut tty = Tty::open(&gateway, &["agent", "-m", "unlisted"]);
    tty.shows("unknown model \"unlisted\"; see: /model");
    tty.says("hi");
    assert!(!tty.screen().contains("see: trunkline models"), "{}", tty.screen());
    tty.says("/clear everything");
    tty.shows("error: /clear takes no argument");
    tty.says("/model agnet");
    tty.shows("unknown model \"agnet\"; did you mean agent?");
    tty.says("/model bad");
    tty.says("hi");
    tty.shows("error: gemini failed (unknown): broken");
    tty.says("/model missing");
    tty.says("hi");
    tty.shows("opencode");
    tty.says("/model m");
    tty.says("hi");
    tty.shows("Agent: yes");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}

#[test]
fn each_line_is_a_message_when_stdin_is_a_pipe() {
    let gateway = gateway("note \"$@\"; starts; uses ls '' 0; codex_answers \"**$(counted)**\"");
    let ran = gateway.run_with(&["agent", "-m", "m"], b"one\n\n/nope\x1b[31m\n!echo hi\ntwo").exits(0);
    let tool = "[Tool: command_execution(\"ls\")]";
    assert_eq!(ran.stdout, format!("{tool}\n\nAgent: **1**\n\nhi\n\n{tool}\n\nAgent: **2**\n"));
    let hint = "no such command: /nope; see /help, or write //nope to send it as a message\n";
    assert!(ran.stderr.contains(hint), "{ran:?}");
    assert!(resumed_session(&gateway));
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ntwo");
    let left = gateway.run_with(&["agent", "-m", "m"], b"/exit\nthree\n").exits(0);
    assert_eq!((left.stdout.as_str(), gateway.read_note("codex.runs").lines().count()), ("", 2));
}

#[test]
fn exit_status_is_that_of_the_last_turn_when_stdin_is_a_pipe() {
    let script = "case $(counted) in 2) echo broken >&2; exit 1;; *) codex_answers yes;; esac";
    let failed = gateway(script).run_with(&["agent", "-m", "m"], b"one\ntwo\n").exits(4);
    assert!(failed.stderr.contains("codex failed (unknown): broken"), "{failed:?}");
    assert_eq!(failed.stdout, "Agent: yes\n");
    gateway(script).run_with(&["agent", "-m", "m"], b"one\ntwo\nthree\n").exits(0);
    for (stdin, code) in [("one\n/model m\n", 1), ("", 1), ("/model m\none\n", 0)] {
        let unknown = gateway(script).run_with(&["agent", "-m", "n"], stdin.as_bytes()).exits(code);
        assert!(unknown.stderr.contains("unknown model \"n\""), "{unknown:?}");
    }
}

#[test]
fn single_task_reports_the_interruption_on_a_new_line_when_it_is_stopped() {
    let stopped = gateway("starts; codex_says half; tell pid $$; hang");
    let args = ["agent", "-m", "m", "-p", "work"];
    let ran = stopped.signalled_after_note(&args, "pid", Signal::INT).exits(130);
    assert!(ran.stderr.ends_with("· interrupted\n"), "{ran:?}");
    // It may have been stopped before the text was shown.
    assert!(["", "half\n"].contains(&ran.stdout.as_str()), "{ran:?}");
    until_gone(&[stopped.wait_for_pid("pid")]);
    // The transcript records it too, unless the task was stopped before the session was reported.
    let last = transcript_kinds(&stopped).pop().unwrap();
    assert!(["interrupted", "failed"].contains(&last.as_str()), "{last}");
}

#[test]
fn exit_status_is_unaffected_when_stderr_cannot_be_written() {
    let gateway = gateway("note \"$@\"; starts; uses ls no 1; codex_answers yes");
    assert_eq!(gateway.run_with_full_stderr(&["agent", "-m", "m", "-p", "hi"]).exits(0).stdout, "yes\n");
    assert_eq!(gateway.run_with_full_stderr(&["run", "-m", "m", "hi"]).exits(0).stdout, "yes\n");
    gateway.run_with_full_stderr(&["agent", "-m", "n", "-p", "hi"]).exits(1);
    gateway.run_with_full_stderr(&["agent", "-m", "n"]).exits(1);
    gateway.run_with_full_stderr(&["agent", "--resume", "-m", "n"]).exits(1);
}

#[test]
fn no_session_is_recorded_when_a_task_is_refused() {
    let gateway = gateway("starts; codex_answers yes").model("missing", json!({"driver": "opencode"}));
    gateway.run(&["agent", "-m", "m", "-p", "hi"]).exits(0);
    let before = session_index(&gateway);
    let session = session(&gateway);
    gateway.run(&["agent", "-m", "unlisted", "--resume", &session, "-p", "hi"]).exits(1);
    gateway.run(&["agent", "-m", "missing", "--resume", "no-such-session", "-p", "hi"]).exits(4);
    assert_eq!(session_index(&gateway), before);
    fs::remove_dir_all(gateway.path("state/transcripts")).unwrap();
    gateway.run(&["agent", "-m", "missing", "-p", "hi"]).exits(4);
    assert_eq!(transcript_kinds(&gateway), ["user", "failed"]);
}

#[test]
fn resumed_session_stays_in_the_folder_it_was_started_in() {
    let gateway = gateway("starts; codex_answers yes");
    let elsewhere = gateway.path("home");
    fs::create_dir_all(gateway.path("state/repl")).unwrap();
    let entry =
        json!({"time": "2025-01-01T00:00:00Z", "folder": elsewhere, "model": "m", "session": SESSION, "title": "t"});
    fs::write(gateway.path("state/repl/sessions.jsonl"), format!("{entry}\n")).unwrap();
    gateway.run(&["agent", "--resume", SESSION, "-p", "hi"]).exits(0);
    let entries = session_index(&gateway);
    let folders = entries.lines().map(|entry| serde_json::from_str::<Value>(entry).unwrap()["folder"].clone());
    assert_eq!(folders.collect::<Vec<_>>(), [json!(elsewhere), json!(elsewhere)]);
}

#[test]
fn other_model_gets_the_history_when_it_continues_a_session() {
    let gateway = gateway("note \"$@\"; starts; codex_answers yes")
        .cli("gemini", "note \"$@\"; echo fine")
        .model("n", json!({"driver": "gemini"}));
    let assert_prompt_contains = |parts: &[&str]| {
        let prompt = gateway.read_note("gemini.stdin");
        assert!(parts.iter().all(|part| prompt.contains(part)), "{prompt}");
    };
    gateway.run_with(&["agent", "-m", "m"], b"my number is 7\n").exits(0);
    let first_session = session(&gateway);
    gateway.run_with(&["agent", "--resume"], b"and 8\n/model n\nwhich?\n").exits(0);
    assert_prompt_contains(&["my number is 7", "and 8", "yes", "which?"]);
    let ran = gateway.run(&["agent", "--resume", &first_session, "-m", "n", "-p", "which now?"]).exits(0);
    assert!(
        ran.stderr.contains("· n gets the text of the earlier conversation: the session belongs to m.\n"),
        "{ran:?}"
    );
    assert!(!gateway.argv("gemini").contains(&SESSION.to_owned()), "{:?}", gateway.argv("gemini"));
    assert_prompt_contains(&["my number is 7", "and 8", "yes", "which now?"]);
}

#[test]
fn single_task_prints_the_answer_to_stdout_and_the_rest_to_stderr() {
    let gateway = gateway("note \"$@\"; starts; codex_says '\\nFirst.\\n'; uses ls no 1; codex_answers 'Done.\\n'")
        .cli("gemini", "echo broken >&2; exit 1")
        .model("bad", json!({"driver": "gemini"}));
    let ran = gateway.run(&["agent", "-m", "m", "-p", "do it"]).exits(0);
    assert_eq!(ran.stdout, "First.\n\nDone.\n");
    assert!(ran.stderr.contains("· command_execution(\"ls\")\n· command_execution failed; output: no\n"), "{ran:?}");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ndo it");
    gateway.run_with(&["agent", "-m", "m", "-p", "-"], b"from stdin\xff").exits(0);
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nfrom stdin\u{fffd}");
    let failed = gateway.run(&["agent", "-m", "bad", "-p", "do it"]).exits(4);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("gemini failed (unknown): broken"), "{failed:?}");
    let unknown = gateway.run(&["agent", "-m", "bda", "-p", "do it"]).exits(1);
    assert!(unknown.stderr.contains("unknown model \"bda\"; did you mean bad?"), "{unknown:?}");
    gateway.run(&["agent", "-m", "m", "-p", " "]).exits(2);
    gateway.run(&["agent", "--no-such-flag"]).exits(2);
    TestGateway::new().config("models.json", "{").run(&["agent", "-p", "do it"]).exits(3);
}

#[test]
fn conversation_can_be_resumed_later() {
    let gateway = gateway("note \"$@\"; starts; codex_answers yes").model("n", json!({"driver": "codex"}));
    let nothing = gateway.run(&["agent", "--resume"]).exits(1);
    assert!(nothing.stderr.contains("nothing to resume"), "{nothing:?}");
    gateway.run_with(&["agent", "-m", "m"], b"remember this\n").exits(0);
    assert!(!resumed_session(&gateway));
    let listed = gateway.run_with(&["agent"], b"/sessions\n").exits(0);
    let session = listed.stdout.lines().find(|row| row.contains("remember this")).unwrap();
    let session = session.split_whitespace().next().unwrap();
    for (args, stdin) in [
        (vec!["agent", "--resume"], "and now?\n"),
        (vec!["agent", "--resume", session], "and now?\n"),
        (vec!["agent", "--resume", &session[..8]], "and now?\n"),
        (vec!["agent", "-m", "m", "--resume", SESSION], "and now?\n"),
        (vec!["agent", "--resume", "-p", "and now?"], ""),
        (vec!["agent", "-p", "and now?", "--resume", session], ""),
    ] {
        fs::remove_file(gateway.path("seen/codex.argv")).unwrap();
        gateway.run_with(&args, stdin.as_bytes()).exits(0);
        assert!(resumed_session(&gateway), "{args:?}");
        assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nand now?", "only the new message is sent");
    }
    let other = format!("{}-2", &session[..8]);
    let second = json!({"time": "2025-01-01T00:00:00Z", "folder": "/", "model": "m", "session": other, "title": "b"});
    fs::write(gateway.path("state/repl/sessions.jsonl"), format!("{}{second}\n", session_index(&gateway))).unwrap();
    let several = gateway.run(&["agent", "--resume", &session[..8], "-p", "hi"]).exits(1);
    for row in
        [format!("several sessions begin with {}; which one?\n  {other}  b\n", &session[..8]), format!("  {session}  ")]
    {
        assert!(several.stderr.contains(&row), "{row}: {several:?}");
    }
    let other = gateway.run(&["agent", "--resume", "-m", "n"]).exits(1);
    assert!(other.stderr.contains("no conversation with n in"), "{other:?}");
}

#[test]
fn session_is_dropped_when_it_does_not_exist() {
    let gateway = TestGateway::new();
    let args = ["agent", "--resume", "01a1dc95-866c-7710-94b6-181fa10fa304"];
    let ran = gateway.run_with(&args, b"how are you?\nhow are you?\n").exits(0);
    assert!(ran.stderr.contains("The session is lost"), "{ran:?}");
    assert_eq!(ran.stdout, "Agent: I'm doing well, thank you for asking!\n");
}

#[test]
fn transcript_is_readable_only_by_its_owner_and_optional() {
    let gateway = gateway("starts; uses ls a 0; codex_answers yes");
    gateway.run_with(&["agent", "-m", "m"], b"hi\n").exits(0);
    let mut transcripts = fs::read_dir(gateway.path("state/transcripts")).unwrap();
    let transcript = transcripts.next().unwrap().unwrap();
    assert!(transcripts.next().is_none());
    assert_eq!(transcript.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(transcript.path()).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user", "session", "tool", "tool_result", "assistant"]);
    // A conversation continues when nothing of it can be saved.
    fs::remove_dir_all(gateway.path("state")).unwrap();
    fs::create_dir(gateway.path("state")).unwrap();
    for folder in ["transcripts", "repl"] {
        fs::write(gateway.path("state").join(folder), "in the way").unwrap();
    }
    let ran = gateway.run_with(&["agent", "-m", "m"], b"hi\nhi\n").exits(0);
    assert_eq!(ran.stdout.matches("Agent: yes").count(), 2);
    assert_eq!(ran.stderr.matches("no transcript is kept").count(), 1, "{ran:?}");
    assert_eq!(ran.stderr.matches("will not be found by --resume").count(), 1, "{ran:?}");
    let gateway = with_terminal_type(gateway);
    let mut tty = Tty::open(&gateway, &["agent", "-m", "m"]);
    tty.says("hi");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
    assert!(!tty.screen().contains("Continue with"), "the session could not be resumed");
}

#[test]
fn built_in_agent_writes_a_program_and_runs_it() {
    let gateway = with_terminal_type(TestGateway::new());
    let mut tty = Tty::open(&gateway, &["agent"]);
    tty.shows("No LLM is configured, so a scripted one answers");
    tty.says("make a hello world program");
    for shown in [
        "Agent: I'll create a hello world Python script for you.",
        "[Tool: write_file(\"hello.py\", ...)]",
        "[Tool: bash(\"python3 hello.py\")]",
        "Agent: Done!",
    ] {
        tty.shows(shown);
    }
    assert_eq!(fs::read_to_string(gateway.repo().join("hello.py")).unwrap(), "print('Hello, World!')\n");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
    let mut tty = Tty::open(&gateway, &["agent", "--resume"]);
    tty.shows("Continuing: make a hello world program");
    tty.says("how are you?");
    tty.shows("Agent: I'm doing well, thank you for asking!");
    tty.types("\u{4}");
    assert_eq!(tty.wait_for_exit(), Some(0));
}
