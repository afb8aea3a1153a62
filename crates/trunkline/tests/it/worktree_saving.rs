//! No work of an agent is lost: a worktree is kept if a branch cannot hold its content, and the receipt says so.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::observe::until;
use crate::test_gateway::TestGateway;

/// Shell function for git with an identity and permission to use local submodules.
const GIT: &str = "g() { git -c user.name=A -c user.email=a@b -c protocol.file.allow=always \"$@\"; }\n";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new()
        .cli("codex", &format!("{GIT}{script}\ncodex_answers done"))
        .model("m", json!({"driver": "codex", "worktree": true}))
}

fn workspace(gateway: &TestGateway) -> Value {
    gateway.chat("hi").send().json()["trunkline"]["workspace"].clone()
}

/// The path of the kept worktree, and the reason.
#[track_caller]
fn kept(workspace: &Value) -> (PathBuf, String) {
    let text = |name: &str| workspace[name].as_str().unwrap_or_else(|| panic!("{workspace}")).to_owned();
    (text("path").into(), text("reason"))
}

#[track_caller]
fn on_branch(gateway: &TestGateway, workspace: &Value, file: &str) -> String {
    let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{workspace}"));
    gateway.git(&["show", &format!("{branch}:{file}")])
}

#[test]
fn nested_repository_is_kept_when_the_agent_committed_it_as_a_link() {
    let script =
        "git init -q sub; echo work >sub/work; g -C sub add .; g -C sub commit -qm x; git add sub; g commit -qm link";
    let gateway = gateway(script).start();
    let (path, reason) = kept(&workspace(&gateway));
    assert_eq!(fs::read_to_string(path.join("sub/work")).unwrap(), "work\n");
    assert!(reason.starts_with("sub: a repository of its own"), "{reason}");
}

#[test]
fn submodule_is_kept_when_it_has_new_files_or_a_new_commit() {
    for commit in ["", "; g -C part add .; g -C part commit -qm work"] {
        let script = format!("g submodule --quiet update --init; echo work >part/work{commit}; echo top >top");
        let gateway = gateway(&script);
        let other = gateway.path("other");
        gateway.git(&["clone", "-q", ".", other.to_str().unwrap()]);
        gateway.git(&[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            other.to_str().unwrap(),
            "part",
        ]);
        gateway.commit("part");
        let gateway = gateway.start();
        let saved = workspace(&gateway);
        let (path, reason) = kept(&saved);
        assert_eq!(fs::read_to_string(path.join("part/work")).unwrap(), "work\n");
        assert!(reason.starts_with("part: a repository of its own"), "{reason}");
        assert_eq!(on_branch(&gateway, &saved, "top"), "top");
    }
}

#[test]
fn edits_are_saved_when_the_file_is_marked_as_unchanged_or_not_checked_out() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let gateway = gateway(&format!("git update-index {flag} README.md; echo work >README.md")).start();
        let saved = workspace(&gateway);
        assert_eq!(on_branch(&gateway, &saved, "README.md"), "work", "{flag}");
        assert_eq!((&saved["files_changed"], &saved["path"]), (&json!(1), &Value::Null), "{flag}");
    }
}

#[test]
fn work_is_saved_under_another_name_when_a_branch_is_in_the_way() {
    let gateway = gateway("echo work >new.txt");
    gateway.git(&["branch", "trunkline"]);
    let gateway = gateway.start();
    let saved = workspace(&gateway);
    assert_eq!(on_branch(&gateway, &saved, "new.txt"), "work");
    assert_eq!((&saved["files_changed"], &saved["path"]), (&json!(1), &Value::Null));
    assert!(saved["branch"].as_str().unwrap().starts_with("trunkline-"), "{saved}");
}

