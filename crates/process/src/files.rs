//! How many files may be open: as many as the kernel lets us, and for what we start, as many as we were given.
//!
//! Some programs still use `select`, which cannot count beyond 1024: they rely on the usual soft limit. So a keeper takes
//! the one that the gateway began with.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit this process began with, if it was raised.
static GIVEN: OnceLock<u64> = OnceLock::new();

/// Raises the limit of open files as far as it goes, once, and says where it is now. To be called before keepers are
/// started.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if let (Some(soft), None) = (limit.current, GIVEN.get())
        && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
    {
        let _once = GIVEN.set(soft);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many files this process has open, and how many it may. None where that cannot be counted, for which a file is opened.
#[must_use]
pub fn open_files() -> Option<(u64, u64)> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // Without the one that was counted with.
    Some((open.saturating_sub(1), getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)))
}

/// What a keeper is told.
pub(crate) fn given() -> Option<u64> {
    GIVEN.get().copied()
}

/// In a keeper: takes the limit that it was told.
pub(crate) fn take(soft: u64) {
    let limit = getrlimit(Resource::Nofile);
    let _what_is_stays = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit });
}
