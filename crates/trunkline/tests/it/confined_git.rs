//! The gateway's own git: programs that an agent puts into git's configuration run confined, for a limited time, and
//! are killed when their run is cancelled.
//!
//! The test folders are outside the folders for temporary files, which every run may write.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use trunkline_process::Landlock;

use crate::http::send_raw;
use crate::observe::{processes_of, until};
use crate::test_gateway::{TestGateway, find};

/// A filter that writes outside every workspace.
const ESCAPING_FILTER: &str = "sh -c 'echo x >\"$HOME/escaped\"; cat'";

/// A gateway with a model `m` in a worktree and a model `here` in the checkout, both confined. `None` if the kernel has
/// no Landlock.
fn gateway(script: &str) -> Option<TestGateway> {
    if let Err(missing) = Landlock::here() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let entry = |worktree: bool| json!({"driver": "claude", "worktree": worktree, "sandbox": "required"});
    let answer = r#"printf '{"type":"result","subtype":"success","is_error":false,"result":"done"}\n'"#;
    let script = format!("evil={ESCAPING_FILTER:?}\n{script}\n{answer}");
    Some(TestGateway::outside_tmp()?.cli("claude", &script).model("m", entry(true)).model("here", entry(false)))
}

fn assert_confined(gateway: &TestGateway) {
    assert!(!gateway.path("home/escaped").exists(), "a program escaped its confinement");
}

fn run_and_get_workspace(gateway: &TestGateway) -> Value {
    let reply = gateway.chat("hi").model("m").send();
    reply.json()["trunkline"]["workspace"].clone()
}

#[test]
fn clean_filter_is_confined_when_the_agent_points_commondir_at_its_own_configuration() {
    let script = r#"
dir=$(git rev-parse --absolute-git-dir); mkdir common
printf '[filter "evil"]\n\tclean = %s\n' "sh -c 'echo x >~/escaped; cat'" >common/config
echo "$PWD/common" >"$dir/commondir"; echo "* filter=evil" >.gitattributes; echo new >new.txt"#;
    let Some(gateway) = gateway(script) else { return };
    let gateway = gateway.start();
    let saved = run_and_get_workspace(&gateway);
    assert_confined(&gateway);
    assert_eq!(gateway.git(&["show", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]), "new");
}

#[test]
fn nested_repository_is_kept_and_its_filter_runs_confined() {
    let script = r#"
git init -q sub; echo a >sub/a; echo "* filter=evil" >sub/.gitattributes; git -C sub config user.name A
git -C sub config user.email a@b; git -C sub add .; git -C sub commit -qm a; git -C sub config filter.evil.clean "$evil"
git add sub; echo b >>sub/a"#;
    let Some(gateway) = gateway(script) else { return };
    let gateway = gateway.start();
    let saved = run_and_get_workspace(&gateway);
    assert_confined(&gateway);
    let path = std::path::PathBuf::from(saved["path"].as_str().unwrap_or_else(|| panic!("{saved}")));
    assert_eq!(fs::read_to_string(path.join("sub/a")).unwrap(), "a\nb\n");
    assert!(saved["reason"].as_str().unwrap().starts_with("sub: a repository of its own"), "{saved}");
}

#[test]
fn filter_in_the_configuration_of_the_worktree_is_not_used() {
    let script = r#"
dir=$(git rev-parse --absolute-git-dir); git config --file "$dir/config.worktree" filter.evil.clean "$evil"
echo "* filter=evil" >.gitattributes; echo new >new.txt"#;
    let Some(gateway) = gateway(script) else { return };
    gateway.git(&["config", "extensions.worktreeConfig", "true"]);
    let gateway = gateway.start();
    let saved = run_and_get_workspace(&gateway);
    assert_confined(&gateway);
    assert_eq!(saved["files_changed"], 2, "{saved}");
}

#[test]
fn smudge_filter_of_the_repository_runs_confined_when_a_worktree_is_created() {
    let Some(gateway) = gateway("cat README.md >seen.txt") else { return };
    let gateway = gateway.file(".gitattributes", "*.md filter=upper\n");
    gateway.git(&["config", "filter.upper.smudge", "sh -c 'echo x >\"$HOME/escaped\"; tr a-z A-Z'"]);
    gateway.commit("attributes");
    let gateway = gateway.start();
    let saved = run_and_get_workspace(&gateway);
    assert_confined(&gateway);
    // The filter has run.
    assert_eq!(gateway.git(&["show", &format!("{}:seen.txt", saved["branch"].as_str().unwrap())]), "A REPOSITORY");
}

#[test]
fn filter_that_a_run_in_the_checkout_planted_is_confined_in_the_next_worktree() {
    let script = r#"
if [ -d .git ]; then git config filter.evil.clean "$evil"; echo "* filter=evil" >.git/info/attributes; fi
echo new >new.txt"#;
    let Some(gateway) = gateway(script) else { return };
    let gateway = gateway.start();
    gateway.chat("plant").model("here").send().content();
    let saved = run_and_get_workspace(&gateway);
    assert_confined(&gateway);
    assert_eq!(gateway.git(&["show", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]), "new");
}

