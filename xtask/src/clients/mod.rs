//! `cargo xtask clients`: the lab that runs real clients, at pinned versions, against a real gateway with a fake CLI behind
//! it, in a network with loopback only.
//!
//! A client is a script in `scripts/` and a row of `clients.toml`. The script does what the client's users do and reports
//! what they would see (`script.rs`); the lab judges it (`case.rs`), together with what the gateway says about its runs.

mod case;
mod install;
mod matrix;
mod model_script;
mod namespace;
mod row;
mod script;
mod tool_case;
mod world;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::given_binary::given_binary;
use crate::test::build;
use case::{LabCase, verdict};
use install::InstalledClients;
use matrix::{Cell, Matrix, MatrixRow};
use row::ClientRow;
use script::ScriptProcess;
use world::{ClientWorld, LabPrograms};

const EXAMPLES: &str = "\
Examples:
  cargo xtask clients                             All clients; writes docs/CLIENTS.md
  cargo xtask clients --light                     The clients that are quickly installed and started, as in CI
  cargo xtask clients --only openai-python,aider  These clients
  cargo xtask clients --only aider --keep         Keep homes, repositories and logs
  cargo xtask clients --binary target/release/trunkline
                                                  Another gateway than the dev build";

/// Run real clients against the gateway: SDKs, frameworks and CLIs
///
/// Installs the clients at the versions pinned in xtask/src/clients/packages, and runs each of them against a gateway with a
/// fake CLI: list models, whole answer, stream, memory, wrong key, unknown model, failing CLI, cancel, time-out. Needs the
/// network only for the installation; the clients run in a network namespace that has only loopback. A client whose route
/// the gateway does not have is skipped, and the table says so.
///
/// Prints a table of clients and cases, and writes docs/CLIENTS.md when all clients have run.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ClientsArgs {
    /// Run only these clients
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Run only the clients that are quickly installed and started
    #[arg(long)]
    light: bool,
    /// Run only these cases
    #[arg(long = "case", value_name = "NAME", value_delimiter = ',')]
    cases: Vec<String>,
    /// Use this gateway instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Clients that run at the same time
    #[arg(long, value_name = "N", default_value_t = 3)]
    jobs: usize,
    /// Keep homes, repositories and logs
    #[arg(long)]
    keep: bool,
    /// Set by this command when it starts itself in a network namespace
    #[arg(long = "inside-namespace", hide = true)]
    inside: bool,
}

impl ClientsArgs {
    pub(crate) fn run(self) -> Result<()> {
        let began = Instant::now();
        let cases = selected_cases(&self.cases)?;
        let rows = ClientRow::select(&self.only, self.light)?;
        // Before the build, which may replace the file.
        let exe = std::env::current_exe()?;
        let target = exe.parent().and_then(Path::parent).context("no target folder")?.join("clients");
        fs::create_dir_all(&target)?;
        let needs_real_cli =
            |row: &ClientRow| cases.iter().any(|case| case.needs_real_cli() && row.why_not(*case).is_none());
        let installed = InstalledClients::new(&rows, rows.iter().any(needs_real_cli), &target)?;
        if !self.inside {
            if self.binary.is_none() {
                build("trunkline")?;
            }
            build("xtask")?;
            namespace::enter(&exe)?;
        }
        let gateway = match &self.binary {
            Some(path) => given_binary("--binary", path)?,
            None => exe.with_file_name("trunkline"),
        };
        let folder = tempfile::Builder::new().prefix("run-").disable_cleanup(self.keep).tempdir_in(&target)?;
        let lab =
            Lab { installed, gateway, fake_agent: exe.with_file_name("fake-agent"), folder: folder.path(), cases };
        let matrix = Matrix { rows: lab.run_clients(rows, self.jobs)? };
        println!("\n{}\n{} s", matrix.for_terminal(), began.elapsed().as_secs());
        if self.only.is_empty() && self.cases.is_empty() && !self.light {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join("CLIENTS.md");
            fs::write(&page, matrix.page()).with_context(|| format!("cannot write {}", page.display()))?;
        }
        if self.keep {
            println!("kept in {}", folder.path().display());
        }
        match matrix.failures() {
            failures if failures.is_empty() => Ok(()),
            failures => bail!("{} cells failed\n{}", failures.len(), failures.join("\n")),
        }
    }
}

