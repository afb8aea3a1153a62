//! Worktrees that are made before anybody asks: taken when one is ready, never with other files than a new one would have,
//! gone with their gateway.

use std::fs;
use std::path::PathBuf;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::send_raw;
use crate::observe::until;
use crate::test_gateway::{TestGateway, which};

/// Says where it works, by whose entry in the repository, and what it finds there.
const LOOKS: &str = "entry=$(git rev-parse --git-dir); codex_answers \"${PWD##*/}|${entry##*/}|$(git rev-parse HEAD)|\
    $(tr -d '\\n' <file.txt | tr '\\r' '^')|$(echo *)\"";

struct Looked {
    run: String,
    folder: String,
    spare: bool,
    head: String,
    text: String,
    files: String,
}

fn world(script: &str, entry: Value) -> TestGateway {
    let mut whole = json!({"driver": "codex", "worktree": true});
    whole.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    let gateway = TestGateway::new().file("file.txt", "one\n").file("other.txt", "other\n");
    gateway.commit("files");
    gateway.cli("codex", script).model("m", whole).env("TRUNKLINE_WARM", "8").args(&["--verbose"])
}

fn looks(gateway: &TestGateway) -> Looked {
    let reply = gateway.chat("hi").send();
    let content = reply.content();
    let mut parts = content.split('|').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_else(|| panic!("{content}"));
    let (folder, registration, head, text, files) = (next(), next(), next(), next(), next());
    let run = reply.json()["trunkline"]["run"].as_str().unwrap().to_owned();
    Looked { run, folder, spare: registration.starts_with("spare-"), head, text, files }
}

/// The worktrees that wait for a turn, or are about to.
fn spares(gateway: &TestGateway) -> Vec<PathBuf> {
    let files = fs::read_dir(gateway.path("state/worktrees")).into_iter().flatten().flatten();
    let entries = files.filter_map(|file| serde_json::from_slice::<Value>(&fs::read(file.path()).ok()?).ok());
    let spares = entries.filter(|entry| entry["standing"] == "spare");
    spares.map(|entry| PathBuf::from(entry["path"].as_str().unwrap())).collect()
}

/// One that a turn would find: the log says so after it can be had.
fn ready(gateway: &TestGateway) -> PathBuf {
    let mut found = None;
    until("a worktree is ready", || {
        let log = gateway.log();
        let told = |path: &PathBuf| log.contains(&format!("a worktree is ready path={}", path.display()));
        found = spares(gateway).into_iter().find(told);
        found.is_some()
    });
    found.unwrap()
}

