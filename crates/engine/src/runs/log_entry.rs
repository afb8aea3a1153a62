//! One line of a run log, and the location of logs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::{Event, Resumption};

/// One event of a run as it is in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLogEntry {
    /// Sequence number, from 0 without gaps.
    pub seq: u64,
    /// Time of the event, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The current attempt. Only in entries where it has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<CurrentAttempt>,
    pub event: Event,
}

/// The attempt that works on a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CurrentAttempt {
    pub provider: String,
    /// Number of attempts so far, including the current one.
    pub attempts: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Resumption>,
}

/// Folder of run logs in the state folder.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join("runs")
}

/// Path of a run's log. `None` if `run` is not a run id: it may be anything that a client sends.
///
/// The first digits of a run id are its time, so each subfolder holds the logs of some days.
pub(super) fn path(state: &Path, run: &str) -> Option<PathBuf> {
    let is_id = run.len() == 36 && run.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_id.then(|| folder(state).join(&run[..5]).join(format!("{run}.jsonl")))
}
