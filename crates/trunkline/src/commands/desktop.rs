//! `trunkline desktop`: hands over to the window, which is a program of its own so that the gateway needs no WebKit.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::setup::say;

const WINDOW: &str = "trunkline-desktop";

/// Open the chat page in a window of its own
///
/// Starts trunkline-desktop, which starts a gateway if none runs, and ends it with the window.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Desktop {
    /// What the window is told: --port N, --server PATH, --folder DIR; --help for all of it
    #[arg(value_name = "ARGS", allow_hyphen_values = true, trailing_var_arg = true)]
    args: Vec<OsString>,
}

impl Desktop {
    /// Becomes the window; returns only if there is none. Its help is wanted most where it is not installed yet.
    pub(crate) fn run(self) -> Result<ExitCode> {
        // The one that came with this binary; else whichever a shell would find.
        let beside = std::env::current_exe().context("cannot tell where this binary is")?.with_file_name(WINDOW);
        for program in [&*beside, Path::new(WINDOW)] {
            let error = self.become_one(program);
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error).with_context(|| format!("cannot start {}", program.display()));
            }
        }
        let missing = format!(
            "{WINDOW} is not installed: build it with `cargo xtask desktop`, or install the package that \
             `cargo xtask desktop --bundle` makes; without it, `trunkline serve` has the same page for a browser"
        );
        if self.args.iter().any(|arg| arg == "--help" || arg == "-h") {
            let mut trunkline = Cli::command();
            trunkline.build();
            if let Some(desktop) = trunkline.find_subcommand_mut("desktop") {
                say(desktop.render_long_help())?;
            }
            say(missing)?;
            return Ok(ExitCode::SUCCESS);
        }
        bail!(missing)
    }

    #[expect(clippy::disallowed_methods, reason = "nothing is started: this process becomes another program")]
    fn become_one(&self, program: &Path) -> io::Error {
        Command::new(program).args(&self.args).exec()
    }
}