#[test]
fn filter_does_not_see_the_environment_of_the_gateway() {
    let Some(gateway) = gateway("echo new >new.txt") else { return };
    gateway.git(&["config", "filter.env.clean", "env"]);
    let gateway = gateway.file(".git/info/attributes", "*.txt filter=env\n");
    let gateway =
        gateway.env("TRUNKLINE_PRIVATE", "hunter2").env("OPENAI_API_KEY", "hunter2").env("ANYTHING", "hunter2");
    let gateway = gateway.start();
    let saved = run_and_get_workspace(&gateway);
    let seen = gateway.git(&["show", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]);
    assert!(seen.contains("PATH=") && !seen.contains("hunter2"), "{seen}");
}

#[test]
fn worktree_is_refused_when_the_checkout_points_at_another_repository() {
    let Some(gateway) =
        gateway("if [ -d .git ]; then mv .git old; echo \"gitdir: $OTHER\" >.git; fi; echo new >new.txt")
    else {
        return;
    };
    let other = gateway.path("other");
    gateway.git(&["clone", "-q", ".", other.to_str().unwrap()]);
    let git_dir = other.join(".git").display().to_string();
    let gateway = gateway.env("OTHER", git_dir).start();
    gateway.chat("plant").model("here").send().content();
    let error = gateway.chat("hi").model("m").send().error(500);
    assert_eq!(error["code"], "configuration", "{error}");
    assert!(error["detail"].as_str().unwrap().contains("does not name"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("core.worktree"), "{error}");
    assert!(!other.join(".git/worktrees").exists());
}

/// Configures a filter that never exits, as a user would configure one.
fn with_hanging_filter(gateway: TestGateway, filter: &str) -> TestGateway {
    gateway.git(&["config", &format!("filter.slow.{filter}"), "sh -c 'trap \"\" TERM; while :; do sleep 100; done'"]);
    gateway.file(".git/info/attributes", "* filter=slow\n")
}

#[test]
fn answer_is_sent_and_the_worktree_is_kept_when_saving_exceeds_its_limit() {
    let Some(gateway) = gateway("echo precious >new.txt") else { return };
    let gateway = with_hanging_filter(gateway, "clean").args(&["--git-timeout", "1s"]).start();
    let saved = run_and_get_workspace(&gateway);
    let path = std::path::PathBuf::from(saved["path"].as_str().unwrap_or_else(|| panic!("{saved}")));
    assert_eq!(fs::read_to_string(path.join("new.txt")).unwrap(), "precious\n");
    assert!(saved["reason"].as_str().unwrap().contains("1s"), "{saved}");
    assert_eq!((&saved["branch"], &saved["files_changed"]), (&Value::Null, &Value::Null), "{saved}");
    // The run's row has the same path.
    let run = gateway.get("/v1/runs").json()["data"][0].clone();
    assert_eq!(run["workspace"]["path"], saved["path"], "{run}");
    // Once the filter is removed, the next gateway saves the work and corrects the row.
    gateway.git(&["config", "--unset", "filter.slow.clean"]);
    let mut gateway = gateway;
    gateway.signal(Signal::TERM);
    gateway.wait_for_exit();
    gateway.restart();
    let row = |gateway: &TestGateway| gateway.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).json();
    until("the row is corrected", || row(&gateway)["workspace"]["branch"].is_string());
    let row = row(&gateway);
    assert_eq!((&row["workspace"]["path"], &row["workspace"]["files_changed"]), (&Value::Null, &json!(1)), "{row}");
    let branch = row["workspace"]["branch"].as_str().unwrap();
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "precious");
    assert!(!path.exists());
}

/// Upper bound on a request that kills a hanging git.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn delete_kills_git_when_it_hangs_in_saving_or_checking_out() {
    for filter in ["clean", "smudge"] {
        let Some(gateway) = gateway("tell ran; echo precious >new.txt") else { return };
        let gateway = with_hanging_filter(gateway, filter).start();
        let waiting = gateway.chat("hi").model("m").open();
        // Other tests have the same filter, in folders of their own.
        let filter_runs = || {
            processes_of(&gateway.path("")).into_iter().any(|pid| {
                let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command);
                command.contains("while :; do sleep 100") && !command.contains("config")
            })
        };
        until("the filter runs", filter_runs);
        let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
        let (address, began) = (gateway.address().to_owned(), Instant::now());
        let request = format!("DELETE /v1/runs/{run} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let deleted = send_raw(&address, &request).finish();
        assert!(began.elapsed() < KILL_TIMEOUT, "{filter}: {:?}", began.elapsed());
        assert_eq!(deleted.status, 200, "{filter}: {deleted:?}");
        drop(waiting);
        let mut gateway = gateway;
        gateway.signal(Signal::TERM);
        gateway.wait_for_exit();
        assert!(began.elapsed() < KILL_TIMEOUT * 2, "{filter}");
    }
}

