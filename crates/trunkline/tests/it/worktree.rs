//! Worktrees of runs: created before the CLI starts, saved as a branch, then removed. The user's own checkout is never
//! changed.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::observe::{is_root_or_skip, report_skipped, until, until_gone};
use crate::test_gateway::{TestGateway, run_tool, which};

/// Changes one file and adds another, then answers.
const WORKER: &str = "echo more >>README.md; echo new >new.txt; codex_answers done";

fn worker(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex", "worktree": true}))
}

fn worktrees(gateway: &TestGateway) -> usize {
    gateway.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count()
}

fn is_empty(folder: std::path::PathBuf) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Waits until all worktrees are removed; their files may be deleted a moment after the answer.
fn wait_for_cleanup(gateway: &TestGateway) {
    until("no worktree is left", || is_empty(gateway.path("worktrees")) && is_empty(gateway.path("state/worktrees")));
}

#[test]
fn git_adds_the_worktree_before_the_cli_runs_and_removes_it_after() {
    let gateway = worker("printf 'codex in %s\\n' \"$(pwd)\" >>\"$seen/calls\"; codex_answers done");
    let wrapper = format!("printf '%s\\n' \"git $*\" >>\"$seen/calls\"; exec {} \"$@\"", which("git").display());
    let gateway = gateway.git_script(&wrapper).start();
    let reply = gateway.chat("hi").send();
    reply.content();
    let run = reply.json()["trunkline"]["run"].as_str().unwrap().to_owned();
    let folder = gateway.path("worktrees").join(run).display().to_string();
    let (repo, calls) = (gateway.repo().display().to_string(), gateway.read_note("calls"));
    let position = |needle: &str| {
        let found = calls.lines().position(|call| call.contains(needle));
        found.unwrap_or_else(|| panic!("no {needle:?} in\n{calls}"))
    };
    let added = position(&format!("git -C {repo} worktree add"));
    let ran = position(&format!("codex in {folder}"));
    let removed = position(&format!("git -C {repo} worktree remove"));
    assert!(added < ran && ran < removed, "{calls}");
    assert!(calls.lines().nth(added).unwrap().contains(&folder), "{calls}");
    assert!(calls.lines().nth(removed).unwrap().contains(&folder), "{calls}");
}

#[test]
fn changes_become_a_branch_that_the_response_names() {
    let gateway = worker(WORKER).start();
    let base = gateway.git(&["rev-parse", "HEAD"]);
    let reply = gateway.chat("hi").send();
    assert_eq!(reply.content(), "done");
    let trunkline = &reply.json()["trunkline"];
    let branch = format!("trunkline/{}", trunkline["run"].as_str().unwrap());
    let commit = gateway.git(&["rev-parse", &branch]);
    let expected = json!({"base": base, "branch": branch, "commit": commit, "files_changed": 2, "insertions": 2,
        "deletions": 0, "path": null});
    assert_eq!(trunkline["workspace"], expected);
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
    assert_eq!(gateway.git(&["show", &format!("{branch}:README.md")]), "a repository\nmore");
    assert_eq!(gateway.git(&["log", "--format=%an", "-1", &branch]), "Trunkline");
    assert_eq!(gateway.git(&["rev-parse", &format!("{branch}^")]), base);
    assert_eq!(worktrees(&gateway), 1);
    wait_for_cleanup(&gateway);
}

#[test]
fn stream_has_the_receipt_too() {
    let gateway = worker(WORKER).start();
    let reply = gateway.chat("hi").streamed().send();
    assert!(reply.is_done(), "{}", reply.body);
    let frames = reply.frames();
    let last = frames.iter().find(|frame| frame["trunkline"]["workspace"].is_object());
    assert_eq!(last.unwrap_or_else(|| panic!("{}", reply.body))["trunkline"]["workspace"]["files_changed"], 2);
}

#[test]
fn users_checkout_index_and_branches_are_unchanged() {
    let gateway = worker(WORKER).file("staged.txt", "staged");
    gateway.git(&["add", "staged.txt"]);
    gateway.git(&["branch", "other"]);
    let gateway = gateway.file("README.md", "being edited\n").file("untracked.txt", "untracked").start();
    let state = || {
        [
            gateway.git(&["status", "--porcelain"]),
            gateway.git(&["diff"]),
            gateway.git(&["diff", "--cached"]),
            gateway.git(&["rev-parse", "HEAD"]),
            gateway.git(&["symbolic-ref", "HEAD"]),
            gateway.git(&["for-each-ref", "refs/heads/main", "refs/heads/other", "refs/tags", "refs/stash"]),
            gateway.git(&["config", "--local", "--list"]),
        ]
    };
    let before = state();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    assert_eq!(state(), before);
    let branches = gateway.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(branches.lines().count(), 1, "{branches}");
    assert_eq!(
        gateway.git(&["show", &format!("{branches}:README.md")]),
        "a repository\nmore",
        "from HEAD, not the checkout"
    );
}

