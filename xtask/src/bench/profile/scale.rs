//! Memory of the gateway after many turns, and the cost of many runs in its state folder.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::ProfilePrograms;
use super::calls::turns;
use super::lines::{ProfileLine, ProfileUnit};
use super::recipe::ProfileRecipe;
use super::times::MANY_IN_FLIGHT;
use crate::bench::client::{BenchClient, alternating, requests};
use crate::bench::figure::BenchThreshold;
use crate::bench::gateway::{BenchGateway, GatewayCommand};
use crate::bench::samples::Samples;

/// Turns after which memory is measured for the first time.
const FEW_THOUSAND: usize = 2000;

/// Time after which an idle gateway has returned freed memory to the system.
const MEMORY_SETTLE_TIME: Duration = Duration::from_secs(30);

/// Runs in the state folder that the large one is compared with.
const FEW_RUNS: usize = 10;

/// Turns with many and with few runs.
const COMPARED_TURNS: usize = 300;

/// Requests for the list of runs.
const LISTS: usize = 100;

pub(super) async fn measure(programs: &ProfilePrograms, runs: usize) -> Result<Vec<ProfileLine>> {
    let model = ProfileRecipe::Plain.model();
    let gateway = programs.start_gateway().await?;
    let mut lines = vec![memory("resident, idle", &gateway, 15.0)?];
    let mut done = 0;
    for until in [FEW_THOUSAND.min(runs), runs] {
        if until > done {
            eprintln!("scale: {done} of {runs} runs");
            requests(gateway.address, model, MANY_IN_FLIGHT, until - done).await?;
            tokio::time::sleep(MEMORY_SETTLE_TIME).await;
            lines.push(memory(&format!("resident after {until} turns"), &gateway, 25.0)?);
            done = until;
        }
    }
    let folder = gateway.shut_down().await?;
    let began = Instant::now();
    let many = BenchGateway::start_in(folder, &GatewayCommand::new(&programs.gateway)).await?;
    many.client().await?.chat(model).await?;
    let start = began.elapsed().as_secs_f64() * 1e3;
    lines.push(most(format!("start to first answer with {runs} runs"), ProfileUnit::Millis, start, 1000.0));
    let list = list_runs(&mut many.client().await?).await?.median() * 1e3;
    lines.push(most(format!("GET /v1/runs?limit=50 p50 with {runs} runs"), ProfileUnit::Millis, list, 20.0));
    let few = programs.start_gateway().await?;
    turns(&mut few.client().await?, model, FEW_RUNS).await?;
    let both = alternating(&[(many.address, model), (few.address, model)], COMPARED_TURNS).await?;
    few.stop().await?;
    let (with_many, with_few) = (both[0].median(), both[1].median());
    let what =
        format!("turn p50 with {runs} runs: {:.2} ms / with {FEW_RUNS}: {:.2} ms", with_many * 1e3, with_few * 1e3);
    lines.push(ProfileLine::informative(what, ProfileUnit::Times, with_many / with_few));
    let rate = rebuild(programs, many, runs).await?;
    lines.push(ProfileLine::new(
        format!("runs per second when the index of {runs} runs is rebuilt"),
        ProfileUnit::Count,
        rate,
        BenchThreshold::AtLeast(20_000.0),
    ));
    Ok(lines)
}

/// Deletes the database of a gateway that has made `runs` runs. Returns the number of runs per second that its next start
/// indexes, measured by the answer to a query that needs all of them.
async fn rebuild(programs: &ProfilePrograms, gateway: BenchGateway, runs: usize) -> Result<f64> {
    let folder = gateway.shut_down().await?;
    for suffix in ["", "-wal", "-shm"] {
        let file = folder.path().join("state").join(format!("trunkline.db{suffix}"));
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound && !suffix.is_empty() => {}
            removed => removed.with_context(|| format!("cannot delete {}", file.display()))?,
        }
    }
    let gateway = BenchGateway::start_in(folder, &GatewayCommand::new(&programs.gateway)).await?;
    let mut client = gateway.client().await?;
    let began = Instant::now();
    let status = client.get("/v1/runs?limit=50").await?;
    let took = began.elapsed().as_secs_f64();
    gateway.stop().await?;
    if status != 200 {
        bail!("GET /v1/runs while the index is rebuilt: status {status}");
    }
    Ok(runs as f64 / took)
}

fn memory(what: &str, gateway: &BenchGateway, megabytes: f64) -> Result<ProfileLine> {
    let memory = gateway.memory()?;
    let what = format!("{what}; private: {:.1} MB", memory.private);
    Ok(most(what, ProfileUnit::Megabytes, memory.gateway, megabytes))
}

fn most(what: String, unit: ProfileUnit, value: f64, most: f64) -> ProfileLine {
    ProfileLine::new(what, unit, value, BenchThreshold::AtMost(most))
}

async fn list_runs(client: &mut BenchClient) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..LISTS {
        let began = Instant::now();
        let status = client.get("/v1/runs?limit=50").await?;
        samples.push(began.elapsed().as_secs_f64());
        if status != 200 {
            bail!("GET /v1/runs: status {status}");
        }
    }
    Ok(samples)
}
