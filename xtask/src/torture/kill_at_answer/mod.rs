//! `cargo xtask torture --kill-at-answer`: kills a gateway around the last byte of an answer, starts it again on the same
//! state folder, and checks everything that it had promised.
//!
//! ```text
//! start ─▶ (first turn) ─▶ turn ── last byte ─┬─▶ SIGKILL ─▶ start ─▶ checks
//!                                 −5 … +20 ms ┘
//! ```
//!
//! A client with the complete answer must find its run finished, with the same answer, and its session resumable; a key that
//! was answered must not run again. An answer that was not complete may be lost, but must not be reported as another one.
//! The fake agent records each start, so that the checks know what really ran.
//!
//! | file | contains |
//! |---|---|
//! | `plan` | kind of request, instant of the kill |
//! | `client`, `received` | one turn over HTTP |
//! | `world` | the gateway, its folders and its fake agent |
//! | `round` | one round |
//! | `check` | requests after the restart |
//! | `run_verdict`, `later_verdict` | the promises, as pure functions |
//! | `finding`, `table` | results |

mod check;
mod client;
mod finding;
mod later_verdict;
mod plan;
mod received;
mod round;
mod run_verdict;
mod table;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

pub(super) use plan::AnswerKind;
use plan::{LagEstimate, RoundPlan};
use table::{AnswerRound, AnswerTable};
use world::Programs;

/// Settings of all rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillAtAnswer {
    pub(super) rounds: u32,
    pub(super) seed: u64,
    pub(super) delete_index: bool,
    pub(super) only: Option<AnswerKind>,
}

impl KillAtAnswer {
    /// Runs all rounds, one gateway for each core at a time.
    pub(super) fn run(self) -> Result<()> {
        let programs = Programs::new()?;
        println!("seed {}: repeat these rounds with {}", self.seed, self.command(self.rounds, self.seed));
        println!("{}", AnswerTable::HEAD);
        let (next, table) = (AtomicU32::new(0), Mutex::new(AnswerTable::default()));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    let mut lag = LagEstimate::default();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.rounds {
                            break;
                        }
                        let plan = RoundPlan::draw(self.seed, number, self.only);
                        let round = round::run(&programs, number + 1, plan, self.delete_index, &mut lag);
                        let mut table = table.lock().expect("no panic while holding the lock");
                        self.print(&round);
                        table.add(&round);
                    }
                });
            }
        });
        let table = table.into_inner().expect("no panic while holding the lock");
        println!("\n{table}");
        if table.with_findings() > 0 {
            bail!("{} of {} rounds have findings", table.with_findings(), self.rounds);
        }
        Ok(())
    }

    fn print(&self, round: &AnswerRound) {
        println!("{round}");
        for finding in &round.findings {
            println!("        {finding}");
        }
        if let Some(kept) = &round.kept {
            println!("        repeat with {}; files in {}", self.command(1, round.plan.seed), kept.display());
        }
    }

    /// The command that runs these rounds again.
    fn command(&self, rounds: u32, seed: u64) -> String {
        let only = self.only.map(|kind| format!(" --only {}", kind.name())).unwrap_or_default();
        let delete = if self.delete_index { " --delete-index" } else { "" };
        format!("cargo xtask torture --kill-at-answer {rounds} --seed {seed}{only}{delete}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_repeats_the_rounds_with_their_options() {
        let all = KillAtAnswer { rounds: 9, seed: 5, delete_index: false, only: None };
        assert_eq!(all.command(9, 5), "cargo xtask torture --kill-at-answer 9 --seed 5");
        let some = KillAtAnswer { delete_index: true, only: Some(AnswerKind::AsyncPoll), ..all };
        let command = some.command(1, 7);
        assert_eq!(command, "cargo xtask torture --kill-at-answer 1 --seed 7 --only async-poll --delete-index");
    }
}
