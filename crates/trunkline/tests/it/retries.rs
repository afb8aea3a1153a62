//! Retries: when there is none, which workspace a retry gets, and that it is cancelled with its request.

use serde_json::json;

use crate::observe::{processes_of, until, until_gone};
use crate::router::{attempts, pairs, yaml};
use crate::test_gateway::{TestGateway, which};

#[test]
fn case_66_does_not_retry_once_output_was_streamed() {
    let gateway = TestGateway::new()
        .cli("half", "cat >/dev/null; printf '{\"content\":\"Hal\",\"delta\":\"Hal\",\"done\":false}\\n'; refuses \"$1\" '503 Service Unavailable'")
        .cli("good", "cat >/dev/null; answers \"$1\" whole")
        .config("router.yaml", &yaml(&[("half", 9, ""), ("good", 1, "")], ""))
        .start();
    let streamed = gateway.chat("hi").model("auto").streamed().send();
    assert!(!streamed.is_done(), "{}", streamed.body);
    let last = streamed.frames().pop().unwrap();
    assert_eq!((&last["error"]["code"], attempts(&last)), (&json!("server"), pairs(&[("half", "server")])));
    assert!(last["error"]["hint"].as_str().unwrap().contains("not retried"), "{last}");
    // A client that waits for the whole answer has received nothing yet, so a retry is possible.
    let whole = gateway.chat("hi").model("auto").send();
    assert_eq!(whole.content(), "whole");
    let failed = ("half", "server");
    assert_eq!(attempts(&whole.json()), pairs(&[failed, failed, failed, ("good", "ok")]));
}

/// A codex that runs a tool, changes a file and fails.
const FAILS_AFTER_A_TOOL: &str = "cat >/dev/null; printf 'half\\n' >half.txt; \
    printf '{\"type\":\"item.started\",\"item\":{\"id\":\"i\",\"type\":\"command_execution\",\"command\":\"make\",\"status\":\"in_progress\"}}\\n'; \
    printf '{\"type\":\"turn.failed\",\"error\":{\"message\":\"503 Service Unavailable\"}}\\n'; exit 1";

#[test]
fn does_not_retry_after_a_tool_has_run() {
    let gateway = TestGateway::new()
        .cli("codex", FAILS_AFTER_A_TOOL)
        .cli("gemini", "tell asked 1; replay gemini/ansi-stream-json")
        .model("m", json!({"driver": "codex", "fallback": ["other"]}))
        .model("other", json!({"driver": "gemini"}))
        .start();
    let reply = gateway.chat("hi").send();
    assert_eq!(reply.error(500)["code"], "server");
    assert_eq!(attempts(&reply.json()), pairs(&[("codex", "server")]));
    assert_eq!(reply.header("x-should-retry"), Some("false"), "a retry would continue on half-done work");
    assert!(!gateway.path("seen/asked").exists());
}

#[test]
fn retries_in_a_fresh_worktree_when_a_tool_has_run_in_the_first() {
    let script = format!(
        "[ \"$(counted)\" = 1 ] || {{ cat >/dev/null; ls >\"$seen/found\"; printf 'whole\\n' >whole.txt; codex_answers done; exit; }}; {FAILS_AFTER_A_TOOL}"
    );
    let gateway =
        TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex", "worktree": true})).start();
    let reply = gateway.chat("hi").streamed().send();
    assert!(reply.is_done() && reply.streamed_text().ends_with("done"), "{}", reply.body);
    assert!(reply.body.contains("m failed (server); trying again"), "{}", reply.body);
    let last = reply.frames().into_iter().find(|frame| frame["trunkline"].is_object()).unwrap();
    assert_eq!(attempts(&last), pairs(&[("codex", "server"), ("codex", "ok")]));
    let (first, second) = (&last["trunkline"]["attempts"][0]["workspace"], &last["trunkline"]["workspace"]);
    let (first, second) = (first["branch"].as_str().unwrap(), second["branch"].as_str().unwrap());
    assert_eq!(gateway.read_note("found").trim(), "README.md", "the worktree is fresh");
    assert_eq!(gateway.git(&["show", &format!("{first}:half.txt")]), "half");
    assert_eq!(gateway.git(&["show", &format!("{second}:whole.txt")]), "whole");
    assert_eq!(second, format!("{first}-2"));
    assert!(!gateway.repo().join("half.txt").exists());
}

