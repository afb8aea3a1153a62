//! A worktree for each run: made before the CLI starts, kept as a branch, removed after; the user's own checkout is never
//! touched.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::line::{Line, tool, which};
use crate::look::{all_gone, left_out, root_for, until};

/// Changes one file and adds another, then answers.
const WORKER: &str = "echo more >>README.md; echo new >new.txt; codex_answers done";

fn worker(script: &str) -> Line {
    Line::new().cli("codex", script).model("m", json!({"driver": "codex", "worktree": true}))
}

fn worktrees(line: &Line) -> usize {
    line.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count()
}

fn is_empty(folder: std::path::PathBuf) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// The files of a worktree may go a moment after the answer.
fn nothing_is_left(line: &Line) {
    until("nothing is left", || is_empty(line.path("worktrees")) && is_empty(line.path("state/worktrees")));
}

#[test]
fn git_adds_the_worktree_before_the_cli_runs_and_removes_it_after() {
    let line = worker("printf 'codex in %s\\n' \"$(pwd)\" >>\"$seen/calls\"; codex_answers done");
    let wrapper = format!("printf '%s\\n' \"git $*\" >>\"$seen/calls\"; exec {} \"$@\"", which("git").display());
    let line = line.git_script(&wrapper).start();
    let reply = line.chat("hi").send();
    reply.content();
    let run = reply.json()["trunkline"]["run"].as_str().unwrap().to_owned();
    let folder = line.path("worktrees").join(run).display().to_string();
    let (repo, calls) = (line.repo().display().to_string(), line.noted("calls"));
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
fn what_a_run_did_is_a_branch_and_the_answer_says_which() {
    let line = worker(WORKER).start();
    let base = line.git(&["rev-parse", "HEAD"]);
    let reply = line.chat("hi").send();
    assert_eq!(reply.content(), "done");
    let trunkline = &reply.json()["trunkline"];
    let branch = format!("trunkline/{}", trunkline["run"].as_str().unwrap());
    let commit = line.git(&["rev-parse", &branch]);
    let expected = json!({"base": base, "branch": branch, "commit": commit, "files_changed": 2, "insertions": 2,
        "deletions": 0, "path": null});
    assert_eq!(trunkline["workspace"], expected);
    assert_eq!(line.git(&["show", &format!("{branch}:new.txt")]), "new");
    assert_eq!(line.git(&["show", &format!("{branch}:README.md")]), "a repository\nmore");
    assert_eq!(line.git(&["log", "--format=%an", "-1", &branch]), "Trunkline");
    assert_eq!(line.git(&["rev-parse", &format!("{branch}^")]), base);
    assert_eq!(worktrees(&line), 1);
    nothing_is_left(&line);
}

#[test]
fn a_stream_carries_the_receipt_too() {
    let line = worker(WORKER).start();
    let reply = line.chat("hi").streamed().send();
    assert!(reply.is_done(), "{}", reply.body);
    let frames = reply.frames();
    let told = frames.iter().find(|frame| frame["trunkline"]["workspace"].is_object());
    assert_eq!(told.unwrap_or_else(|| panic!("{}", reply.body))["trunkline"]["workspace"]["files_changed"], 2);
}

#[test]
fn the_users_checkout_index_and_branches_stay_as_they_were() {
    let line = worker(WORKER).file("staged.txt", "staged");
    line.git(&["add", "staged.txt"]);
    line.git(&["branch", "other"]);
    let line = line.file("README.md", "being edited\n").file("untracked.txt", "untracked").start();
    let state = || {
        [
            line.git(&["status", "--porcelain"]),
            line.git(&["diff"]),
            line.git(&["diff", "--cached"]),
            line.git(&["rev-parse", "HEAD"]),
            line.git(&["symbolic-ref", "HEAD"]),
            line.git(&["for-each-ref", "refs/heads/main", "refs/heads/other", "refs/tags", "refs/stash"]),
            line.git(&["config", "--local", "--list"]),
        ]
    };
    let before = state();
    assert_eq!(line.chat("hi").send().content(), "done");
    assert_eq!(state(), before);
    let branches = line.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(branches.lines().count(), 1, "{branches}");
    assert_eq!(
        line.git(&["show", &format!("{branches}:README.md")]),
        "a repository\nmore",
        "from HEAD, not the checkout"
    );
}

#[test]
fn a_run_that_changes_nothing_leaves_no_branch() {
    let line = worker("codex_answers done").start();
    let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
    assert_eq!((&workspace["branch"], &workspace["commit"]), (&Value::Null, &Value::Null));
    assert_eq!(line.git(&["branch", "--list", "trunkline/*"]), "");
    assert_eq!(worktrees(&line), 1);
    nothing_is_left(&line);
}

#[test]
fn keep_worktree_keeps_it() {
    let line = Line::new()
        .cli("codex", WORKER)
        .model("m", json!({"driver": "codex", "worktree": true, "keepWorktree": true}))
        .start();
    let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let path = std::path::PathBuf::from(workspace["path"].as_str().unwrap());
    assert!(path.starts_with(line.path("worktrees")), "{workspace}");
    assert_eq!(fs::read_to_string(path.join("new.txt")).unwrap(), "new\n");
    assert!(workspace["branch"].is_string(), "{workspace}");
    assert_eq!(worktrees(&line), 2);
}

#[test]
fn a_model_of_a_subfolder_runs_in_the_same_subfolder_of_its_worktree() {
    let line = Line::new().file("a/b/file.txt", "x\n").file("a/AGENTS.md", "Rules of a.");
    line.commit("folders");
    let line = line.cli("codex", "note; echo y >>b/file.txt; codex_answers done");
    let subfolder = line.repo().join("a");
    let line = line
        .model("m", json!({"driver": "codex", "repoPath": subfolder, "worktree": true, "agentFile": "AGENTS.md"}))
        .start();
    let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let cwd = line.noted("codex.cwd");
    assert!(cwd.starts_with(line.path("worktrees").to_str().unwrap()) && cwd.trim_end().ends_with("/a"), "{cwd}");
    assert!(line.noted("codex.stdin").starts_with("Rules of a.\n\n---"));
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(line.git(&["show", &format!("{branch}:a/b/file.txt")]), "x\ny");
    assert_eq!(worktrees(&line), 1);
}

#[test]
fn case_58_fifty_runs_at_once_each_have_their_own() {
    let line = worker("echo \"$TRUNKLINE_RUN\" >mine.txt; codex_answers done").args(&["--max-runs", "50"]).start();
    let replies: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = (0..50).map(|_| scope.spawn(|| line.chat("hi").send())).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    for reply in replies {
        assert_eq!(reply.content(), "done");
        let run = reply.json()["trunkline"]["run"].as_str().unwrap().to_owned();
        assert_eq!(line.git(&["show", &format!("trunkline/{run}:mine.txt")]), run);
    }
    assert_eq!(worktrees(&line), 1);
    nothing_is_left(&line);
}

#[test]
fn case_62_a_repository_without_a_commit_is_a_clear_error() {
    let line = Line::new().cli("codex", "tell ran");
    let bare = line.path("empty");
    line.git(&["init", "--quiet", bare.to_str().unwrap()]);
    let line = line
        .model("empty", json!({"driver": "codex", "repoPath": bare, "worktree": true}))
        .model("none", json!({"driver": "codex", "repoPath": "/proc", "worktree": true}))
        .start();
    let error = line.chat("hi").model("empty").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["detail"].as_str().unwrap().contains("a worktree needs a first commit"), "{error}");
    let error = line.chat("hi").model("none").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("not a git repository"), "{error}");
    assert!(!line.path("seen/ran").exists());
}

