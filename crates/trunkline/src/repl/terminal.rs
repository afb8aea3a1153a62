//! What the process is connected to: whether someone sits there, how wide it is, and whether it echoes.

use std::io::{self, IsTerminal};

use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::style::Paint;
use crate::config::Surroundings;

/// How to talk to whoever started us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Terminal {
    /// Lines are edited and answers rendered.
    Full(Paint),
    /// Someone types, but nothing more than text can be shown.
    Basic,
    /// Lines come from a program, and so nobody is asked for them.
    None,
}

impl Terminal {
    pub(super) fn of(around: &Surroundings) -> Self {
        let able = around.variable("TERM").is_some_and(|name| name != "dumb");
        match (io::stdin().is_terminal(), io::stdout().is_terminal() && io::stderr().is_terminal()) {
            (false, _) => Self::None,
            (true, true) if able => {
                Self::Full(if around.variable("NO_COLOR").is_some() { Paint::None } else { Paint::Colours })
            }
            (true, _) => Self::Basic,
        }
    }
}

/// How many columns there are to be used: beyond some, lines are hard to read.
pub(super) fn columns() -> usize {
    let columns = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns.min(200) }
}

/// While it lives, what is typed is neither shown nor lost: it would end up in the middle of an answer.
pub(super) struct Unechoed {
    before: Termios,
}

impl Unechoed {
    /// None where there is no terminal.
    pub(super) fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut during = before.clone();
        // Enter stays what it is for the editor, which reads the rest of it.
        during.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        during.input_modes.remove(InputModes::ICRNL);
        tcsetattr(io::stdin(), OptionalActions::Now, &during).ok()?;
        Some(Self { before })
    }
}

impl Drop for Unechoed {
    fn drop(&mut self) {
        // A terminal that is gone needs no echo.
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
