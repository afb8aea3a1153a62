//! The gateway's own git: programs that an agent names in git's configuration run confined, for a limited time, and die when
//! their run is cancelled.
//!
//! The worlds lie outside of the folders for temporary files, which every run may write.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use trunkline_process::Landlock;

use crate::http::send_raw;
use crate::observe::until;
use crate::test_gateway::{TestGateway, find};

/// A filter that writes outside of every workspace.
const EVIL: &str = "sh -c 'echo x >\"$HOME/escaped\"; cat'";

/// A model `m` in a worktree and a model `here` in the checkout, both confined; none where the kernel cannot do it.
fn gateway(script: &str) -> Option<TestGateway> {
    if let Err(missing) = Landlock::here() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let entry = |worktree: bool| json!({"driver": "claude", "worktree": worktree, "sandbox": "required"});
    let answer = r#"printf '{"type":"result","subtype":"success","is_error":false,"result":"done"}\n'"#;
    let script = format!("evil={EVIL:?}\n{script}\n{answer}");
    Some(TestGateway::outside_tmp()?.cli("claude", &script).model("m", entry(true)).model("here", entry(false)))
}

fn held(gateway: &TestGateway) {
    assert!(!gateway.path("home/escaped").exists(), "a program ran outside of its confinement");
}

fn workspace(gateway: &TestGateway) -> Value {
    let reply = gateway.chat("hi").model("m").send();
    reply.json()["trunkline"]["workspace"].clone()
}

#[test]
fn clean_filter_is_confined_when_the_agent_points_commondir_at_its_own_configuration() {
    let script = r#"
dir=$(git rev-parse --absolute-git-dir); mkdir common
printf '[filter "evil"]\n\tclean = %s\n' "sh -c 'echo x >~/escaped; cat'" >common/config
echo "$PWD/common" >"$dir/commondir"; echo "* filter=evil" >.gitattributes; echo new >new.txt"#;
    let Some(line) = gateway(script) else { return };
    let line = line.start();
    let saved = workspace(&line);
    held(&line);
    assert_eq!(line.git(&["show", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]), "new");
}

#[test]
fn filter_of_a_nested_repository_is_confined_and_the_repository_is_kept() {
    let script = r#"
git init -q sub; echo a >sub/a; echo "* filter=evil" >sub/.gitattributes; git -C sub config user.name A
git -C sub config user.email a@b; git -C sub add .; git -C sub commit -qm a; git -C sub config filter.evil.clean "$evil"
git add sub; echo b >>sub/a"#;
    let Some(line) = gateway(script) else { return };
    let line = line.start();
    let saved = workspace(&line);
    held(&line);
    let path = std::path::PathBuf::from(saved["path"].as_str().unwrap_or_else(|| panic!("{saved}")));
    assert_eq!(fs::read_to_string(path.join("sub/a")).unwrap(), "a\nb\n");
    assert!(saved["reason"].as_str().unwrap().starts_with("sub: a repository of its own"), "{saved}");
}

#[test]
fn filter_in_the_configuration_of_the_worktree_is_not_used() {
    let script = r#"
dir=$(git rev-parse --absolute-git-dir); git config --file "$dir/config.worktree" filter.evil.clean "$evil"
echo "* filter=evil" >.gitattributes; echo new >new.txt"#;
    let Some(line) = gateway(script) else { return };
    line.git(&["config", "extensions.worktreeConfig", "true"]);
    let line = line.start();
    let saved = workspace(&line);
    held(&line);
    assert_eq!(saved["files_changed"], 2, "{saved}");
}

#[test]
fn smudge_filter_of_the_repository_runs_confined_when_a_worktree_is_made() {
    let Some(line) = gateway("cat README.md >seen.txt") else { return };
    let line = line.file(".gitattributes", "*.md filter=upper\n");
    line.git(&["config", "filter.upper.smudge", "sh -c 'echo x >\"$HOME/escaped\"; tr a-z A-Z'"]);
    line.commit("attributes");
    let line = line.start();
    let saved = workspace(&line);
    held(&line);
    // The filter itself did its work.
    assert_eq!(line.git(&["show", &format!("{}:seen.txt", saved["branch"].as_str().unwrap())]), "A REPOSITORY");
}

#[test]
fn filter_that_a_run_in_the_checkout_planted_is_confined_in_the_next_worktree() {
    let script = r#"
if [ -d .git ]; then git config filter.evil.clean "$evil"; echo "* filter=evil" >.git/info/attributes; fi
echo new >new.txt"#;
    let Some(line) = gateway(script) else { return };
    let line = line.start();
    line.chat("plant").model("here").send().content();
    let saved = workspace(&line);
    held(&line);
    assert_eq!(line.git(&["show", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]), "new");
}

