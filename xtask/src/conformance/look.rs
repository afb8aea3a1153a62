//! A look at `/proc`, and waiting until something is so.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The variable by which the processes of a case are found.
pub(crate) const MARKER: &str = "CONFORMANCE_CASE";

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `look` sees something.
pub(crate) fn until<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if start.elapsed() > patience {
            bail!("waited {} s until {what}", patience.as_secs());
        }
        thread::sleep(PAUSE);
    }
}

/// A process: its id and its command line, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) line: String,
}

/// The processes that have this marker in their environment, which children inherit. A zombie has no environment.
pub(crate) fn processes(marker: &str) -> Vec<Process> {
    let wanted = format!("{MARKER}={marker}").into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    })
    .map(|pid| Process { pid, line: command_line(pid) })
    .collect()
}

pub(crate) fn exists(process: &Process) -> bool {
    // An id may have been given to somebody else meanwhile.
    command_line(process.pid) == process.line
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}
