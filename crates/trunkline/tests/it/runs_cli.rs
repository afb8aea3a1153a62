//! `trunkline runs` and `trunkline run --attach/--detach`, with and without a gateway.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::observe::{exists, until, until_gone};
use crate::test_gateway::TestGateway;

const SLOW: &str = "tell pid $$; codex_says one; await go; codex_answers two";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"}))
}

#[test]
fn runs_are_listed_and_shown_when_no_gateway_runs() {
    let gateway =
        gateway("echo new >made.txt; codex_answers done").model("tree", json!({"driver": "codex", "worktree": true}));
    gateway.run(&["run", "-m", "tree", "make a file"]).exits(0);
    gateway.run(&["run", "-m", "m", "just talk"]).exits(0);
    let listed = gateway.run(&["runs"]).exits(0).stdout;
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert!(rows[0].starts_with("run ") && rows[1].ends_with("-      just talk"), "{listed}");
    assert!(rows[2].contains("finished") && rows[2].ends_with("1      make a file"), "{listed}");
    let json = gateway.run(&["runs", "--json", "--model", "tree", "--status", "finished"]).exits(0).stdout;
    let run: Value = serde_json::from_str(&json).unwrap();
    let id = run["id"].as_str().unwrap();
    assert_eq!((&run["surface"], &run["workspace"]["files_changed"]), (&json!("run"), &json!(1)));

    let short = rows[2].split(' ').next().unwrap();
    let shown = gateway.run(&["runs", "show", short]).exits(0).stdout;
    assert!(shown.contains(id) && shown.contains("1 file changed (+1 -0) on branch trunkline/"), "{shown}");
    let patch = gateway.run(&["runs", "diff", short]).exits(0).stdout;
    assert!(patch.contains("+++ b/made.txt\n@@ -0,0 +1 @@\n+new"), "{patch}");
    let events = gateway.run(&["runs", "events", id]).exits(0).stdout;
    assert!(events.lines().last().unwrap().contains("\"type\":\"finished\""), "{events}");
    assert_eq!(gateway.run(&["run", "--attach", short]).exits(0).stdout, "done\n");

    let refused = gateway.run(&["runs", "cancel", short]).exits(1).stderr;
    assert!(refused.contains("has ended: finished"), "{refused}");
    let unknown = gateway.run(&["runs", "show", "ffff"]).exits(1).stderr;
    assert!(unknown.contains("no run begins with \"ffff\""), "{unknown}");
    let several = gateway.run(&["runs", "show", "0"]).exits(1).stderr;
    assert!(several.contains("several runs begin with \"0\"") && several.contains(id), "{several}");
    gateway.run(&["runs", "--status", "lost"]).exits(2);
    let alone = gateway.run(&["run", "--detach", "-m", "m", "x"]).exits(1).stderr;
    assert!(alone.contains("no gateway runs on"), "{alone}");
}

#[test]
fn detached_run_can_be_attached_to_later() {
    let gateway = gateway(SLOW).args(&["--grace", "500ms"]).start();
    let id = gateway.run(&["run", "--detach", "-m", "m", "take your time"]).exits(0).stdout.trim().to_owned();
    gateway.wait_for_note("pid");
    // Interrupting the attached command leaves the run running.
    let left = gateway.signalled_after_output(&["run", "--attach", &id], "one", Signal::INT).exits(0);
    assert!(left.stderr.contains("the run continues"), "{left:?}");
    assert!(exists(gateway.wait_for_pid("pid")));
    gateway.leave_note("go");
    assert_eq!(gateway.run(&["run", "--attach", &id]).exits(0).stdout, "one\n\ntwo\n");
    let unknown = gateway.run(&["run", "--detach", "-m", "mm", "x"]).exits(1).stderr;
    assert!(unknown.contains("Unknown model (did you mean: m?)"), "{unknown}");
}

#[test]
fn run_is_cancelled_by_the_cancel_command() {
    let gateway = gateway("tell pid $$; codex_says one; hang").args(&["--grace", "500ms"]).start();
    let id = gateway.run(&["run", "--detach", "-m", "m", "never ends"]).exits(0).stdout.trim().to_owned();
    let pid = gateway.wait_for_pid("pid");
    until("the run is listed", || gateway.run(&["runs", "--status", "running"]).stdout.contains("never ends"));
    gateway.run(&["runs", "cancel", &id]).exits(0);
    until_gone(&[pid]);
    assert!(gateway.run(&["runs", "show", &id]).exits(0).stdout.contains("cancelled"));
    // Its output is kept.
    let attached = gateway.run(&["run", "--attach", &id]).exits(4);
    assert!(attached.stdout == "one\n" && attached.stderr.contains("cancelled"), "{attached:?}");
}

#[test]
fn log_is_deleted_when_its_session_is_pruned() {
    let gateway = gateway("codex_answers done");
    gateway.run(&["run", "-m", "m", "hi"]).exits(0);
    let logs = || std::fs::read_dir(gateway.path("state/log")).unwrap().count();
    assert_eq!(logs(), 1);
    gateway.run(&["sessions", "--prune", "1d"]).exits(0);
    assert_eq!(logs(), 1);
    gateway.run(&["sessions", "--prune", "0d"]).exits(0);
    assert_eq!(logs(), 0);
    assert_eq!(gateway.run(&["runs"]).exits(0).stdout, "");
}
