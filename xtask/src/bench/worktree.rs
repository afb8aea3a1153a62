//! Turns with `worktree: true` in a repository of 20,000 files, compared with `git worktree add`.
//!
//! A round measures, one after the other: git alone; a turn that finds a spare worktree; a turn whose spare worktree is one
//! commit behind; a turn that has to create its own. Between them the gateway finishes its background work.
//!
//! With `--before`, an earlier trunkline binary runs the same rounds in turns with the current one, in a repository of its
//! own. The ratios of their medians are figures of the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::BenchClient;
use super::figure::{BenchFigure, BenchThreshold, BetterWhen, FigureUnit};
use super::samples::Samples;
use crate::conformance::environment::{CliEnvironment, TrunklineChild, git};

const FOLDERS: usize = 400;
const FILES_PER_FOLDER: usize = 50;

/// Limit for the background work of a gateway between two measurements. On a busy machine, a worktree takes minutes.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);

/// Samples of one binary.
#[derive(Debug, Default)]
struct WorktreeTimes {
    /// `git worktree add`.
    git: Samples,
    /// A spare worktree is ready.
    ready: TurnTimes,
    /// A spare worktree is ready, one commit behind HEAD.
    behind: TurnTimes,
    /// There is no spare worktree.
    cold: TurnTimes,
}

/// Seconds to the first token, and to the end of the answer.
#[derive(Debug, Default)]
struct TurnTimes {
    first: Samples,
    whole: Samples,
}

/// A kind of turn, with the selector of its samples.
struct WorktreeVariant {
    id: &'static str,
    title: &'static str,
    times: fn(&WorktreeTimes) -> &TurnTimes,
}

const VARIANTS: [WorktreeVariant; 3] = [
    WorktreeVariant { id: "ready", title: "ready", times: |all| &all.ready },
    WorktreeVariant { id: "behind", title: "ready, a commit behind", times: |all| &all.behind },
    WorktreeVariant { id: "cold", title: "made for the turn", times: |all| &all.cold },
];

/// Samples of the current binary, and of the earlier one it is compared with.
#[derive(Debug)]
pub(super) struct WorktreeResult {
    after: WorktreeTimes,
    before: Option<WorktreeTimes>,
}

impl WorktreeResult {
    pub(super) fn figures(&self) -> Vec<BenchFigure> {
        let git = &self.after.git;
        let percent = self.after.ready.first.against(git, |turn, git| turn / git * 100.0);
        let times = self.after.behind.first.against(git, |turn, git| turn / git);
        let what = "first token in a ready worktree of 20,000 files, relative to `git worktree add`";
        let mut all = vec![
            BenchFigure::new("worktree/ready", what, FigureUnit::Percent, percent, BenchThreshold::AtMost(10.0)),
            BenchFigure::without_threshold(
                "worktree/behind",
                "the same, one commit behind HEAD",
                times,
                BetterWhen::Lower,
            ),
        ];
        all.extend(self.before.iter().flat_map(|before| ratios(&self.after, before)));
        all
    }

    /// A table in Markdown.
    pub(super) fn markdown(&self) -> String {
        let git = &self.after.git;
        let mut table =
            String::from("| 20,000 files | first token, p50 | relative to `git worktree add` | whole answer, p50 |\n");
        table.push_str("|---|---|---|---|\n");
        table += &format!("| `git worktree add` alone | {} | | |\n", millis(git));
        for WorktreeVariant { title, times, .. } in VARIANTS {
            let turns = times(&self.after);
            let part = turns.first.median() / git.median() * 100.0;
            table += &format!("| {title} | {} | {part:.1} % | {} |\n", millis(&turns.first), millis(&turns.whole));
        }
        table
    }
}

/// Median after / median before, of the first token of each kind of turn.
fn ratios(after: &WorktreeTimes, before: &WorktreeTimes) -> Vec<BenchFigure> {
    let ratio = |WorktreeVariant { id, title, times }: WorktreeVariant| {
        let (after, before) = (&times(after).first, &times(before).first);
        let what = format!(
            "first token, worktree {title}: {} after, {} before; median after / median before",
            millis(after),
            millis(before)
        );
        let spread = after.against(before, |after, before| after / before);
        BenchFigure::without_threshold(format!("worktree/{id}/before"), what, spread, BetterWhen::Lower)
    };
    VARIANTS.map(ratio).into()
}

fn millis(samples: &Samples) -> String {
    format!("{:.1} ms", samples.median() * 1000.0)
}

/// Measures the current binary, in turns with an earlier one if there is one.
pub(super) async fn measure(
    binary: &Path,
    before: Option<&Path>,
    agent: &Path,
    rounds: usize,
) -> Result<WorktreeResult> {
    let mut benches = Vec::new();
    for binary in std::iter::once(binary).chain(before) {
        benches.push(WorktreeBench::new(binary, agent).await?);
    }
    for round in 0..rounds {
        eprintln!("worktrees, round {} of {rounds}", round + 1);
        for turn in 0..benches.len() {
            // The order alternates: the second finds more files in the page cache.
            let index = (round + turn) % benches.len();
            let bench = &mut benches[index];
            bench.round(round).await.with_context(|| format!("round {} of {}", round + 1, bench.binary.display()))?;
        }
    }
    let mut times = benches.into_iter().map(|bench| bench.times);
    Ok(WorktreeResult { after: times.next().unwrap_or_default(), before: times.next() })
}

impl TurnTimes {
    fn push(&mut self, (first, whole): (f64, f64)) {
        self.first.push(first);
        self.whole.push(whole);
    }
}

/// A repository, a gateway with two models in it, and the samples taken so far.
struct WorktreeBench {
    binary: PathBuf,
    folder: TempDir,
    environment: CliEnvironment,
    gateway: TrunklineChild,
    times: WorktreeTimes,
}

