//! Spare worktrees: created ahead of their turn, used if one is ready, always with the same files as a new worktree, and
//! removed with their gateway.

use std::fs;
use std::path::PathBuf;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::send_raw;
use crate::observe::until;
use crate::test_gateway::{TestGateway, which};

/// Reports its folder, the worktree's entry in the repository, HEAD, the content of `file.txt` and the list of files.
const REPORTS: &str = "entry=$(git rev-parse --git-dir); codex_answers \"${PWD##*/}|${entry##*/}|$(git rev-parse HEAD)|\
    $(tr -d '\\n' <file.txt | tr '\\r' '^')|$(echo *)\"";

/// The report of one turn.
struct WorktreeReport {
    run: String,
    folder: String,
    /// Whether the worktree was a spare one.
    spare: bool,
    head: String,
    text: String,
    files: String,
}

fn build(script: &str, entry: Value) -> TestGateway {
    let mut model = json!({"driver": "codex", "worktree": true});
    model.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    let gateway = TestGateway::new().file("file.txt", "one\n").file("other.txt", "other\n");
    gateway.commit("files");
    gateway.cli("codex", script).model("m", model).env("TRUNKLINE_WARM", "8").args(&["--verbose"])
}

fn report(gateway: &TestGateway) -> WorktreeReport {
    let reply = gateway.chat("hi").send();
    let content = reply.content();
    let mut parts = content.split('|').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_else(|| panic!("{content}"));
    let (folder, registration, head, text, files) = (next(), next(), next(), next(), next());
    let run = reply.json()["trunkline"]["run"].as_str().unwrap().to_owned();
    WorktreeReport { run, folder, spare: registration.starts_with("spare-"), head, text, files }
}

/// The spare worktrees, ready or not.
fn spares(gateway: &TestGateway) -> Vec<PathBuf> {
    let files = fs::read_dir(gateway.path("state/worktrees")).into_iter().flatten().flatten();
    let entries = files.filter_map(|file| serde_json::from_slice::<Value>(&fs::read(file.path()).ok()?).ok());
    let spares = entries.filter(|entry| entry["standing"] == "spare");
    spares.map(|entry| PathBuf::from(entry["path"].as_str().unwrap())).collect()
}

/// Waits for a spare worktree that a turn can use. The log reports it once it is ready.
fn wait_for_spare(gateway: &TestGateway) -> PathBuf {
    let mut found = None;
    until("a spare worktree is ready", || {
        let log = gateway.log();
        let is_ready = |path: &PathBuf| log.contains(&format!("a worktree is ready path={}", path.display()));
        found = spares(gateway).into_iter().find(is_ready);
        found.is_some()
    });
    found.unwrap()
}