#[test]
fn filter_sees_nothing_of_the_gateways_environment() {
    let Some(line) = gateway("echo new >new.txt") else { return };
    line.git(&["config", "filter.env.clean", "env"]);
    let line = line.file(".git/info/attributes", "*.txt filter=env\n");
    let line = line.env("TRUNKLINE_PRIVATE", "hunter2").env("OPENAI_API_KEY", "hunter2").env("ANYTHING", "hunter2");
    let line = line.start();
    let saved = workspace(&line);
    let seen = line.git(&["show", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]);
    assert!(seen.contains("PATH=") && !seen.contains("hunter2"), "{seen}");
}

#[test]
fn repository_that_names_another_repository_as_its_own_is_refused() {
    let Some(line) = gateway("if [ -d .git ]; then mv .git old; echo \"gitdir: $OTHER\" >.git; fi; echo new >new.txt")
    else {
        return;
    };
    let other = line.path("other");
    line.git(&["clone", "-q", ".", other.to_str().unwrap()]);
    let git_dir = other.join(".git").display().to_string();
    let line = line.env("OTHER", git_dir).start();
    line.chat("plant").model("here").send().content();
    let error = line.chat("hi").model("m").send().error(500);
    assert_eq!(error["code"], "configuration", "{error}");
    assert!(error["detail"].as_str().unwrap().contains("does not say that"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("core.worktree"), "{error}");
    assert!(!other.join(".git/worktrees").exists());
}

/// A filter that never ends, planted as a user's own.
fn hanging(gateway: TestGateway, filter: &str) -> TestGateway {
    gateway.git(&["config", &format!("filter.slow.{filter}"), "sh -c 'trap \"\" TERM; while :; do sleep 100; done'"]);
    gateway.file(".git/info/attributes", "* filter=slow\n")
}

#[test]
fn answer_comes_and_the_worktree_stays_when_saving_takes_longer_than_its_limit() {
    let Some(line) = gateway("echo precious >new.txt") else { return };
    let line = hanging(line, "clean").args(&["--git-timeout", "1s"]).start();
    let saved = workspace(&line);
    let path = std::path::PathBuf::from(saved["path"].as_str().unwrap_or_else(|| panic!("{saved}")));
    assert_eq!(fs::read_to_string(path.join("new.txt")).unwrap(), "precious\n");
    assert!(saved["reason"].as_str().unwrap().contains("1s"), "{saved}");
    assert_eq!((&saved["branch"], &saved["files_changed"]), (&Value::Null, &Value::Null), "{saved}");
    // The run's row says the same.
    let run = line.get("/v1/runs").json()["data"][0].clone();
    assert_eq!(run["workspace"]["path"], saved["path"], "{run}");
    // And when the filter is gone, the next gateway saves the work and corrects the row.
    line.git(&["config", "--unset", "filter.slow.clean"]);
    let mut line = line;
    line.signal(Signal::TERM);
    line.wait_for_exit();
    line.restart();
    let row = |line: &TestGateway| line.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).json();
    until("the row is corrected", || row(&line)["workspace"]["branch"].is_string());
    let row = row(&line);
    assert_eq!((&row["workspace"]["path"], &row["workspace"]["files_changed"]), (&Value::Null, &json!(1)), "{row}");
    let branch = row["workspace"]["branch"].as_str().unwrap();
    assert_eq!(line.git(&["show", &format!("{branch}:new.txt")]), "precious");
    assert!(!path.exists());
}

/// How long a request may take that kills a git which hangs.
const PROMPTLY: Duration = Duration::from_secs(20);

