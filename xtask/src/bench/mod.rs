//! `cargo xtask bench`: what the gateway adds. Every figure has its counterpart without the gateway, taken in turns in
//! the same run, because this machine is never alone: trust the differences and ratios.

mod bare;
mod client;
mod gateway;
mod stats;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_process::{KeeperProgram, Keepers};

use crate::test::command;
use gateway::Gateway;
use stats::{Stats, row};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Requests for each figure and round
    #[arg(long, default_value_t = 300)]
    requests: usize,
    /// Rounds; each takes every figure once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Write the table here as well
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const MANY: usize = 64;

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let build = command(env!("CARGO")).args(["build", "--release", "-p", "trunkline", "-p", "xtask"]).status()?;
        if !build.success() {
            bail!("the release build failed");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let table = runtime.block_on(self.measure())?;
        println!("{table}");
        if let Some(path) = &self.out {
            fs::write(path, table).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    async fn measure(&self) -> Result<String> {
        // Beside the folder this chore was built into, wherever that is.
        let release =
            std::env::current_exe()?.parent().and_then(Path::parent).context("no target folder")?.join("release");
        let (agent, binary) = (release.join("fake-agent"), release.join("trunkline"));
        let gateway = Gateway::start(&binary, &agent).await?;
        let idle = gateway.memory()?;
        let keepers = Keepers::new(KeeperProgram { path: binary.clone(), args: vec!["__keeper".into()] }, 1)?;

        let mut one = Figures::default();
        let mut many = Figures::default();
        for round in 0..self.rounds {
            eprintln!("round {} of {}", round + 1, self.rounds);
            one.take(1, self.requests, &agent, &keepers, &gateway).await?;
            many.take(MANY, self.requests * 4, &agent, &keepers, &gateway).await?;
        }
        let (mut direct, mut routed) = (Stats::default(), Stats::default());
        for _ in 0..self.rounds {
            let (by_name, by_hint) = gateway.routing(self.requests).await?;
            direct.extend(by_name);
            routed.extend(by_hint);
        }
        let mut deltas_direct = Stats::default();
        let mut deltas_gateway = Stats::default();
        for _ in 0..self.rounds {
            deltas_direct.extend(bare::deltas(&agent).await?);
            deltas_gateway.extend(gateway.deltas(1).await?);
        }
        let deltas_many = gateway.deltas(MANY).await?;
        let per_run = gateway.memory_per_run(MANY).await?;
        let start_up = start_ups(&binary, &agent).await?;
        gateway.stop().await?;
        keepers.shutdown().await;

        let mut table =
            String::from("| what | bare CLI | kept (keeper) | gateway | added by keeper | added by the rest | aim |\n");
        table.push_str("|---|---|---|---|---|---|---|\n");
        for (name, figures, aim) in [("one in flight", &one, "≤ 0.3 + 0.3 ms"), ("64 in flight", &many, "")] {
            for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99)] {
                let (bare, kept, full) = (
                    figures.bare.quantile(quantile),
                    figures.kept.quantile(quantile),
                    figures.gateway.quantile(quantile),
                );
                table.push_str(&row(&[
                    &format!("{name}, {percentile}"),
                    &millis(bare),
                    &millis(kept),
                    &millis(full),
                    &millis(kept - bare),
                    &millis(full - kept),
                    if percentile == "p50" { aim } else { "" },
                ]));
            }
        }
        let ratio = many.gateway_rate() / many.bare_rate();
        table.push_str(&row(&[
            "requests a second, 64 in flight",
            &format!("{:.0}", many.bare_rate()),
            &format!("{:.0}", many.kept_rate()),
            &format!("{:.0}", many.gateway_rate()),
            "",
            &format!("{:.0} % of bare", ratio * 100.0),
            "≥ 70 %",
        ]));
        let (by_name, by_hint) = (direct.quantile(0.5), routed.quantile(0.5));
        table.push_str(&row(&[
            "routed (`auto:fast`) beside a direct model, p50",
            "",
            "",
            &format!("{}; {}", millis(by_name), millis(by_hint)),
            "",
            &format!("{:+.0} µs (ratio {:.3})", (by_hint - by_name) * 1e6, by_hint / by_name),
            "≤ 50 µs",
        ]));
        let added = |stats: &Stats| stats.quantile(0.5) - deltas_direct.quantile(0.5);
        table.push_str(&row(&[
            "a streamed delta, p50, one in flight",
            &millis(deltas_direct.quantile(0.5)),
            "",
            &millis(deltas_gateway.quantile(0.5)),
            "",
            &millis(added(&deltas_gateway)),
            "≤ 0.3 ms",
        ]));
        table.push_str(&row(&[
            "a streamed delta, p50, 64 in flight",
            "",
            "",
            &millis(deltas_many.quantile(0.5)),
            "",
            &millis(added(&deltas_many)),
            "",
        ]));
        table.push_str(&row(&[
            "memory, idle (gateway; its warm keeper)",
            "",
            "",
            &format!("{:.1} MB; {:.1} MB", idle.gateway, idle.keepers),
            "",
            "",
            "≤ 12 MB",
        ]));
        table.push_str(&row(&[
            "memory for a run in flight (gateway; its keeper)",
            "",
            "",
            &format!("{:.2} MB; {:.1} MB", per_run.gateway, per_run.keepers),
            "",
            "",
            "",
        ]));
        table.push_str(&row(&[
            "start-up to the first 200, p50",
            "",
            "",
            &millis(start_up.quantile(0.5)),
            "",
            "",
            "≤ 50 ms",
        ]));
        Ok(table)
    }
}

/// The same work done three ways: by the program alone, under a keeper, through the gateway.
#[derive(Default)]
struct Figures {
    bare: Stats,
    kept: Stats,
    gateway: Stats,
    elapsed: [Duration; 3],
}

impl Figures {
    async fn take(
        &mut self,
        in_flight: usize,
        requests: usize,
        agent: &Path,
        keepers: &Keepers,
        gateway: &Gateway,
    ) -> Result<()> {
        let began = Instant::now();
        self.bare.extend(bare::spawns(agent, in_flight, requests).await?);
        self.elapsed[0] += began.elapsed();
        let began = Instant::now();
        self.kept.extend(bare::kept(agent, keepers, in_flight, requests).await?);
        self.elapsed[1] += began.elapsed();
        let began = Instant::now();
        self.gateway.extend(gateway.requests(in_flight, requests).await?);
        self.elapsed[2] += began.elapsed();
        Ok(())
    }

    fn bare_rate(&self) -> f64 {
        self.bare.len() as f64 / self.elapsed[0].as_secs_f64()
    }

    fn kept_rate(&self) -> f64 {
        self.kept.len() as f64 / self.elapsed[1].as_secs_f64()
    }

    fn gateway_rate(&self) -> f64 {
        self.gateway.len() as f64 / self.elapsed[2].as_secs_f64()
    }
}

async fn start_ups(binary: &Path, agent: &Path) -> Result<Stats> {
    let mut stats = Stats::default();
    for _ in 0..11 {
        let gateway = Gateway::start(binary, agent).await?;
        stats.push(gateway.start_up.as_secs_f64());
        gateway.stop().await?;
    }
    Ok(stats)
}

fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1000.0)
}
