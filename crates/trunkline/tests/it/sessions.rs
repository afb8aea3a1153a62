//! Sessions: the client gets our id for a session, and the CLI gets its own id to resume it.

use std::fs;
use std::path::Path;
use std::thread;

use rustix::process::Signal;
use serde_json::json;

use crate::test_gateway::{TestGateway, which};

const SESSION: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

fn codex(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start()
}

/// A CLI, a recording of it, the CLI's session id in that recording, and its arguments to resume it.
const CLIS: [(&str, &str, &str, &[&str]); 5] = [
    ("claude", "claude/slow_streamjson_partial", SESSION, &["--resume", SESSION]),
    ("codex", "codex/reasoning", CODEX, &["resume", CODEX, "-"]),
    ("gemini", "gemini/ansi-stream-json", GEMINI, &["--resume", GEMINI]),
    ("qwen", "qwen/ansi-stream-json", QWEN, &["--resume", QWEN]),
    ("opencode", "opencode/reasoning_thinking", OPENCODE, &["--session", OPENCODE, "--continue"]),
];
const CODEX: &str = "01a1dc95-8353-7ee2-acbd-3e299086500f";
const GEMINI: &str = "463ba518-1c78-440d-8b1e-45f82010c05f";
const QWEN: &str = "5bad7311-e191-4667-a61d-a557ce67bb1a";
const OPENCODE: &str = "ses_e23528f22ffeUxxZcrJWiiGypL";

/// Whether the arguments contain this sequence.
fn has(argv: &[String], row: &[&str]) -> bool {
    argv.windows(row.len()).any(|window| window == row)
}

#[test]
fn session_has_our_id_and_is_resumed_after_a_restart() {
    for (cli, recording, native, resume) in CLIS {
        let script = format!("note \"$@\"; replay {recording}");
        let mut gateway = TestGateway::new().cli(cli, &script).model("m", json!({"driver": cli})).start();
        let first = gateway.chat("hi").send();
        let id = first.header("x-trunkline-session").unwrap_or_else(|| panic!("{cli}: {first:?}")).to_owned();
        let extension = first.json()["trunkline"].take();
        assert_eq!(extension["session_id"], id);
        assert_eq!(extension["session"], json!({"id": id, "native": native, "resumed": false, "how": null}), "{cli}");
        assert_ne!(id, native);
        assert!(!has(&gateway.argv(cli), resume), "{cli}: {:?}", gateway.argv(cli));

        gateway.signal(Signal::TERM);
        gateway.wait_for_exit();
        gateway.restart();
        let again = gateway.chat("and now?").header("x-trunkline-session", &id).streamed().send();
        assert_eq!(again.header("x-trunkline-session"), Some(id.as_str()), "{cli}: {again:?}");
        let last = again.frames().pop().unwrap();
        assert_eq!(
            last["trunkline"]["session"],
            json!({"id": id, "native": native, "resumed": true, "how": "id"}),
            "{cli}"
        );
        assert!(has(&gateway.argv(cli), resume), "{cli}: {:?}", gateway.argv(cli));
        assert!(gateway.read_note(&format!("{cli}.stdin")).trim_end().ends_with("and now?"));
    }
}

#[test]
fn only_new_messages_are_sent_when_session_is_resumed() {
    let gateway = TestGateway::new()
        .cli("claude", "note \"$@\"; replay claude/slow_streamjson_partial")
        .model("m", json!({"driver": "claude"}))
        .start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let again = gateway.chat("and now?").preceded_by("user", "hi").preceded_by("assistant", "Hello.");
    assert_eq!(again.header("x-trunkline-session", &id).send().header("x-trunkline-session"), Some(id.as_str()));
    assert_eq!(gateway.read_note("claude.stdin"), "--- USER TASK ---\nand now?", "the CLI has the rest");
}

#[test]
fn clis_own_session_id_is_accepted_when_no_keys_are_set() {
    let gateway = codex("note \"$@\"; replay codex/reasoning");
    let reply = gateway.chat("hi").with("session_id", CODEX).streamed().send();
    let id = reply.header("x-trunkline-session").unwrap().to_owned();
    assert_ne!(id, CODEX);
    assert!(has(&gateway.argv("codex"), &["resume", CODEX, "-"]), "{:?}", gateway.argv("codex"));
    let again = gateway.chat("hi").with("session_id", CODEX).send();
    assert_eq!(again.header("x-trunkline-session"), Some(id.as_str()), "the same session");
    let ran = gateway.run(&["run", "-m", "m", "--session", CODEX, "hi"]).exits(0);
    assert!(ran.stderr.contains(&format!("· session {id}")), "{ran:?}");
}

