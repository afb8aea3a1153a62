//! `trunkline desktop`: replaces this process by the desktop window, a separate program so that the gateway needs no WebKit.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, CommandFactory};

use crate::cli::CliArgs;
use crate::output::say;

const WINDOW_PROGRAM: &str = "trunkline-desktop";

/// Open the chat page in a desktop window
///
/// Starts trunkline-desktop. It starts a gateway if none is running, and stops it when the window is closed.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DesktopWindowArgs {
    /// Arguments of trunkline-desktop: --port N, --server PATH, --folder DIR; --help lists all
    #[arg(value_name = "ARGS", allow_hyphen_values = true, trailing_var_arg = true)]
    args: Vec<OsString>,
}

impl DesktopWindowArgs {
    /// Replaces this process by the window. Returns only if it is not installed; `--help` works even then.
    pub(crate) fn run(self) -> Result<ExitCode> {
        // The program next to this binary, else the one on the search path.
        let next_to_us =
            std::env::current_exe().context("cannot find the path of this binary")?.with_file_name(WINDOW_PROGRAM);
        for program in [&*next_to_us, Path::new(WINDOW_PROGRAM)] {
            let error = self.exec(program);
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error).with_context(|| format!("cannot start {}", program.display()));
            }
        }
        let missing = format!(
            "{WINDOW_PROGRAM} is not installed: build it with `cargo xtask desktop`, or install the package that \
             `cargo xtask desktop --bundle` makes; without it, `trunkline serve` offers the same page in a browser"
        );
        if self.args.iter().any(|arg| arg == "--help" || arg == "-h") {
            let mut trunkline = CliArgs::command();
            trunkline.build();
            if let Some(desktop) = trunkline.find_subcommand_mut("desktop") {
                say(desktop.render_long_help())?;
            }
            say(missing)?;
            return Ok(ExitCode::SUCCESS);
        }
        bail!(missing)
    }

    #[expect(clippy::disallowed_methods, reason = "no process is started: this one is replaced")]
    fn exec(&self, program: &Path) -> io::Error {
        Command::new(program).args(&self.args).exec()
    }
}
