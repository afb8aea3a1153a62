//! The fake agent without the gateway: started directly, and by a keeper.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use trunkline_core::limits::RunLimits;
use trunkline_process::{ArgumentList, Keepers, ProcessEvent, Spec, StopSignal};

use super::samples::Samples;

/// Runs `one` `total` times, `in_flight` of them concurrently, and measures the duration of each.
pub(crate) async fn timed<F, T>(in_flight: usize, total: usize, one: F) -> Result<Samples>
where
    F: Fn() -> T + Clone + Send + 'static,
    T: Future<Output = Result<()>> + Send + 'static,
{
    let remaining = Arc::new(AtomicUsize::new(total));
    let mut workers = JoinSet::new();
    for _ in 0..in_flight {
        let (remaining, one) = (Arc::clone(&remaining), one.clone());
        workers.spawn(async move {
            let mut samples = Samples::default();
            while remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                let began = Instant::now();
                one().await?;
                samples.push(began.elapsed().as_secs_f64());
            }
            anyhow::Ok(samples)
        });
    }
    let mut all = Samples::default();
    while let Some(worker) = workers.join_next().await {
        all.extend(worker??);
    }
    Ok(all)
}

/// Starts the program, reads its output to the end and waits for its exit.
pub(crate) async fn spawn_directly(agent: &Path, in_flight: usize, total: usize) -> Result<Samples> {
    let agent = agent.to_owned();
    timed(in_flight, total, move || {
        let agent = agent.clone();
        async move {
            let mut child = agent_command(&agent, "noop").spawn()?;
            let mut output = Vec::new();
            child.stdout.take().expect("stdout is piped").read_to_end(&mut output).await?;
            child.wait().await?;
            if output.is_empty() {
                bail!("the fake agent printed nothing");
            }
            Ok(())
        }
    })
    .await
}

/// The same through a keeper.
pub(crate) async fn spawn_by_keeper(
    agent: &Path,
    keepers: &Keepers,
    in_flight: usize,
    total: usize,
) -> Result<Samples> {
    let (agent, keepers) = (agent.to_owned(), keepers.clone());
    timed(in_flight, total, move || {
        let (agent, keepers) = (agent.clone(), keepers.clone());
        async move {
            let spec = Spec {
                program: agent,
                args: ArgumentList::default(),
                env: vec![("FAKE_AGENT".into(), "noop".into())].into(),
                cwd: "/".into(),
                stdin: Vec::new(),
                stop: StopSignal::Term,
                grace: Duration::from_secs(1),
                limits: RunLimits::NONE,
                confinement: None,
            };
            let mut running = keepers.spawn(spec).await?;
            loop {
                match running.next().await {
                    ProcessEvent::Stdout(_) => {}
                    ProcessEvent::Exited(_) => return Ok(()),
                    ProcessEvent::Limit(limit) => bail!("{limit:?}"),
                }
            }
        }
    })
    .await
}

/// Seconds from the moment the program prints a delta to its arrival at a reader of the pipe.
pub(crate) async fn deltas(agent: &Path) -> Result<Samples> {
    let mut child = agent_command(agent, "stream").spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let mut samples = Samples::default();
    while let Some(line) = lines.next_line().await? {
        if let Some(age) = super::client::age(&line) {
            samples.push(age);
        }
    }
    child.wait().await?;
    Ok(samples)
}

#[expect(clippy::disallowed_methods, reason = "the program without the gateway is the reference")]
fn agent_command(agent: &Path, mode: &str) -> Command {
    let mut command = Command::new(agent);
    command.env_clear().env("FAKE_AGENT", mode).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}