fn nothing_is_left(gateway: &TestGateway) {
    let is_empty = |name: &str| fs::read_dir(gateway.path(name)).unwrap().next().is_none();
    until("nothing is left", || is_empty("worktrees") && is_empty("state/worktrees"));
    assert_eq!(gateway.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

#[test]
fn the_next_turn_finds_its_worktree_ready() {
    let gateway = world(&format!("echo new >new.txt; {LOOKS}"), json!({})).start();
    let first = looks(&gateway);
    assert!(!first.spare);
    let spare = ready(&gateway);
    let second = looks(&gateway);
    assert!(second.spare, "it was there");
    assert!(!spare.exists(), "and is a run's now");
    for looked in [&first, &second] {
        assert_eq!(looked.folder, looked.run, "named as ever");
        assert_eq!((looked.text.as_str(), looked.files.as_str()), ("one", "README.md file.txt new.txt other.txt"));
        let branch = format!("trunkline/{}", looked.run);
        assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
        assert_eq!(gateway.git(&["rev-parse", &format!("{branch}^")]), gateway.git(&["rev-parse", "HEAD"]));
    }
    ready(&gateway);
    assert_eq!(gateway.git(&["branch", "--list", "trunkline/*"]).lines().count(), 2, "none of a spare");
}

#[test]
fn a_worktree_that_waits_is_never_behind_its_repository() {
    let gateway = world(LOOKS, json!({})).start();
    looks(&gateway);
    let steps: [(&str, &dyn Fn()); 6] = [
        ("a commit", &|| {
            fs::write(gateway.repo().join("file.txt"), "two\n").unwrap();
            fs::write(gateway.repo().join("added.txt"), "").unwrap();
            gateway.commit("two");
        }),
        ("another in its place", &|| {
            fs::write(gateway.repo().join("file.txt"), "three\n").unwrap();
            gateway.git(&["commit", "--quiet", "--all", "--amend", "-m", "three"]);
        }),
        ("a file less", &|| {
            gateway.git(&["rm", "--quiet", "added.txt"]);
            gateway.git(&["commit", "--quiet", "-m", "less"]);
        }),
        ("another branch", &|| {
            gateway.git(&["checkout", "--quiet", "-b", "other", "HEAD~1"]);
        }),
        ("no branch", &|| {
            gateway.git(&["checkout", "--quiet", "--detach", "main~2"]);
        }),
        ("what was tracked is ignored", &|| {
            fs::write(gateway.repo().join(".gitignore"), "other.txt\n").unwrap();
            gateway.git(&["rm", "--quiet", "--cached", "other.txt"]);
            gateway.commit("ignored");
        }),
    ];
    let mut moved = 0;
    for (what, change) in steps {
        ready(&gateway);
        change();
        let looked = looks(&gateway);
        moved += usize::from(looked.spare);
        assert_eq!(looked.head, gateway.git(&["rev-parse", "HEAD"]), "{what}");
        assert_eq!(looked.text, gateway.git(&["show", "HEAD:file.txt"]), "{what}");
        let files = gateway.git(&["ls-tree", "--name-only", "HEAD"]);
        let files: Vec<&str> = files.lines().filter(|name| !name.starts_with('.')).collect();
        assert_eq!(looked.files.split_whitespace().collect::<Vec<_>>(), files, "{what}");
    }
    assert!(moved > 0, "it is brought there, not made anew");
}

#[test]
fn a_worktree_that_waits_follows_its_repository() {
    let gateway = world(LOOKS, json!({})).start();
    looks(&gateway);
    let spare = ready(&gateway);
    fs::write(gateway.repo().join("file.txt"), "two\n").unwrap();
    gateway.commit("two");
    until("it has followed", || fs::read_to_string(spare.join("file.txt")).is_ok_and(|text| text == "two\n"));
    assert_eq!(ready(&gateway), spare);
    assert_eq!(looks(&gateway).text, "two");
}

#[test]
fn how_git_writes_files_is_never_of_yesterday() {
    let gateway = world(LOOKS, json!({})).start();
    looks(&gateway);
    let attributes = gateway.repo().join(".git/info/attributes");
    let steps: [(&str, &dyn Fn(), &str); 4] = [
        ("an attribute of the repository's own", &|| fs::write(&attributes, "*.txt text eol=crlf\n").unwrap(), "one^"),
        ("no more", &|| fs::remove_file(&attributes).unwrap(), "one"),
        (
            "an attribute that is committed",
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
        ready(&gateway);
        change();
        assert_eq!(looks(&gateway).text, text, "{what}");
    }
}

#[test]
fn two_turns_at_once_have_each_their_own() {
    // Neither says anything before both are there: no other is made ready until then.
    let script =
        "echo \"$TRUNKLINE_RUN\" >mine.txt; [ ! -e \"$seen/two\" ] || { echo $$ >>\"$seen/pids\"; await go; };";
    let gateway = world(&format!("{script} {LOOKS}"), json!({})).start();
    looks(&gateway);
    ready(&gateway);
    gateway.leave_note("two");
    let pids = || fs::read_to_string(gateway.path("seen/pids")).unwrap_or_default().lines().count();
    let both = thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| looks(&gateway)));
        until("both work", || pids() == 2);
        gateway.leave_note("go");
        both.map(|one| one.join().unwrap())
    });
    for looked in &both {
        assert_eq!(looked.folder, looked.run);
        assert_eq!(gateway.git(&["show", &format!("trunkline/{}:mine.txt", looked.run)]), looked.run);
    }
    assert_eq!(both.iter().filter(|looked| looked.spare).count(), 1, "one was ready, the other made its own");
}

#[test]
fn a_session_goes_on_in_its_folder_on_a_worktree_that_was_ready() {
    const SESSION: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";
    let script =
        format!("echo '{{\"type\":\"thread.started\",\"thread_id\":\"{SESSION}\"}}'; echo more >>file.txt; {LOOKS}");
    for keep in [false, true] {
        let gateway = world(&script, json!({"keepWorktree": keep})).start();
        let first = looks(&gateway);
        let mut expected = "onemore".to_owned();
        for turn in 0..2 {
            let _spare = ready(&gateway);
            let reply = gateway.chat("hi").header("x-trunkline-session", SESSION).send();
            let content = reply.content();
            let parts: Vec<&str> = content.split('|').collect();
            expected.push_str("more");
            assert_eq!((parts[0], parts[3]), (first.folder.as_str(), expected.as_str()), "{keep} {turn}");
            assert_eq!(parts[1].starts_with("spare-"), !keep, "its own is there already if it was kept");
        }
    }
    // Also if its own was a spare.
    let gateway = world(&script, json!({"keepWorktree": true})).start();
    looks(&gateway);
    ready(&gateway);
    let first = looks(&gateway);
    assert!(first.spare);
    let reply = gateway.chat("hi").header("x-trunkline-session", SESSION).send();
    assert!(reply.content().starts_with(&first.folder), "{reply:?}");
    assert_eq!(reply.json()["trunkline"]["workspace"]["insertions"], 1, "{reply:?}");
}

