//! `cargo xtask memory`: resident memory of an idle gateway before and after runs with large output.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use tokio::task::JoinSet;

use crate::bench::client::BenchClient;
use crate::bench::gateway::BenchGateway;
use crate::bench::{BenchBinaries, build_shipped};

/// Allowed ratio of memory after the runs to memory before.
const MAX_GROWTH: f64 = 1.10;

/// The gateway frees memory some seconds after its last use.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  cargo xtask memory                                   The full test: 1000 runs, then 200 in parallel
  cargo xtask memory --sequential 100 --parallel 20    A short version";

/// Check that the gateway frees memory after runs with large output
///
/// Each run prints 10 MB. The resident memory of the idle gateway is measured before the runs, after the sequential ones
/// and after the parallel ones. The command fails if it grew by more than 10 %. Needs 30 GB of free disk space for run
/// logs.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MemoryArgs {
    /// Number of runs one after the other
    #[arg(long, default_value_t = 1000)]
    sequential: usize,
    /// Number of runs at the same time
    #[arg(long, default_value_t = 200)]
    parallel: usize,
}

impl MemoryArgs {
    pub(crate) fn run(self) -> Result<()> {
        let BenchBinaries { agent, gateway: binary, .. } = build_shipped()?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.measure(&binary, &agent))
    }

    async fn measure(&self, binary: &Path, agent: &Path) -> Result<()> {
        let gateway = BenchGateway::start(binary, agent).await?;
        // The first run allocates what an idle gateway keeps.
        run_flood(&gateway, 0).await?;
        let idle = settled(&gateway, 0.0).await?;
        println!("idle                      {idle:6.1} MB");
        let (began, mut peak) = (Instant::now(), idle);
        for run in 0..self.sequential {
            run_flood(&gateway, run).await?;
            peak = peak.max(gateway.memory()?.gateway);
            if (run + 1).is_multiple_of(100) {
                gateway.delete_logs()?;
                eprintln!(
                    "{} runs, {:.1} MB, {:.0} s",
                    run + 1,
                    gateway.memory()?.gateway,
                    began.elapsed().as_secs_f64()
                );
            }
        }
        let after_sequential = settled(&gateway, idle).await?;
        println!("{:4} sequential runs      {after_sequential:6.1} MB, peak {peak:.1} MB", self.sequential);
        let peak = self.run_parallel(&gateway).await?;
        let after_parallel = settled(&gateway, idle).await?;
        println!("{:4} parallel runs        {after_parallel:6.1} MB, peak {peak:.1} MB", self.parallel);
        gateway.stop().await?;
        let growth = after_sequential.max(after_parallel) / idle;
        println!("growth {:+.1} %, limit {:+.0} %", (growth - 1.0) * 100.0, (MAX_GROWTH - 1.0) * 100.0);
        if growth > MAX_GROWTH {
            bail!("the gateway did not free the memory of ended runs");
        }
        Ok(())
    }

    /// Runs all at the same time; returns the peak memory in megabytes.
    async fn run_parallel(&self, gateway: &BenchGateway) -> Result<f64> {
        let mut runs = JoinSet::new();
        for run in 0..self.parallel {
            let client = gateway.client().await?;
            runs.spawn(drain(client, run));
        }
        let mut peak: f64 = 0.0;
        loop {
            tokio::select! {
                ended = runs.join_next() => match ended {
                    Some(ended) => ended??,
                    None => return Ok(peak),
                },
                () = tokio::time::sleep(Duration::from_millis(100)) => peak = peak.max(gateway.memory()?.gateway),
            }
        }
    }
}

async fn run_flood(gateway: &BenchGateway, run: usize) -> Result<()> {
    drain(gateway.client().await?, run).await
}

/// Sends the request and reads its answer. Every other run is streamed.
async fn drain(mut client: BenchClient, run: usize) -> Result<()> {
    if run.is_multiple_of(2) {
        return client.chat("flood").await;
    }
    client.stream("flood").await?;
    while let Some(line) = client.line().await? {
        if line.contains("[DONE]") {
            return Ok(());
        }
    }
    bail!("the stream ended without [DONE]")
}

/// Megabytes of the gateway, once it is down to `idle` or the timeout has passed.
async fn settled(gateway: &BenchGateway, idle: f64) -> Result<f64> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let resident = gateway.memory()?.gateway;
        if resident <= idle || Instant::now() >= deadline {
            return Ok(resident);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
