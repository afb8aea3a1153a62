//! Runs from the terminal, with a gateway and without.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::look::{all_gone, exists, until};
use crate::test_gateway::TestGateway;

const SLOW: &str = "tell pid $$; codex_says one; await go; codex_answers two";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"}))
}

#[test]
fn what_ran_is_listed_and_shown_without_a_gateway() {
    let line =
        gateway("echo new >made.txt; codex_answers done").model("tree", json!({"driver": "codex", "worktree": true}));
    line.run(&["run", "-m", "tree", "make a file"]).exits(0);
    line.run(&["run", "-m", "m", "just talk"]).exits(0);
    let listed = line.run(&["runs"]).exits(0).stdout;
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert!(rows[0].starts_with("run ") && rows[1].ends_with("-      just talk"), "{listed}");
    assert!(rows[2].contains("finished") && rows[2].ends_with("1      make a file"), "{listed}");
    let json = line.run(&["runs", "--json", "--model", "tree", "--status", "finished"]).exits(0).stdout;
    let run: Value = serde_json::from_str(&json).unwrap();
    let id = run["id"].as_str().unwrap();
    assert_eq!((&run["surface"], &run["workspace"]["files_changed"]), (&json!("run"), &json!(1)));

    let short = rows[2].split(' ').next().unwrap();
    let shown = line.run(&["runs", "show", short]).exits(0).stdout;
    assert!(shown.contains(id) && shown.contains("1 file changed (+1 -0) on branch trunkline/"), "{shown}");
    let patch = line.run(&["runs", "diff", short]).exits(0).stdout;
    assert!(patch.contains("+++ b/made.txt\n@@ -0,0 +1 @@\n+new"), "{patch}");
    let events = line.run(&["runs", "events", id]).exits(0).stdout;
    assert!(events.lines().last().unwrap().contains("\"type\":\"finished\""), "{events}");
    assert_eq!(line.run(&["run", "--attach", short]).exits(0).stdout, "done\n");

    let refused = line.run(&["runs", "cancel", short]).exits(1).stderr;
    assert!(refused.contains("is over: finished"), "{refused}");
    let unknown = line.run(&["runs", "show", "ffff"]).exits(1).stderr;
    assert!(unknown.contains("no run begins with \"ffff\""), "{unknown}");
    let several = line.run(&["runs", "show", "0"]).exits(1).stderr;
    assert!(several.contains("several runs begin with \"0\"") && several.contains(id), "{several}");
    line.run(&["runs", "--status", "lost"]).exits(2);
    let alone = line.run(&["run", "--detach", "-m", "m", "x"]).exits(1).stderr;
    assert!(alone.contains("no gateway runs on"), "{alone}");
}

#[test]
fn a_task_is_left_to_the_gateway_and_come_back_to() {
    let gateway = gateway(SLOW).args(&["--grace", "500ms"]).start();
    let id = gateway.run(&["run", "--detach", "-m", "m", "take your time"]).exits(0).stdout.trim().to_owned();
    gateway.told("pid");
    // Whoever has seen enough leaves it running.
    let left = gateway.interrupted_after(&["run", "--attach", &id], "one", Signal::INT).exits(0);
    assert!(left.stderr.contains("the run continues"), "{left:?}");
    assert!(exists(gateway.told_pid("pid")));
    gateway.tell("go");
    assert_eq!(gateway.run(&["run", "--attach", &id]).exits(0).stdout, "one\n\ntwo\n");
    let unknown = gateway.run(&["run", "--detach", "-m", "mm", "x"]).exits(1).stderr;
    assert!(unknown.contains("Unknown model (did you mean: m?)"), "{unknown}");
}

#[test]
fn a_run_is_stopped_from_the_terminal() {
    let gateway = gateway("tell pid $$; codex_says one; hang").args(&["--grace", "500ms"]).start();
    let id = gateway.run(&["run", "--detach", "-m", "m", "never ends"]).exits(0).stdout.trim().to_owned();
    let pid = gateway.told_pid("pid");
    until("it is known", || gateway.run(&["runs", "--status", "running"]).stdout.contains("never ends"));
    gateway.run(&["runs", "cancel", &id]).exits(0);
    all_gone(&[pid]);
    assert!(gateway.run(&["runs", "show", &id]).exits(0).stdout.contains("cancelled"));
    // What it said stays.
    let told = gateway.run(&["run", "--attach", &id]).exits(4);
    assert!(told.stdout == "one\n" && told.stderr.contains("cancelled"), "{told:?}");
}

#[test]
fn what_is_forgotten_is_forgotten_with_its_log() {
    let gateway = gateway("codex_answers done");
    gateway.run(&["run", "-m", "m", "hi"]).exits(0);
    let logs = || {
        let folders = std::fs::read_dir(gateway.path("state/runs")).unwrap().flatten();
        folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten()).count()
    };
    assert_eq!(logs(), 1);
    gateway.run(&["sessions", "--prune", "1d"]).exits(0);
    assert_eq!(logs(), 1);
    gateway.run(&["sessions", "--prune", "0d"]).exits(0);
    assert_eq!(logs(), 0);
    assert_eq!(gateway.run(&["runs"]).exits(0).stdout, "");
}
