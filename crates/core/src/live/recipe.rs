//! Recipe of a kept process.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::protocol::LiveProtocol;
use crate::vocabulary::{Permissions, PromptEscape, UsageScope};

/// Recipe of a process that is kept for several turns. Values in its arguments and in its greeting are fixed when it
/// starts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRecipe {
    pub protocol: LiveProtocol,
    pub args: Vec<Vec<String>>,
    #[serde(default)]
    pub modes: Modes,
    /// Variables for a kept process, in addition to those of the provider.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Model without a server. A CLI that does part of its start-up at its first prompt gets a prompt with this model ahead
    /// of time, in a session that is not used again.
    #[serde(default)]
    pub primer: Option<String>,
    /// Changes to the prompt that keep the kept process from reading parts of it as commands.
    #[serde(default, alias = "inert")]
    pub escape: PromptEscape,
    /// Scope of the token counts, if it differs from a process for one turn.
    #[serde(default)]
    pub usage: Option<UsageScope>,
    /// A kept process has a cost that a process for one turn does not have: it is kept only for a model with `warm`.
    #[serde(default, alias = "asked")]
    pub opt_in: bool,
    /// Files that the CLI reads when it starts, in the workspace and its parent folders, or under `~/`. If one of them
    /// changes, the kept process is stale.
    #[serde(default)]
    pub reads: Vec<String>,
    /// How the CLI gets a client's tools. None if it cannot.
    #[serde(default)]
    pub tools: Option<ToolRecipe>,
}

/// Additions to a kept process whose turns have tools of the client.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRecipe {
    pub args: Vec<Vec<String>>,
    pub env: BTreeMap<String, String>,
    /// Arguments that take the CLI's own tools away.
    pub own_tools_off: Vec<Vec<String>>,
    /// Variables that take the CLI's own tools away.
    pub own_tools_off_env: BTreeMap<String, String>,
    /// Time in milliseconds without output or calls after which all calls of a model response have come. 0 for a CLI that waits
    /// for the result of each call before it makes the next one.
    pub settle_ms: u64,
    /// Longest time in seconds that the CLI waits for a result.
    pub max_wait_secs: Option<u64>,
}

/// The protocol's names of the permission levels, if no arguments set them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Modes {
    pub read: Option<String>,
    pub edit: Option<String>,
    pub full: Option<String>,
}

impl Modes {
    #[must_use]
    pub fn of(&self, permissions: Permissions) -> Option<&str> {
        match permissions {
            Permissions::Read => self.read.as_deref(),
            Permissions::Edit => self.edit.as_deref(),
            Permissions::Full => self.full.as_deref(),
        }
    }
}
