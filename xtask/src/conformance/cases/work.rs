//! Cases about what is done: files, worktrees, tools and the processes they start.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::conformance::look::{Process, exists, processes, until};
use crate::conformance::place::{README, git};
use crate::conformance::scene::{Scene, content, equal, holds};

/// Until a CLI has started a tool. OpenCode alone takes half of it on a busy machine.
const TOOL_PATIENCE: Duration = Duration::from_secs(90);

/// Until nothing is left of a run whose client hung up.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn edit(scene: &Scene<'_>) -> Result<()> {
    let reply = scene.ask("Repaint the lighthouse.")?;
    equal("the answer", content(&reply)?.as_str(), "The lighthouse is repainted.")?;
    let receipt = reply.json()["trunkline"]["workspace"].clone();
    equal("files changed", receipt["files_changed"].as_u64(), Some(1))?;
    let branch = receipt["branch"].as_str().context("the receipt names no branch")?;
    let painted = git(scene.repo(), &["show", &format!("{branch}:README.md")])?;
    equal("README.md on the branch", painted, README.replace("grey", "ochre"))?;
    untouched(scene)
}

pub(super) fn five(scene: &Scene<'_>) -> Result<()> {
    let receipts: Vec<Result<Value>> = thread::scope(|scope| {
        let workers: Vec<_> = (1..=5).map(|number| scope.spawn(move || lay_stone(scene, number))).collect();
        workers.into_iter().map(|worker| worker.join().expect("cases do not panic")).collect()
    });
    let mut branches = Vec::new();
    for (receipt, number) in receipts.into_iter().zip(1..) {
        let receipt = receipt.with_context(|| format!("worker {number}"))?;
        let branch = receipt["branch"].as_str().context("the receipt names no branch")?.to_owned();
        let changed = git(scene.repo(), &["diff", "--name-only", "main", &branch])?;
        equal("files that worker changed", changed.trim(), format!("stone-{number}.txt").as_str())?;
        branches.push(branch);
    }
    branches.sort();
    branches.dedup();
    equal("branches", branches.len(), 5)?;
    untouched(scene)
}

fn lay_stone(scene: &Scene<'_>, number: usize) -> Result<Value> {
    let reply = scene.ask(&format!("Worker {number} lays stone {number}."))?;
    equal("the answer", content(&reply)?, format!("Stone {number} is laid."))?;
    Ok(reply.json()["trunkline"]["workspace"].clone())
}

pub(super) fn hang_up(scene: &Scene<'_>) -> Result<()> {
    let client = scene.begin_stream("Keep the lamp burning.")?;
    let runs = |list: &[Process]| {
        let both = ["tail -f AGENTS.md", "tail -f README.md"];
        both.iter().all(|line| list.iter().any(|process| process.line == *line))
    };
    let family = until(TOOL_PATIENCE, "the tool runs", || Some(processes(&scene.marker)).filter(|all| runs(all)))?;
    drop(client);
    let left = || {
        let mut left = processes(&scene.marker);
        left.extend(family.iter().filter(|process| exists(process)).cloned());
        left
    };
    if until(STOP_PATIENCE, "nothing is left", || left().is_empty().then_some(())).is_err() {
        bail!("left 10 s after the client hung up: {:?}", left());
    }
    untouched(scene)
}

/// The user's own checkout is as it was.
fn untouched(scene: &Scene<'_>) -> Result<()> {
    equal("changes in the checkout", git(scene.repo(), &["status", "--porcelain"])?.as_str(), "")?;
    let head = git(scene.repo(), &["log", "--format=%s", "-1"])?;
    holds("the checkout is on its own commit", head.trim() == "start")
}
