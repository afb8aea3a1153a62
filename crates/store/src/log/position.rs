//! Positions in the log.

use std::sync::Arc;

/// Position of a line: its segment, and the offset of its first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPosition {
    /// Name of the process that wrote the segment.
    pub process: Arc<str>,
    /// Number of the segment among those of the process.
    pub segment: u32,
    pub offset: u64,
}
