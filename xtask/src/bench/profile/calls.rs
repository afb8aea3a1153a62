//! System calls of the gateway in a turn, and its writes to files before the answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::recipe::{ProfileRecipe, configured_folder};
use super::strace::{Strace, TraceDetail};
use super::trace::{calls_by_name, own_lines};
use super::trace_turns::{file_writes, last_turn};
use super::{COUNTED_TURNS, ProfilePrograms, WARM_UP_TURNS};
use crate::bench::client::BenchClient;
use crate::bench::gateway::{BenchGateway, GatewayCommand};

/// Turns for the writes before the answer.
const PACED_TURNS: usize = 50;

/// Time between two of them, in which the gateway finishes what it does after an answer.
const PACE: Duration = Duration::from_millis(50);

/// Counts for one recipe, per turn.
pub(super) struct TurnCalls {
    pub(super) recipe: ProfileRecipe,
    pub(super) by_name: Vec<(String, f64)>,
    /// Writes to files below the state folder, before and after the end of the answer.
    pub(super) writes_before: f64,
    pub(super) writes_after: f64,
    /// How many times longer a turn takes under strace. A gateway that is slowed down combines less work of several turns.
    pub(super) slowdown: f64,
    /// File with the calls of one turn.
    pub(super) example: PathBuf,
}

impl TurnCalls {
    pub(super) async fn count(programs: &ProfilePrograms, recipe: ProfileRecipe) -> Result<Self> {
        let gateway =
            BenchGateway::start_in(configured_folder(&programs.agent)?, &GatewayCommand::new(&programs.gateway))
                .await?;
        let mut client = gateway.client().await?;
        let model = recipe.model();
        turns(&mut client, model, WARM_UP_TURNS).await?;
        let undisturbed = turns(&mut client, model, COUNTED_TURNS).await?;
        let scratch = tempfile::tempdir()?;
        let names = scratch.path().join("names");
        let strace = Strace::attach(gateway.pid()?, TraceDetail::Names, &names).await?;
        let traced = turns(&mut client, model, COUNTED_TURNS).await?;
        strace.detach().await?;
        let paced = scratch.path().join("paced");
        let strace = Strace::attach(gateway.pid()?, TraceDetail::Descriptors, &paced).await?;
        for _ in 0..PACED_TURNS {
            client.chat(model).await?;
            tokio::time::sleep(PACE).await;
        }
        strace.detach().await?;
        let state = gateway.state()?;
        gateway.stop().await?;
        let trace = read(&names)?;
        let by_name = calls_by_name(&own_lines(&trace));
        let by_name = by_name.into_iter().map(|(name, count)| (name, count as f64 / COUNTED_TURNS as f64)).collect();
        let trace = read(&paced)?;
        let lines = own_lines(&trace);
        let writes = file_writes(&lines, &state.to_string_lossy());
        if writes.turns != PACED_TURNS {
            bail!("the trace has {} requests instead of {PACED_TURNS}", writes.turns);
        }
        let example = programs.folder.join(format!("turn-{}.strace", recipe.name()));
        fs::write(&example, last_turn(&lines).join("\n") + "\n")?;
        let per_turn = |count: usize| count as f64 / writes.turns as f64;
        let (writes_before, writes_after) = (per_turn(writes.before_answer), per_turn(writes.after_answer));
        let slowdown = traced.as_secs_f64() / undisturbed.as_secs_f64();
        Ok(Self { recipe, by_name, writes_before, writes_after, slowdown, example })
    }

    pub(super) fn total(&self) -> f64 {
        self.by_name.iter().map(|(_, count)| count).sum()
    }
}

/// Runs turns one after the other; returns how long they took.
pub(super) async fn turns(client: &mut BenchClient, model: &str, count: usize) -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..count {
        client.chat(model).await?;
    }
    Ok(began.elapsed())
}

fn read(trace: &Path) -> Result<String> {
    let bytes = fs::read(trace).context("strace wrote no trace")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