#[test]
fn gateway_stops_promptly_when_git_hangs() {
    let Some(gateway) = gateway("echo precious >new.txt") else { return };
    let mut gateway = with_hanging_filter(gateway, "clean").start();
    let _waiting = gateway.chat("hi").model("m").open();
    let saving = || fs::read_dir(gateway.path("state/git")).is_ok_and(|mut entries| entries.next().is_some());
    until("saving has begun", saving);
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    gateway.wait_for_exit();
    assert!(began.elapsed() < KILL_TIMEOUT, "{:?}", began.elapsed());
    let kept = fs::read_dir(gateway.path("worktrees")).unwrap().flatten().next().expect("the worktree is kept").path();
    assert_eq!(fs::read_to_string(kept.join("new.txt")).unwrap(), "precious\n");
}

#[test]
fn git_timeout_is_refused_when_it_is_out_of_range() {
    let gateway = TestGateway::new();
    for (value, message) in [
        ("-1s", "unexpected argument"),
        ("0", "not a time"),
        ("10ms", "from 1s to 1h"),
        ("3d", "not a time"),
        ("99h", "from 1s to 1h"),
    ] {
        let ran = gateway.run(&["serve", "--port", "0", "--git-timeout", value]).exits(2);
        assert!(ran.stderr.contains(message), "{value}: {}", ran.stderr);
    }
}

#[test]
fn programs_in_gits_configuration_do_not_run_when_the_kernel_cannot_confine() {
    let script = "echo more >>README.md; echo new >new.txt; codex_answers done";
    let gateway = TestGateway::new().without_landlock().cli("codex", script);
    let gateway = gateway.model("m", json!({"driver": "codex", "worktree": true}));
    for key in ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "diff.x.textconv"] {
        gateway.git(&["config", key, ESCAPING_FILTER]);
    }
    gateway.git(&["config", "filter.evil.required", "true"]);
    let gateway = gateway.file(".git/info/attributes", "* filter=evil diff=x\n").start();
    let reply = gateway.chat("hi").send().json();
    let (run, saved) = (reply["trunkline"]["run"].as_str().unwrap(), &reply["trunkline"]["workspace"]);
    assert_confined(&gateway);
    assert_eq!(gateway.git(&["cat-file", "blob", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]), "new");
    assert_eq!(gateway.get(&format!("/v1/runs/{run}/diff")).status, 200);
    assert_confined(&gateway);
}

#[test]
fn required_sandbox_is_refused_with_the_reason_when_the_kernel_cannot_confine() {
    let gateway = TestGateway::new().without_landlock().cli("codex", "tell ran");
    gateway.git(&["config", "filter.evil.smudge", ESCAPING_FILTER]);
    let entry = json!({"driver": "codex", "worktree": true, "sandbox": "required"});
    let gateway = gateway.file(".git/info/attributes", "* filter=evil\n").model("m", entry);
    let ran = gateway.run(&["serve", "--port", "0", "--sandbox", "required"]).exits(3);
    assert!(ran.stderr.contains("no Landlock"), "{}", ran.stderr);
    let gateway = gateway.start();
    let error = gateway.chat("hi").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("no Landlock"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
    assert!(fs::read_dir(gateway.path("worktrees")).map_or(true, |mut trees| trees.next().is_none()));
    assert_confined(&gateway);
}

#[test]
fn large_files_of_git_lfs_are_checked_out_and_saved() {
    let Some(found) = find("git-lfs") else { return eprintln!("skipped: git-lfs is not installed") };
    let Some(gateway) = gateway("cat old.bin >seen.txt; echo work >new.bin") else { return };
    std::os::unix::fs::symlink(found, gateway.path("tools/git-lfs")).unwrap();
    gateway.git(&["lfs", "install", "--skip-repo"]);
    let gateway =
        gateway.file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n").file("old.bin", "large\n");
    gateway.commit("large files");
    let gateway = gateway.start();
    let saved = run_and_get_workspace(&gateway);
    let branch = saved["branch"].as_str().unwrap_or_else(|| panic!("{saved}"));
    assert_eq!(gateway.git(&["show", &format!("{branch}:seen.txt")]), "large");
    let pointer = gateway.git(&["show", &format!("{branch}:new.bin")]);
    let name =
        pointer.split("sha256:").nth(1).unwrap_or_else(|| panic!("{pointer}")).split_whitespace().next().unwrap();
    let stored = gateway.repo().join(".git/lfs/objects").join(&name[..2]).join(&name[2..4]).join(name);
    assert_eq!(fs::read_to_string(stored).unwrap(), "work\n");
}