#[test]
fn case_36_session_is_not_found_when_api_key_differs() {
    let gateway = TestGateway::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .model("m", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "key-of-ann,key-of-ben")
        .start();
    let ask = |key: &str, text: &str| gateway.chat(text).header("authorization", &format!("Bearer {key}"));
    let id = ask("key-of-ann", "hi").send().header("x-trunkline-session").unwrap().to_owned();
    fs::remove_file(gateway.path("seen/codex.argv")).unwrap();
    for theirs in [id.as_str(), CODEX] {
        let error = ask("key-of-ben", "hi").header("x-trunkline-session", theirs).send().error(400);
        assert_eq!(error["message"], format!("there is no session {theirs}"));
    }
    assert!(!gateway.path("seen/codex.argv").exists(), "nothing ran");
    let with_history = ask("key-of-ben", "and now?").preceded_by("user", "hi").preceded_by("assistant", "Hello.");
    let reply = with_history.header("x-trunkline-session", &id).send();
    let session = reply.json()["trunkline"]["session"].take();
    assert_eq!((session["resumed"].as_bool(), session["id"] == id), (Some(false), false), "{reply:?}");
    assert!(session["note"].as_str().unwrap().contains("there is no such session"), "{session}");
    assert!(!has(&gateway.argv("codex"), &["resume"]));
    assert!(gateway.read_note("codex.stdin").contains("Hello."), "the CLI gets the whole history");
    assert_eq!(
        ask("key-of-ann", "hi").header("x-trunkline-session", &id).send().status,
        200,
        "ann still has her session"
    );
}

