//! Paths in the configuration: different spellings of a path name the same folder.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use crate::database::Database;
use crate::observe::until;
use crate::test_gateway::TestGateway;

const CODEX: &str = "note \"$@\"; replay codex/reasoning";

/// Spellings of the repository's path, relative to the configuration folder or to home.
const SPELLINGS: [&str; 7] =
    ["../repo", "../repo/", "./../repo/.", "../config/../repo", "~/../repo", "../link", "../linked-config/../repo"];

fn gateway(spelling: &str) -> TestGateway {
    let gateway = TestGateway::new().cli("codex", CODEX).model("m", json!({"driver": "codex", "repoPath": spelling}));
    symlink("repo", gateway.path("link")).unwrap();
    symlink("config", gateway.path("linked-config")).unwrap();
    gateway.start()
}

fn session_count(gateway: &TestGateway) -> usize {
    gateway.run(&["sessions", "--json"]).exits(0).stdout.lines().count()
}

#[test]
fn sessions_of_a_folder_are_listed_whatever_the_spelling_of_its_path() {
    for spelling in SPELLINGS {
        let gateway = gateway(spelling);
        gateway.chat("hi").send().content();
        let cwd = PathBuf::from(gateway.read_note("codex.cwd").trim()).canonicalize().unwrap();
        assert_eq!(cwd, gateway.repo().canonicalize().unwrap(), "{spelling}");
        until(&format!("the session is listed: {spelling}"), || session_count(&gateway) == 1);
    }
}

#[test]
fn session_is_resumed_when_the_path_of_its_folder_is_spelled_differently() {
    let mut gateway = gateway("../repo");
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    for spelling in SPELLINGS {
        gateway.kill();
        gateway = gateway.model("m", json!({"driver": "codex", "repoPath": spelling})).start();
        let reply = gateway.chat("and now?").header("x-trunkline-session", &id).send();
        assert_eq!(reply.json()["trunkline"]["session"]["resumed"], true, "{spelling}: {reply:?}");
    }
    assert_eq!(session_count(&gateway), 1);
}

#[test]
fn session_of_an_earlier_version_is_found_when_its_path_has_dots() {
    let mut gateway = gateway("../repo");
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    gateway.signal(rustix::process::Signal::TERM);
    gateway.wait_for_exit();
    let update = "UPDATE sessions SET repo = replace(repo, '/repo', '/config/../repo')";
    Database::open(&gateway.path("state/trunkline.db")).run(update);
    gateway.restart();
    assert_eq!(session_count(&gateway), 1);
    let reply = gateway.chat("and now?").header("x-trunkline-session", &id).send();
    assert_eq!(reply.json()["trunkline"]["session"]["resumed"], true, "{reply:?}");
}
