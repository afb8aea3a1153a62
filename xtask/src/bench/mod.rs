//! `cargo xtask bench`: the referee. Every figure has its counterpart without the gateway, taken in turns in the same run,
//! because this machine is never alone: trust the differences and ratios.
//!
//! Who is measured is a [`subject`]; how, is [`rounds`] for a CLI and [`overhead`] for what is added to one that does
//! nothing. What comes of it is [`finding`]s: a figure, its spread, its bar. All that makes something to look at of them
//! ([`table`], [`svg`], [`page`]) or compares them ([`baseline`]) is pure.

mod bare;
mod baseline;
mod by_hand;
pub(crate) mod client;
mod finding;
pub(crate) mod gateway;
mod overhead;
mod page;
mod report;
mod rounds;
mod stats;
mod streams;
mod subject;
mod svg;
mod table;
mod ways;
mod worktree;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::conformance::place::Listening;
use crate::conformance::{Programs, chosen, clis};
use crate::test::command;
use overhead::{Amount, Overhead};
use report::{Apart, Report};
use streams::Streams;
use subject::Subject;
use ways::Measured;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// How often each way of each CLI is taken, time permitting
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How long the real CLIs may take together; each takes five rounds at least
    #[arg(long, value_name = "MINUTES", default_value_t = 8)]
    minutes: u64,
    /// Only these: noop, worktree, streams, fake, claude, codex, gemini, qwen, opencode
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// A look: a few rounds of each, with the build for development, which adds more than the one that is shipped
    #[arg(long)]
    quick: bool,
    /// Write everything that was measured here, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write docs/BENCHMARKS.md, its plot and the baseline
    #[arg(long, conflicts_with = "quick")]
    write: bool,
    /// Fail if a ratio is worse than the baseline by more than the spread
    #[arg(long)]
    check: bool,
}

/// What there is beside the real CLIs: what is added to a program that does nothing, and that program the four ways.
const NOOP: &str = "noop";
const FAKE: &str = "fake";

/// What is measured apart from them.
const WORKTREE: &str = "worktree";
const STREAMS: &str = "streams";

impl Bench {
    pub(crate) fn run(mut self) -> Result<()> {
        if self.quick {
            (self.rounds, self.minutes) = (self.rounds.min(5), 2);
        }
        let wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        let of_clis: Vec<String> = self
            .only
            .iter()
            .filter(|name| ![NOOP, FAKE, WORKTREE, STREAMS].contains(&name.as_str()))
            .cloned()
            .collect();
        let clis = match self.only.len() > of_clis.len() && of_clis.is_empty() {
            true => Vec::new(),
            false => chosen("CLI", &of_clis, &clis::ALL, |cli| cli.name)?,
        };
        let (agent, binary) = if self.quick { built("dev") } else { release() }?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let overhead = match wanted(NOOP) {
            true => Some(runtime.block_on(Overhead::measure(&binary, &agent, self.amount()))?),
            false => None,
        };
        let mut apart = Vec::new();
        if wanted(WORKTREE) {
            let found = runtime.block_on(worktree::measure(&binary, &agent, self.rounds))?;
            apart.push(Apart { markdown: found.markdown(), findings: found.findings() });
        }
        if wanted(STREAMS) {
            let found = runtime.block_on(Streams::measure(&binary, &agent))?;
            apart.push(Apart { markdown: found.markdown(), findings: found.findings() });
        }
        let programs = Programs::new(false)?;
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&programs.target)?;
        fs::create_dir_all(folder.path().join("tmp"))?;
        let script = programs.sources.join("scenarios.json");
        let mock = Listening::mock(&binary, folder.path(), Some(&script))?;
        let mut subjects = Vec::new();
        if wanted(FAKE) {
            subjects.push(Subject::fake(&agent)?);
        }
        for cli in clis {
            subjects.push(Subject::real(cli, &programs.installed, mock.address)?);
        }
        let measured = runtime.block_on(self.subjects(&subjects, &binary, folder.path()))?;
        let report = Report::new(measured, overhead, apart);
        self.publish(&report)
    }

    /// All subjects, one after the other. What one does not need of its share of the time the others have.
    async fn subjects(&self, subjects: &[Subject], binary: &Path, folder: &Path) -> Result<Vec<Measured>> {
        let end = Instant::now() + Duration::from_secs(self.minutes * 60);
        let mut all = Vec::new();
        for (index, subject) in subjects.iter().enumerate() {
            let began = Instant::now();
            let left = end.saturating_duration_since(began);
            let share = left / u32::try_from(subjects.len() - index)?;
            let own = folder.join(subject.name);
            let measured = rounds::measure(subject, binary, &own, self.rounds, began + share).await?;
            eprintln!("{}: {} rounds in {:.0} s", subject.name, measured.rounds(), began.elapsed().as_secs_f64());
            all.push(measured);
        }
        Ok(all)
    }

    fn amount(&self) -> Amount {
        if self.quick { Amount { rounds: 2, requests: 100 } } else { Amount { rounds: 5, requests: 300 } }
    }

    fn publish(&self, report: &Report) -> Result<()> {
        println!("{}", report.terminal());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
        let worse = report.regressions(root)?;
        for line in &worse {
            println!("worse than the baseline: {line}");
        }
        if let Some(path) = &self.json {
            fs::write(path, format!("{:#}\n", report.json()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.write {
            report.write(root)?;
        }
        if self.check && !worse.is_empty() {
            bail!("{} of the ratios are worse than the baseline", worse.len());
        }
        Ok(())
    }
}

/// The fake agent and the gateway as it is shipped.
pub(crate) fn release() -> Result<(PathBuf, PathBuf)> {
    built("release")
}

/// The fake agent and the gateway. Of this package nothing else: the chore itself would take minutes.
fn built(profile: &str) -> Result<(PathBuf, PathBuf)> {
    let programs = ["-p", "trunkline", "--bin", "trunkline", "-p", "xtask", "--bin", "fake-agent"];
    let mut cargo = command(env!("CARGO"));
    if !cargo.args(["build", "--locked", "--profile", profile]).args(programs).status()?.success() {
        bail!("the gateway cannot be built");
    }
    // Beside the folder this chore was built into, wherever that is.
    let exe = std::env::current_exe()?;
    let folder = exe.parent().and_then(Path::parent).context("no target folder")?;
    let folder = folder.join(if profile == "dev" { "debug" } else { profile });
    Ok((folder.join("fake-agent"), folder.join("trunkline")))
}
