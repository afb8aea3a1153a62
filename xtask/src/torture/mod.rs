//! `cargo xtask torture`: injects faults into a gateway under load and checks that nothing leaks or is lost.
//!
//! A round sends requests of every kind, injects one or two faults while they run, and then checks processes, worktrees,
//! events, changes and the database. A seed determines the requests and faults, so a round with findings can be repeated;
//! the timing depends on the machine.
//!
//! With `--kill-at-answer` the rounds are others: see [`kill_at_answer`].

mod check;
mod fault;
mod gateway;
mod kill_at_answer;
mod load;
mod processes;
mod table;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use fastrand::Rng;

use fault::TortureFault;
use kill_at_answer::{AnswerKind, KillAtAnswer};
use load::TortureLoad;
use table::{TortureRound, TortureTable};
use world::TortureWorld;

const EXAMPLES: &str = "\
Examples:
  cargo xtask torture                           50 rounds, at most about 5 minutes
  cargo xtask torture --seed 4711 --rounds 3    Repeat the first rounds of an earlier run
  cargo xtask torture --kill-at-answer 500      Kill the gateway around the last byte of 500 answers
  cargo xtask torture --kill-at-answer 100 --only key --delete-index";

/// Inject faults into a gateway under load and check that nothing leaks or is lost
///
/// A round sends concurrent requests from clients that read, disconnect, read slowly or repeat themselves, and injects one
/// or two faults: a killed gateway, CLI or keeper, a full disk, too few file descriptors, locked git files, broken
/// configuration. Afterwards it checks for orphaned processes, zombies, leftover worktrees, lost changes, lost or
/// duplicated events, a damaged database and hanging requests.
///
/// The seed determines clients and faults, so a round can be repeated; the timing is up to the machine. The full disk needs
/// root.
///
/// With --kill-at-answer, each round kills a gateway with SIGKILL from 5 ms before to 20 ms after its client has read the
/// last byte of an answer, starts it again on the same state folder, and checks the rows and logs of the runs, the session,
/// the idempotency key and which conversations the CLI was asked to resume.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TortureArgs {
    /// Number of rounds
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    /// Seed for clients and faults [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Start no round after this many seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Number of concurrent requests in a round
    #[arg(long, default_value_t = 12)]
    requests: usize,
    /// Instead: kill a gateway around the last byte of an answer, this many times
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["rounds", "seconds", "requests"])]
    kill_at_answer: Option<u32>,
    /// Delete the database before each restart: nothing may depend on it
    #[arg(long, requires = "kill_at_answer")]
    delete_index: bool,
    /// Only answers of this kind
    #[arg(long, value_name = "KIND", requires = "kill_at_answer")]
    only: Option<AnswerKind>,
}

impl TortureArgs {
    pub(crate) fn run(self) -> Result<()> {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        if let Some(rounds) = self.kill_at_answer {
            return KillAtAnswer { rounds, seed, delete_index: self.delete_index, only: self.only }.run();
        }
        let mut world = TortureWorld::new()?;
        let deadline = Instant::now() + Duration::from_secs(self.seconds);
        println!("seed {seed}: repeat these rounds with cargo xtask torture --seed {seed}");
        for skipped in world.skipped() {
            println!("skipped: {skipped}");
        }
        println!("{}", TortureTable::HEAD);
        let mut table = TortureTable::default();
        for number in 1..=self.rounds {
            if number > 1 && Instant::now() >= deadline {
                println!("stopped after {} rounds: {} s have passed", number - 1, self.seconds);
                break;
            }
            // A generator for each round: the timing of one round does not affect the next.
            let mut rng = Rng::with_seed(seed.wrapping_add(u64::from(number) << 32));
            let faults = TortureFault::draw(&mut rng, &world);
            let round = run_round(&mut world, number, &faults, self.requests, &mut rng)?;
            println!("{round}");
            for finding in &round.findings {
                println!("        {finding}");
            }
            table.add(round);
        }
        println!("{table}");
        if table.findings() > 0 {
            bail!("{} findings; the gateway's log is {}", table.findings(), world.keep_log().display());
        }
        Ok(())
    }
}

/// Runs one round: load, faults, checks.
fn run_round(
    world: &mut TortureWorld,
    number: u32,
    faults: &[TortureFault],
    requests: usize,
    rng: &mut Rng,
) -> Result<TortureRound> {
    let began = Instant::now();
    let load = TortureLoad::start(world, number, requests, rng);
    for fault in faults {
        fault.inject(world, rng)?;
    }
    let records = load.join();
    world.recover()?;
    let findings = check::all(world, &records);
    Ok(TortureRound::new(number, faults, &records, findings, began.elapsed()))
}