#[test]
fn case_61_a_run_that_was_hung_up_on_keeps_its_work_all_the_same() {
    let line = worker("echo new >new.txt; codex_says one; tell pid $$; hang").start();
    let mut stream = line.chat("hi").streamed().open();
    stream.until("one");
    let pid = line.told_pid("pid");
    drop(stream);
    all_gone(&[pid]);
    until("the worktree is gone", || is_empty(line.path("worktrees")));
    let branch = line.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(line.git(&["show", &format!("{branch}:new.txt")]), "new");
}

#[test]
fn case_61_a_run_that_fails_keeps_its_work_and_says_where() {
    let line = worker("echo new >new.txt; echo 'something broke' >&2; exit 1").start();
    let reply = line.chat("hi").send();
    assert_eq!(reply.error(500)["detail"], "something broke");
    let workspace = &reply.json()["trunkline"]["workspace"];
    let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{reply:?}"));
    assert_eq!(line.git(&["show", &format!("{branch}:new.txt")]), "new");
    nothing_is_left(&line);
}

#[test]
fn what_an_agent_committed_itself_is_the_branch() {
    let script = "echo new >new.txt; git add new.txt; git -c user.name=Agent -c user.email=a@example.org commit -qm mine; \
                  echo more >>new.txt; codex_answers done";
    let line = worker(script).start();
    let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(line.git(&["log", "--format=%an", branch, "^main"]), "Trunkline\nAgent");
    assert_eq!((&workspace["files_changed"], &workspace["insertions"]), (&json!(1), &json!(2)));
}

