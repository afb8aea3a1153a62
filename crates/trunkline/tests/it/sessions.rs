//! Turns that share a memory: the CLI's own name for it goes back to the CLI.

use std::path::Path;
use std::thread;

use serde_json::json;

use crate::line::{Line, which};

const SESSION: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

fn codex(script: &str) -> Line {
    Line::new().cli("codex", script).model("m", json!({"driver": "codex"})).start()
}

#[test]
fn a_session_goes_to_claude_and_comes_back() {
    let line = Line::new()
        .cli("claude", "note \"$@\"; replay claude/slow_streamjson_partial")
        .model("m", json!({"driver": "claude"}))
        .start();
    let first = line.chat("hi").send();
    assert_eq!(first.header("x-trunkline-session"), Some(SESSION));
    assert_eq!(first.json()["trunkline"]["session_id"], SESSION);
    assert!(!line.argv("claude").contains(&"--resume".to_owned()));
    let again = line.chat("and now?").after("user", "hi").after("assistant", "Hello.");
    assert_eq!(again.header("x-trunkline-session", SESSION).send().header("x-trunkline-session"), Some(SESSION));
    let argv = line.argv("claude");
    let at = argv.iter().position(|arg| arg == "--resume").unwrap();
    assert_eq!(argv[at + 1], SESSION);
    assert_eq!(line.noted("claude.stdin"), "--- USER TASK ---\nand now?", "it remembers the rest");
}

#[test]
fn a_session_goes_to_codex_as_its_own_command() {
    let line = codex("note \"$@\"; replay codex/reasoning");
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let reply = line.chat("hi").with("session_id", session).streamed().send();
    assert_eq!(reply.header("x-trunkline-session"), Some(session));
    assert!(line.argv("codex").ends_with(&["resume".into(), session.into(), "-".into()]), "{:?}", line.argv("codex"));
}

#[test]
fn a_session_that_cannot_be_is_a_bad_request() {
    let line = Line::new()
        .cli("codex", "tell ran")
        .cli("ax-glm", "tell ran")
        .model("m", json!({"driver": "codex"}))
        .model("glm", json!({"driver": "ax-glm"}))
        .start();
    for bad in ["not-a-uuid", "--help", "../../etc"] {
        line.chat("hi").model("m").header("x-trunkline-session", bad).send().error(400);
    }
    let error = line.chat("hi").model("glm").header("x-trunkline-session", SESSION).send().error(400);
    assert!(error["message"].as_str().unwrap().contains("glm cannot resume"), "{error}");
    assert!(!line.path("seen/ran").exists());
}

#[test]
fn turns_of_one_session_wait_for_each_other() {
    let line = codex("mkdir \"$seen/busy\" || exit 1; sleep 0.1; rmdir \"$seen/busy\"; codex_answers done");
    thread::scope(|scope| {
        let ask = || line.chat("hi").with("session_id", SESSION).send().content();
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
    let line = codex(&script);
    for _ in 0..3 {
        let reply = line.chat("hi").with("session_id", SESSION).send().json();
        assert_eq!(reply["usage"]["prompt_tokens"], 1234, "{}", line.noted("total"));
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
        let mut line = Line::new().cli("codex", COUNTER).model("m", entry).start();
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
         *cat-file*) [ ! -e \"$seen/died\" ] || tell asked;; esac; exec {} \"$@\"",
        which("git").display()
    );
    let entry = json!({"driver": "codex", "worktree": true});
    let mut line = Line::new().cli("codex", &script).cli("git", &git).model("m", entry).start();
    assert!(line.chat("hi").send().content().starts_with("1 in "));
    line.tell("die");
    let unanswered = line.chat("hi").header("x-trunkline-session", SESSION).open();
    line.told("died");
    line.kill();
    drop(unanswered);
    line.restart();
    line.told("removing");
    let third = line.chat("hi").header("x-trunkline-session", SESSION).open();
    line.told("asked");
    line.tell("go");
    let reply = third.finish();
    assert!(reply.content().starts_with("2 in "), "{reply:?}");
    let branch =
        reply.json()["trunkline"]["workspace"]["branch"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    assert_eq!(line.git(&["show", &format!("{branch}:count")]), "2");
}

#[test]
fn a_session_of_one_repository_does_not_lead_into_another() {
    let line = Line::new().cli("codex", COUNTER);
    let (repo, other) = (line.repo(), line.path("other"));
    line.git(&["clone", "--quiet", ".", other.to_str().unwrap()]);
    let entry = |repo: &Path| json!({"driver": "codex", "repoPath": repo, "worktree": true, "keepWorktree": true});
    let line = line.model("one", entry(&repo)).model("other", entry(&other)).start();
    line.chat("hi").model("one").send().content();
    let reply = line.chat("hi").model("other").header("x-trunkline-session", SESSION).send();
    assert_eq!(reply.content().split(' ').next(), Some("1"));
    let branch = reply.json()["trunkline"]["workspace"]["branch"].as_str().unwrap().to_owned();
    assert_eq!(line.git(&["-C", other.to_str().unwrap(), "show", &format!("{branch}:count")]), "1");
}
