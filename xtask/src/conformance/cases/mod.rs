//! The cases: what every CLI is asked to do behind the gateway, and what a client must see. A case is a function; its
//! prompt is a trigger in `conformance/scenarios.json`, and its model has the case's name.

mod answers;
mod faults;
mod permits;
mod secrets;
mod setup;
mod work;

use anyhow::Result;
use serde_json::{Value, json};

use super::clis::Cli;
use super::scene::Scene;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// For the table.
    pub(crate) title: &'static str,
    /// What its model has beside the CLI and the repository.
    pub(crate) model: fn(&Cli) -> Value,
    /// Its model's service is an address where nobody listens.
    pub(crate) refused: bool,
    /// It has a repository of its own: it writes to the checkout itself, or beside it.
    pub(crate) own_repo: bool,
    pub(crate) pace: Pace,
    /// How many processes are ready for it, where some are: one for each conversation.
    pub(crate) lines: u64,
    pub(crate) run: fn(&Scene<'_>) -> Result<()>,
}

/// What it costs the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Before all others: the first run of a CLI makes its home, which OpenCode spoils when several do it at once.
    First,
    /// A few at a time.
    Usual,
    /// Mostly waits, so it runs beside the others.
    Waits,
    /// Fills the machine by itself.
    Alone,
}

impl Case {
    const fn new(name: &'static str, title: &'static str, run: fn(&Scene<'_>) -> Result<()>) -> Self {
        Self { name, title, model: |_| json!({}), refused: false, own_repo: false, pace: Pace::Usual, lines: 1, run }
    }

    const fn with(mut self, model: fn(&Cli) -> Value) -> Self {
        self.model = model;
        self
    }

    const fn at(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    const fn on(mut self, lines: u64) -> Self {
        self.lines = lines;
        self
    }

    const fn in_own_repo(mut self) -> Self {
        self.own_repo = true;
        self
    }

    const fn refused(mut self) -> Self {
        self.refused = true;
        self
    }
}

const READ: fn(&Cli) -> Value = |_| json!({"permissions": "read"});

const WORKTREE: fn(&Cli) -> Value = |_| json!({"worktree": true});

pub(crate) static ALL: [Case; 24] = [
    Case::new("whole", "whole answer", answers::whole).at(Pace::First),
    Case::new("streamed", "streamed answer", answers::streamed),
    Case::new("deltas", "streamed as the model speaks", answers::deltas),
    Case::new("edit", "edits a file in a worktree", work::edit).with(WORKTREE),
    Case::new("resume", "session resumed", answers::resume),
    Case::new("memory", "history recognised without an id", answers::memory),
    Case::new("secrets", "nothing of another's conversation", secrets::secrets).on(secrets::LINES),
    Case::new("instructions", "AGENTS.md reaches the model", answers::instructions),
    Case::new("set-up", "tools, MCP servers and memory files as by hand", setup::edit),
    Case::new("set-up-read", "the same with `read`", setup::read).with(READ),
    Case::new("permits-read", "`read`: nothing is written", permits::read).with(READ).in_own_repo(),
    Case::new("permits-edit", "`edit`: files and commands write inside alone", permits::edit).in_own_repo(),
    Case::new("permits-edit-off", "`edit`, no sandbox: a refusal does not end the turn", permits::edit_unconfined)
        .with(|_| json!({"sandbox": "off"}))
        .in_own_repo(),
    Case::new("permits-full", "`full`: commands write anywhere", permits::full)
        .with(|_| json!({"permissions": "full"}))
        .in_own_repo(),
    Case::new("wrong-key", "401 → 500 `authentication`", faults::wrong_key),
    Case::new("rate-limit", "429 → 429 `rate_limit`", faults::rate_limit).at(Pace::Waits),
    Case::new("server-error", "500 → 500 `server`", faults::server_error).at(Pace::Waits),
    Case::new("refused", "connection refused → 500 `network`", faults::refused).refused().at(Pace::Waits),
    Case::new("stall", "stall cut by our limit → 504 `timeout`", faults::stall)
        .with(|cli| json!({"timeout": cli.stall_limit}))
        .at(Pace::Waits),
    Case::new("hang-up", "client hangs up mid-tool: no process left", work::hang_up)
        .with(|_| json!({"worktree": true, "permissions": "full"})),
    Case::new("long-prompt", "prompt of 300 kB", answers::long_prompt),
    Case::new("unicode", "unicode both ways", answers::unicode),
    Case::new("five", "five at once in one repository", work::five).with(WORKTREE).at(Pace::Alone),
    Case::new("usage", "usage as the model counted it", answers::usage),
];
