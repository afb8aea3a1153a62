//! `cargo xtask memory`: what a gateway holds after it has seen much, beside what it held before.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use tokio::task::JoinSet;

use crate::bench::client::Client;
use crate::bench::gateway::Gateway;
use crate::bench::{Built, build_shipped};

/// Of what was held before.
const MOST: f64 = 1.10;

/// Memory is given back some seconds after it was last used.
const SETTLE: Duration = Duration::from_secs(30);

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
        let Built { agent, gateway: binary, .. } = build_shipped()?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.measure(&binary, &agent))
    }

    async fn measure(&self, binary: &Path, agent: &Path) -> Result<()> {
        let gateway = Gateway::start(binary, agent).await?;
        // Whatever is made with the first run is part of being idle.
        flood(&gateway, 0).await?;
        let idle = settled(&gateway, 0.0).await?;
        println!("idle                      {idle:6.1} MB");
        let (began, mut peak) = (Instant::now(), idle);
        for run in 0..self.sequential {
            flood(&gateway, run).await?;
            peak = peak.max(gateway.memory()?.gateway);
            if (run + 1).is_multiple_of(100) {
                gateway.forget_logs()?;
                eprintln!(
                    "{} runs, {:.1} MB, {:.0} s",
                    run + 1,
                    gateway.memory()?.gateway,
                    began.elapsed().as_secs_f64()
                );
            }
        }
        let after_one_by_one = settled(&gateway, idle).await?;
        println!("{:4} runs one by one       {after_one_by_one:6.1} MB, {peak:.1} at most", self.sequential);
        let peak = self.at_once(&gateway).await?;
        let after_many = settled(&gateway, idle).await?;
        println!("{:4} runs at once          {after_many:6.1} MB, {peak:.1} at most", self.parallel);
        gateway.stop().await?;
        let worst = after_one_by_one.max(after_many) / idle;
        println!("{:+.1} % beside idle; at most {:+.0} % is right", (worst - 1.0) * 100.0, (MOST - 1.0) * 100.0);
        if worst > MOST {
            bail!("memory was not given back");
        }
        Ok(())
    }

    /// The most that was held meanwhile.
    async fn at_once(&self, gateway: &Gateway) -> Result<f64> {
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

async fn flood(gateway: &Gateway, run: usize) -> Result<()> {
    drain(gateway.client().await?, run).await
}

/// Every second one is streamed.
async fn drain(mut client: Client, run: usize) -> Result<()> {
    if run.is_multiple_of(2) {
        return client.chat("flood").await;
    }
    client.stream("flood").await?;
    while let Some(line) = client.line().await? {
        if line.contains("[DONE]") {
            return Ok(());
        }
    }
    bail!("a stream broke off")
}

/// What is held when it has had time to be given back, or sooner if it is as little as it should be.
async fn settled(gateway: &Gateway, idle: f64) -> Result<f64> {
    let until = Instant::now() + SETTLE;
    loop {
        let held = gateway.memory()?.gateway;
        if held <= idle || Instant::now() >= until {
            return Ok(held);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
