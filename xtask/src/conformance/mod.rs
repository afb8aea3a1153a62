//! `cargo xtask conformance`: the real CLIs, at pinned versions, through the real gateway against the mock LLM, and the
//! vendors' own SDKs against the mock. No account, no network but loopback once the CLIs are installed.

mod by_hand;
mod cases;
pub(crate) mod clis;
pub(crate) mod http;
pub(crate) mod install;
pub(crate) mod look;
pub(crate) mod place;
mod scene;
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

use crate::test::{build, command};
use cases::{Case, Pace};
use clis::Cli;
use install::Installed;
use place::Listening;
use table::{Outcome, Row, Style, Table};
use world::{Way, World};

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
    /// Run the CLIs only cold or only warm
    #[arg(long, value_enum)]
    way: Option<Way>,
    /// Keep homes, repositories and logs
    #[arg(long)]
    keep: bool,
    /// Also write the table to FILE, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Cases of one CLI at the same time: each is a process or two that fill a core while they start.
const AT_ONCE: usize = 3;

/// Longer than any case takes: each of its few requests ends in less.
const CASE: Duration = Duration::from_secs(30 * 60);

impl ConformanceArgs {
    pub(crate) fn run(self) -> Result<()> {
        let began = Instant::now();
        let clis = chosen("CLI", &self.only, &clis::ALL, |cli: &Cli| cli.name)?;
        let cases = chosen("case", &self.cases, &cases::ALL, |case: &Case| case.name)?;
        build("trunkline")?;
        let Programs { installed, sources, target } = Programs::new(self.latest)?;
        // Not among temporary files: there every run may write, and the bounds of none would be felt.
        let folder = tempfile::Builder::new().prefix("run-").disable_cleanup(self.keep).tempdir_in(&target)?;
        fs::create_dir_all(folder.path().join("tmp"))?;
        let binary = std::env::current_exe()?.with_file_name("trunkline");
        let mock = Listening::mock(&binary, folder.path(), Some(&sources.join("scenarios.json")))?;

        let mut table = Table { clis: Vec::new(), rows: rows(&cases), notes: Vec::new(), took: began.elapsed() };
        let ways = self.way.map_or_else(|| vec![Way::Cold, Way::Warm], |way| vec![way]);
        for (cli, way) in clis.into_iter().flat_map(|cli| ways.iter().map(move |way| (cli, *way))) {
            let version = installed.version(cli)?;
            let shown = way.shown(cli.name);
            eprintln!("{shown} {version}");
            let own = folder.path().join(shown.replace(' ', "-"));
            let start = |cases: &[&'static Case], folder: &Path| {
                World::start(cli, way, cases, &installed, &binary, mock.address, folder)
            };
            let world = start(&cases, &own)?;
            let mut outcomes = all_cases(&world, &cases);
            let mut unknown_events = world.unknown_events()?;
            table.notes.extend(world.unused_lines()?.map(|why| format!("✗ {shown} {version}: {why}")));
            drop(world);
            let failed: Vec<usize> = (0..cases.len()).filter(|index| outcomes[*index] == Outcome::Failed).collect();
            if !failed.is_empty() {
                // On a loaded machine a CLI may be too slow for its own limits: that is not what is asked here.
                eprintln!("{shown} once more, one at a time");
                let cases: Vec<&'static Case> = failed.iter().map(|index| cases[*index]).collect();
                let alone = start(&cases, &own.with_extension("alone"))?;
                for (index, case) in failed.into_iter().zip(cases) {
                    if let Outcome::Passed(took) = one_case(&alone, case) {
                        outcomes[index] = Outcome::PassedAlone(took);
                    }
                }
                unknown_events.extend(alone.unknown_events()?);
            }
            for (row, outcome) in table.rows.iter_mut().zip(outcomes) {
                row.outcomes.push(outcome);
            }
            for unknown in unknown_events {
                // A newer one than we vouch for may: that is what trying it is for.
                let mark = if self.latest { '!' } else { '✗' };
                table.notes.push(format!("{mark} {shown} {version} printed events nobody knows: {unknown}"));
            }
            table.clis.push((shown, version));
        }
        if self.cases.is_empty() {
            table.notes.push(sdks(&sources, &target, &binary, folder.path())?);
        }
        table.took = began.elapsed();
        println!("\n{}", table.show(Style::Terminal));
        if let Some(file) = &self.markdown {
            fs::write(file, table.show(Style::Markdown)).with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.keep {
            println!("kept in {}", folder.path().display());
        }
        match table.complaints() {
            complaints if complaints.is_empty() => Ok(()),
            complaints => bail!("not everything conforms\n{}", complaints.join("\n")),
        }
    }
}

/// The CLIs, and where they and what they are tried with are kept.
pub(crate) struct Programs {
    pub(crate) installed: Installed,
    pub(crate) sources: PathBuf,
    pub(crate) target: PathBuf,
}

impl Programs {
    /// Installs what is not there.
    pub(crate) fn new(latest: bool) -> Result<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("conformance");
        // Beside the folder this chore was built into, wherever that is.
        let exe = std::env::current_exe()?;
        let target = exe.parent().and_then(Path::parent).context("no target folder")?.join("conformance");
        let installed = match latest {
            false => Installed::pinned(&sources, &target)?,
            true => Installed::latest(&sources, &target)?,
        };
        Ok(Self { installed, sources, target })
    }
}

