//! Counters and gauges of the engine. Reading them starts no process, and no label contains text chosen by a client.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::store_writer::tally::Turns;
use crate::warm::Figures;

/// Present gauges, and counters since the engine started.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Runs that have not ended, including waiting ones.
    pub runs: usize,
    pub waiting: usize,
    pub turns: Vec<Turns>,
    /// Warm processes, by provider.
    pub warm: BTreeMap<String, Figures>,
    /// Records that were lost because the disk was too slow.
    pub records_lost: u64,
    /// Open files, and their limit.
    pub open_files: Option<(u64, u64)>,
}

impl Engine {
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            runs: self.shared.runs.registry.count(),
            waiting: self.waiting(),
            turns: self.shared.store_writer.tally.turns(),
            warm: self.shared.warm.all_figures(),
            records_lost: self.shared.store_writer.lost(),
            open_files: trunkline_process::open_files(),
        }
    }
}
