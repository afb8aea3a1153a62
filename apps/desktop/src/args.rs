//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Trunkline in a window
///
/// Shows the chat page of the gateway on this machine. If none answers, one is started, and ends with the window; one that
/// runs already is used and left alone.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "A gateway that is started takes its settings from the environment, as `trunkline serve --help` says:\n\
    TRUNKLINE_CONFIG, TRUNKLINE_STATE and the others. Without a port, the one that was last chosen in the window is used."
)]
pub(crate) struct Args {
    /// Port of the gateway [default: the one chosen in the window, else 8765]
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// The trunkline binary to start [default: the one beside this program, else on PATH]
    #[arg(long, value_name = "PATH", env = "TRUNKLINE_SERVER")]
    pub(crate) server: Option<PathBuf>,
    /// Folder that a gateway is started in: its models.json, and where agents without one work [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}
