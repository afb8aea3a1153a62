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
mod earlier;
mod finding;
pub(crate) mod gateway;
mod least;
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
use tokio::signal::unix::{SignalKind, signal};

use crate::conformance::place::Listening;
use crate::conformance::{Programs, chosen, clis};
use crate::test::command;
use earlier::earlier_binary;
use overhead::{Amount, Overhead};
use report::{Apart, Report};
use streams::Streams;
use subject::Subject;
use ways::Measured;

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench --quick              A first impression in a few minutes, with the dev build
  cargo xtask bench --only claude,codex  These CLIs; installs them if they are missing
  cargo xtask bench --check              Fail if a ratio is worse than benches/baseline.json
  cargo xtask bench --only worktree --before ../old/target/dist/trunkline
                                         Turns in worktrees, compared with an earlier version";

/// Measure what the gateway adds to the CLIs it runs
///
/// Every figure is measured together with its counterpart without the gateway, in turns and in the same run, because other
/// work on the machine affects both alike. Trust ratios and differences, not milliseconds. docs/BENCHMARKS.md explains the
/// figures.
///
/// Parts: noop (overhead on a program that does nothing), worktree (turns in a large repository), streams (memory of idle
/// streams), fake (the fake agent: by hand, cold, warm and in a session) and the CLIs claude, codex, gemini, qwen and
/// opencode. Without --only, all of them run, which takes about half an hour.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Rounds of each measurement, as far as --minutes allows
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Time limit for all CLIs together; each runs at least five rounds
    #[arg(long, value_name = "MINUTES", default_value_t = 18)]
    minutes: u64,
    /// Parts to measure: noop, worktree, streams, fake, claude, codex, gemini, qwen, opencode
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Run a few rounds with the dev build, which adds more overhead than the shipped one
    #[arg(long)]
    quick: bool,
    /// Compare the worktree part with an earlier trunkline binary
    ///
    /// Both binaries run in turns in the same run, each in a repository of its own. The result has a line with the ratio
    /// (median after / median before) for each kind of turn; below 1 is faster than before. Build both with the same
    /// profile.
    #[arg(long, value_name = "PATH", conflicts_with = "write")]
    before: Option<PathBuf>,
    /// Write all measurements to FILE as JSON
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

impl BenchArgs {
    pub(crate) fn run(mut self) -> Result<()> {
        if self.quick {
            (self.rounds, self.minutes) = (self.rounds.min(5), 2);
        }
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
        if let Some(before) = &self.before {
            if !self.wants(WORKTREE) {
                bail!("--before compares the part {WORKTREE}, which --only leaves out");
            }
            self.before = Some(earlier_binary(before)?);
        }
        let built = if self.quick { build("dev") } else { build_shipped() }?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut sofar = Sofar::default();
        // Whatever ends it early, what was measured by then took minutes and is shown.
        let ended = runtime.block_on(async {
            tokio::select! {
                measured = self.measure(&built, clis, &mut sofar) => measured,
                signal = interrupted() => signal.and_then(|()| bail!("interrupted")),
            }
        });
        let report = Report::new(sofar.measured, sofar.overhead, sofar.apart);
        self.publish(&report, ended)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    async fn measure(&self, built: &Built, clis: Vec<&'static clis::Cli>, sofar: &mut Sofar) -> Result<()> {
        let Built { agent, gateway, .. } = built;
        if self.wants(NOOP) {
            sofar.overhead = Some(Overhead::measure(built, self.amount()).await?);
        }
        if self.wants(WORKTREE) {
            let found = worktree::measure(gateway, self.before.as_deref(), agent, self.rounds).await?;
            sofar.apart.push(Apart { markdown: found.markdown(), findings: found.findings() });
        }
        if self.wants(STREAMS) {
            let found = Streams::measure(gateway, agent).await?;
            sofar.apart.push(Apart { markdown: found.markdown(), findings: found.findings() });
        }
        if clis.is_empty() && !self.wants(FAKE) {
            return Ok(());
        }
        let programs = Programs::new(false)?;
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&programs.target)?;
        fs::create_dir_all(folder.path().join("tmp"))?;
        let script = programs.sources.join("scenarios.json");
        let mock = Listening::mock(gateway, folder.path(), Some(&script))?;
        let mut subjects = Vec::new();
        if self.wants(FAKE) {
            subjects.push(Subject::fake(agent)?);
        }
        for cli in clis {
            subjects.push(Subject::real(cli, &programs.installed, mock.address)?);
        }
        self.subjects(&subjects, gateway, folder.path(), &mut sofar.measured).await
    }

    /// All subjects, one after the other. What one does not need of its share of the time the others have.
    async fn subjects(
        &self,
        subjects: &[Subject],
        binary: &Path,
        folder: &Path,
        all: &mut Vec<Measured>,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.minutes * 60);
        for (index, subject) in subjects.iter().enumerate() {
            let began = Instant::now();
            let left = end.saturating_duration_since(began);
            let share = left / u32::try_from(subjects.len() - index)?;
            let own = folder.join(subject.name);
            let measured = rounds::measure(subject, binary, &own, self.rounds, began + share).await?;
            eprintln!("{}: {} rounds in {:.0} s", subject.name, measured.rounds(), began.elapsed().as_secs_f64());
            all.push(measured);
        }
        Ok(())
    }

    fn amount(&self) -> Amount {
        if self.quick { Amount { rounds: 2, requests: 100 } } else { Amount { rounds: 5, requests: 300 } }
    }

    fn publish(&self, report: &Report, ended: Result<()>) -> Result<()> {
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
        // A page of half of it would forget the other half.
        ended?;
        if self.write {
            report.write(root)?;
        }
        if self.check && !worse.is_empty() {
            bail!("{} of the ratios are worse than the baseline", worse.len());
        }
        Ok(())
    }
}

/// What is measured by now.
#[derive(Default)]
struct Sofar {
    overhead: Option<Overhead>,
    apart: Vec<Apart>,
    measured: Vec<Measured>,
}

async fn interrupted() -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = term.recv() => Ok(()),
    }
}

/// What is measured, and what with.
pub(crate) struct Built {
    pub(crate) agent: PathBuf,
    pub(crate) gateway: PathBuf,
    /// The least that one can be.
    pub(crate) least: PathBuf,
}

/// Builds the gateway with the profile of the shipped binary.
pub(crate) fn build_shipped() -> Result<Built> {
    build("dist")
}

/// Builds the gateway and the programs it is measured with. Not xtask itself, which would take minutes.
fn build(profile: &str) -> Result<Built> {
    let ours = ["-p", "xtask", "--bin", "fake-agent", "--bin", "least-gateway"];
    let mut cargo = command(env!("CARGO"));
    cargo.args(["build", "--locked", "--profile", profile, "-p", "trunkline", "--bin", "trunkline"]);
    if !cargo.args(ours).status()?.success() {
        bail!("the gateway cannot be built");
    }
    // Beside the folder this chore was built into, wherever that is.
    let exe = std::env::current_exe()?;
    let folder = exe.parent().and_then(Path::parent).context("no target folder")?;
    let folder = folder.join(if profile == "dev" { "debug" } else { profile });
    let [agent, gateway, least] = ["fake-agent", "trunkline", "least-gateway"].map(|name| folder.join(name));
    Ok(Built { agent, gateway, least })
}