/// Those of `all` that are named, or all.
pub(crate) fn chosen<T>(
    kind: &str,
    named: &[String],
    all: &'static [T],
    name: fn(&T) -> &'static str,
) -> Result<Vec<&'static T>> {
    if let Some(unknown) = named.iter().find(|wanted| !all.iter().any(|item| name(item) == wanted.as_str())) {
        let known: Vec<&str> = all.iter().map(name).collect();
        bail!("unknown {kind} {unknown}: there are {}", known.join(", "));
    }
    Ok(all.iter().filter(|item| named.is_empty() || named.iter().any(|wanted| wanted == name(item))).collect())
}

fn rows(cases: &[&'static Case]) -> Vec<Row> {
    cases.iter().map(|case| Row { title: case.title.to_owned(), outcomes: Vec::new() }).collect()
}

/// Runs the cases of one CLI. One that only waits gives its place to the next as soon as its CLI has asked the model.
fn all_cases(world: &World, cases: &[&'static Case]) -> Vec<Outcome> {
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(vec![None; cases.len()]);
    let run = |index: usize| {
        let outcome = one_case(world, cases[index]);
        outcomes.lock().expect("cases do not panic")[index] = Some(outcome);
    };
    let of = |pace: Pace| (0..cases.len()).filter(move |index| cases[*index].pace == pace);
    of(Pace::First).for_each(run);
    let queue = Mutex::new(of(Pace::Waits).chain(of(Pace::Usual)));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(index) = next(&queue) {
                    let tap = world.tap(cases[index]);
                    let running = scope.spawn(move || run(index));
                    let waits = || cases[index].pace == Pace::Waits && !tap.calls().is_empty();
                    let passed_on =
                        look::until(CASE, "the case is over", || (running.is_finished() || waits()).then_some(()));
                    passed_on.expect("no request is waited for that long");
                }
            });
        }
    });
    of(Pace::Alone).for_each(run);
    let outcomes = outcomes.into_inner().expect("cases do not panic");
    outcomes.into_iter().map(|outcome| outcome.expect("each case was run")).collect()
}

fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().expect("nobody panics with it").next()
}

fn one_case(world: &World, case: &'static Case) -> Outcome {
    if let Some(why) = world.why_not(case) {
        return Outcome::Cannot(why);
    }
    let began = Instant::now();
    let scene = world.scene(case);
    let result = (case.run)(&scene);
    let took = began.elapsed();
    match result {
        Ok(()) => {
            eprintln!("  ✓ {} ({:.1} s)", case.name, took.as_secs_f64());
            Outcome::Passed(took)
        }
        Err(error) => {
            let what = format!("{} {}", world.way.shown(world.cli.name), case.name);
            eprintln!(
                "  ✗ {} ({:.1} s): {error:#}\n--- {what}\n{}\n---",
                case.name,
                took.as_secs_f64(),
                scene.report()
            );
            Outcome::Failed
        }
    }
}

/// The vendors' own clients against the mock with its own script, as a line.
fn sdks(sources: &Path, target: &Path, binary: &Path, folder: &Path) -> Result<String> {
    let python = install::python(sources, target)?;
    let mock = Listening::mock(binary, folder, None)?;
    let output = command(python.to_str().context("the target folder's name is not UTF-8")?)
        .arg(sources.join("sdks.py"))
        .arg(format!("http://{}", mock.address))
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok("✓ the SDKs of OpenAI, Anthropic and Google against the mock LLM".to_owned());
    }
    eprintln!("--- sdks.py\n{said}{}---", String::from_utf8_lossy(&output.stderr));
    Ok("✗ the SDKs of OpenAI, Anthropic and Google against the mock LLM".to_owned())
}
