//! A gateway process with the fake agent as its CLI.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::client::{BenchClient, age};
use super::samples::Samples;

pub(crate) struct BenchGateway {
    process: Child,
    pub(super) address: SocketAddr,
    /// From the start of the process to its first answer.
    pub(crate) start_up: Duration,
    folder: TempDir,
}

/// Command that starts a gateway.
#[derive(Debug, Clone)]
pub(crate) struct GatewayCommand {
    binary: PathBuf,
    /// Additional environment variables.
    variables: Vec<(&'static str, OsString)>,
}

impl GatewayCommand {
    pub(crate) fn new(binary: &Path) -> Self {
        Self { binary: binary.to_owned(), variables: Vec::new() }
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }
}

/// Resident memory in megabytes.
pub(crate) struct ResidentMemory {
    pub(crate) gateway: f64,
    /// The part of the gateway's memory that is not its binary and libraries, which other processes share.
    pub(crate) private: f64,
    pub(crate) keepers: f64,
}

impl BenchGateway {
    pub(crate) async fn start(binary: &Path, agent: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // No warm processes: these modes of the fake agent do not support them, and the attempt would be measured, too.
        let model = |mode: &str| json!({"driver": "codex", "repoPath": folder.path(), "command": agent, "warm": 0, "env": {"FAKE_AGENT": mode}});
        let models = json!({"noop": model("noop"), "stream": model("stream"), "hang": model("hang"), "flood": model("flood"), "tools": model("noop")});
        fs::write(folder.path().join("models.json"), models.to_string())?;
        fs::write(folder.path().join("router.yaml"), router(agent, folder.path()))?;
        Self::start_in(folder, &GatewayCommand::new(binary)).await
    }

    /// Starts a gateway with the configuration and the state in `folder`.
    pub(crate) async fn start_in(folder: TempDir, command: &GatewayCommand) -> Result<Self> {
        let began = Instant::now();
        let mut process = serve_command(command, folder.path()).spawn()?;
        let address = read_address(&mut process).await?;
        BenchClient::connect(address).await?.get("/health").await?;
        Ok(Self { process, address, start_up: began.elapsed(), folder })
    }

    /// Sends the same request to a model and to the router, in turns. The difference is the cost of routing.
    pub(crate) async fn routing(&self, total: usize) -> Result<(Samples, Samples)> {
        let mut client = BenchClient::connect(self.address).await?;
        let (mut direct, mut routed) = (Samples::default(), Samples::default());
        for turn in 0..total {
            // The order alternates, because the second request finds warm caches.
            let order = if turn % 2 == 0 { ["noop", "auto:fast"] } else { ["auto:fast", "noop"] };
            for model in order {
                let began = Instant::now();
                client.chat(model).await?;
                let samples = if model == "noop" { &mut direct } else { &mut routed };
                samples.push(began.elapsed().as_secs_f64());
            }
        }
        Ok((direct, routed))
    }

    /// Seconds from the moment the program prints a delta to its arrival at an HTTP client.
    pub(crate) async fn deltas(&self, in_flight: usize) -> Result<Samples> {
        let mut streams = JoinSet::new();
        for _ in 0..in_flight {
            let address = self.address;
            streams.spawn(async move {
                let mut client = BenchClient::connect(address).await?;
                client.stream("stream").await?;
                let mut samples = Samples::default();
                while let Some(line) = client.line().await? {
                    if let Some(age) = age(&line) {
                        samples.push(age);
                    }
                    if line.contains("[DONE]") {
                        break;
                    }
                }
                anyhow::Ok(samples)
            });
        }
        let mut all = Samples::default();
        while let Some(stream) = streams.join_next().await {
            all.extend(stream??);
        }
        Ok(all)
    }

    /// Memory of the gateway and of its child processes, the keepers.
    pub(crate) fn memory(&self) -> Result<ResidentMemory> {
        let pid = self.pid()?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
        let of_other_threads = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let mut keepers: Vec<u32> = of_other_threads
            .chain([children])
            .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
            .collect();
        keepers.sort_unstable();
        keepers.dedup();
        Ok(ResidentMemory {
            gateway: megabytes(pid, "VmRSS")?,
            private: megabytes(pid, "RssAnon")?,
            keepers: keepers.iter().filter_map(|pid| megabytes(*pid, "VmRSS").ok()).sum(),
        })
    }

    /// Memory for each of `runs` concurrent runs.
    pub(crate) async fn memory_per_run(&self, runs: usize) -> Result<ResidentMemory> {
        let before = self.memory()?;
        let mut clients = Vec::new();
        for _ in 0..runs {
            let mut client = BenchClient::connect(self.address).await?;
            client.stream("hang").await?;
            clients.push(client);
        }
        let during = self.memory()?;
        let each = |during: f64, before: f64| (during - before) / runs as f64;
        Ok(ResidentMemory {
            gateway: each(during.gateway, before.gateway),
            private: each(during.private, before.private),
            keepers: during.keepers / runs as f64,
        })
    }

    pub(crate) async fn client(&self) -> Result<BenchClient> {
        BenchClient::connect(self.address).await
    }

    /// Deletes the run logs to free disk space.
    pub(crate) fn delete_logs(&self) -> Result<()> {
        for folder in fs::read_dir(self.folder.path().join("state/runs"))? {
            fs::remove_dir_all(folder?.path())?;
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("the gateway has ended")
    }

    /// Absolute path of the state folder, without symbolic links.
    pub(crate) fn state(&self) -> Result<PathBuf> {
        Ok(self.folder.path().join("state").canonicalize()?)
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.kill().await?;
        Ok(())
    }

    /// Stops the gateway as an operator would, and returns its folder for the next one.
    pub(crate) async fn shut_down(mut self) -> Result<TempDir> {
        let pid = Pid::from_raw(i32::try_from(self.pid()?)?).context("no process id")?;
        kill_process(pid, Signal::TERM)?;
        self.process.wait().await?;
        Ok(self.folder)
    }
}

/// Reads the address from the first line that a gateway prints.
pub(super) async fn read_address(process: &mut Child) -> Result<SocketAddr> {
    let mut lines = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
    let line = lines.next_line().await?.context("the gateway did not start")?;
    Ok(line
        .strip_prefix("listening on http://")
        .with_context(|| format!("unexpected first line of the gateway: {line}"))?
        .parse()?)
}

/// Contents of `router.yaml`: three providers, of which the first is the same as the model `noop`.
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

/// A size in the status of a process.
fn megabytes(pid: u32, name: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kilobytes / 1024.0)
}

#[expect(clippy::disallowed_methods, reason = "the benchmark starts the gateway it measures")]
fn serve_command(gateway: &GatewayCommand, folder: &Path) -> Command {
    let mut command = Command::new(&gateway.binary);
    command
        .args(["serve", "--port", "0", "--max-runs", "256", "--max-parked", "256", "--grace", "100ms", "--config"])
        .arg(folder)
        .arg("--state")
        .arg(folder.join("state"))
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("PATH", "/usr/bin:/bin")
        .envs(gateway.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}
