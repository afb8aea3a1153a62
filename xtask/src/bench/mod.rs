//! `cargo xtask bench`: measures what the gateway adds. Every figure has its counterpart without the gateway, measured in
//! turns in the same run, because other work on the machine affects both alike: trust ratios and differences.
//!
//! A [`subject`] is a CLI to measure. [`rounds`] measures a CLI; [`overhead`] measures what the gateway adds to a program
//! that does nothing; [`worktree`], [`streams`] and [`parked`] measure parts of the gateway. The results are [`figure`]s with a spread
//! and a threshold. Their presentation ([`table`], [`svg`], [`page`]) and comparison ([`baseline`]) are pure functions.
//!
//! [`profile`] is a measurement of its own: it counts what the gateway does in a turn.

mod bare;
mod baseline;
mod binaries;
mod by_hand;
pub(crate) mod client;
mod figure;
pub(crate) mod gateway;
mod minimal;
mod overhead;
mod page;
mod parked;
mod profile;
mod report;
mod rounds;
mod samples;
mod streams;
mod subject;
mod svg;
mod table;
mod variants;
mod worktree;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::conformance::environment::TrunklineChild;
use crate::conformance::{ConformanceTools, clis, select};
use crate::given_binary::given_binary;
pub(crate) use binaries::{BenchBinaries, build_shipped};
use overhead::{Overhead, SampleCount};
use parked::ParkedCalls;
use profile::ProfileArgs;
use report::{BenchReport, ReportSection};
use streams::IdleStreams;
use subject::BenchSubject;
use variants::CliTimes;

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench --quick              A first impression in a few minutes, with the dev build
  cargo xtask bench --only claude,codex  These CLIs; installs them if they are missing
  cargo xtask bench --check              Fail if a ratio is worse than benches/baseline.json
  cargo xtask bench --only worktree --before ../old/target/dist/trunkline
                                         Turns in worktrees, compared with an earlier version
  cargo xtask bench --profile --binary target/dist/trunkline
                                         Count what this binary does in a turn, such as system calls";

/// Measure what the gateway adds to the CLIs it runs
///
/// Every figure is measured together with its counterpart without the gateway, in turns and in the same run, because other
/// work on the machine affects both alike. Trust ratios and differences, not milliseconds. docs/BENCHMARKS.md explains the
/// figures.
///
/// Parts: noop (overhead on a program that does nothing), worktree (turns in a large repository), streams (memory of idle
/// streams), parked (calls of clients' tools), fake (the fake agent: by hand, cold, warm and in a session) and the CLIs
/// claude, codex, gemini, qwen and opencode. Without --only, all of them run, which takes about half an hour.
///
/// With --profile, the parts are others: calls, instructions, allocations, times, dialects and scale.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Rounds of each measurement, as far as --minutes allows
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Time limit for all CLIs together; each runs at least five rounds
    #[arg(long, value_name = "MINUTES", default_value_t = 18)]
    minutes: u64,
    /// Parts to measure: noop, worktree, streams, parked, fake, claude, codex, gemini, qwen, opencode; see --profile for its parts
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
    #[command(flatten)]
    profile: ProfileArgs,
}

/// Names for `--only` that are not CLIs.
const NOOP: &str = "noop";
const FAKE: &str = "fake";
const WORKTREE: &str = "worktree";
const STREAMS: &str = "streams";
const PARKED: &str = "parked";

