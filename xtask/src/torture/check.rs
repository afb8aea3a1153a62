//! What must hold when the dust has settled.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::{End, Seen, words};
use super::processes;
use super::world::{World, git};
use crate::conformance::http::{Message, Pending};
use crate::test::command;

/// How long runs may take to end by themselves, detached ones among them.
const SETTLE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Orphan,
    Zombie,
    Worktree,
    Change,
    Lost,
    Doubled,
    Store,
    Hung,
}

impl Kind {
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

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}

/// Looks at everything, once it is quiet.
pub(super) fn all(world: &mut World, seen: &[Seen]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |kind, what: String| findings.push(Finding { kind, what });
    if let Err(error) = quiet(world) {
        note(Kind::Hung, format!("{error:#}"));
    }
    for left in settled(|| processes::others(world)) {
        let kind = if left.is_zombie() { Kind::Zombie } else { Kind::Orphan };
        note(kind, left.describe());
    }
    let left = settled(|| worktrees(world));
    left.iter().for_each(|left| note(Kind::Worktree, left.clone()));
    world.blame_earlier_rounds(left);
    match kept(world) {
        Ok(kept) => {
            let worked = seen.iter().filter(|client| client.words.iter().any(|words| !words.is_empty()));
            for client in worked.filter(|client| !kept.contains(&client.work)) {
                note(Kind::Change, format!("{} is on no branch: {client:?}", client.work));
            }
        }
        Err(error) => note(Kind::Change, format!("{error:#}")),
    }
    for client in seen {
        if client.end == End::Hung {
            note(Kind::Hung, format!("{client:?}"));
        }
        for (kind, what) in events(world, client) {
            note(kind, what);
        }
    }
    if let Err(error) = store(world) {
        note(Kind::Store, format!("{error:#}"));
    }
    findings
}

/// Waits until no run is on its way.
fn quiet(world: &World) -> Result<()> {
    let until = Instant::now() + SETTLE;
    loop {
        let mut on_the_way = Vec::new();
        for state in ["queued", "running"] {
            let page = get(world, &format!("/v1/runs?state={state}"))?;
            ensure!(page.status() == 200, "the list of runs: {} {}", page.status(), page.text());
            on_the_way.extend(page.json()["data"].as_array().cloned().unwrap_or_default());
        }
        if on_the_way.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < until, "runs that do not end: {}", Value::from(on_the_way));
        sleep(Duration::from_millis(50));
    }
}

/// What is still there after a while in which it may go.
fn settled<T>(mut look: impl FnMut() -> Vec<T>) -> Vec<T> {
    let until = Instant::now() + Duration::from_secs(8);
    loop {
        let left = look();
        if left.is_empty() || Instant::now() >= until {
            return left;
        }
        sleep(Duration::from_millis(50));
    }
}

fn worktrees(world: &World) -> Vec<String> {
    let folders = fs::read_dir(world.path("worktrees")).into_iter().flatten().flatten();
    let mut left: Vec<String> = folders.map(|folder| folder.path().display().to_string()).collect();
    let known = git(&world.path("repo"), &["worktree", "list", "--porcelain"]).unwrap_or_default();
    let known = known.lines().filter_map(|line| line.strip_prefix("worktree ")).skip(1);
    left.extend(known.map(|path| format!("git knows {path}")));
    left.retain(|left| world.is_new(left) && !waits(world, left));
    left
}

/// Whether a worktree is one that the gateway keeps ready, and the gateway that lives.
fn waits(world: &World, left: &str) -> bool {
    let Some((_, name)) = left.rsplit_once('/').filter(|(_, name)| name.starts_with("spare-")) else { return false };
    let entry = fs::read(world.path("state/worktrees").join(format!("{name}.json"))).unwrap_or_default();
    let entry: Value = serde_json::from_slice(&entry).unwrap_or_default();
    world.pid().is_some_and(|pid| entry["pid"] == pid)
}

