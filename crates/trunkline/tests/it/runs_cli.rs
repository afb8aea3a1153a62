//! Runs from the terminal, with a gateway and without.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::line::Line;
use crate::look::{all_gone, exists, until};

const SLOW: &str = "tell pid $$; codex_says one; await go; codex_answers two";

fn line(script: &str) -> Line {
    Line::new().cli("codex", script).model("m", json!({"driver": "codex"}))
}

#[test]
fn what_ran_is_listed_and_shown_without_a_gateway() {
    let line =
        line("echo new >made.txt; codex_answers done").model("tree", json!({"driver": "codex", "worktree": true}));
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
    let line = line(SLOW).args(&["--grace", "500ms"]).start();
    let id = line.run(&["run", "--detach", "-m", "m", "take your time"]).exits(0).stdout.trim().to_owned();
    line.told("pid");
    // Whoever has seen enough leaves it running.
    let left = line.interrupted_after(&["run", "--attach", &id], "one", Signal::INT).exits(0);
    assert!(left.stderr.contains("it goes on"), "{left:?}");
    assert!(exists(line.told_pid("pid")));
    line.tell("go");
    assert_eq!(line.run(&["run", "--attach", &id]).exits(0).stdout, "one\n\ntwo\n");
    let unknown = line.run(&["run", "--detach", "-m", "mm", "x"]).exits(1).stderr;
    assert!(unknown.contains("Unknown model (did you mean: m?)"), "{unknown}");
}

#[test]
fn a_run_is_stopped_from_the_terminal() {
    let line = line("tell pid $$; codex_says one; hang").args(&["--grace", "500ms"]).start();
    let id = line.run(&["run", "--detach", "-m", "m", "never ends"]).exits(0).stdout.trim().to_owned();
    let pid = line.told_pid("pid");
    until("it is known", || line.run(&["runs", "--status", "running"]).stdout.contains("never ends"));
    line.run(&["runs", "cancel", &id]).exits(0);
    all_gone(&[pid]);
    assert!(line.run(&["runs", "show", &id]).exits(0).stdout.contains("cancelled"));
    // What it said stays.
    let told = line.run(&["run", "--attach", &id]).exits(4);
    assert!(told.stdout == "one\n" && told.stderr.contains("cancelled"), "{told:?}");
}

#[test]
fn what_is_forgotten_is_forgotten_with_its_log() {
    let line = line("codex_answers done");
    line.run(&["run", "-m", "m", "hi"]).exits(0);
    let logs = || {
        let folders = std::fs::read_dir(line.path("state/runs")).unwrap().flatten();
        folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten()).count()
    };
    assert_eq!(logs(), 1);
    line.run(&["sessions", "--prune", "1d"]).exits(0);
    assert_eq!(logs(), 1);
    line.run(&["sessions", "--prune", "0d"]).exits(0);
    assert_eq!(logs(), 0);
    assert_eq!(line.run(&["runs"]).exits(0).stdout, "");
}
