//! Overhead of the gateway on a program that does nothing, compared with the program alone, the program started by a keeper
//! and the program behind a minimal gateway.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use trunkline_process::{KeeperProgram, Keepers};

use super::client;
use super::figure::{BenchFigure, BenchThreshold, BetterWhen, FigureUnit};
use super::gateway::{BenchGateway, ResidentMemory};
use super::minimal::MinimalGateway;
use super::samples::Samples;
use super::{BenchBinaries, bare};

/// Concurrent requests that saturate the machine.
const MANY_IN_FLIGHT: usize = 64;

/// Starts of the gateway for the median of its start-up time.
const START_COUNT: usize = 11;

/// Number of samples for each figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleCount {
    pub(crate) rounds: usize,
    pub(crate) requests: usize,
}

pub(crate) struct Overhead {
    /// With one request in flight.
    one: OverheadSamples,
    /// With [`MANY_IN_FLIGHT`] requests in flight.
    many: OverheadSamples,
    direct: Samples,
    routed: Samples,
    deltas_bare: Samples,
    deltas: Samples,
    deltas_many: Samples,
    idle: ResidentMemory,
    per_run: ResidentMemory,
    start_up: Samples,
}

impl Overhead {
    pub(crate) async fn measure(binaries: &BenchBinaries, count: SampleCount) -> Result<Self> {
        let SampleCount { rounds, requests } = count;
        let BenchBinaries { agent, gateway: binary, minimal_gateway } = binaries;
        let minimal = MinimalGateway::start(minimal_gateway, agent).await?;
        let gateway = BenchGateway::start(binary, agent).await?;
        let idle = gateway.memory()?;
        let keepers = Keepers::new(KeeperProgram { path: binary.clone(), args: vec!["__keeper".into()] }, 1)?;
        let (mut one, mut many) = (OverheadSamples::default(), OverheadSamples::default());
        let (mut direct, mut routed) = (Samples::default(), Samples::default());
        let (mut deltas_bare, mut deltas) = (Samples::default(), Samples::default());
        for round in 0..rounds {
            eprintln!("no-op, round {} of {rounds}", round + 1);
            let paths = OverheadPaths { agent, keepers: &keepers, minimal: &minimal, gateway: &gateway };
            one.take(1, requests, &paths).await?;
            many.take(MANY_IN_FLIGHT, requests * 4, &paths).await?;
            let (by_name, by_hint) = gateway.routing(requests).await?;
            direct.extend(by_name);
            routed.extend(by_hint);
            deltas_bare.extend(bare::deltas(agent).await?);
            deltas.extend(gateway.deltas(1).await?);
        }
        let deltas_many = gateway.deltas(MANY_IN_FLIGHT).await?;
        let per_run = gateway.memory_per_run(MANY_IN_FLIGHT).await?;
        gateway.stop().await?;
        minimal.stop().await?;
        keepers.shutdown().await;
        let start_up = measure_start_up(binary, agent).await?;
        Ok(Self { one, many, direct, routed, deltas_bare, deltas, deltas_many, idle, per_run, start_up })
    }

    pub(crate) fn figures(&self) -> Vec<BenchFigure> {
        let (one, many) = (&self.one, &self.many);
        let millis = |with: f64, without: f64| (with - without) * 1e3;
        let times = |with: f64, without: f64| with / without;
        let added = one.gateway.seconds.against(&one.bare.seconds, millis);
        let rate = many.gateway.rate.against(&many.bare.rate, |with, without| with / without * 100.0);
        let delta = self.deltas.against(&self.deltas_bare, millis);
        let ratio = "no-op through trunkline / minimal gateway, p50";
        let rate_ratio = "no-ops per second through trunkline / minimal gateway, 64 in flight";
        let rate_of_bare = "no-ops per second, relative to the bare program, 64 in flight";
        vec![
            BenchFigure::new(
                "noop/added",
                "added to a no-op program, p50",
                FigureUnit::Millis,
                added,
                BenchThreshold::AtMost(0.2),
            ),
            BenchFigure::without_threshold(
                "noop/of_minimal",
                ratio,
                one.gateway.seconds.against(&one.minimal.seconds, times),
                BetterWhen::Lower,
            ),
            BenchFigure::new("noop/rate", rate_of_bare, FigureUnit::Percent, rate, BenchThreshold::AtLeast(90.0)),
            BenchFigure::without_threshold(
                "noop/rate_of_minimal",
                rate_ratio,
                many.gateway.rate.against(&many.minimal.rate, times),
                BetterWhen::Higher,
            ),
            BenchFigure::new(
                "delta/added",
                "added to a streamed delta, p50",
                FigureUnit::Millis,
                delta,
                BenchThreshold::AtMost(0.3),
            ),
        ]
    }

