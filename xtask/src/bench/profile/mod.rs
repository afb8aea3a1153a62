//! `cargo xtask bench --profile`: what the gateway itself does in a turn, as counts where possible.
//!
//! Counts depend less than times on what else the machine does. A [fake CLI](programs::FAST_AGENT) that costs
//! next to nothing answers at once, so that what remains is the gateway's. Both [recipes](recipe::ProfileRecipe) are
//! measured: [`calls`] counts system calls with strace, [`instructions`] with perf or step by step, [`allocations`] with a
//! preloaded library; [`times`] compares with the minimal gateway; [`dialects`] compares the API dialects; [`scale`]
//! measures memory and many runs. [`lines`], [`trace`] and [`trace_turns`] are pure functions.
//!
//! A figure that cannot be measured is a line that says why. Nothing fails because of a missed bar.

mod allocations;
mod calls;
mod counter;
mod dialects;
mod instructions;
mod lines;
mod programs;
mod recipe;
mod scale;
mod strace;
mod times;
mod trace;
mod trace_turns;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use super::binaries::{BenchBinaries, build, build_around, target_folder};
use super::gateway::{BenchGateway, GatewayCommand};
use super::interrupted;
use crate::conformance::select;
use crate::given_binary::given_binary;
use calls::TurnCalls;
use lines::{CallColumn, ProfileLine, ProfileUnit};
use recipe::{ProfileRecipe, configured_folder};

/// Turns before a count begins.
const WARM_UP_TURNS: usize = 50;

/// Time after which the gateway has finished its work for earlier turns, and files that they created count as unchanged.
const SETTLE_TIME: Duration = Duration::from_secs(4);

/// Turns that are counted.
const COUNTED_TURNS: usize = 200;

#[derive(Debug, Args)]
pub(super) struct ProfileArgs {
    /// Count what the gateway does in a turn: system calls, instructions, allocations
    ///
    /// A static program that answers at once is the CLI. Parts for --only: calls (needs strace), instructions (perf, or
    /// else cc), allocations (cc), times (against the minimal gateway), dialects (the other API dialects against chat
    /// completions, in time, instructions and allocations), scale (memory, and many runs in the state folder).
    /// With --quick, the dev build is measured, for a look at the counts.
    #[arg(long, conflicts_with_all = ["before", "json", "write", "check"])]
    profile: bool,
    /// With --profile, measure this trunkline binary instead of building one
    #[arg(long, value_name = "PATH", requires = "profile")]
    binary: Option<PathBuf>,
    /// With --profile, number of runs in the state folder of the part scale
    #[arg(long, value_name = "N", requires = "profile", default_value_t = 10_000)]
    runs: usize,
}

/// Parts of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProfilePart {
    Calls,
    Instructions,
    Allocations,
    Times,
    Dialects,
    Scale,
}

impl ProfilePart {
    const ALL: [Self; 6] =
        [Self::Calls, Self::Instructions, Self::Allocations, Self::Times, Self::Dialects, Self::Scale];

    fn name(&self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Instructions => "instructions",
            Self::Allocations => "allocations",
            Self::Times => "times",
            Self::Dialects => "dialects",
            Self::Scale => "scale",
        }
    }
}

/// Programs that are measured and that measure.
struct ProfilePrograms {
    /// The fast agent; the ordinary fake agent if it cannot be compiled.
    agent: PathBuf,
    gateway: PathBuf,
    minimal_gateway: PathBuf,
    /// Folder for programs in C and for examples of traces.
    folder: PathBuf,
}

impl ProfilePrograms {
    fn new(binaries: BenchBinaries) -> Result<Self> {
        let folder = target_folder()?.join("profile");
        let agent = programs::FAST_AGENT.build(&folder).unwrap_or_else(|error| {
            eprintln!("the ordinary fake agent is used, which is slower: {error:#}");
            binaries.agent
        });
        Ok(Self { agent, gateway: binaries.gateway, minimal_gateway: binaries.minimal_gateway, folder })
    }

    /// Starts a gateway with an empty state folder.
    async fn start_gateway(&self) -> Result<BenchGateway> {
        BenchGateway::start_in(configured_folder(&self.agent)?, &GatewayCommand::new(&self.gateway)).await
    }
}

/// Results so far.
#[derive(Default)]
struct ProfileReport {
    lines: Vec<ProfileLine>,
    calls: Vec<TurnCalls>,
}

impl ProfileArgs {
    pub(super) fn is_wanted(&self) -> bool {
        self.profile
    }

