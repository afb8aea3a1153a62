//! `cargo xtask conformance`: runs the real CLIs, at pinned versions, through the real gateway against the mock LLM, and
//! the vendors' SDKs against the mock LLM. Needs no account; once the CLIs are installed, no network except loopback.

mod by_hand;
mod cases;
pub(crate) mod clis;
mod context;
pub(crate) mod environment;
pub(crate) mod http;
pub(crate) mod install;
mod mcp_test_server;
pub(crate) mod observe;
mod table;
mod tap;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::pip;
use crate::test::{build, command};
use cases::{CaseSchedule, ConformanceCase};
use clis::CliUnderTest;
use environment::TrunklineChild;
use install::InstalledClis;
use table::{CaseOutcome, ConformanceRow, ConformanceTable, ConformanceTableStyle};
use world::{ConformanceMode, ConformanceWorld};

const EXAMPLES: &str = "\
Examples:
  cargo xtask conformance                                  Everything; takes several minutes
  cargo xtask conformance --only claude,codex --case edit  One case with two CLIs
  cargo xtask conformance --latest --way cold              The newest CLIs, without warm processes
  cargo xtask conformance --keep                           Keep homes, repositories and logs";

/// Run the real CLIs through the gateway against the mock LLM
///
/// Installs the CLIs at the versions pinned in conformance/package.json, runs each case with each CLI, cold and warm, and
/// prints a table. Also runs the vendors' SDKs against the mock LLM. Needs no account; after the installation, no network
/// except loopback. A case that fails while others run is retried alone.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ConformanceArgs {
    /// Install the newest versions of the CLIs instead of the pinned ones
    #[arg(long)]
    latest: bool,
    /// Run only these CLIs
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Run only these cases
    #[arg(long = "case", value_name = "NAME", value_delimiter = ',')]
    cases: Vec<String>,
    /// Leave out the cases that differ little between CLIs
    #[arg(long)]
    short: bool,
    /// Run the CLIs only cold or only warm
    #[arg(long, value_enum)]
    way: Option<ConformanceMode>,
    /// Keep homes, repositories and logs
    #[arg(long)]
    keep: bool,
    /// Also write the table to FILE, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Concurrent cases of one CLI. Each starts one or two processes that use a full core while they start.
const MAX_CONCURRENT_CASES: usize = 3;

/// Limit for a case, never reached: each of its requests has a shorter timeout.
const CASE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

