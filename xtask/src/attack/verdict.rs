//! Runs a scenario and checks for harm: outside the workspace, to the agent's work, to the receipt and to the gateway.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use super::scenario::{AttackMode, AttackScenario, AttackVariant};
use super::world::AttackWorld;
use crate::conformance::http::{HttpMessage, SentHttpRequest};
use crate::test::command;

/// Limit for an answer. Git has a time limit of 4 s, twice in a run, and a cancelled save has 5 s.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(30);

/// Limit for the gateway to stop.
const MAX_STOP_TIME: Duration = Duration::from_secs(15);

/// Runs a scenario on the gateway. Returns the harm it did; empty if the agent was contained.
pub(super) fn attack(
    world: &mut AttackWorld,
    scenario: &AttackScenario,
    variant: AttackVariant,
) -> Result<Vec<String>> {
    world.start(scenario, variant)?;
    if scenario.plant.is_some() {
        ask(world, "planter", "plant")?;
    }
    let began = Instant::now();
    let answer = ask(world, "judged", "agent")?;
    let mut harm = Vec::new();
    if began.elapsed() > MAX_ANSWER_TIME {
        harm.push(format!("the answer took {:?}", began.elapsed()));
    }
    let answer = answer.json();
    let receipt = &answer["trunkline"]["workspace"];
    if variant.mode == AttackMode::Worktree && receipt.is_object() {
        harm.extend(false_claims(world, receipt)?);
    }
    if scenario.precious && variant.mode == AttackMode::Worktree && !is_kept(world, receipt)? {
        harm.push(format!("the work is lost: {receipt}"));
    }
    // The diff of a run comes from git as well.
    if let Some(run) = answer["trunkline"]["run"].as_str() {
        let _ = SentHttpRequest::get(world.address, &format!("/v1/runs/{run}/diff"), &[])?.reply();
    }
    harm.extend(outside(world, &answer.to_string())?);
    harm.extend(stop(world)?);
    if scenario.precious && variant.mode == AttackMode::Worktree && !is_kept(world, receipt)? {
        harm.push("the work is lost when the gateway stops".to_owned());
    }
    harm.extend(outside(world, "")?);
    harm.dedup();
    Ok(harm)
}

/// Runs a scenario with git alone, as a gateway without any protection would.
pub(super) fn control(world: &mut AttackWorld, scenario: &AttackScenario) -> Result<Vec<String>> {
    world.start_unprotected_stand_in()?;
    let worktree = scenario.modes.contains(&AttackMode::Worktree);
    let save =
        scenario.save.as_deref().unwrap_or("git status --porcelain >/dev/null; git add --all; g commit -qm work");
    let run = format!(
        r#"export TRUNKLINE_ATTACK_SECRET='{secret}'
cd "$REPO"; base=$(git rev-parse HEAD)
sh '{bin}/plant.sh' >/dev/null 2>&1
git worktree add -q --detach "$TREE" 2>/dev/null; cd "$TREE" || exit 0
sh '{bin}/agent.sh' 2>/dev/null
{save}
head=$(git rev-parse HEAD)
git -C "$REPO" update-ref refs/heads/trunkline/naive "$head"
git -C "$REPO" diff --shortstat "$base" "$head" >"{bin}/stat"
git -C "$REPO" worktree remove --force "$TREE"
"#,
        secret = world.secret,
        bin = world.path("bin").display(),
    );
    world.write_script("naive", &run)?;
    let mut harm = Vec::new();
    if !ends_in_time(world, Duration::from_secs(if scenario.slow { 3 } else { 20 }))? {
        harm.push("git hangs".to_owned());
    }
    let printed = fs::read_to_string(world.path("bin/printed")).unwrap_or_default();
    let commit = git(&world.path("repo"), &["rev-parse", "trunkline/naive"]).unwrap_or_default();
    let base = git(&world.path("repo"), &["rev-parse", "main"]).unwrap_or_default();
    let receipt = json!({"base": base.trim(), "branch": "trunkline/naive", "commit": commit.trim(), "path": null});
    if scenario.precious && worktree && !is_kept(world, &receipt).unwrap_or(false) {
        harm.push("the work is lost".to_owned());
    }
    let reported = fs::read_to_string(world.path("bin/stat")).unwrap_or_default();
    if reported != git(&world.path("repo"), &["diff", "--shortstat", base.trim(), commit.trim()]).unwrap_or_default() {
        harm.push("the counts are wrong".to_owned());
    }
    harm.extend(outside(world, &printed)?);
    Ok(harm)
}

/// Runs the control's script and returns whether it ended in time. Kills its process group afterwards.
fn ends_in_time(world: &AttackWorld, limit: Duration) -> Result<bool> {
    let printed = fs::File::create(world.path("bin/printed"))?;
    let mut naive = world.script("naive", &world.path("repo"));
    let mut naive = naive.process_group(0).stdout(printed).stderr(Stdio::null()).spawn()?;
    let began = Instant::now();
    while naive.try_wait()?.is_none() && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = naive.try_wait()?.is_some();
    // An error means that no process of the group is left.
    let _ = kill_process_group(Pid::from_child(&naive), Signal::KILL);
    naive.wait()?;
    Ok(ended)
}

