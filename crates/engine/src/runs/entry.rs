//! A line of a run's log, and where logs are.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::{Event, Resumption};

/// One event of a run, as its log has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// From 0, without gaps.
    pub seq: u64,
    /// UTC, in milliseconds since 1970.
    pub at: u64,
    /// Who is at work; only where that has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    pub event: Event,
}

/// Who is at work on a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct By {
    pub provider: String,
    /// How many attempts there were, with the present one.
    pub attempts: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Resumption>,
}

/// Where the logs of runs are, in the folder for private state.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join("runs")
}

/// A folder for some days of logs: the first digits of a name are its time. None for what is no name of a run, which
/// may be anything a client sends.
pub(super) fn path(state: &Path, run: &str) -> Option<PathBuf> {
    let is_name = run.len() == 36 && run.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_name.then(|| folder(state).join(&run[..5]).join(format!("{run}.jsonl")))
}
