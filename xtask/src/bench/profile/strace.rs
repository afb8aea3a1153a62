//! strace, attached to all threads of a running process.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// Detail of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceDetail {
    /// Names of calls. The least disturbance of the traced process.
    Names,
    /// Also the files and sockets that descriptors refer to, and the beginnings of texts.
    Descriptors,
}

/// A running strace.
pub(super) struct Strace {
    process: Child,
    /// Kept open: strace would die of its next message.
    messages: Lines<BufReader<ChildStderr>>,
}

impl Strace {
    /// Attaches to all threads of `pid`. The trace goes to `file`.
    pub(super) async fn attach(pid: u32, detail: TraceDetail, file: &Path) -> Result<Self> {
        let mut command = strace_command();
        // Child processes are left alone from their `execve` on.
        command.args(["-f", "-b", "execve", "-e", "signal=none", "-p", &pid.to_string(), "-o"]).arg(file);
        command.args(match detail {
            TraceDetail::Names => &["-s", "0"][..],
            TraceDetail::Descriptors => &["-yy", "-s", "64"],
        });
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process =
            command.spawn().context("cannot start strace; install it, for example with `apt-get install strace`")?;
        let mut messages = BufReader::new(process.stderr.take().context("stderr is not piped")?).lines();
        let mut said = Vec::new();
        while let Some(message) = messages.next_line().await? {
            // "strace: Process 4711 attached with 9 threads"
            if message.contains(" attached") {
                return Ok(Self { process, messages });
            }
            said.push(message);
        }
        bail!("strace cannot attach to the gateway: {}", said.join("; "))
    }

    /// Detaches and waits until the trace is complete.
    pub(super) async fn detach(mut self) -> Result<()> {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.context("strace has ended")?, Signal::INT)?;
        while self.messages.next_line().await?.is_some() {}
        self.process.wait().await?;
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "the benchmark starts the programs it measures with")]
fn strace_command() -> Command {
    Command::new("strace")
}