#[test]
fn request_is_rejected_when_session_belongs_to_another_cli() {
    let gateway = TestGateway::new()
        .cli("codex", "replay codex/reasoning")
        .cli("claude", "tell ran")
        .model("a", json!({"driver": "codex"}))
        .model("b", json!({"driver": "claude"}))
        .start();
    let id = gateway.chat("hi").model("a").send().header("x-trunkline-session").unwrap().to_owned();
    let error = gateway.chat("hi").model("b").header("x-trunkline-session", &id).send().error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("belongs to codex in") && message.contains("not to claude in"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("(a)"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}

/// A codex that cannot resume any session. Counts its runs.
const CANNOT_RESUME: &str = "note \"$@\"; counted >/dev/null; \
    for arg in \"$@\"; do [ \"$arg\" = resume ] && { echo 'Error: no rollout found for thread id' >&2; exit 1; }; done; \
    replay codex/reasoning";

#[test]
fn whole_history_is_sent_once_when_session_cannot_be_resumed() {
    for resent in [true, false] {
        let gateway = codex(CANNOT_RESUME);
        let first = gateway.chat("the keeper is Ingrid").send();
        let id = first.header("x-trunkline-session").unwrap().to_owned();
        let mut ask = gateway.chat("who is it?").header("x-trunkline-session", &id);
        if resent {
            ask = ask.preceded_by("user", "the keeper is Ingrid").preceded_by("assistant", first.content());
        }
        let reply = ask.send();
        let extension = reply.json()["trunkline"].take();
        let outcomes: Vec<_> = extension["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].clone()).collect();
        assert_eq!((outcomes.len(), outcomes[1].as_str()), (2, Some("ok")), "{extension}");
        assert_eq!(
            (extension["session"]["resumed"].as_bool(), extension["session_id"].as_str()),
            (Some(false), Some(id.as_str()))
        );
        let note = extension["session"]["note"].as_str().unwrap();
        assert!(note.contains("could not be resumed") && note.contains("no rollout found"), "{note}");
        let prompt = gateway.read_note("codex.stdin");
        let expected =
            format!("[User]\nthe keeper is Ingrid\n\n[Assistant]\n{}\n\n[User]\nwho is it?", first.content());
        assert!(prompt.ends_with(&expected), "{prompt}");
        assert_eq!(gateway.read_note("codex.runs").lines().count(), 3);
    }
}

#[test]
fn retries_once_when_session_cannot_be_resumed() {
    for (cli, answers, refuses, flag) in [
        ("claude", CLIS[0].1, "claude/resume_unknown_streamjson", "--resume"),
        ("codex", CLIS[1].1, "codex/resume_unknown_uuid", "resume"),
        ("codex", CLIS[1].1, "codex/conc_resume_2", "resume"),
        ("gemini", CLIS[2].1, "gemini/resume-loss-ret-default-2-resume", "--resume"),
        ("qwen", CLIS[3].1, "qwen/resume-missing", "--resume"),
        ("opencode", CLIS[4].1, "opencode/session_bad", "--session"),
    ] {
        let script = format!(
            "note \"$@\"; counted >/dev/null; for arg in \"$@\"; do [ \"$arg\" = {flag} ] && replay {refuses}; done; replay {answers}"
        );
        let gateway = TestGateway::new().cli(cli, &script).model("m", json!({"driver": cli})).start();
        let first = gateway.chat("the keeper is Ingrid").send();
        let id = first.header("x-trunkline-session").unwrap().to_owned();
        let reply = gateway.chat("who is it?").header("x-trunkline-session", &id).streamed().send();
        let last = reply.frames().pop().unwrap();
        let session = &last["trunkline"]["session"];
        assert_eq!(
            (session["resumed"].as_bool(), session["id"].as_str()),
            (Some(false), Some(id.as_str())),
            "{cli}: {last}"
        );
        assert!(reply.body.contains("[notice] the session could not be resumed"), "{cli}: {reply:?}");
        assert!(gateway.read_note(&format!("{cli}.stdin")).contains("the keeper is Ingrid"), "{cli}");
        assert_eq!(gateway.read_note(&format!("{cli}.runs")).lines().count(), 3, "{cli}");
    }
}

#[test]
fn turn_fails_when_session_cannot_be_resumed_and_has_no_history() {
    let gateway = codex(CANNOT_RESUME);
    let error = gateway.chat("hi").with("session_id", CODEX).send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("no rollout found"), "{error}");
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 1);
}

#[test]
fn session_can_be_resumed_when_turn_failed_for_another_reason() {
    let script = "note \"$@\"; [ \"$(counted)\" = 2 ] && { echo 'Error: 401 Unauthorized' >&2; exit 1; }; replay codex/reasoning";
    let gateway = codex(script);
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    gateway.chat("hi").header("x-trunkline-session", &id).send().error(500);
    assert_eq!(gateway.chat("and now?").header("x-trunkline-session", &id).send().status, 200);
    assert!(has(&gateway.argv("codex"), &["resume", CODEX, "-"]));
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 3, "no retries");
}

