//! One warm process: its start, and its wait for a turn.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::limits::RunLimits;
use trunkline_core::live::{ChannelStage, LiveChannel, ToolOffer, ToolRecipe};
use trunkline_core::mcp_server::McpServer;
use trunkline_process::{ArgumentList, Keepers, ProcessEvent, RunningProcess};

use super::{BootSpec, FileStamps};
use crate::attempt::environment::RUN;
use crate::attempt::scratch::Scratch;
use crate::tools::ToolExchange;

/// Time within which a process must become ready.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);

/// Time within which a process must accept the client's tools.
const OFFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of a program's error message.
const MAX_ERROR_CHARS: usize = 300;

/// A CLI process that was started ahead of its turn.
pub(crate) struct WarmProcess {
    pub(crate) running: RunningProcess,
    pub(crate) line: LiveChannel,
    pub(crate) boot: Arc<BootSpec>,
    pub(crate) stamps: FileStamps,
    /// Files of the process, deleted with it.
    pub(crate) scratch: Scratch,
    /// The client's tools that the process was offered.
    pub(crate) tools: Option<ToolExchange>,
    /// MCP servers of a request that the process was offered.
    pub(crate) servers: Vec<McpServer>,
}

impl WarmProcess {
    /// Starts a process, sends its greeting, and waits until it is ready.
    pub(crate) async fn boot(
        boot: Arc<BootSpec>,
        stamps: FileStamps,
        id: &str,
        mut scratch: Scratch,
        keepers: &Keepers,
    ) -> Result<Self, String> {
        let mut spec = boot.spec.clone();
        spec.env.set(RUN, id);
        if boot.private_tmp {
            let folder = scratch.folder("tmp").map_err(|failure| failure.message)?;
            if let Some(confinement) = &mut spec.confinement {
                confinement.writable.push(folder.clone().into());
            }
            spec.env.set("TMPDIR", folder);
        }
        if !boot.files.is_empty() {
            spec.args = with_files(&spec.args, &boot.files, &mut scratch)?;
        }
        let (line, greeting) = LiveChannel::new(boot.protocol, boot.greeting.clone());
        spec.stdin = greeting;
        spec.limits = RunLimits { total: BOOT_TIMEOUT, ..RunLimits::NONE };
        let running = keepers.spawn_open(spec).await.map_err(|error| error.to_string())?;
        let mut process = Self { running, line, boot, stamps, scratch, tools: None, servers: Vec::new() };
        process.until_ready(BOOT_TIMEOUT).await?;
        process.running.limit(RunLimits::NONE);
        Ok(process)
    }

    /// Waits until the process can take a turn.
    async fn until_ready(&mut self, limit: Duration) -> Result<(), String> {
        loop {
            match self.line.stage() {
                ChannelStage::Ready => return Ok(()),
                ChannelStage::Broken(reason) => return Err(brief(reason)),
                ChannelStage::Booting | ChannelStage::Busy => {}
            }
            match self.running.next().await {
                ProcessEvent::Stdout(bytes) => self.hear(&bytes),
                ProcessEvent::Exited(exit) => {
                    let stderr = self.running.stderr_tail();
                    let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output on stderr");
                    return Err(format!("the process ended ({exit:?}): {}", brief(last)));
                }
                ProcessEvent::Limit(_) => {
                    return Err(format!("the process was not ready within {} s", limit.as_secs()));
                }
            }
        }
    }

    /// Offers the client's tools to a process that waits for a turn, and waits until it has accepted them.
    pub(crate) async fn offer(&mut self, offer: &ToolOffer) -> Result<(), String> {
        let Some(words) = self.line.offer(offer) else { return Err("the process takes no tools now".to_owned()) };
        self.running.limit(RunLimits { total: OFFER_TIMEOUT, ..RunLimits::NONE });
        self.running.write(&words);
        self.until_ready(OFFER_TIMEOUT).await?;
        self.running.limit(RunLimits::NONE);
        Ok(())
    }

    /// Waits for a turn, for at most `max_idle`. Hands the process over to the turn that asks for it, or ends it.
    pub(crate) async fn wait(
        mut self,
        asked: oneshot::Receiver<oneshot::Sender<Self>>,
        max_idle: Option<Duration>,
        linger: Duration,
    ) {
        let deadline = max_idle.map(|max_idle| Instant::now() + max_idle);
        let idle = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let asked = tokio::select! {
            asked = asked => asked.ok(),
            () = self.unusable() => None,
            () = idle => None,
        };
        let unused = match asked {
            Some(taker) => taker.send(self).err(),
            None => Some(self),
        };
        if let Some(unused) = unused {
            unused.end(linger).await;
        }
    }

    /// Waits until the process can take no turn any more. Cancel safe.
    async fn unusable(&mut self) {
        loop {
            match self.running.next().await {
                ProcessEvent::Stdout(bytes) => self.hear(&bytes),
                ProcessEvent::Exited(_) | ProcessEvent::Limit(_) => return,
            }
            if *self.line.stage() != ChannelStage::Ready {
                return;
            }
        }
    }

    /// Handles output between turns. It belongs to no turn, so its events are dropped.
    fn hear(&mut self, bytes: &[u8]) {
        let heard = self.line.hear(bytes);
        self.running.write(&heard.reply);
    }

    /// Closes the input of the process, lets it exit by itself, and waits until nothing of it is left.
    pub(crate) async fn end(self, linger: Duration) {
        self.running.finish(linger).await;
        drop(self.scratch);
    }
}

/// Writes the files, and returns the arguments with their paths.
fn with_files(args: &ArgumentList, files: &[String], scratch: &mut Scratch) -> Result<ArgumentList, String> {
    let write = |(index, content): (usize, &String)| scratch.write(&format!("server-{index}.toml"), content.as_bytes());
    let paths: Result<Vec<String>, _> = files.iter().enumerate().map(write).collect();
    let paths = paths.map_err(|failure| failure.message)?;
    let path_of = |arg: &OsStr| {
        let index: usize = arg.to_str()?.strip_prefix(ToolRecipe::FILE)?.parse().ok()?;
        Some(OsString::from(paths.get(index)?))
    };
    Ok(args.iter().map(|arg| path_of(arg).unwrap_or_else(|| arg.to_owned())).collect())
}

fn brief(message: &str) -> String {
    trunkline_core::ansi::strip(message).trim().chars().take(MAX_ERROR_CHARS).collect()
}