#[test]
fn delete_kills_a_git_that_hangs_while_saving_and_while_checking_out() {
    for filter in ["clean", "smudge"] {
        let Some(line) = gateway("tell ran; echo precious >new.txt") else { return };
        let line = hanging(line, filter).start();
        let waiting = line.chat("hi").model("m").open();
        let hangs = || {
            fs::read_dir("/proc").unwrap().flatten().any(|process| {
                let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
                let command = String::from_utf8_lossy(&command);
                command.contains("while :; do sleep 100") && !command.contains("config")
            })
        };
        until("the filter hangs", hangs);
        let run = line.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
        let (address, began) = (line.address().to_owned(), Instant::now());
        let request = format!("DELETE /v1/runs/{run} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let deleted = send_raw(&address, &request).finish();
        assert!(began.elapsed() < PROMPTLY, "{filter}: {:?}", began.elapsed());
        assert_eq!(deleted.status, 200, "{filter}: {deleted:?}");
        drop(waiting);
        let mut line = line;
        line.signal(Signal::TERM);
        line.wait_for_exit();
        assert!(began.elapsed() < PROMPTLY * 2, "{filter}");
    }
}

#[test]
fn gateway_stops_promptly_when_a_git_hangs() {
    let Some(line) = gateway("echo precious >new.txt") else { return };
    let mut line = hanging(line, "clean").start();
    let _waiting = line.chat("hi").model("m").open();
    let saving = || fs::read_dir(line.path("state/git")).is_ok_and(|mut rooms| rooms.next().is_some());
    until("saving has begun", saving);
    let began = Instant::now();
    line.signal(Signal::TERM);
    line.wait_for_exit();
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
    let kept = fs::read_dir(line.path("worktrees")).unwrap().flatten().next().expect("the worktree stays").path();
    assert_eq!(fs::read_to_string(kept.join("new.txt")).unwrap(), "precious\n");
}

#[test]
fn time_limit_of_git_that_nobody_can_have_meant_is_refused() {
    let gateway = TestGateway::new();
    for (wrong, says) in [
        ("-1s", "unexpected argument"),
        ("0", "not a time"),
        ("10ms", "from 1s to 1h"),
        ("3d", "not a time"),
        ("99h", "from 1s to 1h"),
    ] {
        let ran = gateway.run(&["serve", "--port", "0", "--git-timeout", wrong]).exits(2);
        assert!(ran.stderr.contains(says), "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn programs_in_gits_configuration_do_not_run_when_the_kernel_cannot_confine() {
    let script = "echo more >>README.md; echo new >new.txt; codex_answers done";
    let gateway = TestGateway::new().without_landlock().cli("codex", script);
    let gateway = gateway.model("m", json!({"driver": "codex", "worktree": true}));
    for key in ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "diff.x.textconv"] {
        gateway.git(&["config", key, EVIL]);
    }
    gateway.git(&["config", "filter.evil.required", "true"]);
    let gateway = gateway.file(".git/info/attributes", "* filter=evil diff=x\n").start();
    let reply = gateway.chat("hi").send().json();
    let (run, saved) = (reply["trunkline"]["run"].as_str().unwrap(), &reply["trunkline"]["workspace"]);
    held(&gateway);
    assert_eq!(gateway.git(&["cat-file", "blob", &format!("{}:new.txt", saved["branch"].as_str().unwrap())]), "new");
    assert_eq!(gateway.get(&format!("/v1/runs/{run}/diff")).status, 200);
    held(&gateway);
}

#[test]
fn required_sandbox_is_refused_with_the_reason_when_the_kernel_cannot_confine() {
    let gateway = TestGateway::new().without_landlock().cli("codex", "tell ran");
    gateway.git(&["config", "filter.evil.smudge", EVIL]);
    let entry = json!({"driver": "codex", "worktree": true, "sandbox": "required"});
    let gateway = gateway.file(".git/info/attributes", "* filter=evil\n").model("m", entry);
    let ran = gateway.run(&["serve", "--port", "0", "--sandbox", "required"]).exits(3);
    assert!(ran.stderr.contains("no Landlock"), "{}", ran.stderr);
    let gateway = gateway.start();
    let error = gateway.chat("hi").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("no Landlock"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
    assert!(fs::read_dir(gateway.path("worktrees")).map_or(true, |mut trees| trees.next().is_none()));
    held(&gateway);
}

#[test]
fn large_files_of_git_lfs_are_checked_out_and_saved() {
    let Some(found) = find("git-lfs") else { return eprintln!("skipped: there is no git-lfs") };
    let Some(line) = gateway("cat old.bin >seen.txt; echo work >new.bin") else { return };
    std::os::unix::fs::symlink(found, line.path("tools/git-lfs")).unwrap();
    line.git(&["lfs", "install", "--skip-repo"]);
    let line = line.file(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n").file("old.bin", "large\n");
    line.commit("large files");
    let line = line.start();
    let saved = workspace(&line);
    let branch = saved["branch"].as_str().unwrap_or_else(|| panic!("{saved}"));
    assert_eq!(line.git(&["show", &format!("{branch}:seen.txt")]), "large");
    let pointer = line.git(&["show", &format!("{branch}:new.bin")]);
    let name =
        pointer.split("sha256:").nth(1).unwrap_or_else(|| panic!("{pointer}")).split_whitespace().next().unwrap();
    let stored = line.repo().join(".git/lfs/objects").join(&name[..2]).join(&name[2..4]).join(name);
    assert_eq!(fs::read_to_string(stored).unwrap(), "work\n");
}