#[test]
fn case_61_a_repository_inside_the_worktree_is_not_thrown_away() {
    let line = worker("git init -q inner; echo x >inner/x; codex_answers done").start();
    let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let path = workspace["path"].as_str().unwrap_or_else(|| panic!("{workspace}"));
    assert_eq!(fs::read_to_string(std::path::Path::new(path).join("inner/x")).unwrap(), "x\n");
}

#[test]
fn files_that_a_run_added_can_be_logged() {
    let entry = json!({"driver": "codex", "worktree": true, "policy": {"commitHelpers": true}});
    let line = Line::new().cli("codex", WORKER).model("m", entry).start();
    let reply = line.chat("hi").send().json();
    let (run, branch) = (&reply["trunkline"]["run"], &reply["trunkline"]["workspace"]["branch"]);
    let log = line.git(&["show", &format!("{}:.trunkline/helpers.log", branch.as_str().unwrap())]);
    assert_eq!(log, format!("{} new.txt", run.as_str().unwrap()));
}

#[test]
fn case_63_names_with_blanks_and_strange_letters_are_names() {
    let line = Line::new().cli("codex", "echo x >'new file $HOME é.txt'; codex_answers done");
    let repo = line.path("a repo with 'quotes' & é");
    line.git(&["clone", "--quiet", ".", repo.to_str().unwrap()]);
    let line = line.model("m", json!({"driver": "codex", "repoPath": repo, "worktree": true})).start();
    let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
    let of_file =
        format!("{}:new file $HOME é.txt", workspace["branch"].as_str().unwrap_or_else(|| panic!("{workspace}")));
    assert_eq!(line.git(&["-C", repo.to_str().unwrap(), "show", &of_file]), "x");
}