impl ConformanceArgs {
    pub(crate) fn run(self) -> Result<()> {
        let began = Instant::now();
        let clis = select("CLI", &self.only, &clis::ALL, |cli: &CliUnderTest| cli.name)?;
        let mut cases = select("case", &self.cases, &cases::ALL, |case: &ConformanceCase| case.name)?;
        cases.retain(|case| !(self.short && case.full_only));
        let (waiting, cases): (Vec<_>, Vec<_>) =
            cases.into_iter().partition(|case| case.schedule == CaseSchedule::AllClis);
        build("trunkline")?;
        let ConformanceTools { installed, sources, target } = ConformanceTools::new(self.latest)?;
        // Not below a folder for temporary files: every run may write there, and the sandbox would not be tested.
        let folder = tempfile::Builder::new().prefix("run-").disable_cleanup(self.keep).tempdir_in(&target)?;
        fs::create_dir_all(folder.path().join("tmp"))?;
        let binary = std::env::current_exe()?.with_file_name("trunkline");
        let mock = TrunklineChild::mock(&binary, folder.path(), Some(&sources.join("scenarios.json")))?;

        let mut table =
            ConformanceTable { clis: Vec::new(), rows: rows(&cases), notes: Vec::new(), took: began.elapsed() };
        let modes = self.way.map_or_else(|| vec![ConformanceMode::Cold, ConformanceMode::Warm], |mode| vec![mode]);
        let columns: Vec<_> = clis.into_iter().flat_map(|cli| modes.iter().map(move |mode| (cli, *mode))).collect();
        for (cli, mode) in columns.iter().copied() {
            let version = installed.version(cli)?;
            let shown = mode.title(cli.name);
            eprintln!("{shown} {version}");
            let own = folder.path().join(shown.replace(' ', "-"));
            table.clis.push((shown.clone(), version.clone()));
            if cases.is_empty() {
                continue;
            }
            let start = |cases: &[&'static ConformanceCase], folder: &Path| {
                ConformanceWorld::start(cli, mode, cases, &installed, &binary, mock.address, folder)
            };
            let world = start(&cases, &own)?;
            let mut outcomes = run_cases(&world, &cases);
            let mut unknown_events = world.unknown_events()?;
            table.notes.extend(world.unused_warm_processes()?.map(|why| format!("✗ {shown} {version}: {why}")));
            drop(world);
            let failed: Vec<usize> = (0..cases.len()).filter(|index| outcomes[*index] == CaseOutcome::Failed).collect();
            if !failed.is_empty() {
                // On a loaded machine a CLI may exceed its own time limits, which is not what the cases test.
                eprintln!("{shown}: retrying failed cases one at a time");
                let cases: Vec<&'static ConformanceCase> = failed.iter().map(|index| cases[*index]).collect();
                let alone = start(&cases, &own.with_extension("alone"))?;
                for (index, case) in failed.into_iter().zip(cases) {
                    if let CaseOutcome::Passed(took) = run_case(&alone, case) {
                        outcomes[index] = CaseOutcome::PassedAlone(took);
                    }
                }
                unknown_events.extend(alone.unknown_events()?);
            }
            for (row, outcome) in table.rows.iter_mut().zip(outcomes) {
                row.outcomes.push(outcome);
            }
            for unknown in unknown_events {
                // New versions may print new events; finding them is the purpose of --latest.
                let mark = if self.latest { '!' } else { '✗' };
                table.notes.push(format!("{mark} {shown} {version} printed unknown events: {unknown}"));
            }
        }
        if !waiting.is_empty() {
            let start = |cli: &'static CliUnderTest, mode: ConformanceMode| {
                let own = folder.path().join(format!("{}.waiting", mode.title(cli.name).replace(' ', "-")));
                ConformanceWorld::start(cli, mode, &waiting, &installed, &binary, mock.address, &own)
            };
            let worlds = columns.iter().map(|(cli, mode)| start(cli, *mode)).collect::<Result<Vec<_>>>()?;
            table.rows.extend(run_with_all_clis(&worlds, &waiting));
        }
        if self.cases.is_empty() {
            table.notes.push(run_sdks(&sources, &target, &binary, folder.path())?);
        }
        table.took = began.elapsed();
        println!("\n{}", table.show(ConformanceTableStyle::Terminal));
        if let Some(file) = &self.markdown {
            fs::write(file, table.show(ConformanceTableStyle::Markdown))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.keep {
            println!("kept in {}", folder.path().display());
        }
        match table.failures() {
            failures if failures.is_empty() => Ok(()),
            failures => bail!("{} checks failed\n{}", failures.len(), failures.join("\n")),
        }
    }
}

/// The installed CLIs and the folders of the suite.
pub(crate) struct ConformanceTools {
    pub(crate) installed: InstalledClis,
    /// `conformance/` in the repository.
    pub(crate) sources: PathBuf,
    /// `conformance/` in the target directory.
    pub(crate) target: PathBuf,
}

impl ConformanceTools {
    /// Installs the CLIs that are missing.
    pub(crate) fn new(latest: bool) -> Result<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("conformance");
        // In the target directory that this program was built into.
        let exe = std::env::current_exe()?;
        let target = exe.parent().and_then(Path::parent).context("no target folder")?.join("conformance");
        let installed = match latest {
            false => InstalledClis::pinned(&sources, &target)?,
            true => InstalledClis::latest(&sources, &target)?,
        };
        Ok(Self { installed, sources, target })
    }
}

/// Returns the items of `all` that are named, or all if none is named. An unknown name is an error.
pub(crate) fn select<T>(
    kind: &str,
    named: &[String],
    all: &'static [T],
    name: fn(&T) -> &'static str,
) -> Result<Vec<&'static T>> {
    if let Some(unknown) = named.iter().find(|wanted| !all.iter().any(|item| name(item) == wanted.as_str())) {
        let known: Vec<&str> = all.iter().map(name).collect();
        bail!("unknown {kind} {unknown}; known are {}", known.join(", "));
    }
    Ok(all.iter().filter(|item| named.is_empty() || named.iter().any(|wanted| wanted == name(item))).collect())
}