#[test]
fn retry_in_the_same_folder_waits_until_the_last_attempt_has_exited() {
    let script = "if [ -e \"$seen/last\" ] && kill -0 \"$(cat \"$seen/last\")\" 2>/dev/null; then tell overlap 1; fi; \
                  printf %s $$ >\"$seen/last\"; [ \"$(counted)\" = 1 ] || { cat >/dev/null; codex_answers done; exit; }; \
                  trap '' TERM INT; hang";
    let gateway = TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex", "timeout": "500ms"}))
        .config("router.yaml", "providers: []\nrouting: {backoff: 1ms}\n")
        .args(&["--grace", "700ms"])
        .start();
    assert_eq!(gateway.chat("hi").model("m").send().content(), "done");
    assert!(!gateway.path("seen/overlap").exists(), "two agents worked in one folder");
}

#[test]
fn session_stays_with_the_fallback_that_answered_its_first_turn() {
    let native_session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let gateway = TestGateway::new()
        .cli("claude", "cat >/dev/null; echo 'Error: insufficient_quota' >&2; exit 1")
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .model("a", json!({"driver": "claude", "fallback": ["b"]}))
        .model("b", json!({"driver": "codex"}))
        .start();
    let first = gateway.chat("hi").model("a").send();
    let session_id = first.header("x-trunkline-session").unwrap_or_else(|| panic!("{first:?}"));
    let second = gateway.chat("and now?").model("a").header("x-trunkline-session", session_id).send();
    assert_eq!((second.status, attempts(&second.json())), (200, pairs(&[("codex", "ok")])));
    assert!(gateway.argv("codex").contains(&native_session.to_owned()));
}

#[test]
fn no_other_turn_of_the_session_runs_between_an_attempt_and_its_retry() {
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let script = "note \"$@\"; tail=$(cat \"$seen/codex.stdin\"); printf '%s\\n' \"${tail##* }\" >>\"$seen/order\"; \
                  [ \"$(counted)\" = 1 ] && { tell started 1; await go; echo 'Error: 503 Service Unavailable' >&2; exit 1; }; \
                  replay codex/reasoning";
    let gateway = TestGateway::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex"}))
        .config("router.yaml", "providers: []\nrouting: {backoff: 50ms}\n")
        .start();
    let first = gateway.chat("the FIRST").model("m").header("x-trunkline-session", session).open();
    gateway.wait_for_note("started");
    let second = gateway.chat("the SECOND").model("m").header("x-trunkline-session", session).open();
    gateway.leave_note("go");
    assert_eq!((first.finish().status, second.finish().status), (200, 200));
    assert_eq!(gateway.read_note("order"), "FIRST\nFIRST\nSECOND\n");
}

#[test]
fn retry_in_a_session_starts_from_the_commit_that_the_turn_started_from() {
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let script = format!(
        "case \"$(counted)\" in 1) cat >/dev/null; printf 'one\\n' >one.txt; replay codex/reasoning;; 2) {FAILS_AFTER_A_TOOL};; esac; \
         cat >/dev/null; ls >\"$seen/found\"; printf 'two\\n' >two.txt; replay codex/reasoning"
    );
    let gateway =
        TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex", "worktree": true})).start();
    let first = gateway.chat("hi").send().json();
    let tip = first["trunkline"]["workspace"]["commit"].as_str().unwrap().to_owned();
    let second = gateway.chat("and now?").header("x-trunkline-session", session).send().json();
    assert_eq!(attempts(&second), pairs(&[("codex", "server"), ("codex", "ok")]));
    assert_eq!(gateway.read_note("found"), "README.md\none.txt\n", "without the files of the failed attempt");
    let workspace = &second["trunkline"]["workspace"];
    assert_eq!((workspace["base"].as_str(), workspace["files_changed"].as_u64()), (Some(tip.as_str()), Some(1)));
}

