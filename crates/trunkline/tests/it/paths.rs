//! Paths of the configuration: the same folder however it is written.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use crate::database::Database;
use crate::line::Line;
use crate::look::until;

const CODEX: &str = "note \"$@\"; replay codex/reasoning";

/// Ways to write the path of the repository, from the folder of the configuration or from home.
const SPELLINGS: [&str; 7] =
    ["../repo", "../repo/", "./../repo/.", "../config/../repo", "~/../repo", "../link", "../linked-config/../repo"];

fn line(spelling: &str) -> Line {
    let line = Line::new().cli("codex", CODEX).model("m", json!({"driver": "codex", "repoPath": spelling}));
    symlink("repo", line.path("link")).unwrap();
    symlink("config", line.path("linked-config")).unwrap();
    line.start()
}

fn listed(line: &Line) -> usize {
    line.run(&["sessions", "--json"]).exits(0).stdout.lines().count()
}

#[test]
fn sessions_of_a_folder_are_listed_however_its_path_is_written() {
    for spelling in SPELLINGS {
        let line = line(spelling);
        line.chat("hi").send().content();
        let worked_in = PathBuf::from(line.noted("codex.cwd").trim()).canonicalize().unwrap();
        assert_eq!(worked_in, line.repo().canonicalize().unwrap(), "{spelling}");
        until(&format!("the session is listed: {spelling}"), || listed(&line) == 1);
    }
}

#[test]
fn session_continues_when_the_path_of_its_folder_is_written_differently() {
    let mut line = line("../repo");
    let id = line.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    for spelling in SPELLINGS {
        line.kill();
        line = line.model("m", json!({"driver": "codex", "repoPath": spelling})).start();
        let reply = line.chat("and now?").header("x-trunkline-session", &id).send();
        assert_eq!(reply.json()["trunkline"]["session"]["resumed"], true, "{spelling}: {reply:?}");
    }
    assert_eq!(listed(&line), 1);
}

#[test]
fn session_of_an_earlier_version_is_known_when_its_path_has_dots() {
    let mut line = line("../repo");
    let id = line.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    line.signal(rustix::process::Signal::TERM);
    line.ended();
    let spelled = "UPDATE sessions SET repo = replace(repo, '/repo', '/config/../repo')";
    Database::open(&line.path("state/trunkline.db")).run(spelled);
    line.restart();
    assert_eq!(listed(&line), 1);
    let reply = line.chat("and now?").header("x-trunkline-session", &id).send();
    assert_eq!(reply.json()["trunkline"]["session"]["resumed"], true, "{reply:?}");
}
