//! What the gateway adds to a CLI that does nothing: each figure beside the program alone, the program under a keeper, and
//! the least that a gateway can be.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use trunkline_process::{KeeperProgram, Keepers};

use super::client;
use super::finding::{Bar, Better, Finding, Unit};
use super::gateway::{Gateway, Memory};
use super::least::Least;
use super::stats::Stats;
use super::{Built, bare};

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
    pub(crate) async fn measure(built: &Built, amount: Amount) -> Result<Self> {
        let (Amount { rounds, requests }, Built { agent, gateway: binary, least }) = (amount, built);
        let least = Least::start(least, agent).await?;
        let gateway = Gateway::start(binary, agent).await?;
        let idle = gateway.memory()?;
        let keepers = Keepers::new(KeeperProgram { path: binary.clone(), args: vec!["__keeper".into()] }, 1)?;
        let (mut one, mut many) = (Ways::default(), Ways::default());
        let (mut direct, mut routed) = (Stats::default(), Stats::default());
        let (mut deltas_bare, mut deltas) = (Stats::default(), Stats::default());
        for round in 0..rounds {
            eprintln!("a no-op, round {} of {rounds}", round + 1);
            let side_by_side = Side { agent, keepers: &keepers, least: &least, gateway: &gateway };
            one.take(1, requests, &side_by_side).await?;
            many.take(MANY, requests * 4, &side_by_side).await?;
            let (by_name, by_hint) = gateway.routing(requests).await?;
            direct.extend(by_name);
            routed.extend(by_hint);
            deltas_bare.extend(bare::deltas(agent).await?);
            deltas.extend(gateway.deltas(1).await?);
        }
        let deltas_many = gateway.deltas(MANY).await?;
        let per_run = gateway.memory_per_run(MANY).await?;
        gateway.stop().await?;
        least.stop().await?;
        keepers.shutdown().await;
        let start_up = start_ups(binary, agent).await?;
        Ok(Self { one, many, direct, routed, deltas_bare, deltas, deltas_many, idle, per_run, start_up })
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let (one, many) = (&self.one, &self.many);
        let millis = |with: f64, without: f64| (with - without) * 1e3;
        let times = |with: f64, without: f64| with / without;
        let added = one.gateway.took.against(&one.bare.took, millis);
        let rate = many.gateway.rate.against(&many.bare.rate, |with, without| with / without * 100.0);
        let delta = self.deltas.against(&self.deltas_bare, millis);
        let of_least = "a no-op through ours, against the least that a gateway can be, p50";
        let rate_of_least = "the rate of ours, against that of the least, 64 in flight";
        vec![
            Finding::new("noop/added", "added to a no-op program, p50", Unit::Millis, added, Bar::AtMost(0.2)),
            Finding::free("noop/of_least", of_least, one.gateway.took.against(&one.least.took, times), Better::Less),
            Finding::new("noop/rate", "of the bare spawn rate, 64 in flight", Unit::Percent, rate, Bar::AtLeast(90.0)),
            Finding::free(
                "noop/rate_of_least",
                rate_of_least,
                many.gateway.rate.against(&many.least.rate, times),
                Better::More,
            ),
            Finding::new("delta/added", "added to a streamed delta, p50", Unit::Millis, delta, Bar::AtMost(0.3)),
        ]
    }

    /// All of it, as rows of a table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let heads =
            ["what", "bare CLI", "kept (keeper)", "least gateway", "gateway", "added by keeper", "added by the rest"];
        let mut rows = vec![heads.map(str::to_owned), ["---"; 7].map(str::to_owned)];
        for (name, ways) in [("one in flight", &self.one), ("64 in flight", &self.many)] {
            for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99)] {
                let [bare, kept, least, full] =
                    [&ways.bare, &ways.kept, &ways.least, &ways.gateway].map(|way| way.took.quantile(quantile));
                rows.push([
                    format!("{name}, {percentile}"),
                    millis(bare),
                    millis(kept),
                    millis(least),
                    millis(full),
                    millis(kept - bare),
                    millis(full - kept),
                ]);
            }
        }
        let Ways { bare, kept, least, gateway } = &self.many;
        let rates = [bare, kept, least, gateway].map(|way| way.rate.median());
        let [bare, kept, least, full] = rates.map(|rate| format!("{rate:.0}"));
        let of_bare = |rate: f64| format!("{:.0} % of bare", rate / rates[0] * 100.0);
        let name = "a second, 64 in flight".to_owned();
        let least = format!("{least}, {}", of_bare(rates[2]));
        rows.push([name, bare, kept, least, full, of_bare(rates[1]), of_bare(rates[3])]);
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

fn gateway_only(what: &str, figure: String, added: String) -> [String; 7] {
    let nothing = String::new;
    [what.to_owned(), nothing(), nothing(), nothing(), figure, nothing(), added]
}

/// The same work done four ways: by the program alone, under a keeper, through the least gateway, through ours.
#[derive(Default)]
struct Ways {
    bare: Way,
    kept: Way,
    least: Way,
    gateway: Way,
}

#[derive(Default)]
struct Way {
    /// Seconds for each.
    took: Stats,
    /// A second, one for each round.
    rate: Stats,
}

impl Way {
    async fn take(&mut self, requests: usize, work: impl Future<Output = Result<Stats>>) -> Result<()> {
        let began = Instant::now();
        self.took.extend(work.await?);
        self.rate.push(requests as f64 / began.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Who does it.
struct Side<'a> {
    agent: &'a Path,
    keepers: &'a Keepers,
    least: &'a Least,
    gateway: &'a Gateway,
}

impl Ways {
    async fn take(&mut self, in_flight: usize, requests: usize, side: &Side<'_>) -> Result<()> {
        let Side { agent, keepers, least, gateway } = side;
        self.bare.take(requests, bare::spawns(agent, in_flight, requests)).await?;
        self.kept.take(requests, bare::kept(agent, keepers, in_flight, requests)).await?;
        self.least.take(requests, client::requests(least.address, in_flight, requests)).await?;
        self.gateway.take(requests, client::requests(gateway.address, in_flight, requests)).await
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
