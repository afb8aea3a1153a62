//! User instructions of the gateway in a turn: by the processor's counter (perf), or else step by step.
//!
//! valgrind is no alternative: version 3.19 knows neither `pidfd_open` nor Landlock.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::counter::read_counter;
use super::programs::COUNT_INSTRUCTIONS;
use super::{COUNTED_TURNS, ProfilePrograms, SETTLE_TIME, WARM_UP_TURNS};
use crate::bench::client::BenchClient;

/// Limits of the turns that are counted step by step.
const MAX_STEPPED_TURNS: usize = 20;
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which the gateway is idle.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Largest share of the instructions that may be subtracted. On a busy machine it varies by half.
const MAX_IDLE_SHARE: f64 = 0.2;

/// Instructions per turn, and the program that counted them.
pub(super) struct InstructionCount {
    pub(super) per_turn: f64,
    pub(super) counted_by: &'static str,
}

/// The request whose turns are counted.
pub(super) struct CountedRequest {
    /// Name for messages.
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) body: String,
}

impl CountedRequest {
    async fn send(&self, client: &mut BenchClient, count: usize) -> Result<()> {
        for _ in 0..count {
            client.ask(self.path, &self.body).await?;
        }
        Ok(())
    }

    /// Fills caches, as [`warm_up`](super::calls::warm_up) does.
    async fn warm_up(&self, client: &mut BenchClient) -> Result<()> {
        self.send(client, WARM_UP_TURNS).await?;
        tokio::time::sleep(SETTLE_TIME).await;
        self.send(client, WARM_UP_TURNS).await
    }
}

pub(super) async fn count(programs: &ProfilePrograms, request: &CountedRequest) -> Result<InstructionCount> {
    let by_perf = match count_by_perf(programs, request).await {
        Ok(per_turn) => return Ok(InstructionCount { per_turn, counted_by: "perf" }),
        Err(error) => error,
    };
    let per_turn = count_steps(programs, request).await.with_context(|| format!("perf: {by_perf:#}; step by step"))?;
    Ok(InstructionCount { per_turn, counted_by: "steps" })
}

async fn count_by_perf(programs: &ProfilePrograms, request: &CountedRequest) -> Result<f64> {
    let gateway = programs.start_gateway().await?;
    let mut client = gateway.client().await?;
    request.warm_up(&mut client).await?;
    // perf counts while the command runs: from the first line that `cat` returns to the end of its input.
    let mut perf = tool("perf");
    perf.args(["stat", "-x", ",", "--no-inherit", "-e", "instructions:u", "-p", &gateway.pid()?.to_string(), "cat"]);
    perf.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut perf = perf.spawn().context("cannot start perf")?;
    let mut input = perf.stdin.take().context("stdin is not piped")?;
    // If perf has ended already, its output says why.
    let _ = input.write_all(b"begin\n").await;
    let output = perf.stdout.take().context("stdout is not piped")?;
    if BufReader::new(output).lines().next_line().await?.is_some() {
        request.send(&mut client, COUNTED_TURNS).await?;
    }
    drop(input);
    let output = perf.wait_with_output().await?;
    gateway.stop().await?;
    Ok(counted_by_perf(&String::from_utf8_lossy(&output.stderr))? / COUNTED_TURNS as f64)
}

/// The count in perf's output: a line such as `89612,,instructions:u,…`.
fn counted_by_perf(output: &str) -> Result<f64> {
    let line = output.lines().find(|line| line.contains(",instructions:u,"));
    let count = line.and_then(|line| line.split(',').next()).unwrap_or(output.trim());
    count.parse().map_err(|_| anyhow!("{count}"))
}

/// Stops the gateway after each instruction. Instructions of periodic work are subtracted, because a turn takes
/// seconds instead of a fraction of a millisecond.
async fn count_steps(programs: &ProfilePrograms, request: &CountedRequest) -> Result<f64> {
    let counting = COUNT_INSTRUCTIONS.build(&programs.folder)?;
    let gateway = programs.start_gateway().await?;
    let mut client = gateway.client().await?;
    request.warm_up(&mut client).await?;
    // Work that is left over from these turns would take minutes later.
    tokio::time::sleep(SETTLE_TIME).await;
    let scratch = tempfile::tempdir()?;
    let counter = scratch.path().join("instructions");
    let mut steps = tool(&counting.to_string_lossy());
    steps.arg(gateway.pid()?.to_string()).arg(&counter);
    steps.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut steps = steps.spawn()?;
    let ready = BufReader::new(steps.stdout.take().context("stdout is not piped")?).lines().next_line().await?;
    if ready.is_none() {
        let output = steps.wait_with_output().await?;
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let idle = StepSpan::during(&counter, async {
        tokio::time::sleep(IDLE_TIME).await;
        Ok(())
    })
    .await?;
    let mut count = 0;
    let busy = StepSpan::during(&counter, async {
        let began = Instant::now();
        while count < MAX_STEPPED_TURNS && began.elapsed() < STEP_TIMEOUT {
            request.send(&mut client, 1).await?;
            count += 1;
        }
        // The work after the last answer is a part of the turn.
        tokio::time::sleep(SETTLE_TIME).await;
        Ok(())
    })
    .await?;
    gateway.stop().await?;
    steps.wait().await?;
    eprintln!("{}: {count} turns, {busy:?}; idle, {idle:?}", request.name);
    Ok(busy.without(idle)? / count as f64)
}

/// Instructions in a span of time.
#[derive(Debug, Clone, Copy)]
struct StepSpan {
    instructions: f64,
    seconds: f64,
}

impl StepSpan {
    async fn during(counter: &Path, work: impl Future<Output = Result<()>>) -> Result<Self> {
        let (began, before) = (Instant::now(), read_counter(counter)?);
        work.await?;
        let instructions = (read_counter(counter)? - before) as f64;
        Ok(Self { instructions, seconds: began.elapsed().as_secs_f64() })
    }

    /// Instructions of this span without those that an idle gateway needs in the same time.
    fn without(self, idle: Self) -> Result<f64> {
        let at_intervals = idle.instructions / idle.seconds * self.seconds;
        let share = at_intervals / self.instructions;
        if share > MAX_IDLE_SHARE {
            bail!("this machine is too busy: {:.0} % of the instructions were not for turns", share * 100.0);
        }
        Ok(self.instructions - at_intervals)
    }
}

#[expect(clippy::disallowed_methods, reason = "the benchmark starts the programs it measures with")]
fn tool(name: &str) -> Command {
    Command::new(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_count_of_perf_and_what_it_says_instead() {
        let counted = "89612000,,instructions:u,1300200,100.00,,\n";
        assert_eq!(counted_by_perf(counted).unwrap(), 89_612_000.0);
        for (output, reason) in [
            ("<not supported>,,instructions:u,0,100.00,,\n", "<not supported>"),
            ("Error:\nNo permission\n", "Error:\nNo permission"),
        ] {
            assert_eq!(counted_by_perf(output).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn instructions_at_intervals_are_subtracted_unless_they_prevail() {
        let idle = StepSpan { instructions: 1000.0, seconds: 5.0 };
        assert_eq!(StepSpan { instructions: 50_000.0, seconds: 50.0 }.without(idle).unwrap(), 40_000.0);
        let prevailing = StepSpan { instructions: 12_500.0, seconds: 50.0 }.without(idle).unwrap_err();
        assert_eq!(prevailing.to_string(), "this machine is too busy: 80 % of the instructions were not for turns");
    }
}
