//! The gateway as it is shipped, with the fake agent as its CLI.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::client::{Client, age};
use super::stats::Stats;

pub(crate) struct Gateway {
    process: Child,
    pub(super) address: SocketAddr,
    pub(crate) start_up: Duration,
    folder: TempDir,
}

/// Resident megabytes.
pub(crate) struct Memory {
    pub(crate) gateway: f64,
    pub(crate) keepers: f64,
}

impl Gateway {
    pub(crate) async fn start(binary: &Path, agent: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // It speaks no protocol that keeps it: to try would be measured, too.
        let model = |mode: &str| json!({"driver": "codex", "repoPath": folder.path(), "command": agent, "warm": 0, "env": {"FAKE_AGENT": mode}});
        let models =
            json!({"noop": model("noop"), "stream": model("stream"), "hang": model("hang"), "flood": model("flood")});
        fs::write(folder.path().join("models.json"), models.to_string())?;
        fs::write(folder.path().join("router.yaml"), router(agent, folder.path()))?;
        let began = Instant::now();
        let mut process = serve_command(binary, folder.path()).spawn()?;
        let address = listening(&mut process).await?;
        Client::connect(address).await?.get("/health").await?;
        Ok(Self { process, address, start_up: began.elapsed(), folder })
    }

    /// The same request to a model and to the router, in turns: what it costs to be routed.
    pub(crate) async fn routing(&self, total: usize) -> Result<(Stats, Stats)> {
        let mut client = Client::connect(self.address).await?;
        let (mut direct, mut routed) = (Stats::default(), Stats::default());
        for turn in 0..total {
            // Who goes first changes too: the second finds everything warm.
            let order = if turn % 2 == 0 { ["noop", "auto:fast"] } else { ["auto:fast", "noop"] };
            for model in order {
                let began = Instant::now();
                client.chat(model).await?;
                let stats = if model == "noop" { &mut direct } else { &mut routed };
                stats.push(began.elapsed().as_secs_f64());
            }
        }
        Ok((direct, routed))
    }

    /// How long a delta takes from the program's print to the client, over HTTP.
    pub(crate) async fn deltas(&self, in_flight: usize) -> Result<Stats> {
        let mut streams = JoinSet::new();
        for _ in 0..in_flight {
            let address = self.address;
            streams.spawn(async move {
                let mut client = Client::connect(address).await?;
                client.stream("stream").await?;
                let mut stats = Stats::default();
                while let Some(line) = client.line().await? {
                    if let Some(age) = age(&line) {
                        stats.push(age);
                    }
                    if line.contains("[DONE]") {
                        break;
                    }
                }
                anyhow::Ok(stats)
            });
        }
        let mut all = Stats::default();
        while let Some(stream) = streams.join_next().await {
            all.extend(stream??);
        }
        Ok(all)
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let pid = self.process.id().context("the gateway has ended")?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
        let of_threads = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let mut keepers: Vec<u32> = of_threads
            .chain([children])
            .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect();
        keepers.sort_unstable();
        keepers.dedup();
        Ok(Memory { gateway: resident(pid)?, keepers: keepers.iter().filter_map(|pid| resident(*pid).ok()).sum() })
    }

    /// What each of `runs` that go on at once costs.
    pub(crate) async fn memory_per_run(&self, runs: usize) -> Result<Memory> {
        let before = self.memory()?;
        let mut clients = Vec::new();
        for _ in 0..runs {
            let mut client = Client::connect(self.address).await?;
            client.stream("hang").await?;
            clients.push(client);
        }
        let during = self.memory()?;
        let each = |during: f64, before: f64| (during - before) / runs as f64;
        Ok(Memory { gateway: each(during.gateway, before.gateway), keepers: during.keepers / runs as f64 })
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        Client::connect(self.address).await
    }

    /// Makes room: the logs of runs that are over.
    pub(crate) fn forget_logs(&self) -> Result<()> {
        for folder in fs::read_dir(self.folder.path().join("state/runs"))? {
            fs::remove_dir_all(folder?.path())?;
        }
        Ok(())
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.kill().await?;
        Ok(())
    }
}

/// Where a gateway says that it listens.
pub(super) async fn listening(process: &mut Child) -> Result<SocketAddr> {
    let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
    let line = lines.next_line().await?.context("the gateway did not start")?;
    Ok(line.strip_prefix("listening on http://").context("an unexpected first line")?.parse()?)
}

/// Three providers, the first of which is the one that `noop` runs.
fn router(agent: &Path, folder: &Path) -> String {
    let provider = |name: &str, priority: i32| {
        format!(
            "- name: {name}\n  type: agent\n  priority: {priority}\n  config:\n    recipe: codex\n    path: {agent}\n    \
             repo: {folder}\n    env: {{FAKE_AGENT: noop}}\n  models: {{fast: mini, codegen: big}}\n",
            agent = agent.display(),
            folder = folder.display(),
        )
    };
    format!("providers:\n{}{}{}", provider("a", 3), provider("b", 2), provider("c", 1))
}

fn resident(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kilobytes / 1024.0)
}

#[expect(clippy::disallowed_methods, reason = "the gateway is what is measured")]
fn serve_command(binary: &Path, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["serve", "--port", "0", "--max-runs", "256", "--grace", "100ms", "--config"])
        .arg(folder)
        .arg("--state")
        .arg(folder.join("state"))
        .env_clear()
        .env("HOME", folder)
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}