    pub(super) fn run(&self, only: &[String], quick: bool) -> Result<()> {
        let parts = select("part of the profile", only, &ProfilePart::ALL, ProfilePart::name)?;
        let profile = if quick { "dev" } else { "dist" };
        let binaries = match &self.binary {
            Some(binary) => build_around(given_binary("--binary", binary)?, profile)?,
            None => build(profile)?,
        };
        let programs = ProfilePrograms::new(binaries)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut report = ProfileReport::default();
        // After an error or an interrupt, the results so far are shown.
        let outcome = runtime.block_on(async {
            tokio::select! {
                measured = self.measure(&programs, &parts, quick, &mut report) => measured,
                signal = interrupted() => signal.and_then(|()| bail!("interrupted")),
            }
        });
        println!("Per turn of {}, without tools and sessions\n\n{}", programs.gateway.display(), report.text());
        outcome
    }

    async fn measure(
        &self,
        programs: &ProfilePrograms,
        parts: &[&ProfilePart],
        quick: bool,
        report: &mut ProfileReport,
    ) -> Result<()> {
        for part in parts {
            eprintln!("{}", part.name());
            match part {
                ProfilePart::Calls => report.count_calls(programs).await,
                ProfilePart::Instructions => report.count_instructions(programs).await,
                ProfilePart::Allocations => report.count_allocations(programs).await,
                ProfilePart::Times => {
                    let (rounds, requests) = if quick { (2, 100) } else { (5, 300) };
                    report.lines.extend(times::measure(programs, rounds, requests).await?);
                }
                ProfilePart::Dialects => {
                    let (turns, streams) = if quick { (100, 12) } else { (600, 60) };
                    report.lines.extend(dialects::measure(programs, turns, streams).await?);
                    report.lines.extend(dialects::count_instructions(programs).await);
                }
                ProfilePart::Scale => report.lines.extend(scale::measure(programs, self.runs).await?),
            }
        }
        Ok(())
    }
}

impl ProfileReport {
    async fn count_calls(&mut self, programs: &ProfilePrograms) {
        for recipe in ProfileRecipe::ALL {
            let name = recipe.name();
            let most = match recipe {
                ProfileRecipe::Plain => 40.0,
                ProfileRecipe::Codex => 50.0,
            };
            let counted = TurnCalls::count(programs, recipe).await.map_err(reason);
            let figure = |of: fn(&TurnCalls) -> f64| counted.as_ref().map(of).map_err(Clone::clone);
            self.lines.extend([
                ProfileLine::counted(format!("system calls, {name}"), figure(TurnCalls::total), most),
                ProfileLine::counted(
                    format!("writes to state files before the answer's end, median, {name}"),
                    figure(|calls| calls.writes_before),
                    3.0,
                ),
            ]);
            if let Ok(counted) = counted {
                let informative = |what: &str, count: f64| {
                    ProfileLine::informative(format!("{what}, {name}"), ProfileUnit::Count, count)
                };
                self.lines.push(informative("system calls before the answer's end, median", counted.calls_before));
                self.lines.push(informative("writes to state files after the answer's end", counted.writes_after));
                self.calls.push(counted);
            }
        }
    }

    async fn count_instructions(&mut self, programs: &ProfilePrograms) {
        for recipe in ProfileRecipe::ALL {
            let counted = instructions::count(programs, &dialects::chat_turn(recipe)).await.map_err(reason);
            let by = counted.as_ref().map_or("perf or steps", |count| count.counted_by);
            let what = format!("user instructions, {} (by {by})", recipe.name());
            self.lines.push(ProfileLine::counted(what, counted.map(|count| count.per_turn), 450_000.0));
        }
    }

    async fn count_allocations(&mut self, programs: &ProfilePrograms) {
        for recipe in ProfileRecipe::ALL {
            let counted = allocations::count(programs, recipe).await.map_err(reason);
            self.lines.push(ProfileLine::counted(format!("allocations, {}", recipe.name()), counted, 300.0));
        }
    }

    fn text(&self) -> String {
        let mut text = lines::figures(&self.lines);
        if !self.calls.is_empty() {
            let column = |calls| {
                let TurnCalls { recipe, by_name, .. }: &TurnCalls = calls;
                CallColumn { title: recipe.name(), by_name }
            };
            let columns: Vec<_> = self.calls.iter().map(column).collect();
            text += &format!("\n{}", lines::calls(&columns));
        }
        for TurnCalls { recipe, slowdown, example, .. } in &self.calls {
            let (name, example) = (recipe.name(), example.display());
            text += &format!(
                "\n{name}: a turn took {slowdown:.1}× as long under strace; one turn, call by call: {example}"
            );
        }
        text
    }
}

fn reason(error: anyhow::Error) -> String {
    format!("{error:#}")
}