fn assert_nothing_is_left(gateway: &TestGateway) {
    let is_empty = |name: &str| fs::read_dir(gateway.path(name)).unwrap().next().is_none();
    until("no worktree is left", || is_empty("worktrees") && is_empty("state/worktrees"));
    assert_eq!(gateway.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

#[test]
fn next_turn_uses_a_spare_worktree() {
    let gateway = build(&format!("echo new >new.txt; {REPORTS}"), json!({})).start();
    let first = report(&gateway);
    assert!(!first.spare);
    let spare = wait_for_spare(&gateway);
    let second = report(&gateway);
    assert!(second.spare, "the second turn uses the spare worktree");
    assert!(!spare.exists(), "it was renamed to the folder of the run");
    for turn in [&first, &second] {
        assert_eq!(turn.folder, turn.run, "the folder is named after the run");
        assert_eq!((turn.text.as_str(), turn.files.as_str()), ("one", "README.md file.txt new.txt other.txt"));
        let branch = format!("trunkline/{}", turn.run);
        assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
        assert_eq!(gateway.git(&["rev-parse", &format!("{branch}^")]), gateway.git(&["rev-parse", "HEAD"]));
    }
    wait_for_spare(&gateway);
    assert_eq!(gateway.git(&["branch", "--list", "trunkline/*"]).lines().count(), 2, "a spare worktree has no branch");
}

#[test]
fn spare_worktree_is_up_to_date_when_the_repository_changes_before_a_turn() {
    let gateway = build(REPORTS, json!({})).start();
    report(&gateway);
    let steps: [(&str, &dyn Fn()); 6] = [
        ("a commit", &|| {
            fs::write(gateway.repo().join("file.txt"), "two\n").unwrap();
            fs::write(gateway.repo().join("added.txt"), "").unwrap();
            gateway.commit("two");
        }),
        ("an amended commit", &|| {
            fs::write(gateway.repo().join("file.txt"), "three\n").unwrap();
            gateway.git(&["commit", "--quiet", "--all", "--amend", "-m", "three"]);
        }),
        ("a deleted file", &|| {
            gateway.git(&["rm", "--quiet", "added.txt"]);
            gateway.git(&["commit", "--quiet", "-m", "less"]);
        }),
        ("another branch", &|| {
            gateway.git(&["checkout", "--quiet", "-b", "other", "HEAD~1"]);
        }),
        ("no branch", &|| {
            gateway.git(&["checkout", "--quiet", "--detach", "main~2"]);
        }),
        ("a tracked file becomes ignored", &|| {
            fs::write(gateway.repo().join(".gitignore"), "other.txt\n").unwrap();
            gateway.git(&["rm", "--quiet", "--cached", "other.txt"]);
            gateway.commit("ignored");
        }),
    ];
    let mut updated = 0;
    for (what, change) in steps {
        wait_for_spare(&gateway);
        change();
        let turn = report(&gateway);
        updated += usize::from(turn.spare);
        assert_eq!(turn.head, gateway.git(&["rev-parse", "HEAD"]), "{what}");
        assert_eq!(turn.text, gateway.git(&["show", "HEAD:file.txt"]), "{what}");
        let files = gateway.git(&["ls-tree", "--name-only", "HEAD"]);
        let files: Vec<&str> = files.lines().filter(|name| !name.starts_with('.')).collect();
        assert_eq!(turn.files.split_whitespace().collect::<Vec<_>>(), files, "{what}");
    }
    assert!(updated > 0, "spare worktrees are updated, not recreated");
}

#[test]
fn spare_worktree_is_updated_in_the_background_when_the_repository_changes() {
    let gateway = build(REPORTS, json!({})).start();
    report(&gateway);
    let spare = wait_for_spare(&gateway);
    fs::write(gateway.repo().join("file.txt"), "two\n").unwrap();
    gateway.commit("two");
    until("the spare worktree is updated", || {
        fs::read_to_string(spare.join("file.txt")).is_ok_and(|text| text == "two\n")
    });
    assert_eq!(wait_for_spare(&gateway), spare);
    assert_eq!(report(&gateway).text, "two");
}

#[test]
fn spare_worktree_follows_changes_of_attributes_and_settings() {
    let gateway = build(REPORTS, json!({})).start();
    report(&gateway);
    let attributes = gateway.repo().join(".git/info/attributes");
    let steps: [(&str, &dyn Fn(), &str); 4] = [
        ("an attribute in .git/info", &|| fs::write(&attributes, "*.txt text eol=crlf\n").unwrap(), "one^"),
        ("without the attribute", &|| fs::remove_file(&attributes).unwrap(), "one"),
        (
            "a committed attribute",
            &|| {
                fs::write(gateway.repo().join(".gitattributes"), "*.txt text eol=crlf\n").unwrap();
                gateway.git(&["add", ".gitattributes"]);
                gateway.git(&["commit", "--quiet", "-m", "attributes"]);
            },
            "one^",
        ),
        (
            "a setting",
            &|| {
                gateway.git(&["revert", "--no-edit", "HEAD"]);
                gateway.git(&["config", "core.autocrlf", "true"]);
            },
            "one^",
        ),
    ];
    for (what, change, text) in steps {
        wait_for_spare(&gateway);
        change();
        assert_eq!(report(&gateway).text, text, "{what}");
    }
}

#[test]
fn concurrent_turns_have_separate_worktrees() {
    // Neither prints anything before both run: no further spare worktree is created until then.
    let script =
        "echo \"$TRUNKLINE_RUN\" >mine.txt; [ ! -e \"$seen/two\" ] || { echo $$ >>\"$seen/pids\"; await go; };";
    let gateway = build(&format!("{script} {REPORTS}"), json!({})).start();
    report(&gateway);
    wait_for_spare(&gateway);
    gateway.leave_note("two");
    let pids = || fs::read_to_string(gateway.path("seen/pids")).unwrap_or_default().lines().count();
    let both = thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| report(&gateway)));
        until("both turns run", || pids() == 2);
        gateway.leave_note("go");
        both.map(|turn| turn.join().unwrap())
    });
    for turn in &both {
        assert_eq!(turn.folder, turn.run);
        assert_eq!(gateway.git(&["show", &format!("trunkline/{}:mine.txt", turn.run)]), turn.run);
    }
    assert_eq!(
        both.iter().filter(|turn| turn.spare).count(),
        1,
        "one used the spare worktree, the other created its own"
    );
}