fn rows(cases: &[&'static ConformanceCase]) -> Vec<ConformanceRow> {
    cases.iter().map(|case| ConformanceRow { title: case.title.to_owned(), outcomes: Vec::new() }).collect()
}

/// Runs the cases of one CLI. A case that mostly waits no longer counts as concurrent once its CLI has called the model.
fn run_cases(world: &ConformanceWorld, cases: &[&'static ConformanceCase]) -> Vec<CaseOutcome> {
    let outcomes: Mutex<Vec<Option<CaseOutcome>>> = Mutex::new(vec![None; cases.len()]);
    let run = |index: usize| {
        let outcome = run_case(world, cases[index]);
        outcomes.lock().expect("cases do not panic")[index] = Some(outcome);
    };
    let of = |schedule: CaseSchedule| (0..cases.len()).filter(move |index| cases[*index].schedule == schedule);
    of(CaseSchedule::First).for_each(run);
    let queue = Mutex::new(of(CaseSchedule::Waits).chain(of(CaseSchedule::Usual)));
    thread::scope(|scope| {
        for _ in 0..MAX_CONCURRENT_CASES {
            scope.spawn(|| {
                while let Some(index) = next(&queue) {
                    let tap = world.tap(cases[index]);
                    let running = scope.spawn(move || run(index));
                    let waits = || cases[index].schedule == CaseSchedule::Waits && !tap.calls().is_empty();
                    let waited = observe::wait_until(CASE_TIMEOUT, "the case has ended", || {
                        (running.is_finished() || waits()).then_some(())
                    });
                    waited.expect("the timeout of each request is shorter");
                }
            });
        }
    });
    of(CaseSchedule::Alone).for_each(run);
    let outcomes = outcomes.into_inner().expect("cases do not panic");
    outcomes.into_iter().map(|outcome| outcome.expect("every case ran")).collect()
}

/// Runs cases that wait for minutes, with all CLIs at the same time. Each CLI starts once the one before it has called the
/// model, because a start takes a full core. Returns a row for each case.
fn run_with_all_clis(worlds: &[ConformanceWorld], cases: &[&'static ConformanceCase]) -> Vec<ConformanceRow> {
    let mut rows = rows(cases);
    for (row, case) in rows.iter_mut().zip(cases) {
        eprintln!("{} with all CLIs", case.name);
        row.outcomes = thread::scope(|scope| {
            let running = worlds.iter().map(|world| {
                let running = scope.spawn(move || run_case(world, case));
                let tap = world.tap(case);
                let waited = observe::wait_until(CASE_TIMEOUT, "the CLI has called the model", || {
                    (running.is_finished() || !tap.calls().is_empty()).then_some(())
                });
                waited.expect("the timeout of each request is shorter");
                running
            });
            let running: Vec<_> = running.collect();
            running.into_iter().map(|case| case.join().expect("cases do not panic")).collect()
        });
    }
    rows
}

fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().expect("no thread panics").next()
}

fn run_case(world: &ConformanceWorld, case: &'static ConformanceCase) -> CaseOutcome {
    if let Some(why) = world.why_not(case) {
        return CaseOutcome::NotApplicable(why);
    }
    let began = Instant::now();
    let context = world.context(case);
    let result = (case.run)(&context);
    let took = began.elapsed();
    match result {
        Ok(()) => {
            eprintln!("  ✓ {} ({:.1} s)", case.name, took.as_secs_f64());
            CaseOutcome::Passed(took)
        }
        Err(error) => {
            let what = format!("{} {}", world.mode.title(world.cli.name), case.name);
            eprintln!(
                "  ✗ {} ({:.1} s): {error:#}\n--- {what}\n{}\n---",
                case.name,
                took.as_secs_f64(),
                context.report()
            );
            CaseOutcome::Failed
        }
    }
}

/// Runs the vendors' SDKs against the mock LLM with its built-in script; returns a line for the table.
fn run_sdks(sources: &Path, target: &Path, binary: &Path, folder: &Path) -> Result<String> {
    let python = pip::install(&target.join("venv"), &sources.join("requirements.txt"))?;
    let mock = TrunklineChild::mock(binary, folder, None)?;
    let output = command(python.to_str().context("the target folder's name is not UTF-8")?)
        .arg(sources.join("sdks.py"))
        .arg(format!("http://{}", mock.address))
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok("✓ the SDKs of OpenAI, Anthropic and Google against the mock LLM".to_owned());
    }
    eprintln!("--- sdks.py\n{printed}{}---", String::from_utf8_lossy(&output.stderr));
    Ok("✗ the SDKs of OpenAI, Anthropic and Google against the mock LLM".to_owned())
}
