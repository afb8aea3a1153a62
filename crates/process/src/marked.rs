//! The last line of defence: kills processes that lost their keeper and their gateway at the same moment.
//!
//! The engine sets a mark in the environment of every process that it starts. A process can wipe its mark, which is why
//! keepers come first. The next gateway finds the processes that still have one.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// Kills every process whose environment sets `variable` to a value for which `is_abandoned` returns true. Returns how many
/// were killed.
pub fn kill_marked_processes(variable: &str, is_abandoned: impl Fn(&str) -> bool) -> usize {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| *pid != getpid() && kill_if(*pid, variable, &is_abandoned)).count()
}

fn kill_if(pid: Pid, variable: &str, is_abandoned: impl Fn(&str) -> bool) -> bool {
    // Opened before the environment is read: the pid may be reused a moment later.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let Ok(environment) = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) else { return false };
    let mark = environment.split(|byte| *byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        entry.strip_prefix(variable)?.strip_prefix('=')
    });
    mark.is_some_and(is_abandoned) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}
