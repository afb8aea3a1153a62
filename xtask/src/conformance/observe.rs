//! Polling for a condition, and processes in `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Environment variable that identifies the processes of a case.
pub(crate) const MARKER: &str = "CONFORMANCE_CASE";

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls until `check` returns a value. `what` names the condition in the error after the timeout.
pub(crate) fn wait_until<T>(timeout: Duration, what: &str, mut check: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return Ok(value);
        }
        if start.elapsed() > timeout {
            bail!("timeout after {} s while waiting until {what}", timeout.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A process of a case: its id and its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkedProcess {
    pub(crate) pid: u32,
    pub(crate) line: String,
}

/// The processes with this marker in their environment, which children inherit. Zombies have no environment.
pub(crate) fn processes(marker: &str) -> Vec<MarkedProcess> {
    let wanted = format!("{MARKER}={marker}").into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    })
    .map(|pid| MarkedProcess { pid, line: command_line(pid) })
    .collect()
}

/// Whether the process is still running.
pub(crate) fn exists(process: &MarkedProcess) -> bool {
    // The id may belong to another process now.
    command_line(process.pid) == process.line
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}