#[test]
fn no_branch_is_created_when_run_changes_nothing() {
    let gateway = worker("codex_answers done").start();
    let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
    assert_eq!((&workspace["branch"], &workspace["commit"]), (&Value::Null, &Value::Null));
    assert_eq!(gateway.git(&["branch", "--list", "trunkline/*"]), "");
    assert_eq!(worktrees(&gateway), 1);
    wait_for_cleanup(&gateway);
}

#[test]
fn worktree_is_kept_when_keep_worktree_is_set() {
    let gateway = TestGateway::new()
        .cli("codex", WORKER)
        .model("m", json!({"driver": "codex", "worktree": true, "keepWorktree": true}))
        .start();
    let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let path = std::path::PathBuf::from(workspace["path"].as_str().unwrap());
    assert!(path.starts_with(gateway.path("worktrees")), "{workspace}");
    assert_eq!(fs::read_to_string(path.join("new.txt")).unwrap(), "new\n");
    assert!(workspace["branch"].is_string(), "{workspace}");
    assert_eq!(worktrees(&gateway), 2);
}

#[test]
fn run_starts_in_the_same_subfolder_of_the_worktree_when_model_has_one() {
    let gateway = TestGateway::new().file("a/b/file.txt", "x\n").file("a/AGENTS.md", "Rules of a.");
    gateway.commit("folders");
    let gateway = gateway.cli("codex", "note; echo y >>b/file.txt; codex_answers done");
    let subfolder = gateway.repo().join("a");
    let gateway = gateway
        .model("m", json!({"driver": "codex", "repoPath": subfolder, "worktree": true, "agentFile": "AGENTS.md"}))
        .start();
    let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let cwd = gateway.read_note("codex.cwd");
    assert!(cwd.starts_with(gateway.path("worktrees").to_str().unwrap()) && cwd.trim_end().ends_with("/a"), "{cwd}");
    assert!(gateway.read_note("codex.stdin").starts_with("Rules of a.\n\n---"));
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(gateway.git(&["show", &format!("{branch}:a/b/file.txt")]), "x\ny");
    assert_eq!(worktrees(&gateway), 1);
}

#[test]
fn case_58_fifty_concurrent_runs_have_separate_worktrees() {
    let gateway = worker("echo \"$TRUNKLINE_RUN\" >mine.txt; codex_answers done").args(&["--max-runs", "50"]).start();
    let replies: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..50).map(|_| scope.spawn(|| gateway.chat("hi").send())).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for reply in replies {
        assert_eq!(reply.content(), "done");
        let run = reply.json()["trunkline"]["run"].as_str().unwrap().to_owned();
        assert_eq!(gateway.git(&["show", &format!("trunkline/{run}:mine.txt")]), run);
    }
    assert_eq!(worktrees(&gateway), 1);
    wait_for_cleanup(&gateway);
}

#[test]
fn case_62_error_has_the_reason_when_repository_has_no_commit() {
    let gateway = TestGateway::new().cli("codex", "tell ran");
    let bare = gateway.path("empty");
    gateway.git(&["init", "--quiet", bare.to_str().unwrap()]);
    let gateway = gateway
        .model("empty", json!({"driver": "codex", "repoPath": bare, "worktree": true}))
        .model("none", json!({"driver": "codex", "repoPath": "/proc", "worktree": true}))
        .start();
    let error = gateway.chat("hi").model("empty").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["detail"].as_str().unwrap().contains("a worktree needs a first commit"), "{error}");
    let error = gateway.chat("hi").model("none").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("not a git repository"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}

#[test]
fn case_61_work_is_saved_when_client_disconnects() {
    let gateway = worker("echo new >new.txt; codex_says one; tell pid $$; hang").start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let pid = gateway.wait_for_pid("pid");
    drop(stream);
    until_gone(&[pid]);
    until("the worktree is gone", || is_empty(gateway.path("worktrees")));
    let branch = gateway.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
}