/// The parts of the lab that all clients share.
struct Lab<'a> {
    installed: InstalledClients,
    gateway: PathBuf,
    fake_agent: PathBuf,
    folder: &'a Path,
    cases: BTreeSet<LabCase>,
}

impl Lab<'_> {
    /// Runs the clients, several at a time; returns their rows in the same order.
    fn run_clients(&self, rows: Vec<ClientRow>, jobs: usize) -> Result<Vec<MatrixRow>> {
        let queue = Mutex::new(rows.into_iter().enumerate());
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    let next = || queue.lock().expect("no thread panics").next();
                    while let Some((index, row)) = next() {
                        let name = row.name.clone();
                        let result = self.run_client(row).with_context(|| name);
                        done.lock().expect("no thread panics").push((index, result));
                    }
                });
            }
        });
        let mut done = done.into_inner().expect("no thread panics");
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }

    fn run_client(&self, client: ClientRow) -> Result<MatrixRow> {
        let folder = self.folder.join(&client.name);
        let real_clis = self.installed.real_clis();
        let programs = LabPrograms { gateway: &self.gateway, fake_agent: &self.fake_agent, real_clis };
        let world = ClientWorld::start(&client, &programs, &self.installed.bin(&client)?, &folder)?;
        let has_route = world.has_route(client.route)?;
        let mut script = None;
        let mut cells = Vec::new();
        for case in LabCase::ALL {
            let began = Instant::now();
            let cell = match client.why_not(case) {
                Some(why) => Cell::CannotExist(why.to_owned()),
                None if !has_route => Cell::NoRoute(client.route.title()),
                None if !self.cases.contains(&case) => Cell::CannotExist("Not selected.".to_owned()),
                None => match (self.run_case(&client, case, &world, &mut script, &folder), client.known.get(&case)) {
                    (Ok(()), None) => Cell::Passed(began.elapsed()),
                    (Ok(()), Some(_)) => Cell::UnexpectedlyPassed,
                    (Err(why), None) => Cell::Failed(format!("{why:#}")),
                    (Err(_), Some(known)) => Cell::KnownFailure(known.clone()),
                },
            };
            match &cell {
                Cell::Passed(took) => eprintln!("✓ {}, {} ({:.1} s)", client.name, case.title(), took.as_secs_f64()),
                Cell::Failed(why) => eprintln!("✗ {}, {}: {why}", client.name, case.title()),
                Cell::CannotExist(_) | Cell::KnownFailure(_) | Cell::UnexpectedlyPassed | Cell::NoRoute(_) => {}
            }
            cells.push(cell);
        }
        Ok(MatrixRow { versions: self.installed.versions(&client)?, client, cells })
    }

    /// Runs one case. The script stays for the next case, unless it has failed to reply.
    fn run_case(
        &self,
        client: &ClientRow,
        case: LabCase,
        world: &ClientWorld,
        script: &mut Option<ScriptProcess>,
        folder: &Path,
    ) -> Result<()> {
        let mut running = match script.take() {
            Some(running) => running,
            None => {
                let program = world.prepare(self.installed.script(client)?);
                ScriptProcess::start(program, &folder.join("script.log"))?
            }
        };
        let reply = running.ask(&world.request(case))?;
        let seen = world.observe(case)?;
        *script = Some(running);
        verdict(case, client, world.words(case), &reply, &seen).map_err(anyhow::Error::msg)
    }
}

fn selected_cases(named: &[String]) -> Result<BTreeSet<LabCase>> {
    if named.is_empty() {
        return Ok(LabCase::ALL.into_iter().collect());
    }
    let find = |name: &String| {
        let known = || LabCase::ALL.map(LabCase::name).join(", ");
        let case = LabCase::ALL.into_iter().find(|case| case.name() == name);
        case.with_context(|| format!("unknown case {name}; known are {}", known()))
    };
    named.iter().map(find).collect()
}
