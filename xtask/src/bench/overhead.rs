//! What the gateway adds to a CLI that does nothing: each figure beside the program alone and the program under a keeper.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use trunkline_process::{KeeperProgram, Keepers};

use super::bare;
use super::finding::{Bar, Finding, Unit};
use super::gateway::{Gateway, Memory};
use super::stats::Stats;

/// How many are in flight when the machine is to be full.
const MANY: usize = 64;

/// How often the gateway is started to see how long that takes.
const STARTS: usize = 11;

/// How much is asked for each figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) rounds: usize,
    pub(crate) requests: usize,
}

pub(crate) struct Overhead {
    one: Ways,
    many: Ways,
    direct: Stats,
    routed: Stats,
    deltas_bare: Stats,
    deltas: Stats,
    deltas_many: Stats,
    idle: Memory,
    per_run: Memory,
    start_up: Stats,
}

impl Overhead {
    pub(crate) async fn measure(binary: &Path, agent: &Path, amount: Amount) -> Result<Self> {
        let Amount { rounds, requests } = amount;
        let gateway = Gateway::start(binary, agent).await?;
        let idle = gateway.memory()?;
        let keepers = Keepers::new(KeeperProgram { path: binary.to_owned(), args: vec!["__keeper".into()] }, 1)?;
        let (mut one, mut many) = (Ways::default(), Ways::default());
        let (mut direct, mut routed) = (Stats::default(), Stats::default());
        let (mut deltas_bare, mut deltas) = (Stats::default(), Stats::default());
        for round in 0..rounds {
            eprintln!("a no-op, round {} of {rounds}", round + 1);
            one.take(1, requests, agent, &keepers, &gateway).await?;
            many.take(MANY, requests * 4, agent, &keepers, &gateway).await?;
            let (by_name, by_hint) = gateway.routing(requests).await?;
            direct.extend(by_name);
            routed.extend(by_hint);
            deltas_bare.extend(bare::deltas(agent).await?);
            deltas.extend(gateway.deltas(1).await?);
        }
        let deltas_many = gateway.deltas(MANY).await?;
        let per_run = gateway.memory_per_run(MANY).await?;
        gateway.stop().await?;
        keepers.shutdown().await;
        let start_up = start_ups(binary, agent).await?;
        Ok(Self { one, many, direct, routed, deltas_bare, deltas, deltas_many, idle, per_run, start_up })
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let added = self.one.gateway.against(&self.one.bare, |with, without| (with - without) * 1e3);
        let rate = self.many.gateway_rate.against(&self.many.bare_rate, |with, without| with / without * 100.0);
        let delta = self.deltas.against(&self.deltas_bare, |with, without| (with - without) * 1e3);
        vec![
            Finding::new("noop/added", "added to a no-op program, p50", Unit::Millis, added, Bar::AtMost(0.2)),
            Finding::new("noop/rate", "of the bare spawn rate, 64 in flight", Unit::Percent, rate, Bar::AtLeast(90.0)),
            Finding::new("delta/added", "added to a streamed delta, p50", Unit::Millis, delta, Bar::AtMost(0.3)),
        ]
    }

    /// All of it, as rows of a table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut rows = vec![
            ["what", "bare CLI", "kept (keeper)", "gateway", "added by keeper", "added by the rest"].map(str::to_owned),
            ["---"; 6].map(str::to_owned),
        ];
        for (name, ways) in [("one in flight", &self.one), ("64 in flight", &self.many)] {
            for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99)] {
                let [bare, kept, full] =
                    [&ways.bare, &ways.kept, &ways.gateway].map(|samples| samples.quantile(quantile));
                rows.push([
                    format!("{name}, {percentile}"),
                    millis(bare),
                    millis(kept),
                    millis(full),
                    millis(kept - bare),
                    millis(full - kept),
                ]);
            }
        }
        let rates = [&self.many.bare_rate, &self.many.kept_rate, &self.many.gateway_rate].map(Stats::median);
        let [bare, kept, full] = rates.map(|rate| format!("{rate:.0}"));
        let of_bare = |rate: f64| format!("{:.0} % of bare", rate / rates[0] * 100.0);
        rows.push(["a second, 64 in flight".to_owned(), bare, kept, full, of_bare(rates[1]), of_bare(rates[2])]);
        let (by_name, by_hint) = (self.direct.median(), self.routed.median());
        let routed = format!("{:+.0} µs", (by_hint - by_name) * 1e6);
        rows.push(gateway_only("routed (`auto:fast`), p50", millis(by_hint), routed));
        for (name, bare, with) in [
            ("a streamed delta, p50", &self.deltas_bare, &self.deltas),
            ("a streamed delta, p50, 64 in flight", &self.deltas_bare, &self.deltas_many),
        ] {
            let added = millis(with.median() - bare.median());
            let mut row = gateway_only(name, millis(with.median()), added);
            row[1] = millis(bare.median());
            rows.push(row);
        }
        let memory = |memory: &Memory| format!("{:.2} MB; {:.1} MB", memory.gateway, memory.keepers);
        rows.push(gateway_only("memory, idle (gateway; its warm keeper)", memory(&self.idle), String::new()));
        rows.push(gateway_only("memory for a run (gateway; its keeper)", memory(&self.per_run), String::new()));
        rows.push(gateway_only("start-up to the first 200, p50", millis(self.start_up.median()), String::new()));
        rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect()
    }
}

fn gateway_only(what: &str, figure: String, added: String) -> [String; 6] {
    [what.to_owned(), String::new(), String::new(), figure, String::new(), added]
}

/// The same work done three ways: by the program alone, under a keeper, through the gateway.
#[derive(Default)]
struct Ways {
    bare: Stats,
    kept: Stats,
    gateway: Stats,
    /// A second, one for each round.
    bare_rate: Stats,
    kept_rate: Stats,
    gateway_rate: Stats,
}

impl Ways {
    async fn take(
        &mut self,
        in_flight: usize,
        requests: usize,
        agent: &Path,
        keepers: &Keepers,
        gateway: &Gateway,
    ) -> Result<()> {
        let began = Instant::now();
        let rate = |began: Instant| requests as f64 / began.elapsed().as_secs_f64();
        self.bare.extend(bare::spawns(agent, in_flight, requests).await?);
        self.bare_rate.push(rate(began));
        let began = Instant::now();
        self.kept.extend(bare::kept(agent, keepers, in_flight, requests).await?);
        self.kept_rate.push(rate(began));
        let began = Instant::now();
        self.gateway.extend(gateway.requests(in_flight, requests).await?);
        self.gateway_rate.push(rate(began));
        Ok(())
    }
}

async fn start_ups(binary: &Path, agent: &Path) -> Result<Stats> {
    let mut stats = Stats::default();
    for _ in 0..STARTS {
        let gateway = Gateway::start(binary, agent).await?;
        stats.push(gateway.start_up.as_secs_f64());
        gateway.stop().await?;
    }
    Ok(stats)
}

fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1000.0)
}
