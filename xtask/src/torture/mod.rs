//! `cargo xtask torture`: a gateway under load, with everything going wrong that can, and nothing lost.
//!
//! A round is a handful of requests of every kind, a fault or two in the middle of them, and then a look at what is
//! left: processes, worktrees, events, changes, the database. What happens is drawn from a seed, so a round that shows
//! something can be played again; when it happens is up to the machine.

mod check;
mod fault;
mod load;
mod processes;
mod table;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use fastrand::Rng;

use fault::Fault;
use load::Load;
use table::{Round, Table};
use world::World;

const EXAMPLES: &str = "\
Examples:
  cargo xtask torture                           50 rounds, at most about 5 minutes
  cargo xtask torture --seed 4711 --rounds 3    Repeat the first rounds of an earlier run";

/// Inject faults into a gateway under load and check that nothing leaks or is lost
///
/// A round sends concurrent requests from clients that read, disconnect, read slowly or repeat themselves, and injects one
/// or two faults: a killed gateway, CLI or keeper, a full disk, too few file descriptors, locked git files, broken
/// configuration. Afterwards it checks for orphaned processes, zombies, leftover worktrees, lost changes, lost or
/// duplicated events, a damaged database and hanging requests.
///
/// The seed determines clients and faults, so a round can be repeated; the timing is up to the machine. The full disk needs
/// root.
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
}

impl TortureArgs {
    pub(crate) fn run(self) -> Result<()> {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        let mut world = World::new()?;
        let until = Instant::now() + Duration::from_secs(self.seconds);
        println!("seed {seed}: cargo xtask torture --seed {seed} plays the same rounds");
        for skipped in world.skipped() {
            println!("left out: {skipped}");
        }
        println!("{}", Table::HEAD);
        let mut table = Table::default();
        for number in 1..=self.rounds {
            if number > 1 && Instant::now() >= until {
                println!("the time is up after {} rounds", number - 1);
                break;
            }
            // A generator for each round: what the machine makes of one does not change the next.
            let mut rng = Rng::with_seed(seed.wrapping_add(u64::from(number) << 32));
            let faults = Fault::draw(&mut rng, &world);
            let round = one(&mut world, number, &faults, self.requests, &mut rng)?;
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

/// Load, faults, and the look afterwards.
fn one(world: &mut World, number: u32, faults: &[Fault], requests: usize, rng: &mut Rng) -> Result<Round> {
    let began = Instant::now();
    let load = Load::start(world, number, requests, rng);
    for fault in faults {
        fault.inject(world, rng)?;
    }
    let seen = load.end();
    world.recover()?;
    let findings = check::all(world, &seen);
    Ok(Round::new(number, faults, &seen, findings, began.elapsed()))
}
