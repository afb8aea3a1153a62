//! What a run is asked to be and how it can end: the crate's vocabulary, without any of its machinery.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use trunkline_core::limits::Limits;

use crate::confinement::Confinement;

/// One program to run, completely described: nothing is taken from our own environment or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// A path, or a bare name that is looked up in the `PATH` of [`env`](Self::env).
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment of the child.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs; an absolute path.
    pub cwd: PathBuf,
    /// Written while the output is read, then closed. Empty means `/dev/null`.
    pub stdin: Vec<u8>,
    /// How it is asked to stop.
    pub stop: StopSignal,
    /// How long it may take to stop before it is killed.
    pub grace: Duration,
    pub limits: Limits,
    /// Where it may write; none means wherever we may.
    pub confinement: Option<Confinement>,
}

/// The polite signal: what a CLI handles best differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    Term,
    Int,
}

impl StopSignal {
    pub(crate) const fn signal(self) -> Signal {
        match self {
            Self::Term => Signal::TERM,
            Self::Int => Signal::INT,
        }
    }
}

/// How the main process of a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// What is reported when the keeper was lost and its run was killed with it.
    pub(crate) const KILLED: Self = Self::Signal(Signal::KILL.as_raw());

    pub(crate) fn from_raw(status: i32) -> Self {
        let status = ExitStatus::from_raw(status);
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::KILLED,
        }
    }

    pub const fn success(self) -> bool {
        matches!(self, Self::Code(0))
    }
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program (or a script's interpreter is missing).
    #[error("cannot start {program:?}: not found")]
    NotFound { program: PathBuf, source: io::Error },
    /// It is there, but is not something that we may or can execute.
    #[error("cannot start {program:?}: not executable")]
    NotExecutable { program: PathBuf, source: io::Error },
    /// The program was not even looked at.
    #[error("cannot run in {cwd:?}")]
    BadDirectory { cwd: PathBuf, source: io::Error },
    /// Arguments and environment exceed what the kernel takes (128 KiB a string).
    #[error("cannot start {program:?}: arguments or environment too long")]
    TooLong { program: PathBuf, source: io::Error },
    /// It was to be confined, and cannot be.
    #[error("cannot confine {program:?}")]
    Unconfined { program: PathBuf, source: io::Error },
    /// Anything else that the kernel said to the attempt.
    #[error("cannot start {program:?}")]
    Other { program: PathBuf, source: io::Error },
    /// The machine is out of processes, files or memory: it may go later, and it is nobody's fault.
    #[error("out of processes, files or memory")]
    Exhausted(#[source] io::Error),
    /// No keeper could be had, or it was lost on the way; says nothing about the program.
    #[error("cannot keep a process")]
    Keeper(#[source] io::Error),
    /// [`Keepers::shutdown`](crate::Keepers::shutdown) was called.
    #[error("shutting down")]
    ShutDown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses() {
        assert_eq!(Exit::from_raw(0), Exit::Code(0));
        assert_eq!(Exit::from_raw(3 << 8), Exit::Code(3));
        assert_eq!(Exit::from_raw(15), Exit::Signal(15));
        assert_eq!(Exit::from_raw(0x80 | 11), Exit::Signal(11), "a core dump does not hide the signal");
    }
}