#[test]
fn session_keeps_its_folder_when_it_uses_a_spare_worktree() {
    const SESSION: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";
    let script =
        format!("echo '{{\"type\":\"thread.started\",\"thread_id\":\"{SESSION}\"}}'; echo more >>file.txt; {REPORTS}");
    for keep in [false, true] {
        let gateway = build(&script, json!({"keepWorktree": keep})).start();
        let first = report(&gateway);
        let mut expected = "onemore".to_owned();
        for turn in 0..2 {
            let _spare = wait_for_spare(&gateway);
            let reply = gateway.chat("hi").header("x-trunkline-session", SESSION).send();
            let content = reply.content();
            let parts: Vec<&str> = content.split('|').collect();
            expected.push_str("more");
            assert_eq!((parts[0], parts[3]), (first.folder.as_str(), expected.as_str()), "{keep} {turn}");
            assert_eq!(parts[1].starts_with("spare-"), !keep, "a kept worktree is reused instead of a spare one");
        }
    }
    // The same if the session's own worktree was a spare one.
    let gateway = build(&script, json!({"keepWorktree": true})).start();
    report(&gateway);
    wait_for_spare(&gateway);
    let first = report(&gateway);
    assert!(first.spare);
    let reply = gateway.chat("hi").header("x-trunkline-session", SESSION).send();
    assert!(reply.content().starts_with(&first.folder), "{reply:?}");
    assert_eq!(reply.json()["trunkline"]["workspace"]["insertions"], 1, "{reply:?}");
}

#[test]
fn spare_worktree_is_saved_and_not_used_when_its_files_were_changed() {
    let gateway = build(REPORTS, json!({})).file(".gitignore", "*.log\n");
    gateway.commit("ignore");
    let gateway = gateway.start();
    report(&gateway);
    let spare = wait_for_spare(&gateway);
    fs::write(spare.join("file.txt"), "evil\n").unwrap();
    let turn = report(&gateway);
    assert!(!turn.spare);
    assert_eq!(turn.text, "one");
    until("the changed worktree is saved as a branch", || {
        !gateway.git(&["branch", "--list", "trunkline/spare-*"]).is_empty()
    });
    let branch = gateway.git(&["branch", "--list", "trunkline/spare-*", "--format=%(refname:short)"]);
    assert_eq!(gateway.git(&["show", &format!("{branch}:file.txt")]), "evil");
    let spare = wait_for_spare(&gateway);
    fs::write(spare.join("ignored.log"), "evil\n").unwrap();
    let turn = report(&gateway);
    assert_eq!((turn.spare, turn.files.as_str()), (false, "README.md file.txt other.txt"));
}

#[test]
fn case_61_next_gateway_removes_spare_worktrees_when_gateway_was_killed() {
    let mut gateway = build(REPORTS, json!({})).start();
    report(&gateway);
    wait_for_spare(&gateway);
    gateway.kill();
    assert_eq!(spares(&gateway).len(), 1, "the killed gateway could not remove it");
    gateway.restart();
    assert_nothing_is_left(&gateway);
    assert_eq!(gateway.git(&["branch", "--list", "trunkline/*"]), "");
}

