//! Bound on the cost of all warm processes.

use std::fs;

/// Bound on the number and memory of all warm processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmBudget {
    /// Number of processes. Processes that run a turn are not counted.
    pub lines: usize,
    /// Memory of these processes, in bytes.
    pub bytes: u64,
}

impl WarmBudget {
    /// Returns the memory that is available for programs now, in bytes. Zero if the system does not report it.
    #[must_use]
    pub fn free_memory() -> u64 {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let kib = available.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    }
}
