//! Starting a CLI: what may be wrong with it, and what it inherits.

use std::fs;

use serde_json::json;
use trunkline_process::Landlock;

use crate::metrics::metric_value;
use crate::observe::{children, until};
use crate::test_gateway::TestGateway;

#[test]
fn case_50_a_program_that_cannot_be_run_says_why() {
    let gateway = TestGateway::new().cli("codex", "").model("m", json!({"driver": "text", "command": "../bin/odd"}));
    let odd = gateway.path("bin/odd");
    let gateway = gateway.start();
    for (text, mode, why) in [
        (None, 0, "not found"),
        (Some("#!/bin/sh\n"), 0o644, "not executable"),
        (Some("#!/no/such/shell\n"), 0o755, "cannot start"),
        (Some("\u{7f}nonsense"), 0o755, "cannot start"),
    ] {
        if let Some(text) = text {
            gateway.write_program(&odd, text);
            fs::set_permissions(&odd, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        let error = gateway.chat("hi").send().error(500);
        assert!(error["detail"].as_str().unwrap().contains(why), "{text:?}: {error}");
        assert!(error["hint"].as_str().unwrap().contains("trunkline doctor"), "{error}");
    }
}

#[test]
fn case_50_a_cli_that_was_updated_is_used_by_the_next_run() {
    let gateway = TestGateway::new().cli("codex", "codex_answers old").model("m", json!({"driver": "codex"})).start();
    assert_eq!(gateway.chat("hi").send().content(), "old");
    let gateway = gateway.cli("codex", "codex_answers new");
    assert_eq!(gateway.chat("hi").send().content(), "new");
}

#[test]
fn a_repository_that_is_gone_is_a_clear_error() {
    let gateway = TestGateway::new().cli("codex", "codex_answers done");
    let folder = gateway.path("gone");
    fs::create_dir(&folder).unwrap();
    let gateway = gateway.model("m", json!({"driver": "codex", "repoPath": folder})).start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    fs::remove_dir(&folder).unwrap();
    let error = gateway.chat("hi").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["detail"].as_str().unwrap().contains("repoPath"), "{error}");
}

#[test]
fn case_55_a_child_inherits_three_descriptors_and_no_more() {
    let line = TestGateway::new()
        .cli("codex", "ls /proc/self/fd >\"$seen/descriptors\"; codex_answers done")
        .cli("other", "tell other; hang")
        .model("m", json!({"driver": "codex"}))
        .model("other", json!({"driver": "text", "command": "other"}))
        .start();
    // The gateway has more of them open meanwhile.
    let _other = line.chat("hi").model("other").open();
    line.wait_for_note("other");
    assert_eq!(line.chat("hi").send().content(), "done");
    assert_eq!(
        line.read_note("descriptors").split_whitespace().collect::<Vec<_>>(),
        ["0", "1", "2", "3"],
        "3 is the list's"
    );
}

#[test]
fn case_56_many_runs_leave_no_descriptors_and_no_zombies() {
    let gateway = TestGateway::new()
        .cli("codex", "(setsid sleep 1000 &); codex_answers done")
        .model("m", json!({"driver": "codex", "worktree": true}))
        .args(&["--metrics", "127.0.0.1:0"])
        .start();
    let open = || metric_value(&gateway, "open_files").unwrap();
    let ask = || assert_eq!(gateway.chat("hi").send().content(), "done");
    (0..3).for_each(|_| ask());
    let before = open();
    (0..20).for_each(|_| ask());
    until("descriptors are closed", || open() <= before);
    let keepers = children(gateway.gateway_pid());
    until("nothing is left below the keepers", || keepers.iter().all(|&keeper| children(keeper).is_empty()));
    let zombie = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    until("no keeper is a zombie", || !children(gateway.gateway_pid()).iter().any(zombie));
}

#[test]
fn case_46_a_question_finds_nobody_to_answer_it() {
    let script = r#"
        if (: </dev/tty) 2>/dev/null; then echo 'a terminal'; fi
        cat >/dev/null
        if read answer; then echo 'an answer'; fi
        echo "$BROWSER $CI $TERM"
    "#;
    let entry = json!({"driver": "text", "command": "asks"});
    let gateway = TestGateway::new().cli("asks", script).model("m", entry).start();
    assert_eq!(gateway.chat("hi").send().content(), "/bin/false true dumb");
}

#[test]
fn case_46_who_must_log_in_first_is_not_tried_twice() {
    let script = "cat >/dev/null; echo ran >>\"$seen/runs\"; echo 'Not logged in. Please run /login' >&2; exit 1";
    let gateway = TestGateway::new().cli("claude", script).model("m", json!({"driver": "claude"})).start();
    assert_eq!(gateway.chat("hi").send().error(500)["code"], "authentication");
    assert_eq!(gateway.read_note("runs"), "ran\n");
}

#[test]
fn what_node_compiled_is_kept_for_the_next_start() {
    let gemini = "case $* in *--version*) pwd >\"$NODE_COMPILE_CACHE/code\"; echo 1.0; exit;; esac; \
        tell cache \"$NODE_COMPILE_CACHE\"; replay gemini/ansi-stream-json";
    let entry = json!({"driver": "gemini", "warm": 0, "writable": ["../seen"]});
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    let world = |line: TestGateway| line.cli("gemini", gemini).cli("node", "").env("TRUNKLINE_WARM", "8");
    let (Some(line), Some(own)) = (TestGateway::outside_tmp(), TestGateway::outside_tmp()) else { return };
    let free = json!({"driver": "gemini", "warm": 0, "permissions": "full"});
    let line = world(line).model("m", entry.clone()).model("free", free).start();
    line.chat("hi").model("m").send().content();
    assert_eq!(line.read_note("cache"), "\n", "nothing was there yet");
    let folder =
        || fs::read_dir(line.path("state/compiled")).into_iter().flatten().flatten().next().map(|one| one.path());
    until("it is compiled", || folder().is_some_and(|folder| folder.extension().is_none()));
    line.chat("hi").model("m").send().content();
    let used = line.read_note("cache");
    assert_eq!(used.trim_end(), folder().unwrap().to_str().unwrap());
    assert_eq!(fs::read_to_string(folder().unwrap().join("code")).unwrap(), "/\n", "in nobody's folder");
    line.chat("hi").model("free").send().content();
    assert_eq!(line.read_note("cache"), "\n", "every Node it starts could write there");
    // Another program: what was compiled is not of it.
    let line = line.cli("gemini", &format!("{gemini} # updated"));
    line.chat("hi").model("m").send().content();
    assert_eq!(line.read_note("cache"), "\n");
    drop(line);
    let line = world(own).model("m", entry).env("NODE_COMPILE_CACHE", "/users/own").start();
    line.chat("hi").send().content();
    assert_eq!(line.read_note("cache"), "/users/own\n");
    assert!(!line.path("state/compiled").exists());
}
