//! Checks after a round.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::{ClientEnd, ClientRecord, words};
use super::processes;
use super::world::{TortureWorld, git};
use crate::conformance::http::{HttpMessage, SentHttpRequest};
use crate::test::command;

/// Limit for all runs to end, including detached ones.
const RUNS_TIMEOUT: Duration = Duration::from_secs(30);

/// A problem that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TortureFinding {
    pub(super) kind: TortureFindingKind,
    what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TortureFindingKind {
    /// A process without its gateway.
    Orphan,
    Zombie,
    /// A worktree that nothing uses.
    Worktree,
    /// The work of a run is on no branch.
    Change,
    /// A client or a log misses words.
    Lost,
    /// A client or a log has words twice.
    Doubled,
    /// The database is damaged.
    Store,
    /// A run or a client does not end.
    Hung,
}

impl TortureFindingKind {
    pub(super) const ALL: [Self; 8] =
        [Self::Orphan, Self::Zombie, Self::Worktree, Self::Change, Self::Lost, Self::Doubled, Self::Store, Self::Hung];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Orphan => "orphans",
            Self::Zombie => "zombies",
            Self::Worktree => "worktrees",
            Self::Change => "changes",
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::Store => "store",
            Self::Hung => "hung",
        }
    }
}

impl std::fmt::Display for TortureFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}

/// Runs all checks, once no run is in progress.
pub(super) fn all(world: &mut TortureWorld, clients: &[ClientRecord]) -> Vec<TortureFinding> {
    let mut findings = Vec::new();
    let mut note = |kind, what: String| findings.push(TortureFinding { kind, what });
    if let Err(error) = wait_for_runs(world) {
        note(TortureFindingKind::Hung, format!("{error:#}"));
    }
    for left in remaining(|| processes::others(world)) {
        let kind = if left.is_zombie() { TortureFindingKind::Zombie } else { TortureFindingKind::Orphan };
        note(kind, left.describe());
    }
    let left = remaining(|| worktrees(world));
    left.iter().for_each(|left| note(TortureFindingKind::Worktree, left.clone()));
    world.remember_leftovers(left);
    match saved_work(world) {
        Ok(saved) => {
            let worked = clients.iter().filter(|client| client.words.iter().any(|words| !words.is_empty()));
            for client in worked.filter(|client| !saved.contains(&client.work)) {
                note(TortureFindingKind::Change, format!("{} is on no branch: {client:?}", client.work));
            }
        }
        Err(error) => note(TortureFindingKind::Change, format!("{error:#}")),
    }
    for client in clients {
        if client.end == ClientEnd::Hung {
            note(TortureFindingKind::Hung, format!("{client:?}"));
        }
        for (kind, what) in check_events(world, client) {
            note(kind, what);
        }
    }
    if let Err(error) = check_store(world) {
        note(TortureFindingKind::Store, format!("{error:#}"));
    }
    findings
}

/// Waits until no run is queued or running.
fn wait_for_runs(world: &TortureWorld) -> Result<()> {
    let deadline = Instant::now() + RUNS_TIMEOUT;
    loop {
        let mut in_progress = Vec::new();
        for state in ["queued", "running"] {
            let page = get(world, &format!("/v1/runs?state={state}"))?;
            ensure!(page.status() == 200, "cannot list the runs: {} {}", page.status(), page.text());
            in_progress.extend(page.json()["data"].as_array().cloned().unwrap_or_default());
        }
        if in_progress.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "runs that do not end: {}", Value::from(in_progress));
        sleep(Duration::from_millis(50));
    }
}

/// Items that are still there after a grace period of 8 s.
fn remaining<T>(mut find: impl FnMut() -> Vec<T>) -> Vec<T> {
    let deadline = Instant::now() + Duration::from_secs(8);
    loop {
        let left = find();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        sleep(Duration::from_millis(50));
    }
}

/// Worktrees that this round left behind, in the folder or in git's list.
fn worktrees(world: &TortureWorld) -> Vec<String> {
    let folders = fs::read_dir(world.path("worktrees")).into_iter().flatten().flatten();
    let mut left: Vec<String> = folders.map(|folder| folder.path().display().to_string()).collect();
    let known = git(&world.path("repo"), &["worktree", "list", "--porcelain"]).unwrap_or_default();
    let known = known.lines().filter_map(|line| line.strip_prefix("worktree ")).skip(1);
    left.extend(known.map(|path| format!("git lists {path}")));
    left.retain(|left| world.is_new(left) && !is_spare(world, left));
    left
}

/// Whether a worktree is a spare one of the running gateway.
fn is_spare(world: &TortureWorld, left: &str) -> bool {
    let Some((_, name)) = left.rsplit_once('/').filter(|(_, name)| name.starts_with("spare-")) else { return false };
    let entry = fs::read(world.path("state/worktrees").join(format!("{name}.json"))).unwrap_or_default();
    let entry: Value = serde_json::from_slice(&entry).unwrap_or_default();
    world.pid().is_some_and(|pid| entry["pid"] == pid)
}

