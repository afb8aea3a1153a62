//! System calls of the gateway in a turn, and its writes to files before the answer.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::recipe::ProfileRecipe;
use super::strace::{Strace, TraceDetail};
use super::trace::{calls_by_name, own_lines};
use super::trace_turns::{self, TurnCounts};
use super::{COUNTED_TURNS, ProfilePrograms, SETTLE_TIME, WARM_UP_TURNS};
use crate::bench::client::BenchClient;
use crate::bench::samples::Samples;

/// Turns for the writes before the answer.
const PACED_TURNS: usize = 50;

/// Time between two of them, in which the gateway finishes what it does after an answer.
const PACE: Duration = Duration::from_millis(50);

/// Counts for one recipe, per turn.
pub(super) struct TurnCalls {
    pub(super) recipe: ProfileRecipe,
    pub(super) by_name: Vec<(String, f64)>,
    /// Calls between the request and the end of the answer, median. The load of the machine affects it least.
    pub(super) calls_before: f64,
    /// Writes to files below the state folder in the same time, without those to the index, median.
    pub(super) writes_before: f64,
    /// The same after the answer, mean: several turns may share them.
    pub(super) writes_after: f64,
    /// How many times longer a turn takes under strace. A gateway that is slowed down combines less work of several turns.
    pub(super) slowdown: f64,
    /// File with the calls of one turn.
    pub(super) example: PathBuf,
}

impl TurnCalls {
    pub(super) async fn count(programs: &ProfilePrograms, recipe: ProfileRecipe) -> Result<Self> {
        let gateway = programs.start_gateway().await?;
        let mut client = gateway.client().await?;
        let model = recipe.model();
        warm_up(&mut client, model).await?;
        let undisturbed = turns(&mut client, model, COUNTED_TURNS).await?;
        let work = turns(&mut client, model, COUNTED_TURNS);
        let (names, disturbed) = traced(gateway.pid()?, TraceDetail::Names, work).await?;
        let (paced, ()) = traced(gateway.pid()?, TraceDetail::Descriptors, paced_turns(&mut client, model)).await?;
        let state = gateway.state()?;
        gateway.stop().await?;
        let by_name = calls_by_name(&own_lines(&names));
        let by_name = by_name.into_iter().map(|(name, count)| (name, count as f64 / COUNTED_TURNS as f64)).collect();
        let lines = own_lines(&paced);
        let turns = trace_turns::turns(&lines);
        if turns.len() != PACED_TURNS {
            bail!("the trace has {} turns instead of {PACED_TURNS}", turns.len());
        }
        let example = programs.folder.join(format!("turn-{}.strace", recipe.name()));
        fs::write(&example, turns[PACED_TURNS / 2].lines(&lines).join("\n") + "\n")?;
        let counts: Vec<_> = turns.iter().map(|turn| turn.counts(&lines, &state.to_string_lossy())).collect();
        Ok(Self {
            recipe,
            by_name,
            calls_before: median(&counts, |turn| turn.calls_before),
            writes_before: median(&counts, |turn| turn.writes_before),
            writes_after: counts.iter().map(|turn| turn.writes_after).sum::<usize>() as f64 / counts.len() as f64,
            slowdown: disturbed.as_secs_f64() / undisturbed.as_secs_f64(),
            example,
        })
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

/// Fills caches. The gateway keeps what it knows about a file once the file has not changed for a while, and its first
/// turns create files.
pub(super) async fn warm_up(client: &mut BenchClient, model: &str) -> Result<()> {
    turns(client, model, WARM_UP_TURNS).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    turns(client, model, WARM_UP_TURNS).await?;
    Ok(())
}

async fn paced_turns(client: &mut BenchClient, model: &str) -> Result<()> {
    for _ in 0..PACED_TURNS {
        client.chat(model).await?;
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

/// Traces a process while `work` is done; returns the trace and the result of the work.
async fn traced<T>(pid: u32, detail: TraceDetail, work: impl Future<Output = Result<T>>) -> Result<(String, T)> {
    let file = tempfile::NamedTempFile::new()?;
    let strace = Strace::attach(pid, detail, file.path()).await?;
    let result = work.await?;
    strace.detach().await?;
    Ok((String::from_utf8_lossy(&fs::read(file.path())?).into_owned(), result))
}

fn median(turns: &[TurnCounts], count: fn(&TurnCounts) -> usize) -> f64 {
    let mut samples = Samples::default();
    turns.iter().for_each(|turn| samples.push(count(turn) as f64));
    samples.median()
}