#[test]
fn spare_worktrees_are_removed_when_gateway_stops() {
    let mut gateway = build(REPORTS, json!({})).start();
    report(&gateway);
    wait_for_spare(&gateway);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    assert_nothing_is_left(&gateway);
}

#[test]
fn warm_sets_the_number_of_spare_worktrees() {
    let gateway = build(REPORTS, json!({"warm": 2})).start();
    until("two spare worktrees exist before the first request", || spares(&gateway).len() == 2);
    assert!(report(&gateway).spare);
    let gateway = build(REPORTS, json!({"warm": 0}));
    let repo = gateway.repo();
    let gateway = gateway.model("other", json!({"driver": "codex", "worktree": true, "repoPath": repo})).start();
    for _ in 0..2 {
        assert!(!report(&gateway).spare);
        assert_eq!(spares(&gateway), Vec::<PathBuf>::new());
    }
    gateway.chat("hi").model("other").send().content();
    wait_for_spare(&gateway);
    assert!(!report(&gateway).spare, "a model with warm 0 does not use them");
}

#[test]
fn spare_worktrees_are_removed_when_warm_decreases() {
    let gateway = build(REPORTS, json!({"warm": 2})).start();
    until("two spare worktrees exist", || spares(&gateway).len() == 2);
    let gateway = gateway.model("m", json!({"driver": "codex", "worktree": true, "warm": 1}));
    gateway.write_models();
    until("one spare worktree is left", || spares(&gateway).len() == 1);
    let gateway = gateway.model("m", json!({"driver": "codex", "worktree": true}));
    gateway.write_models();
    assert_nothing_is_left(&gateway);
}

#[test]
fn spare_worktree_is_retried_when_its_creation_failed() {
    let git = format!(
        "case \"$*\" in *'worktree add'*) [ -e \"$seen/failed\" ] || {{ tell failed; exit 1; }};; esac; exec {} \"$@\"",
        which("git").display()
    );
    let gateway = build(REPORTS, json!({"warm": 1})).git_script(&git).start();
    gateway.wait_for_note("failed");
    wait_for_spare(&gateway);
}

#[test]
fn private_git_directory_is_removed_when_its_gateway_is_dead() {
    let (dead, other) = ("4294967295-1.x", "mine");
    let gateway = build(REPORTS, json!({}));
    for name in [dead, other] {
        fs::create_dir_all(gateway.path("state/git").join(name).join("objects")).unwrap();
    }
    let gateway = gateway.start();
    until("the directory is removed", || !gateway.path("state/git").join(dead).exists());
    assert!(gateway.path("state/git").join(other).exists(), "a foreign directory is kept");
}

#[test]
fn private_git_directory_is_removed_when_the_client_disconnects_while_a_patch_is_made() {
    // Only the first call hangs: saving the work of the run uses a private directory too.
    let git = format!(
        "case \"$GIT_OBJECT_DIRECTORY $*\" in */state/git/*'add --all'*) [ -e \"$seen/adding\" ] || {{ tell adding; hang; }};; esac; \
         exec {} \"$@\"",
        which("git").display()
    );
    let gateway =
        build("tell run \"$TRUNKLINE_RUN\"; await go; codex_answers done", json!({})).git_script(&git).start();
    let pending = gateway.chat("hi").open();
    let (run, address) = (gateway.wait_for_note("run"), gateway.address());
    let patch = send_raw(address, &format!("GET /v1/runs/{run}/diff HTTP/1.1\r\nhost: {address}\r\n\r\n"));
    gateway.wait_for_note("adding");
    let left = || fs::read_dir(gateway.path("state/git")).unwrap().count();
    assert_eq!(left(), 1);
    drop(patch);
    until("the directory is removed", || left() == 0);
    gateway.leave_note("go");
    pending.finish().content();
}