#[test]
fn request_is_rejected_when_session_id_is_invalid_or_cli_keeps_no_sessions() {
    let gateway = TestGateway::new()
        .cli("codex", "tell ran")
        .cli("ax-glm", "tell ran")
        .model("m", json!({"driver": "codex"}))
        .model("glm", json!({"driver": "ax-glm"}))
        .start();
    for bad in ["not-a-uuid", "--help", "../../etc"] {
        gateway.chat("hi").model("m").header("x-trunkline-session", bad).send().error(400);
    }
    let error = gateway.chat("hi").model("glm").header("x-trunkline-session", SESSION).send().error(400);
    assert!(error["message"].as_str().unwrap().contains("glm cannot resume"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}

#[test]
fn turns_of_one_session_run_one_at_a_time() {
    let gateway = codex("mkdir \"$seen/busy\" || exit 1; sleep 0.1; rmdir \"$seen/busy\"; codex_answers done");
    thread::scope(|scope| {
        let ask = || gateway.chat("hi").with("session_id", SESSION).send().content();
        let asked: Vec<_> = (0..5).map(|_| scope.spawn(ask)).collect();
        assert!(asked.into_iter().all(|asked| asked.join().unwrap() == "done"));
    });
}

#[test]
fn usage_is_per_turn_when_cli_reports_session_totals() {
    let script = format!(
        "total=$(cat \"$seen/total\" 2>/dev/null || echo 0); total=$((total + 1234)); tell total $total; \
         echo '{{\"type\":\"thread.started\",\"thread_id\":\"{SESSION}\"}}'; codex_says done; \
         echo '{{\"type\":\"turn.completed\",\"usage\":{{\"input_tokens\":'$total',\"output_tokens\":0}}}}'"
    );
    let gateway = codex(&script);
    for _ in 0..3 {
        let reply = gateway.chat("hi").with("session_id", SESSION).send().json();
        assert_eq!(reply["usage"]["prompt_tokens"], 1234, "{}", gateway.read_note("total"));
    }
}

/// Reports a session, increments a counter in a file of its worktree, and answers with the count and the folder.
const COUNTER: &str = "count=$(cat count 2>/dev/null || echo 0); count=$((count + 1)); echo $count >count; \
    echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
    codex_answers \"$count in $(pwd)\"";

#[test]
fn session_continues_with_the_files_of_its_last_turn_in_a_worktree() {
    for keep in [false, true] {
        let entry = json!({"driver": "codex", "worktree": true, "keepWorktree": keep});
        let mut gateway = TestGateway::new().cli("codex", COUNTER).model("m", entry).start();
        let first = gateway.chat("hi").send().content();
        let folder = first.strip_prefix("1 in ").unwrap();
        let second = gateway.chat("hi").header("x-trunkline-session", SESSION).send();
        assert_eq!(second.content(), format!("2 in {folder}"));
        gateway.kill();
        gateway.restart();
        let third = gateway.chat("hi").header("x-trunkline-session", SESSION).send();
        assert_eq!(third.content(), format!("3 in {folder}"), "a restarted gateway continues it too");
        let branch = third.json()["trunkline"]["workspace"]["branch"].as_str().unwrap().to_owned();
        assert_eq!(gateway.git(&["show", &format!("{branch}:count")]), "3");
        assert_eq!(
            gateway.chat("hi").send().content().split(' ').next(),
            Some("1"),
            "a request without session starts over"
        );
    }
}

#[test]
fn turn_waits_when_worktree_of_its_session_is_being_cleaned_up() {
    // The second turn dies with its gateway. The next gateway cleans up slowly while the third turn arrives.
    let script =
        format!("if [ -e \"$seen/die\" ] && ! [ -e \"$seen/died\" ]; then tell died; hang; fi; sleep 0.2; {COUNTER}");
    let git = format!(
        "case \"$*\" in *'worktree remove'*) [ ! -e \"$seen/died\" ] || {{ tell removing; await go; }};; \
         *'repo rev-parse --verify'*) [ ! -e \"$seen/died\" ] || tell asked;; esac; exec {} \"$@\"",
        which("git").display()
    );
    let entry = json!({"driver": "codex", "worktree": true});
    let mut gateway = TestGateway::new().cli("codex", &script).git_script(&git).model("m", entry).start();
    assert!(gateway.chat("hi").send().content().starts_with("1 in "));
    gateway.leave_note("die");
    let unanswered = gateway.chat("hi").header("x-trunkline-session", SESSION).open();
    gateway.wait_for_note("died");
    gateway.kill();
    drop(unanswered);
    gateway.restart();
    gateway.wait_for_note("removing");
    let third = gateway.chat("hi").header("x-trunkline-session", SESSION).open();
    gateway.wait_for_note("asked");
    gateway.leave_note("go");
    let reply = third.finish();
    assert!(reply.content().starts_with("2 in "), "{reply:?}");
    let branch =
        reply.json()["trunkline"]["workspace"]["branch"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    assert_eq!(gateway.git(&["show", &format!("{branch}:count")]), "2");
}

#[test]
fn request_is_rejected_when_session_belongs_to_another_repository() {
    let gateway = TestGateway::new().cli("codex", COUNTER);
    let (repo, other) = (gateway.repo(), gateway.path("other"));
    gateway.git(&["clone", "--quiet", ".", other.to_str().unwrap()]);
    let entry = |repo: &Path| json!({"driver": "codex", "repoPath": repo, "worktree": true, "keepWorktree": true});
    let gateway = gateway.model("one", entry(&repo)).model("other", entry(&other)).start();
    gateway.chat("hi").model("one").send().content();
    let error = gateway.chat("hi").model("other").header("x-trunkline-session", SESSION).send().error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("not to codex in {}", other.display())), "{error}");
    assert_eq!(gateway.git(&["-C", other.to_str().unwrap(), "branch", "--list", "trunkline/*"]), "");
}