impl WorktreeBench {
    async fn new(binary: &Path, agent: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let environment = CliEnvironment::new(&[], Path::new("/usr/bin"), folder.path())?;
        fill(&environment.repo)?;
        let warm = json!({"driver": "codex", "repoPath": environment.repo, "worktree": true, "command": agent,
            "env": {"FAKE_AGENT": "noop"}});
        let mut cold = warm.clone();
        cold["warm"] = 0.into();
        let gateway = environment
            .gateway(binary, "gateway", &json!({"warm": warm, "cold": cold}), &[], &[])
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let bench = Self { binary: binary.to_owned(), folder, environment, gateway, times: WorktreeTimes::default() };
        // The first turn makes the gateway prepare a spare worktree.
        bench.turn("warm").await.with_context(|| format!("first turn of {}", binary.display()))?;
        bench.settle().await.with_context(|| binary.display().to_string())?;
        Ok(bench)
    }

    /// Takes every sample once, and returns when the gateway has no background work left.
    async fn round(&mut self, number: usize) -> Result<()> {
        self.settle().await?;
        self.times.git.push(self.git_alone()?);
        self.times.ready.push(self.turn("warm").await?);
        self.settle().await?;
        self.commit(number)?;
        self.times.behind.push(self.turn("warm").await?);
        self.settle().await?;
        self.times.cold.push(self.turn("cold").await?);
        self.settle().await
    }

    fn git_alone(&self) -> Result<f64> {
        let worktree = self.folder.path().join("by-hand");
        let worktree = worktree.to_string_lossy();
        let began = Instant::now();
        git(&self.environment.repo, &["worktree", "add", "--quiet", "--detach", &worktree])?;
        let took = began.elapsed().as_secs_f64();
        git(&self.environment.repo, &["worktree", "remove", "--force", &worktree])?;
        Ok(took)
    }

    fn commit(&self, round: usize) -> Result<()> {
        fs::write(self.environment.repo.join("folder-0/file-0.rs"), format!("// {round}\n"))?;
        commit(&self.environment.repo)
    }

    /// Runs one turn; returns the seconds to its first token and to its end.
    async fn turn(&self, model: &str) -> Result<(f64, f64)> {
        let mut client = BenchClient::connect(self.gateway.address).await?;
        let began = Instant::now();
        client.stream(model).await?;
        let mut first = None;
        while let Some(line) = client.line().await? {
            let is_text = line.strip_prefix("data: {").is_some() && line.contains(r#""content":"ok""#);
            if is_text {
                first.get_or_insert_with(|| began.elapsed().as_secs_f64());
            }
            if line.contains("[DONE]") {
                let first = first.context("an answer without text")?;
                return Ok((first, began.elapsed().as_secs_f64()));
            }
        }
        bail!("the stream ended without [DONE]");
    }

    /// Waits until a spare worktree of the current commit is ready and no other worktree is in use.
    async fn settle(&self) -> Result<()> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        while !self.is_settled() {
            if Instant::now() > deadline {
                bail!("no spare worktree was ready after {} s", SETTLE_TIMEOUT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        let entries = fs::read_dir(self.folder.path().join("gateway/state/worktrees")).into_iter().flatten().flatten();
        let entries = entries.filter_map(|file| serde_json::from_slice::<Value>(&fs::read(file.path()).ok()?).ok());
        let standings: Vec<Value> = entries.map(|mut entry| entry["standing"].take()).collect();
        !standings.is_empty() && standings.iter().all(|standing| standing == "spare")
    }
}

fn fill(repo: &Path) -> Result<()> {
    let text = "let x = 1; // some line of code\n".repeat(60);
    for folder in 0..FOLDERS {
        let path = repo.join(format!("folder-{folder}"));
        fs::create_dir_all(&path)?;
        for file in 0..FILES_PER_FOLDER {
            fs::write(path.join(format!("file-{file}.rs")), format!("// {folder} {file}\n{text}"))?;
        }
    }
    commit(repo)
}

fn commit(repo: &Path) -> Result<()> {
    git(repo, &["add", "--all"])?;
    let name = ["-c", "user.name=Bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
    git(repo, &[&name[..], &["commit", "--quiet", "-m", "files"]].concat())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples where git takes 1 s and every turn this long.
    fn times(seconds: f64) -> WorktreeTimes {
        let mut times = WorktreeTimes::default();
        for _ in 0..5 {
            times.git.push(1.0);
            for turns in [&mut times.ready, &mut times.behind, &mut times.cold] {
                turns.push((seconds, seconds * 2.0));
            }
        }
        times
    }

    #[test]
    fn ratio_is_median_after_by_median_before() {
        let result = WorktreeResult { after: times(0.01), before: Some(times(0.02)) };
        let figures = result.figures();
        assert_eq!(figures[0].value(), "1 %");
        let compared: Vec<(&str, String, String)> =
            figures[2..].iter().map(|it| (it.id.as_str(), it.value(), it.range())).collect();
        let half = || ("0.50×".to_owned(), "0.50–0.50".to_owned());
        let expected = ["worktree/ready/before", "worktree/behind/before", "worktree/cold/before"]
            .map(|id| (id, half().0, half().1));
        assert_eq!(compared, expected);
        let what = "first token, worktree ready: 10.0 ms after, 20.0 ms before; median after / median before";
        assert_eq!(figures[2].what, what);
    }

    #[test]
    fn nothing_is_compared_without_an_earlier_binary() {
        let result = WorktreeResult { after: times(0.01), before: None };
        assert_eq!(result.figures().len(), 2);
        assert!(result.markdown().contains("| ready | 10.0 ms | 1.0 % | 20.0 ms |"), "{}", result.markdown());
    }
}