#[test]
fn no_further_attempt_is_made_when_the_client_disconnects() {
    let slow =
        "cat >/dev/null; counted >/dev/null; tell pid $$; refuses \"$1\" 'rate limit exceeded, retry after 4 seconds'";
    let gateway = TestGateway::new().cli("slow", slow).config("router.yaml", &yaml(&[("slow", 1, "")], "")).start();
    for streamed in [false, true] {
        let request = gateway.chat("hi").model("slow");
        let pending = if streamed { request.streamed().open() } else { request.open() };
        gateway.wait_for_note("pid");
        until("the run waits for its retry", || gateway.log().contains("trying again in"));
        drop(pending);
        let runs = gateway.read_note("slow.runs").lines().count();
        assert_eq!(runs, if streamed { 2 } else { 1 });
        std::fs::remove_file(gateway.path("seen/pid")).unwrap();
        std::fs::write(gateway.path("log"), "").unwrap();
    }
    // The same while an attempt runs.
    let gateway = TestGateway::new()
        .cli("bad", "cat >/dev/null; refuses \"$1\" 'something odd'")
        .cli("hangs", "cat >/dev/null; tell pid $$; hang")
        .config("router.yaml", &yaml(&[("bad", 9, ""), ("hangs", 1, "")], ""))
        .start();
    let pending = gateway.chat("hi").model("auto").open();
    let pid = gateway.wait_for_pid("pid");
    drop(pending);
    until_gone(&[pid]);
    let gateway_pid = gateway.gateway_pid();
    let others = || processes_of(&gateway.path("repo")).into_iter().filter(|&pid| pid != gateway_pid).count();
    // Keepers may stay.
    until("no process of the run is left", || others() <= 2);
}

/// Replaces git with one that hangs in `worktree add` as long as the note `hold` exists.
fn slow_git(gateway: TestGateway) -> TestGateway {
    let script = format!(
        "case \" $* \" in *' worktree add '*) [ ! -e \"$seen/hold\" ] || {{ tell adding; hang; }};; esac\nexec '{}' \"$@\"",
        which("git").display()
    );
    gateway.git_script(&script)
}

/// Disconnects while git adds the worktree of a request, and waits until the gateway has cancelled the run.
fn disconnect_during_worktree_creation(gateway: &TestGateway, session: Option<&str>) {
    gateway.leave_note("hold");
    let request = gateway.chat("hi").model("m");
    let pending = match session {
        Some(session) => request.header("x-trunkline-session", session).open(),
        None => request.open(),
    };
    gateway.wait_for_note("adding");
    drop(pending);
    until("the run is cancelled", || gateway.get("/v1/runs?limit=1").json()["data"][0]["state"] == "cancelled");
    std::fs::remove_file(gateway.path("seen/hold")).unwrap();
    std::fs::remove_file(gateway.path("seen/adding")).unwrap();
}

fn count_entries(gateway: &TestGateway, name: &str) -> usize {
    std::fs::read_dir(gateway.path(name)).into_iter().flatten().count()
}

#[test]
fn no_worktree_is_left_when_the_client_disconnects_while_it_is_created() {
    for keep in [false, true] {
        let gateway = slow_git(TestGateway::new())
            .cli("codex", "cat >/dev/null; tell ran 1; codex_answers done")
            .model("m", json!({"driver": "codex", "worktree": true, "keepWorktree": keep}));
        let mut gateway = gateway.start();
        for _ in 0..3 {
            disconnect_during_worktree_creation(&gateway, None);
        }
        until("no worktree is left", || {
            count_entries(&gateway, "worktrees") == 0 && count_entries(&gateway, "state/worktrees") == 0
        });
        assert!(!gateway.path("seen/ran").exists(), "the CLI was not started");
        assert_eq!(gateway.git(&["branch", "--list", "trunkline/*"]), "");
        gateway.chat("hi").send().content();
        assert_eq!(
            count_entries(&gateway, "worktrees"),
            usize::from(keep),
            "the worktree of a finished run is kept only if keepWorktree is set"
        );
        gateway.signal(rustix::process::Signal::TERM);
        assert_eq!(gateway.wait_for_exit(), Some(0));
    }
}

#[test]
fn session_continues_at_once_when_its_last_turn_was_cancelled() {
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let gateway = slow_git(TestGateway::new())
        .cli("codex", "cat >/dev/null; printf 'x\\n' >\"$(counted).txt\"; replay codex/reasoning")
        .config("router.yaml", "providers: []\nrouting: {max_retries: 0}\n")
        .model("m", json!({"driver": "codex", "worktree": true}))
        .start();
    gateway.chat("hi").model("m").send().content();
    for _ in 0..3 {
        disconnect_during_worktree_creation(&gateway, Some(session));
        let reply = gateway.chat("and now?").model("m").header("x-trunkline-session", session).send();
        assert_eq!(reply.status, 200, "{reply:?}\n{}", gateway.log());
        assert_eq!(reply.json()["trunkline"]["workspace"]["files_changed"], 1, "{}", reply.body);
    }
    assert!(!gateway.log().contains("could not be put in order"), "{}", gateway.log());
}