#[test]
fn case_61_the_next_gateway_cleans_up_after_one_that_was_killed() {
    let mut line = worker("echo precious >new.txt; tell pid $$; hang").start();
    let mine = line.path("worktrees/mine");
    line.git(&["worktree", "add", "--quiet", "--detach", mine.to_str().unwrap()]);
    fs::write(mine.join("draft.txt"), "draft").unwrap();
    let folder = line.path("worktrees/folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file.txt"), "file").unwrap();
    let _unanswered = line.chat("hi").open();
    let pid = line.told_pid("pid");
    assert_eq!(worktrees(&line), 3);
    line.kill();
    all_gone(&[pid]);
    assert_eq!(worktrees(&line), 3, "nobody was there to remove it");
    line.restart();
    until("it is removed", || worktrees(&line) == 2);
    let branch = line.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(line.git(&["show", &format!("{branch}:new.txt")]), "precious");
    assert_eq!(fs::read_to_string(mine.join("draft.txt")).unwrap(), "draft");
    assert_eq!(fs::read_to_string(folder.join("file.txt")).unwrap(), "file");
    until("it is forgotten", || is_empty(line.path("state/worktrees")));
    let left: Vec<_> = fs::read_dir(line.path("worktrees")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn case_61_a_worktree_that_was_half_removed_is_not_taken_for_deleted_files() {
    let half = "case \"$*\" in *'worktree remove'*) if [ ! -e \"$seen/half\" ]; then \
        for last; do :; done; rm \"${last%/*}/.gone-${last##*/}/README.md\"; tell half $$; hang; fi;; esac";
    let wrapper = format!("{half}; exec {} \"$@\"", which("git").display());
    let mut line = worker(WORKER).git_script(&wrapper).start();
    let _unanswered = line.chat("hi").open();
    let pid = line.told_pid("half");
    line.kill();
    all_gone(&[pid]);
    line.restart();
    until("it is removed", || worktrees(&line) == 1 && is_empty(line.path("worktrees")));
    let branch = line.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(line.git(&["show", &format!("{branch}:new.txt")]), "new");
    assert!(line.git(&["show", &format!("{branch}:README.md")]).ends_with("more"));
    until("it is forgotten", || is_empty(line.path("state/worktrees")));
}

#[test]
fn another_trunkline_leaves_the_worktrees_of_the_living_alone() {
    let line = Line::new()
        .cli("codex", "echo new >new.txt; tell pid $$; await go; codex_answers done")
        .cli("gemini", "replay gemini/ansi-stream-json")
        .model("m", json!({"driver": "codex", "worktree": true}))
        .model("other", json!({"driver": "gemini", "worktree": true}))
        .start();
    let first = line.chat("hi").open();
    line.told("pid");
    // It takes care of leftovers first, in the same folders.
    line.run(&["run", "-m", "other", "hi"]).exits(0);
    assert_eq!(worktrees(&line), 2);
    line.tell("go");
    assert_eq!(first.finish().json()["trunkline"]["workspace"]["files_changed"], 1);
    assert_eq!(worktrees(&line), 1);
}

#[test]
fn a_branch_that_the_agent_checks_out_does_not_move() {
    let line = worker("git checkout --quiet develop && echo work >new.txt; codex_answers done");
    line.git(&["branch", "develop"]);
    let before = line.git(&["rev-parse", "develop"]);
    let line = line.start();
    let reply = line.chat("hi").send();
    let workspace = &reply.json()["trunkline"]["workspace"];
    assert_eq!(workspace["files_changed"], 1, "{workspace}");
    assert_eq!(line.git(&["rev-parse", "develop"]), before);
}

#[test]
fn case_59_a_lock_that_a_dead_git_left_is_in_nobodys_way() {
    let line = worker("echo work >new.txt; : >\"$(git rev-parse --git-dir)/index.lock\"; codex_answers done").start();
    let reply = line.chat("hi").send();
    let workspace = &reply.json()["trunkline"]["workspace"];
    assert_eq!((&workspace["files_changed"], &workspace["path"]), (&json!(1), &Value::Null), "{workspace}");
    assert_eq!(worktrees(&line), 1);
}

#[test]
fn the_files_a_run_adds_are_listed_where_the_policy_asks_for_it() {
    let line = Line::new().cli("codex", &format!("note; {WORKER}")).model(
        "m",
        json!({"driver": "codex", "worktree": true, "policy": {"createHelpers": true, "commitHelpers": true}}),
    );
    let line = line.start();
    let reply = line.chat("hi").send();
    let trunkline = &reply.json()["trunkline"];
    let (run, branch) = (trunkline["run"].as_str().unwrap(), trunkline["workspace"]["branch"].as_str().unwrap());
    assert_eq!(line.git(&["show", &format!("{branch}:.trunkline/helpers.log")]), format!("{run} new.txt"));
    assert!(line.noted("codex.stdin").contains("You may add helper scripts"));
}

#[test]
fn case_59_what_a_crash_left_half_made_is_in_nobodys_way() {
    let line = worker(WORKER);
    let git = line.repo().join(".git");
    for half in ["worktrees/empty", "worktrees/gone"] {
        fs::create_dir_all(git.join(half)).unwrap();
    }
    fs::write(git.join("worktrees/gone/gitdir"), "/nowhere/.git\n").unwrap();
    for lock in ["index.lock", "config.lock"] {
        fs::write(git.join(lock), "").unwrap();
    }
    let line = line.start();
    let reply = line.chat("hi").send();
    assert_eq!(reply.json()["trunkline"]["workspace"]["files_changed"], 2, "{reply:?}");
    assert!(git.join("index.lock").exists(), "whose it is, is not ours to say");
}

#[test]
fn case_60_a_full_disk_is_said_and_leaves_nothing() {
    let line = worker(WORKER).file("big.bin", &"x".repeat(3 << 20));
    line.commit("big");
    let folder = line.path("worktrees");
    fs::create_dir(&folder).unwrap();
    let Some(disk) = Disk::mount(&folder) else { return };
    let line = line.start();
    let error = line.chat("hi").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["hint"].as_str().unwrap().contains("is it full?"), "{error}");
    assert_eq!(worktrees(&line), 1);
    nothing_is_left(&line);
    disk.grow();
    let reply = line.chat("hi").send();
    assert_eq!(reply.json()["trunkline"]["workspace"]["files_changed"], 2, "{reply:?}");
}