/// The works that some branch holds.
fn kept(world: &World) -> Result<BTreeSet<String>> {
    let repo = world.path("repo");
    let branches = git(&repo, &["for-each-ref", "--format=%(refname)", "refs/heads/trunkline", "refs/trunkline"])?;
    let mut works = BTreeSet::new();
    for branch in branches.lines() {
        let files = git(&repo, &["ls-tree", "-r", "--name-only", branch, "work/"])?;
        works.extend(files.lines().filter_map(|file| Some(file.strip_prefix("work/")?.to_owned())));
    }
    Ok(works)
}

/// What a client was shown is a beginning of what is in the run's log, and that has each word once in each attempt.
fn events(world: &World, client: &Seen) -> Vec<(Kind, String)> {
    let work = &client.work;
    let runs: BTreeSet<&String> = client.runs.iter().collect();
    if runs.len() > 1 && client.status == 200 {
        return vec![(Kind::Doubled, format!("{work} ran as {runs:?}"))];
    }
    let Some(run) = client.runs.last() else { return Vec::new() };
    let attempts = match log(world, run, work) {
        Ok(attempts) => attempts,
        Err(error) => return vec![(Kind::Lost, format!("{work}: {error:#}"))],
    };
    let mut findings: Vec<(Kind, String)> = attempts.iter().filter_map(|words| miscounted(words, work)).collect();
    let last = attempts.last().map_or(&[][..], Vec::as_slice);
    if client.end == End::Answered && last.len() != client.wanted as usize {
        findings.push((Kind::Lost, format!("{work}: {last:?} of {} words", client.wanted)));
    }
    let all = attempts.concat();
    for words in &client.words {
        let logged = if client.whole { last } else { &all[..] };
        if !logged.starts_with(words) {
            let kind = if words.len() > logged.len() { Kind::Lost } else { Kind::Doubled };
            findings.push((kind, format!("{work}: {words:?} were shown, {logged:?} are in the log")));
        }
    }
    findings
}

/// Whether an attempt's words are not simply counted.
fn miscounted(words: &[u32], work: &str) -> Option<(Kind, String)> {
    let (expected, word) = (0..).zip(words).find(|(expected, word)| expected != *word)?;
    let kind = if *word < expected { Kind::Doubled } else { Kind::Lost };
    Some((kind, format!("{work}: the log has {words:?}")))
}

/// The words of each attempt in a run's log, whose numbers have no gap and which has an end.
fn log(world: &World, run: &str, work: &str) -> Result<Vec<Vec<u32>>> {
    let reply = get(world, &format!("/v1/runs/{run}/events"))?;
    ensure!(reply.status() == 200, "the log of {run}: {} {}", reply.status(), reply.text());
    let frames = reply.frames();
    for (expected, frame) in (0u64..).zip(&frames) {
        ensure!(frame["seq"] == expected, "the log of {run} has {} where {expected} is due", frame["seq"]);
    }
    let kind = |frame: &Value| frame["event"]["type"].as_str().unwrap_or_default().to_owned();
    let last = frames.last().map(kind).unwrap_or_default();
    ensure!(matches!(last.as_str(), "finished" | "failed"), "the log of {run} ends with {last:?}");
    let attempts = frames.split_inclusive(|frame| kind(frame) == "attempted");
    let mut said: Vec<Vec<u32>> = attempts
        .map(|frames| {
            let texts = frames.iter().filter(|frame| kind(frame) == "text");
            words(&texts.filter_map(|frame| frame["event"]["delta"].as_str()).collect::<String>(), work)
        })
        .collect();
    // After the last attempt comes only the end.
    if said.len() > 1 && said.last().is_some_and(Vec::is_empty) {
        said.pop();
    }
    Ok(said)
}

/// SQLite's own word, by another program than ours.
fn store(world: &World) -> Result<()> {
    let ask =
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()[0])";
    let files = fs::read_dir(world.path("state"))?.flatten().map(|file| file.path());
    let database = files.filter(|path| path.extension().is_some_and(|ending| ending == "db" || ending == "sqlite"));
    for path in database {
        let output = command("python3").args(["-c", ask]).arg(&path).output().context("cannot start python3")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let cause = String::from_utf8_lossy(&output.stderr);
        ensure!(said.trim() == "ok", "{}: {said}{cause}", path.display());
    }
    Ok(())
}

fn get(world: &World, path: &str) -> Result<Message> {
    Pending::get(world.address, path, &[])?.reply()
}