#[test]
fn case_61_work_is_saved_and_named_when_run_fails() {
    let gateway = worker("echo new >new.txt; echo 'something broke' >&2; exit 1").start();
    let reply = gateway.chat("hi").send();
    assert_eq!(reply.error(500)["detail"], "something broke");
    let workspace = &reply.json()["trunkline"]["workspace"];
    let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{reply:?}"));
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
    wait_for_cleanup(&gateway);
}

#[test]
fn branch_contains_the_agents_own_commits() {
    let script = "echo new >new.txt; git add new.txt; git -c user.name=Agent -c user.email=a@example.org commit -qm mine; \
                  echo more >>new.txt; codex_answers done";
    let gateway = worker(script).start();
    let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(gateway.git(&["log", "--format=%an", branch, "^main"]), "Trunkline\nAgent");
    assert_eq!((&workspace["files_changed"], &workspace["insertions"]), (&json!(1), &json!(2)));
}

#[test]
fn case_61_worktree_is_kept_when_it_contains_another_repository() {
    let gateway = worker("git init -q inner; echo x >inner/x; codex_answers done").start();
    let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let path = workspace["path"].as_str().unwrap_or_else(|| panic!("{workspace}"));
    assert_eq!(fs::read_to_string(std::path::Path::new(path).join("inner/x")).unwrap(), "x\n");
}

#[test]
fn added_files_are_logged_when_policy_commits_helpers() {
    let entry = json!({"driver": "codex", "worktree": true, "policy": {"commitHelpers": true}});
    let gateway = TestGateway::new().cli("codex", WORKER).model("m", entry).start();
    let reply = gateway.chat("hi").send().json();
    let (run, branch) = (&reply["trunkline"]["run"], &reply["trunkline"]["workspace"]["branch"]);
    let log = gateway.git(&["show", &format!("{}:.trunkline/helpers.log", branch.as_str().unwrap())]);
    assert_eq!(log, format!("{} new.txt", run.as_str().unwrap()));
}

#[test]
fn case_63_paths_may_have_spaces_quotes_and_non_ascii_letters() {
    let gateway = TestGateway::new().cli("codex", "echo x >'new file $HOME é.txt'; codex_answers done");
    let repo = gateway.path("a repo with 'quotes' & é");
    gateway.git(&["clone", "--quiet", ".", repo.to_str().unwrap()]);
    let gateway = gateway.model("m", json!({"driver": "codex", "repoPath": repo, "worktree": true})).start();
    let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let of_file =
        format!("{}:new file $HOME é.txt", workspace["branch"].as_str().unwrap_or_else(|| panic!("{workspace}")));
    assert_eq!(gateway.git(&["-C", repo.to_str().unwrap(), "show", &of_file]), "x");
}