/// A disk of two megabytes; none where we may not mount one.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(folder: &std::path::Path) -> Option<Self> {
        if !root_for("a full disk, which has to be mounted") {
            return None;
        }
        if tool("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs", folder.to_str().unwrap()]) {
            return Some(Self(folder.to_owned()));
        }
        left_out("a full disk: root may not mount one here");
        None
    }

    fn grow(&self) {
        assert!(tool("mount", &["-o", "remount,size=64m", self.0.to_str().unwrap()]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        tool("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

#[test]
fn case_62_unusual_repositories_work() {
    let line = Line::new().cli("codex", "echo new >new.txt; codex_answers done");
    let from = format!("file://{}", line.repo().display());
    let place = |name: &str| line.path(name).to_str().unwrap().to_owned();
    let [bare, shallow, sparse, whole] = ["bare.git", "shallow", "sparse", "whole"].map(place);
    line.git(&["clone", "--quiet", "--bare", &from, &bare]);
    line.git(&["clone", "--quiet", "--depth", "1", &from, &shallow]);
    line.git(&["clone", "--quiet", "--sparse", &from, &sparse]);
    line.git(&["clone", "--quiet", &from, &whole]);
    let part = format!("160000,{},part", line.git(&["rev-parse", "HEAD"]));
    fs::write(line.path("whole/.gitmodules"), format!("[submodule \"part\"]\n\tpath = part\n\turl = {from}\n"))
        .unwrap();
    line.git(&["-C", &whole, "add", ".gitmodules"]);
    line.git(&["-C", &whole, "update-index", "--add", "--cacheinfo", &part]);
    line.git(&["-C", &whole, "commit", "--quiet", "-m", "a part"]);
    let all = [("bare", bare), ("shallow", shallow), ("sparse", sparse), ("parts", whole)];
    let mut line = line;
    for (name, repo) in &all {
        line = line.model(name, json!({"driver": "codex", "repoPath": repo, "worktree": true}));
    }
    let line = line.start();
    for (name, repo) in all {
        let reply = line.chat("hi").model(name).send();
        let workspace = reply.json()["trunkline"]["workspace"].clone();
        let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{name}: {reply:?}"));
        assert_eq!(line.git(&["-C", &repo, "show", &format!("{branch}:new.txt")]), "new", "{name}");
        assert_eq!(workspace["path"], Value::Null, "{name}");
    }
    nothing_is_left(&line);
}

#[test]
fn case_62_somebody_elses_repository_is_a_clear_error() {
    if !root_for("a repository of another user, which has to be given away") {
        return;
    }
    let line = worker("tell ran");
    for folder in [line.repo(), line.repo().join(".git")] {
        std::os::unix::fs::chown(folder, Some(12345), None).unwrap();
    }
    let line = line.start();
    let error = line.chat("hi").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["detail"].as_str().unwrap().contains("dubious ownership"), "{error}");
    assert!(!line.path("seen/ran").exists());
}

#[test]
fn case_64_what_still_writes_is_ended_before_its_folder_goes() {
    let busy = "i=0; while :; do i=$((i+1)); mkdir -p folder$i; echo x >folder$i/file; done";
    let script = format!("(setsid sh -c '{busy}' &); until [ -e folder9 ]; do sleep 0.01; done; codex_answers done");
    let line = worker(&script).start();
    for _ in 0..3 {
        let workspace = line.chat("hi").send().json()["trunkline"]["workspace"].clone();
        assert!(workspace["files_changed"].as_u64().unwrap() >= 8, "{workspace}");
        assert_eq!(workspace["path"], Value::Null);
        nothing_is_left(&line);
    }
    assert_eq!(worktrees(&line), 1);
}
