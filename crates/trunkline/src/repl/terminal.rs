//! The terminal: whether there is one, its width, and its echo mode.

use std::io::{self, IsTerminal};

use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::style::ColourMode;
use crate::config::Environment;

/// Capabilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terminal {
    /// Lines are edited and answers rendered.
    Full(ColourMode),
    /// Interactive, but only plain text can be shown.
    Basic,
    /// No terminal: lines come from a program, and there is no prompt.
    None,
}

impl Terminal {
    pub(super) fn of(environment: &Environment) -> Self {
        let able = environment.variable("TERM").is_some_and(|name| name != "dumb");
        match (io::stdin().is_terminal(), io::stdout().is_terminal() && io::stderr().is_terminal()) {
            (false, _) => Self::None,
            (true, true) if able => Self::Full(if environment.variable("NO_COLOR").is_some() {
                ColourMode::None
            } else {
                ColourMode::Colours
            }),
            (true, _) => Self::Basic,
        }
    }
}

/// Columns to use. Limited, because very long lines are hard to read.
pub(super) fn columns() -> usize {
    let columns = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns.min(200) }
}

/// Turns off echo until dropped. Input is kept for the next prompt and is not shown in the middle of an answer.
pub(super) struct EchoOff {
    before: Termios,
}

impl EchoOff {
    /// Returns `None` if there is no terminal.
    pub(super) fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut during = before.clone();
        // Enter must arrive as a carriage return, as the editor expects.
        during.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        during.input_modes.remove(InputModes::ICRNL);
        tcsetattr(io::stdin(), OptionalActions::Now, &during).ok()?;
        Some(Self { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
