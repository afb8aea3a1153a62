//! Plain data: the program to run, its events and exit status, and why it could not be started.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use trunkline_core::limits::{Overrun, RunLimits};

use crate::argument_list::ArgumentList;
use crate::confinement::Confinement;
use crate::environment::Environment;

/// A program to run. The description is complete: nothing is inherited from the gateway's environment or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// A path, or a bare name that is looked up in the `PATH` of [`env`](Self::env).
    pub program: PathBuf,
    pub args: ArgumentList,
    /// The whole environment of the child.
    pub env: Environment,
    /// The working directory, as an absolute path.
    pub cwd: PathBuf,
    /// Written while the output is read, then closed. Empty means `/dev/null`.
    pub stdin: Vec<u8>,
    /// The signal that asks it to stop.
    pub stop: StopSignal,
    /// Time between that signal and SIGKILL.
    pub grace: Duration,
    pub limits: RunLimits,
    /// The paths it may write to. None if it may write wherever the gateway may.
    pub confinement: Option<Confinement>,
}

/// The signal that asks a program to stop. CLIs differ in which one they handle best.
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

/// An event of a running program.
#[derive(Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Some bytes of stdout, as they arrived.
    Stdout(Vec<u8>),
    /// The main process ended and its output is complete. Repeated if asked again.
    Exited(ProcessExit),
    /// A limit was exceeded. Reported once. The program runs until the caller stops it.
    Limit(Overrun),
}

/// Exit status of the main process of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
}

impl ProcessExit {
    /// Reported if the keeper was lost and its run was killed.
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

/// Reason why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program (or a script's interpreter is missing).
    #[error("cannot start {program:?}: not found")]
    NotFound { program: PathBuf, source: io::Error },
    /// The file exists, but cannot be executed or may not be.
    #[error("cannot start {program:?}: not executable")]
    NotExecutable { program: PathBuf, source: io::Error },
    /// The working directory is missing or not accessible.
    #[error("cannot run in {cwd:?}")]
    BadDirectory { cwd: PathBuf, source: io::Error },
    /// Arguments and environment exceed what the kernel accepts (128 KiB for each string).
    #[error("cannot start {program:?}: arguments or environment too long")]
    TooLong { program: PathBuf, source: io::Error },
    /// The program was to be confined, but the kernel refused the confinement.
    #[error("cannot confine {program:?}")]
    Unconfined { program: PathBuf, source: io::Error },
    /// Any other error of the kernel.
    #[error("cannot start {program:?}")]
    Other { program: PathBuf, source: io::Error },
    /// The machine is out of processes, files or memory. A retry may succeed, and the program is not at fault.
    #[error("out of processes, files or memory")]
    Exhausted(#[source] io::Error),
    /// No keeper could be started, or it was lost during the start. The program is not at fault.
    #[error("the supervising process (keeper) failed")]
    Keeper(#[source] io::Error),
    /// [`Keepers::shutdown`](crate::Keepers::shutdown) was called.
    #[error("shutting down")]
    ShutDown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_is_decoded() {
        assert_eq!(ProcessExit::from_raw(0), ProcessExit::Code(0));
        assert_eq!(ProcessExit::from_raw(3 << 8), ProcessExit::Code(3));
        assert_eq!(ProcessExit::from_raw(15), ProcessExit::Signal(15));
        assert_eq!(ProcessExit::from_raw(0x80 | 11), ProcessExit::Signal(11), "a core dump does not hide the signal");
    }
}