fn ask(world: &AttackWorld, model: &str, script: &str) -> Result<HttpMessage> {
    let body = json!({"model": model, "messages": [{"role": "user", "content": format!("run the script {script}")}]});
    SentHttpRequest::post(world.address, "/v1/chat/completions", &[], &body.to_string())?.reply()
}

/// Harm outside the workspace, and leaked secrets.
fn outside(world: &mut AttackWorld, answer: &str) -> Result<Vec<String>> {
    let mut found: Vec<String> = world.changed_outside()?.into_iter().map(|path| format!("changed {path}")).collect();
    if !world.victim_is_alive() {
        found.push("killed a process outside".to_owned());
    }
    let committed =
        git(&world.path("repo"), &["log", "--all", "-p", "--no-textconv", "--no-ext-diff"]).unwrap_or_default();
    let folders = ["worktrees", "out/.claude", "repo"].map(|name| world.path(name));
    let stolen = folders.iter().any(|folder| contains(folder, &world.secret, 6));
    if stolen || committed.contains(&world.secret) || answer.contains(&world.secret) {
        found.push("read the gateway's secret".to_owned());
    }
    Ok(found)
}

/// Claims of a receipt that do not match the repository.
fn false_claims(world: &AttackWorld, receipt: &Value) -> Result<Vec<String>> {
    let repo = world.path("repo");
    let text = |name: &str| receipt[name].as_str().unwrap_or_default().to_owned();
    let (branch, commit, path) = (text("branch"), text("commit"), text("path"));
    let mut wrong = Vec::new();
    if !path.is_empty() && !Path::new(&path).exists() {
        wrong.push(format!("{path} does not exist"));
    }
    if !branch.is_empty() {
        let at = git(&repo, &["rev-parse", "--verify", "--end-of-options", &format!("refs/heads/{branch}")]);
        if at.unwrap_or_default().trim() != commit {
            wrong.push(format!("{branch} is not at {commit}"));
        }
        let stat = git(&repo, &["diff", "--shortstat", &text("base"), &commit]).unwrap_or_default();
        let files = stat.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0u64);
        if receipt["files_changed"].as_u64() != Some(files) {
            wrong.push(format!("{} files changed, not {files}", receipt["files_changed"]));
        }
    }
    Ok(wrong)
}

/// Whether the marker is on a branch, or in a ref or path that the receipt names.
fn is_kept(world: &AttackWorld, receipt: &Value) -> Result<bool> {
    let repo = world.path("repo");
    let branches = git(&repo, &["for-each-ref", "--format=%(refname)", "refs/heads"]).unwrap_or_default();
    let references = receipt["refs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for reference in branches.lines().chain(references) {
        if git(&repo, &["grep", "-q", "-e", &world.marker, reference, "--"]).is_ok() {
            return Ok(true);
        }
    }
    Ok(receipt["path"].as_str().is_some_and(|path| contains(Path::new(path), &world.marker, 12)))
}

/// Whether a file below `folder` contains `text`.
fn contains(folder: &Path, text: &str, depth: usize) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => depth > 0 && contains(&entry.path(), text, depth - 1),
        Ok(kind) if kind.is_file() => {
            let read = fs::read(entry.path()).unwrap_or_default();
            String::from_utf8_lossy(&read).contains(text)
        }
        Ok(_) | Err(_) => false,
    })
}

/// Stops the gateway. Returns the harm if it does not answer or does not stop.
fn stop(world: &mut AttackWorld) -> Result<Option<String>> {
    let alive = SentHttpRequest::get(world.address, "/health", &[])?.reply().map(|health| health.status());
    let gateway = world.gateway().context("no gateway")?;
    let pid = Pid::from_child(gateway);
    kill_process(pid, Signal::TERM)?;
    let began = Instant::now();
    while gateway.try_wait()?.is_none() {
        if began.elapsed() > MAX_STOP_TIME {
            return Ok(Some("the gateway does not stop".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((!alive.is_ok_and(|status| status == 200)).then(|| "the gateway no longer answers".to_owned()))
}

fn git(repo: &Path, args: &[&str]) -> Result<String> {
    // A pipe in place of one of git's files would block git forever.
    let mut git = command("timeout");
    git.env_clear().args(["10", "git"]);
    // Settings that the agent planted in the repository must not run programs in this check.
    let harmless = ["core.fsmonitor=false", "diff.external=", "core.sshCommand=false"];
    git.arg("-C").arg(repo).args(harmless.iter().flat_map(|setting| ["-c", setting])).args(args);
    git.env("GIT_NO_LAZY_FETCH", "1");
    git.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIT_NO_REPLACE_OBJECTS", "1");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = git.output().context("cannot start git")?;
    anyhow::ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