#[test]
fn case_61_next_gateway_saves_and_removes_worktrees_when_gateway_was_killed() {
    let mut gateway = worker("echo precious >new.txt; tell pid $$; hang").start();
    let mine = gateway.path("worktrees/mine");
    gateway.git(&["worktree", "add", "--quiet", "--detach", mine.to_str().unwrap()]);
    fs::write(mine.join("draft.txt"), "draft").unwrap();
    let folder = gateway.path("worktrees/folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file.txt"), "file").unwrap();
    let _unanswered = gateway.chat("hi").open();
    let pid = gateway.wait_for_pid("pid");
    assert_eq!(worktrees(&gateway), 3);
    gateway.kill();
    until_gone(&[pid]);
    assert_eq!(worktrees(&gateway), 3, "the killed gateway could not remove it");
    gateway.restart();
    until("the worktree is removed", || worktrees(&gateway) == 2);
    let branch = gateway.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "precious");
    assert_eq!(fs::read_to_string(mine.join("draft.txt")).unwrap(), "draft");
    assert_eq!(fs::read_to_string(folder.join("file.txt")).unwrap(), "file");
    until("its entry is deleted", || is_empty(gateway.path("state/worktrees")));
    let left: Vec<_> =
        fs::read_dir(gateway.path("worktrees")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn case_61_missing_files_are_not_saved_as_deleted_when_removal_was_interrupted() {
    let half = "case \"$*\" in *'worktree remove'*) if [ ! -e \"$seen/half\" ]; then \
        for last; do :; done; rm \"${last%/*}/.gone-${last##*/}/README.md\"; tell half $$; hang; fi;; esac";
    let wrapper = format!("{half}; exec {} \"$@\"", which("git").display());
    let mut gateway = worker(WORKER).git_script(&wrapper).start();
    let _unanswered = gateway.chat("hi").open();
    let pid = gateway.wait_for_pid("half");
    gateway.kill();
    until_gone(&[pid]);
    gateway.restart();
    until("the worktree is removed", || worktrees(&gateway) == 1 && is_empty(gateway.path("worktrees")));
    let branch = gateway.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
    assert!(gateway.git(&["show", &format!("{branch}:README.md")]).ends_with("more"));
    until("its entry is deleted", || is_empty(gateway.path("state/worktrees")));
}

#[test]
fn run_command_does_not_touch_worktrees_of_a_running_gateway() {
    let gateway = TestGateway::new()
        .cli("codex", "echo new >new.txt; tell pid $$; await go; codex_answers done")
        .cli("gemini", "replay gemini/ansi-stream-json")
        .model("m", json!({"driver": "codex", "worktree": true}))
        .model("other", json!({"driver": "gemini", "worktree": true}))
        .start();
    let first = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    // The command cleans up leftovers in the same folders first.
    gateway.run(&["run", "-m", "other", "hi"]).exits(0);
    assert_eq!(worktrees(&gateway), 2);
    gateway.leave_note("go");
    assert_eq!(first.finish().json()["trunkline"]["workspace"]["files_changed"], 1);
    assert_eq!(worktrees(&gateway), 1);
}

#[test]
fn users_branch_is_not_moved_when_agent_checks_it_out() {
    let gateway = worker("git checkout --quiet develop && echo work >new.txt; codex_answers done");
    gateway.git(&["branch", "develop"]);
    let before = gateway.git(&["rev-parse", "develop"]);
    let gateway = gateway.start();
    let reply = gateway.chat("hi").send();
    let workspace = &reply.json()["trunkline"]["workspace"];
    assert_eq!(workspace["files_changed"], 1, "{workspace}");
    assert_eq!(gateway.git(&["rev-parse", "develop"]), before);
}

#[test]
fn case_59_work_is_saved_when_a_stale_index_lock_exists() {
    let gateway =
        worker("echo work >new.txt; : >\"$(git rev-parse --git-dir)/index.lock\"; codex_answers done").start();
    let reply = gateway.chat("hi").send();
    let workspace = &reply.json()["trunkline"]["workspace"];
    assert_eq!((&workspace["files_changed"], &workspace["path"]), (&json!(1), &Value::Null), "{workspace}");
    assert_eq!(worktrees(&gateway), 1);
}

#[test]
fn prompt_allows_helpers_and_log_lists_them_when_policy_says_so() {
    let gateway = TestGateway::new().cli("codex", &format!("note; {WORKER}")).model(
        "m",
        json!({"driver": "codex", "worktree": true, "policy": {"createHelpers": true, "commitHelpers": true}}),
    );
    let gateway = gateway.start();
    let reply = gateway.chat("hi").send();
    let trunkline = &reply.json()["trunkline"];
    let (run, branch) = (trunkline["run"].as_str().unwrap(), trunkline["workspace"]["branch"].as_str().unwrap());
    assert_eq!(gateway.git(&["show", &format!("{branch}:.trunkline/helpers.log")]), format!("{run} new.txt"));
    assert!(gateway.read_note("codex.stdin").contains("You may add helper scripts"));
}

#[test]
fn case_59_run_succeeds_when_a_crash_left_partial_worktrees_and_locks() {
    let gateway = worker(WORKER);
    let git = gateway.repo().join(".git");
    for half in ["worktrees/empty", "worktrees/gone"] {
        fs::create_dir_all(git.join(half)).unwrap();
    }
    fs::write(git.join("worktrees/gone/gitdir"), "/nowhere/.git\n").unwrap();
    for lock in ["index.lock", "config.lock"] {
        fs::write(git.join(lock), "").unwrap();
    }
    let gateway = gateway.start();
    let reply = gateway.chat("hi").send();
    assert_eq!(reply.json()["trunkline"]["workspace"]["files_changed"], 2, "{reply:?}");
    assert!(git.join("index.lock").exists(), "a lock of the user's repository is not removed");
}

#[test]
fn case_60_error_has_the_reason_and_nothing_is_left_when_disk_is_full() {
    let gateway = worker(WORKER).file("big.bin", &"x".repeat(3 << 20));
    gateway.commit("big");
    let folder = gateway.path("worktrees");
    fs::create_dir(&folder).unwrap();
    let Some(disk) = SmallDisk::mount(&folder) else { return };
    let gateway = gateway.start();
    let error = gateway.chat("hi").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["hint"].as_str().unwrap().contains("is it full?"), "{error}");
    assert_eq!(worktrees(&gateway), 1);
    wait_for_cleanup(&gateway);
    disk.grow();
    let reply = gateway.chat("again").send();
    assert_eq!(reply.json()["trunkline"]["workspace"]["files_changed"], 2, "{reply:?}");
}

