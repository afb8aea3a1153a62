//! Names of the files of earlier versions, and of what replaces them.

use std::io::{self, ErrorKind};

/// Name of the process whose segments hold what was upgraded. It sorts before all others.
pub(super) const PROCESS: &str = "00000000-upgrade";

pub(super) const OLD_LOGS: &str = "runs";
/// Characters of a run's id that name the folder of its log.
pub(super) const LOG_PREFIX_CHARS: usize = 5;

pub(super) const OLD_JOURNALS: &str = "journal";

/// The result, or none if the file does not exist.
pub(super) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