impl BenchArgs {
    pub(crate) fn run(mut self) -> Result<()> {
        if self.profile.is_wanted() {
            return self.profile.run(&self.only, self.quick);
        }
        if self.quick {
            (self.rounds, self.minutes) = (self.rounds.min(5), 2);
        }
        let cli_names: Vec<String> = self
            .only
            .iter()
            .filter(|name| ![NOOP, FAKE, WORKTREE, STREAMS, PARKED].contains(&name.as_str()))
            .cloned()
            .collect();
        let clis = match self.only.len() > cli_names.len() && cli_names.is_empty() {
            true => Vec::new(),
            false => select("CLI", &cli_names, &clis::ALL, |cli| cli.name)?,
        };
        if let Some(before) = &self.before {
            if !self.wants(WORKTREE) {
                bail!("--before compares the part {WORKTREE}, which --only leaves out");
            }
            self.before = Some(given_binary("--before", before)?);
        }
        let binaries = if self.quick { binaries::build("dev") } else { build_shipped() }?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut results = PartialResults::default();
        // After an error or an interrupt, the results so far are shown: they took minutes.
        let outcome = runtime.block_on(async {
            tokio::select! {
                measured = self.measure(&binaries, clis, &mut results) => measured,
                signal = interrupted() => signal.and_then(|()| bail!("interrupted")),
            }
        });
        let report = BenchReport::new(results.clis, results.overhead, results.sections);
        self.publish(&report, outcome)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    async fn measure(
        &self,
        binaries: &BenchBinaries,
        clis: Vec<&'static clis::CliUnderTest>,
        results: &mut PartialResults,
    ) -> Result<()> {
        let BenchBinaries { agent, gateway, .. } = binaries;
        if self.wants(NOOP) {
            results.overhead = Some(Overhead::measure(binaries, self.sample_count()).await?);
        }
        if self.wants(WORKTREE) {
            let measured = worktree::measure(gateway, self.before.as_deref(), agent, self.rounds).await?;
            results.sections.push(ReportSection { markdown: measured.markdown(), figures: measured.figures() });
        }
        if self.wants(STREAMS) {
            let measured = IdleStreams::measure(gateway, agent).await?;
            results.sections.push(ReportSection { markdown: measured.markdown(), figures: measured.figures() });
        }
        if self.wants(PARKED) {
            let measured = ParkedCalls::measure(gateway, agent).await?;
            results.sections.push(ReportSection { markdown: measured.markdown(), figures: measured.figures() });
        }
        if clis.is_empty() && !self.wants(FAKE) {
            return Ok(());
        }
        let tools = ConformanceTools::new(false)?;
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&tools.target)?;
        fs::create_dir_all(folder.path().join("tmp"))?;
        let script = tools.sources.join("scenarios.json");
        let mock = TrunklineChild::mock(gateway, folder.path(), Some(&script))?;
        let mut subjects = Vec::new();
        if self.wants(FAKE) {
            subjects.push(BenchSubject::fake(agent)?);
        }
        for cli in clis {
            subjects.push(BenchSubject::real(cli, &tools.installed, mock.address)?);
        }
        self.measure_subjects(&subjects, gateway, folder.path(), &mut results.clis).await
    }

    /// Measures all subjects, one after the other. Time that one does not need is shared among the rest.
    async fn measure_subjects(
        &self,
        subjects: &[BenchSubject],
        binary: &Path,
        folder: &Path,
        results: &mut Vec<CliTimes>,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.minutes * 60);
        for (index, subject) in subjects.iter().enumerate() {
            let began = Instant::now();
            let remaining = end.saturating_duration_since(began);
            let share = remaining / u32::try_from(subjects.len() - index)?;
            let own = folder.join(subject.name);
            let measured = rounds::measure(subject, binary, &own, self.rounds, began + share).await?;
            eprintln!("{}: {} rounds in {:.0} s", subject.name, measured.rounds(), began.elapsed().as_secs_f64());
            results.push(measured);
        }
        Ok(())
    }

    fn sample_count(&self) -> SampleCount {
        if self.quick { SampleCount { rounds: 2, requests: 100 } } else { SampleCount { rounds: 5, requests: 300 } }
    }

    fn publish(&self, report: &BenchReport, outcome: Result<()>) -> Result<()> {
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
        // A page written after an error would lose the figures that are missing.
        outcome?;
        if self.write {
            report.write(root)?;
        }
        if self.check && !worse.is_empty() {
            bail!("{} ratios are worse than the baseline", worse.len());
        }
        Ok(())
    }
}

/// Results so far.
#[derive(Default)]
struct PartialResults {
    overhead: Option<Overhead>,
    sections: Vec<ReportSection>,
    clis: Vec<CliTimes>,
}

/// Returns when the user or the system asks this process to stop.
async fn interrupted() -> Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = term.recv() => Ok(()),
    }
}
