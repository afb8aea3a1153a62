//! What is counted while the engine runs, for whoever watches it. Nothing is started to answer, and nothing bears a name
//! that a client has chosen.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::store_writer::tally::Turns;
use crate::warm::Figures;

/// How things stand now, and what there was since the engine began.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Runs that are not over, those that wait among them.
    pub runs: usize,
    pub waiting: usize,
    pub turns: Vec<Turns>,
    /// Lines, by provider.
    pub warm: BTreeMap<String, Figures>,
    /// Records that the disk was too slow for.
    pub records_lost: u64,
    /// Files that are open, and how many may be.
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
