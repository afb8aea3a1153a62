//! The last line: processes that lost their keeper and their gateway in the same moment.
//!
//! They carry a mark in their environment, put there by whoever started them. It can be wiped, which is why keepers are
//! the first line; but what is left of it is found by the next gateway.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Kills every process whose environment sets `variable` to a value that `is_abandoned`. Returns how many.
pub fn end_marked(variable: &str, is_abandoned: impl Fn(&str) -> bool) -> usize {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| *pid != getpid() && end_if(*pid, variable, &is_abandoned)).count()
}

fn end_if(pid: Pid, variable: &str, is_abandoned: impl Fn(&str) -> bool) -> bool {
    // Held before its environment is read: the number may be another's a moment later.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let Ok(environment) = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) else { return false };
    let mark = environment.split(|byte| *byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        entry.strip_prefix(variable)?.strip_prefix('=')
    });
    mark.is_some_and(is_abandoned) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}