#[test]
fn agents_branch_is_not_moved_when_it_has_the_runs_name() {
    let script = "g commit -q --allow-empty -m mine; git branch trunkline/$TRUNKLINE_RUN; git reset -q --hard HEAD~1; echo work >new.txt";
    let gateway = gateway(script).start();
    let reply = gateway.chat("hi").send().json();
    let (run, saved) = (reply["trunkline"]["run"].as_str().unwrap(), &reply["trunkline"]["workspace"]);
    assert_eq!(on_branch(&gateway, saved, "new.txt"), "work");
    assert_eq!(gateway.git(&["log", "-1", "--format=%s", &format!("trunkline/{run}")]), "mine");
}

#[test]
fn unreachable_commits_are_kept_under_separate_refs() {
    let script =
        "echo work >new.txt; git add .; g commit -qm left; git checkout -q --detach HEAD~1; echo more >more.txt";
    let gateway = gateway(script).start();
    let saved = workspace(&gateway);
    assert_eq!(on_branch(&gateway, &saved, "more.txt"), "more");
    let reference = saved["refs"][0].as_str().unwrap_or_else(|| panic!("{saved}"));
    assert_eq!(gateway.git(&["show", &format!("{reference}:new.txt")]), "work");
}

#[test]
fn worktree_is_kept_when_the_run_ignores_its_own_files() {
    let gateway =
        gateway("echo 'secret*' >.gitignore; echo work >secret.txt; echo built >out.log").file(".gitignore", "*.log\n");
    gateway.commit("rules");
    let gateway = gateway.start();
    let (path, reason) = kept(&workspace(&gateway));
    assert_eq!(fs::read_to_string(path.join("secret.txt")).unwrap(), "work\n");
    assert!(reason.contains("secret.txt") && !reason.contains("out.log, "), "{reason}");
}

#[test]
fn ignored_files_are_deleted_with_the_worktree_when_the_repository_ignores_them() {
    let gateway = gateway("echo built >out.log; mkdir cache; echo x >cache/x; echo '# more' >>.gitignore");
    let gateway = gateway.file(".gitignore", "*.log\ncache/\n");
    gateway.commit("rules");
    let gateway = gateway.start();
    assert_eq!(workspace(&gateway)["path"], Value::Null);
}

#[test]
fn ignored_file_is_saved_when_the_agent_has_staged_or_committed_it() {
    for then in ["", "; g commit -qm forced; echo more >>out.log"] {
        let gateway = gateway(&format!("echo work >out.log; git add -f out.log{then}")).file(".gitignore", "*.log\n");
        gateway.commit("rules");
        let gateway = gateway.start();
        assert!(on_branch(&gateway, &workspace(&gateway), "out.log").starts_with("work"), "{then}");
    }
}

#[test]
fn work_is_saved_when_the_agent_broke_the_git_metadata_of_its_worktree() {
    for script in [
        "echo garbage >\"$dir/index\"; : >\"$dir/index.lock\"",
        "rm -rf \"$dir\"",
        "echo 'ref: refs/heads/none' >\"$dir/HEAD\"",
        "echo /nowhere >\"$dir/commondir\"; echo /nowhere >\"$dir/gitdir\"",
        "git worktree lock .",
        "rm .git",
    ] {
        let gateway =
            gateway(&format!("dir=$(git rev-parse --absolute-git-dir); echo work >new.txt; {script}")).start();
        let saved = workspace(&gateway);
        assert_eq!(on_branch(&gateway, &saved, "new.txt"), "work", "{script}");
        assert_eq!(saved["path"], Value::Null, "{script}: {saved}");
        until("the worktree is gone", || fs::read_dir(gateway.path("worktrees")).unwrap().next().is_none());
    }
}

#[test]
fn worktree_is_kept_when_it_has_folders_that_git_does_not_see() {
    let gateway = gateway("mkdir -p notes/.git; echo work >notes/.git/work; echo x >notes/x").start();
    let saved = workspace(&gateway);
    let (path, reason) = kept(&saved);
    assert_eq!(fs::read_to_string(path.join("notes/.git/work")).unwrap(), "work\n");
    assert!(reason.contains("notes/.git"), "{reason}");
    assert_eq!(on_branch(&gateway, &saved, "notes/x"), "x");
}

