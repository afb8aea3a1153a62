//! Turns that share a memory: our name for it goes to the client, the CLI's own goes back to the CLI.

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

/// A CLI, a recording of it, its name for the session of that recording, and how it is told to go on.
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

/// Whether these arguments stand in a row.
fn has(argv: &[String], row: &[&str]) -> bool {
    argv.windows(row.len()).any(|window| window == row)
}

#[test]
fn a_session_has_a_name_of_ours_and_outlives_the_gateway() {
    for (cli, recording, native, resume) in CLIS {
        let script = format!("note \"$@\"; replay {recording}");
        let mut gateway = TestGateway::new().cli(cli, &script).model("m", json!({"driver": cli})).start();
        let first = gateway.chat("hi").send();
        let id = first.header("x-trunkline-session").unwrap_or_else(|| panic!("{cli}: {first:?}")).to_owned();
        let said = first.json()["trunkline"].take();
        assert_eq!(said["session_id"], id);
        assert_eq!(said["session"], json!({"id": id, "native": native, "resumed": false, "how": null}), "{cli}");
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
fn only_what_is_new_is_said_in_a_session() {
    let gateway = TestGateway::new()
        .cli("claude", "note \"$@\"; replay claude/slow_streamjson_partial")
        .model("m", json!({"driver": "claude"}))
        .start();
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let again = gateway.chat("and now?").preceded_by("user", "hi").preceded_by("assistant", "Hello.");
    assert_eq!(again.header("x-trunkline-session", &id).send().header("x-trunkline-session"), Some(id.as_str()));
    assert_eq!(gateway.read_note("claude.stdin"), "--- USER TASK ---\nand now?", "it remembers the rest");
}

#[test]
fn the_clis_own_name_for_a_session_will_do_where_nobody_needs_a_key() {
    let gateway = codex("note \"$@\"; replay codex/reasoning");
    let reply = gateway.chat("hi").with("session_id", CODEX).streamed().send();
    let id = reply.header("x-trunkline-session").unwrap().to_owned();
    assert_ne!(id, CODEX);
    assert!(has(&gateway.argv("codex"), &["resume", CODEX, "-"]), "{:?}", gateway.argv("codex"));
    let again = gateway.chat("hi").with("session_id", CODEX).send();
    assert_eq!(again.header("x-trunkline-session"), Some(id.as_str()), "it is the same one");
    let ran = gateway.run(&["run", "-m", "m", "--session", CODEX, "hi"]).exits(0);
    assert!(ran.stderr.contains(&format!("· session {id}")), "{ran:?}");
}

#[test]
fn case_36_a_session_of_another_key_is_none() {
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
    let told = ask("key-of-ben", "and now?").preceded_by("user", "hi").preceded_by("assistant", "Hello.");
    let reply = told.header("x-trunkline-session", &id).send();
    let session = reply.json()["trunkline"]["session"].take();
    assert_eq!((session["resumed"].as_bool(), session["id"] == id), (Some(false), false), "{reply:?}");
    assert!(session["note"].as_str().unwrap().contains("there is no such session"), "{session}");
    assert!(!has(&gateway.argv("codex"), &["resume"]));
    assert!(gateway.read_note("codex.stdin").contains("Hello."), "it is told everything");
    assert_eq!(ask("key-of-ann", "hi").header("x-trunkline-session", &id).send().status, 200, "it is ann's");
}

#[test]
fn a_session_stays_with_whom_it_was_begun() {
    let gateway = TestGateway::new()
        .cli("codex", "replay codex/reasoning")
        .cli("claude", "tell ran")
        .model("a", json!({"driver": "codex"}))
        .model("b", json!({"driver": "claude"}))
        .start();
    let id = gateway.chat("hi").model("a").send().header("x-trunkline-session").unwrap().to_owned();
    let error = gateway.chat("hi").model("b").header("x-trunkline-session", &id).send().error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("is with codex in") && message.contains("not with claude in"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("(a)"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}

/// Knows no session, and notes how often it was asked.
const FORGETFUL: &str = "note \"$@\"; counted >/dev/null; \
    for arg in \"$@\"; do [ \"$arg\" = resume ] && { echo 'Error: no rollout found for thread id' >&2; exit 1; }; done; \
    replay codex/reasoning";

#[test]
fn who_has_forgotten_a_session_is_told_once_what_was_said_in_it() {
    for resent in [true, false] {
        let gateway = codex(FORGETFUL);
        let first = gateway.chat("the keeper is Ingrid").send();
        let id = first.header("x-trunkline-session").unwrap().to_owned();
        let mut ask = gateway.chat("who is it?").header("x-trunkline-session", &id);
        if resent {
            ask = ask.preceded_by("user", "the keeper is Ingrid").preceded_by("assistant", first.content());
        }
        let reply = ask.send();
        let said = reply.json()["trunkline"].take();
        let outcomes: Vec<_> = said["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].clone()).collect();
        assert_eq!((outcomes.len(), outcomes[1].as_str()), (2, Some("ok")), "{said}");
        assert_eq!(
            (said["session"]["resumed"].as_bool(), said["session_id"].as_str()),
            (Some(false), Some(id.as_str()))
        );
        let note = said["session"]["note"].as_str().unwrap();
        assert!(note.contains("could not be resumed") && note.contains("no rollout found"), "{note}");
        let told = gateway.read_note("codex.stdin");
        let expected =
            format!("[User]\nthe keeper is Ingrid\n\n[Assistant]\n{}\n\n[User]\nwho is it?", first.content());
        assert!(told.ends_with(&expected), "{told}");
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
fn who_has_forgotten_a_session_that_nobody_else_knows_fails() {
    let gateway = codex(FORGETFUL);
    let error = gateway.chat("hi").with("session_id", CODEX).send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("no rollout found"), "{error}");
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 1);
}

#[test]
fn a_failure_that_is_not_about_the_session_does_not_end_it() {
    let script = "note \"$@\"; [ \"$(counted)\" = 2 ] && { echo 'Error: 401 Unauthorized' >&2; exit 1; }; replay codex/reasoning";
    let gateway = codex(script);
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    gateway.chat("hi").header("x-trunkline-session", &id).send().error(500);
    assert_eq!(gateway.chat("hi").header("x-trunkline-session", &id).send().status, 200);
    assert!(has(&gateway.argv("codex"), &["resume", CODEX, "-"]));
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 3, "nothing was tried again");
}

#[test]
fn a_session_that_cannot_be_is_a_bad_request() {
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
fn turns_of_one_session_wait_for_each_other() {
    let gateway = codex("mkdir \"$seen/busy\" || exit 1; sleep 0.1; rmdir \"$seen/busy\"; codex_answers done");
    thread::scope(|scope| {
        let ask = || gateway.chat("hi").with("session_id", SESSION).send().content();
        let asked: Vec<_> = (0..5).map(|_| scope.spawn(ask)).collect();
        assert!(asked.into_iter().all(|asked| asked.join().unwrap() == "done"));
    });
}

#[test]
fn tokens_of_a_session_are_counted_for_each_turn() {
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

/// Reports a session, counts in a file of its worktree, and answers with the count and the folder.
const COUNTER: &str = "count=$(cat count 2>/dev/null || echo 0); count=$((count + 1)); echo $count >count; \
    echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
    codex_answers \"$count in $(pwd)\"";

#[test]
fn a_session_in_a_worktree_goes_on_where_it_left_off() {
    for keep in [false, true] {
        let entry = json!({"driver": "codex", "worktree": true, "keepWorktree": keep});
        let mut line = TestGateway::new().cli("codex", COUNTER).model("m", entry).start();
        let first = line.chat("hi").send().content();
        let folder = first.strip_prefix("1 in ").unwrap();
        let second = line.chat("hi").header("x-trunkline-session", SESSION).send();
        assert_eq!(second.content(), format!("2 in {folder}"));
        line.kill();
        line.restart();
        let third = line.chat("hi").header("x-trunkline-session", SESSION).send();
        assert_eq!(third.content(), format!("3 in {folder}"), "another gateway knows it too");
        let branch = third.json()["trunkline"]["workspace"]["branch"].as_str().unwrap().to_owned();
        assert_eq!(line.git(&["show", &format!("{branch}:count")]), "3");
        assert_eq!(line.chat("hi").send().content().split(' ').next(), Some("1"), "without it one begins anew");
    }
}

#[test]
fn a_session_waits_until_its_folder_is_cleaned_up() {
    // The second turn dies with its gateway. The next gateway cleans up, slowly, while the third turn comes in.
    let script =
        format!("if [ -e \"$seen/die\" ] && ! [ -e \"$seen/died\" ]; then tell died; hang; fi; sleep 0.2; {COUNTER}");
    let git = format!(
        "case \"$*\" in *'worktree remove'*) [ ! -e \"$seen/died\" ] || {{ tell removing; await go; }};; \
         *'repo rev-parse --verify'*) [ ! -e \"$seen/died\" ] || tell asked;; esac; exec {} \"$@\"",
        which("git").display()
    );
    let entry = json!({"driver": "codex", "worktree": true});
    let mut line = TestGateway::new().cli("codex", &script).git_script(&git).model("m", entry).start();
    assert!(line.chat("hi").send().content().starts_with("1 in "));
    line.leave_note("die");
    let unanswered = line.chat("hi").header("x-trunkline-session", SESSION).open();
    line.wait_for_note("died");
    line.kill();
    drop(unanswered);
    line.restart();
    line.wait_for_note("removing");
    let third = line.chat("hi").header("x-trunkline-session", SESSION).open();
    line.wait_for_note("asked");
    line.leave_note("go");
    let reply = third.finish();
    assert!(reply.content().starts_with("2 in "), "{reply:?}");
    let branch =
        reply.json()["trunkline"]["workspace"]["branch"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    assert_eq!(line.git(&["show", &format!("{branch}:count")]), "2");
}

#[test]
fn a_session_of_one_repository_does_not_lead_into_another() {
    let gateway = TestGateway::new().cli("codex", COUNTER);
    let (repo, other) = (gateway.repo(), gateway.path("other"));
    gateway.git(&["clone", "--quiet", ".", other.to_str().unwrap()]);
    let entry = |repo: &Path| json!({"driver": "codex", "repoPath": repo, "worktree": true, "keepWorktree": true});
    let gateway = gateway.model("one", entry(&repo)).model("other", entry(&other)).start();
    gateway.chat("hi").model("one").send().content();
    let error = gateway.chat("hi").model("other").header("x-trunkline-session", SESSION).send().error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("not with codex in {}", other.display())), "{error}");
    assert_eq!(gateway.git(&["-C", other.to_str().unwrap(), "branch", "--list", "trunkline/*"]), "");
}
