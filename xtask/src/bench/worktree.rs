//! What a turn with `worktree: true` waits for in a repository of many files, beside `git worktree add` itself.
//!
//! In each round, in turns: git alone; a turn that finds a worktree ready; one that finds it a commit behind; one that has to
//! make its own. Between two of them everything that goes on in the background comes to its end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Client;
use super::finding::{Bar, Better, Finding, Unit};
use super::stats::Stats;
use crate::conformance::place::{Listening, Place, git};

/// Files of the repository, and how they lie.
const FOLDERS: usize = 400;
const FILES_IN_EACH: usize = 50;

/// What goes on in the background has ended by then, or never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was measured, in seconds.
#[derive(Debug, Default)]
pub(super) struct Worktrees {
    /// `git worktree add`.
    git: Stats,
    ready: Turns,
    behind: Turns,
    cold: Turns,
}

/// To the first token, and to the end of the answer.
#[derive(Debug, Default)]
struct Turns {
    first: Stats,
    whole: Stats,
}

impl Worktrees {
    pub(super) fn findings(&self) -> Vec<Finding> {
        let percent = |turns: &Turns| turns.first.against(&self.git, |turn, git| turn / git * 100.0);
        let what = "first token in a ready worktree of 20,000 files, of `git worktree add`";
        let ready = Finding::new("worktree/ready", what, Unit::Percent, percent(&self.ready), Bar::AtMost(10.0));
        let times = self.behind.first.against(&self.git, |turn, git| turn / git);
        vec![ready, Finding::free("worktree/behind", "the same, where HEAD has just moved", times, Better::Less)]
    }

    /// A table in Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut table =
            String::from("| 20,000 files | first token, p50 | of `git worktree add` | whole answer, p50 |\n");
        table.push_str("|---|---|---|---|\n");
        let millis = |stats: &Stats| format!("{:.1} ms", stats.median() * 1000.0);
        table += &format!("| `git worktree add` alone | {} | | |\n", millis(&self.git));
        let ways =
            [("ready", &self.ready), ("ready, a commit behind", &self.behind), ("made for the turn", &self.cold)];
        for (name, turns) in ways {
            let part = turns.first.median() / self.git.median() * 100.0;
            table += &format!("| {name} | {} | {part:.1} % | {} |\n", millis(&turns.first), millis(&turns.whole));
        }
        table
    }
}

/// Takes every figure once a round.
pub(super) async fn measure(binary: &Path, agent: &Path, rounds: usize) -> Result<Worktrees> {
    let scene = Scene::new(binary, agent)?;
    let mut all = Worktrees::default();
    scene.turn("warm").await?;
    for round in 0..rounds {
        eprintln!("worktrees, round {} of {rounds}", round + 1);
        scene.quiet().await?;
        all.git.push(scene.git_alone()?);
        all.ready.push(scene.turn("warm").await?);
        scene.quiet().await?;
        scene.commit(round)?;
        all.behind.push(scene.turn("warm").await?);
        scene.quiet().await?;
        all.cold.push(scene.turn("cold").await?);
    }
    Ok(all)
}

impl Turns {
    fn push(&mut self, (first, whole): (f64, f64)) {
        self.first.push(first);
        self.whole.push(whole);
    }
}

/// A repository, and a gateway with two models in it.
struct Scene {
    folder: TempDir,
    place: Place,
    gateway: Listening,
}

impl Scene {
    fn new(binary: &Path, agent: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let place = Place::new(&[], Path::new("/usr/bin"), folder.path())?;
        fill(&place.repo)?;
        let warm = json!({"driver": "codex", "repoPath": place.repo, "worktree": true, "command": agent,
            "env": {"FAKE_AGENT": "noop"}});
        let mut cold = warm.clone();
        cold["warm"] = 0.into();
        let gateway = place.gateway(binary, "gateway", &json!({"warm": warm, "cold": cold}), &[], &[])?;
        Ok(Self { folder, place, gateway })
    }

    fn git_alone(&self) -> Result<f64> {
        let place = self.folder.path().join("by-hand");
        let place = place.to_string_lossy();
        let began = Instant::now();
        git(&self.place.repo, &["worktree", "add", "--quiet", "--detach", &place])?;
        let took = began.elapsed().as_secs_f64();
        git(&self.place.repo, &["worktree", "remove", "--force", &place])?;
        Ok(took)
    }

    fn commit(&self, round: usize) -> Result<()> {
        fs::write(self.place.repo.join("folder-0/file-0.rs"), format!("// {round}\n"))?;
        commit(&self.place.repo)
    }

    /// Seconds to the first token, and to the end.
    async fn turn(&self, model: &str) -> Result<(f64, f64)> {
        let mut client = Client::connect(self.gateway.address).await?;
        let began = Instant::now();
        client.stream(model).await?;
        let mut first = None;
        while let Some(line) = client.line().await? {
            let said = line.strip_prefix("data: {").is_some() && line.contains(r#""content":"ok""#);
            if said {
                first.get_or_insert_with(|| began.elapsed().as_secs_f64());
            }
            if line.contains("[DONE]") {
                let first = first.context("an answer without text")?;
                return Ok((first, began.elapsed().as_secs_f64()));
            }
        }
        bail!("an answer without an end");
    }

    /// Returns when a worktree is ready, of where the repository is, and nothing else goes on.
    async fn quiet(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !self.is_quiet() {
            if Instant::now() > until {
                bail!("no worktree was made ready");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
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
        for file in 0..FILES_IN_EACH {
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
