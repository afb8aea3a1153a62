//! User instructions of the gateway in a turn: by the processor's counter (perf), or else by valgrind.

use std::ffi::OsString;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, anyhow, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::calls::turns;
use super::recipe::{ProfileRecipe, configured_folder};
use super::{COUNTED_TURNS, ProfilePrograms, WARM_UP_TURNS};
use crate::bench::gateway::{BenchGateway, GatewayCommand};

/// Turns under valgrind, which is fifty times slower.
const VALGRIND_TURNS: usize = 50;

/// Instructions per turn, and the program that counted them.
pub(super) struct InstructionCount {
    pub(super) per_turn: f64,
    pub(super) counted_by: &'static str,
}

pub(super) async fn count(programs: &ProfilePrograms, recipe: ProfileRecipe) -> Result<InstructionCount> {
    let by_perf = match count_by_perf(programs, recipe).await {
        Ok(per_turn) => return Ok(InstructionCount { per_turn, counted_by: "perf" }),
        Err(error) => error,
    };
    let by_valgrind = count_by_valgrind(programs, recipe).await;
    let per_turn = by_valgrind.with_context(|| format!("perf: {by_perf:#}; valgrind"))?;
    Ok(InstructionCount { per_turn, counted_by: "valgrind" })
}

async fn count_by_perf(programs: &ProfilePrograms, recipe: ProfileRecipe) -> Result<f64> {
    let gateway =
        BenchGateway::start_in(configured_folder(&programs.agent)?, &GatewayCommand::new(&programs.gateway)).await?;
    let mut client = gateway.client().await?;
    turns(&mut client, recipe.model(), WARM_UP_TURNS).await?;
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
        turns(&mut client, recipe.model(), COUNTED_TURNS).await?;
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

/// Runs the gateway under callgrind. Its counter is set to zero after the warm-up and written to a file after the turns.
async fn count_by_valgrind(programs: &ProfilePrograms, recipe: ProfileRecipe) -> Result<f64> {
    let scratch = tempfile::tempdir()?;
    let counts = scratch.path().join("counts");
    let mut output = OsString::from("--callgrind-out-file=");
    output.push(&counts);
    let args = vec!["--tool=callgrind".into(), "--quiet".into(), output];
    let command = GatewayCommand::new(&programs.gateway).under("valgrind", args);
    let gateway = BenchGateway::start_in(configured_folder(&programs.agent)?, &command).await?;
    let mut client = gateway.client().await?;
    turns(&mut client, recipe.model(), WARM_UP_TURNS).await?;
    tell_valgrind(gateway.pid()?, "zero").await?;
    turns(&mut client, recipe.model(), VALGRIND_TURNS).await?;
    tell_valgrind(gateway.pid()?, "dump").await?;
    gateway.stop().await?;
    // The first dump has this suffix.
    let counts = fs::read_to_string(counts.with_extension("1")).context("callgrind wrote no counts")?;
    Ok(counted_by_valgrind(&counts)? / VALGRIND_TURNS as f64)
}

/// The sum of all instructions in a file of callgrind.
fn counted_by_valgrind(counts: &str) -> Result<f64> {
    let sum = counts.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    Ok(sum.context("no sum in the file of callgrind")?.trim().parse()?)
}

/// Sends a command to the valgrind that runs the process.
async fn tell_valgrind(pid: u32, command: &str) -> Result<()> {
    let mut vgdb = tool("vgdb");
    let output = vgdb.args([&format!("--pid={pid}"), command]).stdin(Stdio::null()).output().await?;
    if !output.status.success() {
        bail!("vgdb {command}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
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
    fn reads_the_sum_of_callgrind() {
        let counts = "version: 1\nevents: Ir\nsummary: 4210\n\nfn=(1) main\n1 4210\n\ntotals: 4210\n";
        assert_eq!(counted_by_valgrind(counts).unwrap(), 4210.0);
        assert!(counted_by_valgrind("version: 1\n").is_err());
    }
}
