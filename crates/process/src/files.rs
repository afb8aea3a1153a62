//! The limit of open files: as high as possible for the gateway, and the original one for the programs it starts.
//!
//! Some programs still use `select`, which cannot handle descriptors above 1023, and rely on the usual soft limit of 1024.
//! So a keeper sets the soft limit that the gateway was started with.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit that this process was started with. Set if it was raised.
static ORIGINAL_LIMIT: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit, once, and returns the limit that applies now. Call this before
/// keepers are started.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if let (Some(soft), None) = (limit.current, ORIGINAL_LIMIT.get())
        && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
    {
        let _ = ORIGINAL_LIMIT.set(soft);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns how many files this process has open, and how many it may open. None if they cannot be counted: counting opens
/// a file itself.
#[must_use]
pub fn open_files() -> Option<(u64, u64)> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // Without the one that the count itself had open.
    Some((open.saturating_sub(1), getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)))
}

/// The soft limit to pass to a keeper. None if this process has not raised its own.
pub(crate) fn original_limit() -> Option<u64> {
    ORIGINAL_LIMIT.get().copied()
}

/// In a keeper: sets the soft limit that the gateway passed. If that fails, the present limit stays.
pub(crate) fn set_limit(soft: u64) {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit });
}
