//! Cases about files, worktrees, tools and the processes that tools start.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::environment::{README, git};
use crate::conformance::observe::{MarkedProcess, exists, processes, wait_until};

/// Limit for a CLI to start a tool. OpenCode takes half of it on a busy machine.
const TOOL_TIMEOUT: Duration = Duration::from_secs(90);

/// Limit for the processes of a run to end after its client disconnected.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn edit(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.ask("Repaint the lighthouse.")?;
    equal("the answer", content(&reply)?.as_str(), "The lighthouse is repainted.")?;
    let receipt = reply.json()["trunkline"]["workspace"].clone();
    equal("files changed", receipt["files_changed"].as_u64(), Some(1))?;
    let branch = receipt["branch"].as_str().context("the receipt names no branch")?;
    let painted = git(context.repo(), &["show", &format!("{branch}:README.md")])?;
    equal("README.md on the branch", painted, README.replace("grey", "ochre"))?;
    untouched(context)
}

pub(super) fn five(context: &CaseContext<'_>) -> Result<()> {
    let receipts: Vec<Result<Value>> = thread::scope(|scope| {
        let workers: Vec<_> = (1..=5).map(|number| scope.spawn(move || lay_stone(context, number))).collect();
        workers.into_iter().map(|worker| worker.join().expect("cases do not panic")).collect()
    });
    let mut branches = Vec::new();
    for (receipt, number) in receipts.into_iter().zip(1..) {
        let receipt = receipt.with_context(|| format!("worker {number}"))?;
        let branch = receipt["branch"].as_str().context("the receipt names no branch")?.to_owned();
        let changed = git(context.repo(), &["diff", "--name-only", "main", &branch])?;
        equal("files that worker changed", changed.trim(), format!("stone-{number}.txt").as_str())?;
        branches.push(branch);
    }
    branches.sort();
    branches.dedup();
    equal("branches", branches.len(), 5)?;
    untouched(context)
}

fn lay_stone(context: &CaseContext<'_>, number: usize) -> Result<Value> {
    let reply = context.ask(&format!("Worker {number} lays stone {number}."))?;
    equal("the answer", content(&reply)?, format!("Stone {number} is laid."))?;
    Ok(reply.json()["trunkline"]["workspace"].clone())
}

pub(super) fn hang_up(context: &CaseContext<'_>) -> Result<()> {
    let client = context.begin_stream("Keep the lamp burning.")?;
    let runs = |list: &[MarkedProcess]| {
        let both = ["tail -f AGENTS.md", "tail -f README.md"];
        both.iter().all(|line| list.iter().any(|process| process.line == *line))
    };
    let started =
        wait_until(TOOL_TIMEOUT, "the tool runs", || Some(processes(&context.marker)).filter(|all| runs(all)))?;
    drop(client);
    let left = || {
        let mut left = processes(&context.marker);
        left.extend(started.iter().filter(|process| exists(process)).cloned());
        left
    };
    if wait_until(STOP_TIMEOUT, "no process is left", || left().is_empty().then_some(())).is_err() {
        bail!("processes left {} s after the client disconnected: {:?}", STOP_TIMEOUT.as_secs(), left());
    }
    untouched(context)
}

/// Fails unless the user's own checkout is unchanged.
fn untouched(context: &CaseContext<'_>) -> Result<()> {
    equal("changes in the checkout", git(context.repo(), &["status", "--porcelain"])?.as_str(), "")?;
    let head = git(context.repo(), &["log", "--format=%s", "-1"])?;
    holds("the checkout is on its first commit", head.trim() == "start")
}
