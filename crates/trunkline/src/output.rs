//! Lines on stdout and stderr, and the log.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;

use crate::repl::plain::plain;

/// Default level of the log, without `--verbose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultLog {
    /// Errors only, for a command that shows its progress itself.
    Errors,
    Info,
}

/// Starts the log. It goes to stderr: stdout belongs to the command.
pub(crate) fn start_log(verbose: u8, default: DefaultLog) {
    let level = match (verbose, default) {
        (0, DefaultLog::Errors) => LevelFilter::ERROR,
        (0, DefaultLog::Info) => LevelFilter::INFO,
        (1, _) => LevelFilter::DEBUG,
        (_, _) => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // It would report a closed stderr on stderr, and panic.
        .log_internal_errors(false)
        .init();
}

/// Prints a line on stdout. A closed pipe is an error to pass on, not a panic.
pub(crate) fn say(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Prints a line on stderr, without control characters. A closed stderr is ignored.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", plain(&line.to_string()));
}