#[test]
fn work_is_saved_when_a_folder_is_unreadable() {
    let gateway = gateway("mkdir closed; echo work >closed/work; chmod 000 closed").start();
    assert_eq!(on_branch(&gateway, &workspace(&gateway), "closed/work"), "work");
    until("the worktree is gone", || fs::read_dir(gateway.path("worktrees")).unwrap().next().is_none());
}

#[test]
fn deletion_is_saved_when_every_file_is_deleted() {
    let gateway = gateway("rm README.md").start();
    let saved = workspace(&gateway);
    assert_eq!((&saved["files_changed"], &saved["deletions"]), (&json!(1), &json!(1)), "{saved}");
}

#[test]
fn log_of_added_files_is_not_written_when_its_path_is_a_symlink() {
    for link in ["mkdir .trunkline; ln -s \"$OUT/log\" .trunkline/helpers.log", "ln -s \"$OUT\" .trunkline"] {
        let entry = json!({"driver": "codex", "worktree": true, "policy": {"commitHelpers": true}});
        let gateway = gateway(&format!("{link}; echo work >new.txt")).model("m", entry);
        let outside = gateway.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("log"), "mine\n").unwrap();
        let gateway = gateway.env("OUT", outside.display().to_string()).start();
        let saved = workspace(&gateway);
        assert_eq!(fs::read_to_string(outside.join("log")).unwrap(), "mine\n", "{link}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{link}");
        assert_eq!(on_branch(&gateway, &saved, "new.txt"), "work");
        assert!(saved["reason"].as_str().unwrap().contains("helpers.log"), "{saved}");
    }
}

#[test]
fn receipt_names_added_programs_when_the_policy_forbids_helpers() {
    let entry = json!({"driver": "codex", "worktree": true, "policy": {"createHelpers": false}});
    let gateway =
        gateway("echo x >plain.txt; printf '#!/bin/sh\\n' >helper; chmod +x helper").model("m", entry).start();
    let saved = workspace(&gateway);
    assert!(saved["warnings"][0].as_str().unwrap_or_else(|| panic!("{saved}")).starts_with("helper: added"), "{saved}");
    assert_eq!((on_branch(&gateway, &saved, "plain.txt"), &saved["path"]), ("x".to_owned(), &Value::Null));
}

#[test]
fn session_continues_in_the_kept_worktree_when_its_work_could_not_be_saved() {
    let script = "cat >/dev/null; cat new.txt >seen.txt 2>/dev/null; echo work >>new.txt; replay codex/reasoning";
    let gateway = gateway(script);
    gateway.git(&["config", "filter.fail.clean", "false"]);
    gateway.git(&["config", "filter.fail.required", "true"]);
    let gateway = gateway.file(".git/info/attributes", "new.txt filter=fail\n").start();
    let first = gateway.chat("one").send().json();
    let saved = &first["trunkline"]["workspace"];
    let (path, reason) = kept(saved);
    assert!(reason.contains("clean filter"), "{reason}");
    let (session, run) = (first["trunkline"]["session_id"].clone(), first["trunkline"]["run"].as_str().unwrap());
    fs::remove_file(gateway.repo().join(".git/info/attributes")).unwrap();
    let second = gateway.chat("two").with("session_id", session).send().json();
    let saved = &second["trunkline"]["workspace"];
    assert_eq!(on_branch(&gateway, saved, "seen.txt"), "work", "the second turn saw the work of the first");
    assert_eq!(on_branch(&gateway, saved, "new.txt"), "work\nwork");
    assert!(!path.exists() || saved["path"].is_string(), "{saved}");
    let corrected = || gateway.get(&format!("/v1/runs/{run}")).json()["workspace"]["branch"].clone();
    until("the first run's row is corrected", || corrected() == saved["branch"]);
}
