//! Exit statuses of the command line.

use std::process::ExitCode;

use crate::signals::ReceivedSignal;

/// Reason for the end of a command, as its exit status. Clap uses the same status for wrong arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CliExit {
    General = 1,
    Arguments = 2,
    Configuration = 3,
    Provider = 4,
    /// Ended by a signal: 128 plus the signal's number, as in a shell.
    HungUp = 129,
    Interrupted = 130,
    Terminated = 143,
}

impl From<ReceivedSignal> for CliExit {
    fn from(signal: ReceivedSignal) -> Self {
        match signal {
            ReceivedSignal::Hangup => Self::HungUp,
            ReceivedSignal::Interrupt => Self::Interrupted,
            ReceivedSignal::Terminate => Self::Terminated,
        }
    }
}

impl From<CliExit> for ExitCode {
    fn from(exit: CliExit) -> Self {
        Self::from(exit as u8)
    }
}
