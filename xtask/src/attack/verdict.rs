//! The look after an attack: what it reached, and whether the receipt is true.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use super::scenario::{Mode, Scenario, Way};
use super::world::World;
use crate::conformance::http::{Message, Pending};
use crate::test::command;

/// An answer that takes longer hangs. Git has 4 s in an attack, twice in a run, and a cancelled save 5 s.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(30);

/// A gateway that takes longer to stop hangs.
const MAX_STOP_TIME: Duration = Duration::from_secs(15);

/// Tries a scenario on the gateway. Returns what the agent achieved; nothing means that it was held.
pub(super) fn attack(world: &mut World, scenario: &Scenario, way: Way) -> Result<Vec<String>> {
    world.start(scenario, way)?;
    if scenario.plant.is_some() {
        ask(world, "planter", "plant")?;
    }
    let began = Instant::now();
    let answer = ask(world, "judged", "agent")?;
    let mut achieved = Vec::new();
    if began.elapsed() > MAX_ANSWER_TIME {
        achieved.push(format!("the answer took {:?}", began.elapsed()));
    }
    let answer = answer.json();
    let receipt = &answer["trunkline"]["workspace"];
    if way.mode == Mode::Worktree && receipt.is_object() {
        achieved.extend(untruths(world, receipt)?);
    }
    if scenario.precious && way.mode == Mode::Worktree && !is_kept(world, receipt)? {
        achieved.push(format!("the work is lost: {receipt}"));
    }
    // The diff of a run is made by git as well.
    if let Some(run) = answer["trunkline"]["run"].as_str() {
        let _ = Pending::get(world.address, &format!("/v1/runs/{run}/diff"), &[])?.reply();
    }
    achieved.extend(outside(world, &answer.to_string())?);
    achieved.extend(stop(world)?);
    if scenario.precious && way.mode == Mode::Worktree && !is_kept(world, receipt)? {
        achieved.push("the work is lost when the gateway stops".to_owned());
    }
    achieved.extend(outside(world, "")?);
    achieved.dedup();
    Ok(achieved)
}

/// Tries a scenario on git alone, as a gateway without any protection would run it.
pub(super) fn control(world: &mut World, scenario: &Scenario) -> Result<Vec<String>> {
    world.stand_in_for_gateway()?;
    let worktree = scenario.modes.contains(&Mode::Worktree);
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
    let mut achieved = Vec::new();
    if !ends(world, Duration::from_secs(if scenario.slow { 3 } else { 20 }))? {
        achieved.push("git hangs".to_owned());
    }
    let printed = fs::read_to_string(world.path("bin/printed")).unwrap_or_default();
    let commit = git(&world.path("repo"), &["rev-parse", "trunkline/naive"]).unwrap_or_default();
    let base = git(&world.path("repo"), &["rev-parse", "main"]).unwrap_or_default();
    let receipt = json!({"base": base.trim(), "branch": "trunkline/naive", "commit": commit.trim(), "path": null});
    if scenario.precious && worktree && !is_kept(world, &receipt).unwrap_or(false) {
        achieved.push("the work is lost".to_owned());
    }
    let said = fs::read_to_string(world.path("bin/stat")).unwrap_or_default();
    if said != git(&world.path("repo"), &["diff", "--shortstat", base.trim(), commit.trim()]).unwrap_or_default() {
        achieved.push("the counts are untrue".to_owned());
    }
    achieved.extend(outside(world, &printed)?);
    Ok(achieved)
}

/// Runs the control's script, and says whether it ended in time. Whatever is left of it is killed.
fn ends(world: &World, limit: Duration) -> Result<bool> {
    let printed = fs::File::create(world.path("bin/printed"))?;
    let mut naive = world.script("naive", &world.path("repo"));
    let mut naive = naive.process_group(0).stdout(printed).stderr(Stdio::null()).spawn()?;
    let began = Instant::now();
    while naive.try_wait()?.is_none() && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = naive.try_wait()?.is_some();
    // Of a group that is gone there is nothing to kill.
    let _ = kill_process_group(Pid::from_child(&naive), Signal::KILL);
    naive.wait()?;
    Ok(ended)
}

fn ask(world: &World, model: &str, script: &str) -> Result<Message> {
    let body = json!({"model": model, "messages": [{"role": "user", "content": format!("run the script {script}")}]});
    Pending::post(world.address, "/v1/chat/completions", &[], &body.to_string())?.reply()
}

/// Harm outside of the workspace, and secrets that came to light.
fn outside(world: &mut World, answer: &str) -> Result<Vec<String>> {
    let mut found: Vec<String> = world.changed_outside()?.into_iter().map(|path| format!("changed {path}")).collect();
    if !world.victim_lives() {
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

/// Claims of a receipt that are not so.
fn untruths(world: &World, receipt: &Value) -> Result<Vec<String>> {
    let repo = world.path("repo");
    let text = |name: &str| receipt[name].as_str().unwrap_or_default().to_owned();
    let (branch, commit, path) = (text("branch"), text("commit"), text("path"));
    let mut untrue = Vec::new();
    if !path.is_empty() && !Path::new(&path).exists() {
        untrue.push(format!("there is no {path}"));
    }
    if !branch.is_empty() {
        let at = git(&repo, &["rev-parse", "--verify", "--end-of-options", &format!("refs/heads/{branch}")]);
        if at.unwrap_or_default().trim() != commit {
            untrue.push(format!("{branch} is not at {commit}"));
        }
        let stat = git(&repo, &["diff", "--shortstat", &text("base"), &commit]).unwrap_or_default();
        let files = stat.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0u64);
        if receipt["files_changed"].as_u64() != Some(files) {
            untrue.push(format!("{} files changed, not {files}", receipt["files_changed"]));
        }
    }
    Ok(untrue)
}

/// Whether the marker is on a branch, or where the receipt says.
fn is_kept(world: &World, receipt: &Value) -> Result<bool> {
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

/// Whether a file below a folder has this text.
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

/// Asks the gateway to stop, and says if it does not.
fn stop(world: &mut World) -> Result<Option<String>> {
    let alive = Pending::get(world.address, "/health", &[])?.reply().map(|health| health.status());
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
    Ok((!alive.is_ok_and(|status| status == 200)).then(|| "the gateway does not answer any more".to_owned()))
}

fn git(repo: &Path, args: &[&str]) -> Result<String> {
    // A pipe in the place of a file of git's would keep it for ever.
    let mut git = command("timeout");
    git.env_clear().args(["10", "git"]);
    // What was planted in the repository's settings must not harm the one who looks.
    let harmless = ["core.fsmonitor=false", "diff.external=", "core.sshCommand=false"];
    git.arg("-C").arg(repo).args(harmless.iter().flat_map(|setting| ["-c", setting])).args(args);
    git.env("GIT_NO_LAZY_FETCH", "1");
    git.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIT_NO_REPLACE_OBJECTS", "1");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = git.output().context("cannot start git")?;
    anyhow::ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
