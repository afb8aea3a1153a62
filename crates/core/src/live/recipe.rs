//! A provider's other way to run, as data.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::protocol::LiveProtocol;
use crate::vocabulary::{Permissions, PromptEscape, UsageScope};

/// How a provider is kept, and what it is told in which way: a placeholder of its arguments is fixed when it starts, and
/// so is all that its protocol takes only in the greeting.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRecipe {
    pub protocol: LiveProtocol,
    pub args: Vec<Vec<String>>,
    #[serde(default)]
    pub modes: Modes,
    /// Set on this way alone, beside the variables of both.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A model that answers nothing and calls nobody. One that does much at its first prompt is given it ahead, with this
    /// model, in a conversation that is left at once.
    #[serde(default)]
    pub primer: Option<String>,
    /// Changes to the prompt that keep the kept process from reading parts of it as commands.
    #[serde(default, alias = "inert")]
    pub escape: PromptEscape,
    /// What it counts on this way, if that is not what it counts on the other.
    #[serde(default)]
    pub usage: Option<UsageScope>,
    /// A kept process has a cost that a process for one turn does not have: it is kept only for a model with `warm`.
    #[serde(default, alias = "asked")]
    pub opt_in: bool,
    /// Files that it reads when it starts, in the workspace and the folders above it, or under `~/`: one that has changed
    /// since makes it stale.
    #[serde(default)]
    pub reads: Vec<String>,
}

/// The protocol's names for what may be done without asking, where they are not arguments.
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