    /// All samples as a table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let heads =
            ["what", "bare CLI", "by keeper", "minimal gateway", "gateway", "added by keeper", "added by the rest"];
        let mut rows = vec![heads.map(str::to_owned), ["---"; 7].map(str::to_owned)];
        for (name, samples) in [("one in flight", &self.one), ("64 in flight", &self.many)] {
            for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99)] {
                let [bare, keeper, minimal, full] =
                    [&samples.bare, &samples.keeper, &samples.minimal, &samples.gateway]
                        .map(|path| path.seconds.quantile(quantile));
                rows.push([
                    format!("{name}, {percentile}"),
                    millis(bare),
                    millis(keeper),
                    millis(minimal),
                    millis(full),
                    millis(keeper - bare),
                    millis(full - keeper),
                ]);
            }
        }
        let OverheadSamples { bare, keeper, minimal, gateway } = &self.many;
        let rates = [bare, keeper, minimal, gateway].map(|path| path.rate.median());
        let [bare, keeper, minimal, full] = rates.map(|rate| format!("{rate:.0}"));
        let of_bare = |rate: f64| format!("{:.0} % of bare", rate / rates[0] * 100.0);
        let name = "per second, 64 in flight".to_owned();
        let minimal = format!("{minimal}, {}", of_bare(rates[2]));
        rows.push([name, bare, keeper, minimal, full, of_bare(rates[1]), of_bare(rates[3])]);
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
        let memory = |memory: &ResidentMemory| format!("{:.2} MB; {:.1} MB", memory.gateway, memory.keepers);
        rows.push(gateway_only("memory, idle (gateway; its warm keeper)", memory(&self.idle), String::new()));
        rows.push(gateway_only("memory for each run (gateway; its keeper)", memory(&self.per_run), String::new()));
        rows.push(gateway_only("start-up to the first response, p50", millis(self.start_up.median()), String::new()));
        rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect()
    }
}

fn gateway_only(what: &str, figure: String, added: String) -> [String; 7] {
    let empty = String::new;
    [what.to_owned(), empty(), empty(), empty(), figure, empty(), added]
}

/// Samples of the same work done by the program alone, by a keeper, by the minimal gateway and by trunkline.
#[derive(Default)]
struct OverheadSamples {
    bare: PathSamples,
    keeper: PathSamples,
    minimal: PathSamples,
    gateway: PathSamples,
}

#[derive(Default)]
struct PathSamples {
    /// Duration of each request, in seconds.
    seconds: Samples,
    /// Requests per second, one sample for each round.
    rate: Samples,
}

impl PathSamples {
    async fn take(&mut self, requests: usize, work: impl Future<Output = Result<Samples>>) -> Result<()> {
        let began = Instant::now();
        self.seconds.extend(work.await?);
        self.rate.push(requests as f64 / began.elapsed().as_secs_f64());
        Ok(())
    }
}

/// The programs that do the work.
struct OverheadPaths<'a> {
    agent: &'a Path,
    keepers: &'a Keepers,
    minimal: &'a MinimalGateway,
    gateway: &'a BenchGateway,
}

impl OverheadSamples {
    async fn take(&mut self, in_flight: usize, requests: usize, paths: &OverheadPaths<'_>) -> Result<()> {
        let OverheadPaths { agent, keepers, minimal, gateway } = paths;
        self.bare.take(requests, bare::spawn_directly(agent, in_flight, requests)).await?;
        self.keeper.take(requests, bare::spawn_by_keeper(agent, keepers, in_flight, requests)).await?;
        self.minimal.take(requests, client::requests(minimal.address, "noop", in_flight, requests)).await?;
        self.gateway.take(requests, client::requests(gateway.address, "noop", in_flight, requests)).await
    }
}

async fn measure_start_up(binary: &Path, agent: &Path) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..START_COUNT {
        let gateway = BenchGateway::start(binary, agent).await?;
        samples.push(gateway.start_up.as_secs_f64());
        gateway.stop().await?;
    }
    Ok(samples)
}

fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1000.0)
}
