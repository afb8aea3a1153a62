//! Command-line arguments.

use std::path::PathBuf;

use clap::Parser;

/// Trunkline in a window
///
/// Shows the chat page of the gateway on this machine. A gateway that is already running is used and keeps running
/// afterwards. Otherwise a gateway is started, and stopped when the window closes.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "A gateway started by the window reads its settings from the environment: TRUNKLINE_CONFIG,\n\
    TRUNKLINE_STATE and others (see `trunkline serve --help`)."
)]
pub(crate) struct Args {
    /// Port of the gateway [default: the one chosen in the window, else 8765]
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// The trunkline binary to start [default: the one next to this program, else on PATH]
    #[arg(long, value_name = "PATH", env = "TRUNKLINE_SERVER")]
    pub(crate) server: Option<PathBuf>,
    /// Folder in which to start a gateway: it holds models.json, and agents without a folder of their own work there
    /// [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}
