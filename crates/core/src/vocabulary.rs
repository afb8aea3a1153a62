//! Small types that the other modules of this crate share: levels, kinds and modes. This module is below all others: it
//! imports nothing from the crate.

mod escape;
mod names;

use serde::{Deserialize, Serialize};

pub use escape::PromptEscape;
pub(crate) use names::named_enum;

/// Permission level: the actions that an agent may take without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Permissions {
    /// No writes.
    Read,
    /// Edits inside the workspace.
    #[default]
    Edit,
    /// Anything: the CLI's own skip-approval flags.
    Full,
}

/// Permissions that are passed to a CLI: the level of the model, and for `edit` whether the kernel confines the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CliPermissions {
    Read,
    #[default]
    Edit,
    /// `edit` in a run that the kernel confines to the workspace: commands need no approval.
    EditConfined,
    Full,
}

impl CliPermissions {
    /// Level that selects the flags of the CLI.
    #[must_use]
    pub fn level(self) -> Permissions {
        match self {
            Self::Read => Permissions::Read,
            Self::Edit | Self::EditConfined => Permissions::Edit,
            Self::Full => Permissions::Full,
        }
    }

    /// Level that decides about permission requests of a running CLI.
    #[must_use]
    pub fn answers(self) -> Permissions {
        match self {
            Self::Read => Permissions::Read,
            Self::Edit => Permissions::Edit,
            Self::EditConfined | Self::Full => Permissions::Full,
        }
    }
}

/// Way in which a CLI receives the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptDelivery {
    #[default]
    Stdin,
    /// In an argument, as `{prompt}`.
    Arg,
    /// On stdin, as a request of the provider protocol.
    Request,
}

/// Form of a CLI's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    /// Printed while the CLI works.
    #[default]
    Streamed,
    /// Printed at the end, if the CLI has such a form.
    Whole,
}

/// Signal that makes a CLI exit cleanly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    #[default]
    Term,
    Int,
}

/// Syntax of a CLI's session ids. Other ids are refused before they reach the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// The CLI cannot resume.
    #[default]
    None,
    Uuid,
    /// Letters, digits, `_` and `-`.
    Word,
}

/// Whether the CLI counts tokens for the turn or for the whole session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    #[default]
    Turn,
    Session,
}

/// Post-processing of a plain-text answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Normalize {
    #[default]
    None,
    /// Keeps only the last block of lines that are not blank, for CLIs that print a log before the answer.
    LastBlock,
}

/// Place of system messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemPlacement {
    /// Into the prompt, between the header and the user's text.
    Inline,
    /// Into [`Prompt::system`](crate::prompt::Prompt::system), for a CLI that takes them separately.
    Apart,
}