/// Names of the work that is on a branch.
fn saved_work(world: &TortureWorld) -> Result<BTreeSet<String>> {
    let repo = world.path("repo");
    let branches = git(&repo, &["for-each-ref", "--format=%(refname)", "refs/heads/trunkline", "refs/trunkline"])?;
    let mut works = BTreeSet::new();
    for branch in branches.lines() {
        let files = git(&repo, &["ls-tree", "-r", "--name-only", branch, "work/"])?;
        works.extend(files.lines().filter_map(|file| Some(file.strip_prefix("work/")?.to_owned())));
    }
    Ok(works)
}

/// Checks that the words a client received are a prefix of the run log, and that the log has each word once per attempt.
fn check_events(world: &TortureWorld, client: &ClientRecord) -> Vec<(TortureFindingKind, String)> {
    let work = &client.work;
    let runs: BTreeSet<&String> = client.runs.iter().collect();
    if runs.len() > 1 && client.status == 200 {
        return vec![(TortureFindingKind::Doubled, format!("{work} ran as {runs:?}"))];
    }
    let Some(run) = client.runs.last() else { return Vec::new() };
    let attempts = match words_in_log(world, run, work) {
        Ok(attempts) => attempts,
        Err(error) => return vec![(TortureFindingKind::Lost, format!("{work}: {error:#}"))],
    };
    let mut findings: Vec<(TortureFindingKind, String)> =
        attempts.iter().filter_map(|words| miscounted(words, work)).collect();
    let last = attempts.last().map_or(&[][..], Vec::as_slice);
    if client.end == ClientEnd::Answered && last.len() != client.expected_words as usize {
        findings.push((
            TortureFindingKind::Lost,
            format!("{work}: the log has {last:?} of {} words", client.expected_words),
        ));
    }
    let all = attempts.concat();
    for words in &client.words {
        let logged = if client.whole { last } else { &all[..] };
        if !logged.starts_with(words) {
            let kind = if words.len() > logged.len() { TortureFindingKind::Lost } else { TortureFindingKind::Doubled };
            findings.push((kind, format!("{work}: the client received {words:?}, the log has {logged:?}")));
        }
    }
    findings
}

/// A finding if the words of an attempt are not 0, 1, 2 and so on.
fn miscounted(words: &[u32], work: &str) -> Option<(TortureFindingKind, String)> {
    let (expected, word) = (0..).zip(words).find(|(expected, word)| expected != *word)?;
    let kind = if *word < expected { TortureFindingKind::Doubled } else { TortureFindingKind::Lost };
    Some((kind, format!("{work}: the log has {words:?}")))
}

/// The words of each attempt in a run log. Fails if the log has a gap or no end.
fn words_in_log(world: &TortureWorld, run: &str, work: &str) -> Result<Vec<Vec<u32>>> {
    let reply = get(world, &format!("/v1/runs/{run}/events"))?;
    ensure!(reply.status() == 200, "the log of {run}: {} {}", reply.status(), reply.text());
    let frames = reply.frames();
    for (expected, frame) in (0u64..).zip(&frames) {
        ensure!(frame["seq"] == expected, "the log of {run} has seq {} instead of {expected}", frame["seq"]);
    }
    let kind = |frame: &Value| frame["event"]["type"].as_str().unwrap_or_default().to_owned();
    let last = frames.last().map(kind).unwrap_or_default();
    ensure!(matches!(last.as_str(), "finished" | "failed"), "the log of {run} ends with {last:?}");
    let attempts = frames.split_inclusive(|frame| kind(frame) == "attempted");
    let mut words_by_attempt: Vec<Vec<u32>> = attempts
        .map(|frames| {
            let texts = frames.iter().filter(|frame| kind(frame) == "text");
            words(&texts.filter_map(|frame| frame["event"]["delta"].as_str()).collect::<String>(), work)
        })
        .collect();
    // The part after the last attempt contains only the end of the run.
    if words_by_attempt.len() > 1 && words_by_attempt.last().is_some_and(Vec::is_empty) {
        words_by_attempt.pop();
    }
    Ok(words_by_attempt)
}

/// Runs SQLite's integrity check, in Python and not with our own code.
fn check_store(world: &TortureWorld) -> Result<()> {
    let script =
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()[0])";
    let files = fs::read_dir(world.path("state"))?.flatten().map(|file| file.path());
    let database = files.filter(|path| path.extension().is_some_and(|ending| ending == "db" || ending == "sqlite"));
    for path in database {
        let output = command("python3").args(["-c", script]).arg(&path).output().context("cannot start python3")?;
        let result = String::from_utf8_lossy(&output.stdout);
        let cause = String::from_utf8_lossy(&output.stderr);
        ensure!(result.trim() == "ok", "{}: {result}{cause}", path.display());
    }
    Ok(())
}

fn get(world: &TortureWorld, path: &str) -> Result<HttpMessage> {
    SentHttpRequest::get(world.address, path, &[])?.reply()
}
