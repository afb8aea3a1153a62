//! The same program without the gateway: started directly, and under a keeper.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use trunkline_core::limits::Limits;
use trunkline_process::{Keepers, Spec, Step, StopSignal};

use super::stats::Stats;

/// Runs `one` `total` times, `in_flight` at a time, and times each.
pub(crate) async fn timed<F, T>(in_flight: usize, total: usize, one: F) -> Result<Stats>
where
    F: Fn() -> T + Clone + Send + 'static,
    T: Future<Output = Result<()>> + Send + 'static,
{
    let left = Arc::new(AtomicUsize::new(total));
    let mut workers = JoinSet::new();
    for _ in 0..in_flight {
        let (left, one) = (Arc::clone(&left), one.clone());
        workers.spawn(async move {
            let mut stats = Stats::default();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                let began = Instant::now();
                one().await?;
                stats.push(began.elapsed().as_secs_f64());
            }
            anyhow::Ok(stats)
        });
    }
    let mut all = Stats::default();
    while let Some(worker) = workers.join_next().await {
        all.extend(worker??);
    }
    Ok(all)
}

/// Start, read to the end, wait.
pub(crate) async fn spawns(agent: &Path, in_flight: usize, total: usize) -> Result<Stats> {
    let agent = agent.to_owned();
    timed(in_flight, total, move || {
        let agent = agent.clone();
        async move {
            let mut child = agent_command(&agent, "noop").spawn()?;
            let mut output = Vec::new();
            child.stdout.take().expect("it is piped").read_to_end(&mut output).await?;
            child.wait().await?;
            if output.is_empty() {
                bail!("the fake agent printed nothing");
            }
            Ok(())
        }
    })
    .await
}

/// The same under a keeper.
pub(crate) async fn kept(agent: &Path, keepers: &Keepers, in_flight: usize, total: usize) -> Result<Stats> {
    let (agent, keepers) = (agent.to_owned(), keepers.clone());
    timed(in_flight, total, move || {
        let (agent, keepers) = (agent.clone(), keepers.clone());
        async move {
            let spec = Spec {
                program: agent,
                args: Vec::new(),
                env: vec![("FAKE_AGENT".into(), "noop".into())],
                cwd: "/".into(),
                stdin: Vec::new(),
                stop: StopSignal::Term,
                grace: Duration::from_secs(1),
                limits: Limits::NONE,
                confinement: None,
            };
            let mut running = keepers.spawn(spec).await?;
            loop {
                match running.next().await {
                    Step::Stdout(_) => {}
                    Step::Exited(_) => return Ok(()),
                    Step::Limit(limit) => bail!("{limit:?}"),
                }
            }
        }
    })
    .await
}

/// How long a delta takes from the program's print to a reader of its pipe.
pub(crate) async fn deltas(agent: &Path) -> Result<Stats> {
    let mut child = agent_command(agent, "stream").spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut stats = Stats::default();
    while let Some(line) = lines.next_line().await? {
        if let Some(age) = super::client::age(&line) {
            stats.push(age);
        }
    }
    child.wait().await?;
    Ok(stats)
}

#[expect(clippy::disallowed_methods, reason = "the bare program, as it runs without us, is what we compare with")]
fn agent_command(agent: &Path, mode: &str) -> Command {
    let mut command = Command::new(agent);
    command.env_clear().env("FAKE_AGENT", mode).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}