#[test]
fn what_somebody_changed_is_given_to_nobody_and_thrown_away_by_nobody() {
    let gateway = world(LOOKS, json!({})).file(".gitignore", "*.log\n");
    gateway.commit("ignore");
    let gateway = gateway.start();
    looks(&gateway);
    let spare = ready(&gateway);
    fs::write(spare.join("file.txt"), "evil\n").unwrap();
    let looked = looks(&gateway);
    assert!(!looked.spare);
    assert_eq!(looked.text, "one");
    until("it is kept", || !gateway.git(&["branch", "--list", "trunkline/spare-*"]).is_empty());
    let branch = gateway.git(&["branch", "--list", "trunkline/spare-*", "--format=%(refname:short)"]);
    assert_eq!(gateway.git(&["show", &format!("{branch}:file.txt")]), "evil");
    let spare = ready(&gateway);
    fs::write(spare.join("ignored.log"), "evil\n").unwrap();
    let looked = looks(&gateway);
    assert_eq!((looked.spare, looked.files.as_str()), (false, "README.md file.txt other.txt"));
}

#[test]
fn case_61_a_gateway_that_was_killed_leaves_no_worktree_that_waited() {
    let mut gateway = world(LOOKS, json!({})).start();
    looks(&gateway);
    ready(&gateway);
    gateway.kill();
    assert_eq!(spares(&gateway).len(), 1, "nobody was there to remove it");
    gateway.restart();
    nothing_is_left(&gateway);
    assert_eq!(gateway.git(&["branch", "--list", "trunkline/*"]), "");
}

#[test]
fn they_go_with_the_gateway() {
    let mut gateway = world(LOOKS, json!({})).start();
    looks(&gateway);
    ready(&gateway);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    nothing_is_left(&gateway);
}

#[test]
fn warm_says_how_many() {
    let gateway = world(LOOKS, json!({"warm": 2})).start();
    until("two are ready before anybody asked", || spares(&gateway).len() == 2);
    assert!(looks(&gateway).spare);
    let gateway = world(LOOKS, json!({"warm": 0}));
    let repo = gateway.repo();
    let gateway = gateway.model("other", json!({"driver": "codex", "worktree": true, "repoPath": repo})).start();
    for _ in 0..2 {
        assert!(!looks(&gateway).spare);
        assert_eq!(spares(&gateway), Vec::<PathBuf>::new());
    }
    gateway.chat("hi").model("other").send().content();
    ready(&gateway);
    assert!(!looks(&gateway).spare, "not for one that wants none");
}

#[test]
fn those_that_are_wanted_no_more_go() {
    let gateway = world(LOOKS, json!({"warm": 2})).start();
    until("two are ready", || spares(&gateway).len() == 2);
    let gateway = gateway.model("m", json!({"driver": "codex", "worktree": true, "warm": 1}));
    gateway.write_models();
    until("one is left", || spares(&gateway).len() == 1);
    let gateway = gateway.model("m", json!({"driver": "codex", "worktree": true}));
    gateway.write_models();
    nothing_is_left(&gateway);
}

#[test]
fn one_that_could_not_be_made_is_tried_again() {
    let git = format!(
        "case \"$*\" in *'worktree add'*) [ -e \"$seen/failed\" ] || {{ tell failed; exit 1; }};; esac; exec {} \"$@\"",
        which("git").display()
    );
    let gateway = world(LOOKS, json!({"warm": 1})).git_script(&git).start();
    gateway.wait_for_note("failed");
    ready(&gateway);
}

#[test]
fn private_git_directory_of_a_gateway_that_died_is_removed() {
    let (dead, other) = ("4294967295-1.x", "mine");
    let gateway = world(LOOKS, json!({}));
    for name in [dead, other] {
        fs::create_dir_all(gateway.path("state/git").join(name).join("objects")).unwrap();
    }
    let gateway = gateway.start();
    until("it is gone", || !gateway.path("state/git").join(dead).exists());
    assert!(gateway.path("state/git").join(other).exists(), "it is not ours");
}

#[test]
fn private_git_directory_is_removed_when_the_client_disconnects_while_a_patch_is_made() {
    let git = format!(
        "case \"$GIT_OBJECT_DIRECTORY $*\" in */state/git/*'add --all'*) tell adding; hang;; esac; exec {} \"$@\"",
        which("git").display()
    );
    let gateway =
        world("tell run \"$TRUNKLINE_RUN\"; await go; codex_answers done", json!({})).git_script(&git).start();
    let asked = gateway.chat("hi").open();
    let (run, address) = (gateway.wait_for_note("run"), gateway.address());
    let patch = send_raw(address, &format!("GET /v1/runs/{run}/diff HTTP/1.1\r\nhost: {address}\r\n\r\n"));
    gateway.wait_for_note("adding");
    let left = || fs::read_dir(gateway.path("state/git")).unwrap().count();
    assert_eq!(left(), 1);
    drop(patch);
    until("nothing is left", || left() == 0);
    gateway.leave_note("go");
    asked.finish().content();
}