/// A tmpfs of two megabytes, mounted until it is dropped. Requires the right to mount.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(folder: &std::path::Path) -> Option<Self> {
        if !is_root_or_skip("a full disk, which has to be mounted") {
            return None;
        }
        if run_tool("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs", folder.to_str().unwrap()]) {
            return Some(Self(folder.to_owned()));
        }
        report_skipped("a full disk: root may not mount one here");
        None
    }

    fn grow(&self) {
        assert!(run_tool("mount", &["-o", "remount,size=64m", self.0.to_str().unwrap()]));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run_tool("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

#[test]
fn case_62_run_succeeds_in_bare_shallow_sparse_and_submodule_repositories() {
    let gateway = TestGateway::new().cli("codex", "echo new >new.txt; codex_answers done");
    let from = format!("file://{}", gateway.repo().display());
    let place = |name: &str| gateway.path(name).to_str().unwrap().to_owned();
    let [bare, shallow, sparse, whole] = ["bare.git", "shallow", "sparse", "whole"].map(place);
    gateway.git(&["clone", "--quiet", "--bare", &from, &bare]);
    gateway.git(&["clone", "--quiet", "--depth", "1", &from, &shallow]);
    gateway.git(&["clone", "--quiet", "--sparse", &from, &sparse]);
    gateway.git(&["clone", "--quiet", &from, &whole]);
    let part = format!("160000,{},part", gateway.git(&["rev-parse", "HEAD"]));
    fs::write(gateway.path("whole/.gitmodules"), format!("[submodule \"part\"]\n\tpath = part\n\turl = {from}\n"))
        .unwrap();
    gateway.git(&["-C", &whole, "add", ".gitmodules"]);
    gateway.git(&["-C", &whole, "update-index", "--add", "--cacheinfo", &part]);
    gateway.git(&["-C", &whole, "commit", "--quiet", "-m", "a part"]);
    let all = [("bare", bare), ("shallow", shallow), ("sparse", sparse), ("parts", whole)];
    let mut gateway = gateway;
    for (name, repo) in &all {
        gateway = gateway.model(name, json!({"driver": "codex", "repoPath": repo, "worktree": true}));
    }
    let gateway = gateway.start();
    for (name, repo) in all {
        let reply = gateway.chat("hi").model(name).send();
        let workspace = reply.json()["trunkline"]["workspace"].clone();
        let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{name}: {reply:?}"));
        assert_eq!(gateway.git(&["-C", &repo, "show", &format!("{branch}:new.txt")]), "new", "{name}");
        assert_eq!(workspace["path"], Value::Null, "{name}");
    }
    wait_for_cleanup(&gateway);
}

#[test]
fn case_62_error_has_the_reason_when_repository_belongs_to_another_user() {
    if !is_root_or_skip("a repository of another user, which has to be given away") {
        return;
    }
    let gateway = worker("tell ran");
    for folder in [gateway.repo(), gateway.repo().join(".git")] {
        std::os::unix::fs::chown(folder, Some(12345), None).unwrap();
    }
    let gateway = gateway.start();
    let error = gateway.chat("hi").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["detail"].as_str().unwrap().contains("dubious ownership"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}

#[test]
fn case_64_background_writers_are_killed_before_the_worktree_is_removed() {
    let busy = "i=0; while :; do i=$((i+1)); mkdir -p folder$i; echo x >folder$i/file; done";
    let script = format!("(setsid sh -c '{busy}' &); until [ -e folder9 ]; do sleep 0.01; done; codex_answers done");
    let gateway = worker(&script).start();
    for _ in 0..3 {
        let workspace = gateway.chat("hi").send().json()["trunkline"]["workspace"].clone();
        assert!(workspace["files_changed"].as_u64().unwrap() >= 8, "{workspace}");
        assert_eq!(workspace["path"], Value::Null);
        wait_for_cleanup(&gateway);
    }
    assert_eq!(worktrees(&gateway), 1);
}
