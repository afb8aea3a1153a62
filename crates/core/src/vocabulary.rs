//! The small types that all of this crate shares: levels, kinds and modes. They stand below everything else here: this
//! module imports nothing of the crate.

mod escape;
mod names;

use serde::{Deserialize, Serialize};

pub use escape::PromptEscape;
pub(crate) use names::named_enum;

/// Level of what an agent may do without asking.
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

/// Permissions as a CLI is told them: the model's level, and for `edit` whether the kernel confines the run as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CliPermissions {
    Read,
    #[default]
    Edit,
    /// `edit` in a run that the kernel keeps from writing outside the workspace: commands need no approval.
    EditConfined,
    Full,
}

impl CliPermissions {
    /// The level that the flags are for.
    #[must_use]
    pub fn level(self) -> Permissions {
        match self {
            Self::Read => Permissions::Read,
            Self::Edit | Self::EditConfined => Permissions::Edit,
            Self::Full => Permissions::Full,
        }
    }

    /// The level by which a question of the CLI is answered while it runs.
    #[must_use]
    pub fn answers(self) -> Permissions {
        match self {
            Self::Read => Permissions::Read,
            Self::Edit => Permissions::Edit,
            Self::EditConfined | Self::Full => Permissions::Full,
        }
    }
}

/// How the prompt reaches the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptDelivery {
    #[default]
    Stdin,
    /// As the `{prompt}` of an argument.
    Arg,
    /// As a request of the provider protocol, on stdin.
    Request,
}

/// Which of a provider's forms to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    /// It prints as it works.
    #[default]
    Streamed,
    /// It prints everything at the end, if it can.
    Whole,
}

/// The signal a CLI ends most cleanly on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    #[default]
    Term,
    Int,
}

/// What a resumable session's id looks like; anything else is refused before it reaches the CLI.
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

/// What is done to a plain-text answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Normalize {
    #[default]
    None,
    /// Only the last non-empty block, for CLIs that print their log before their answer.
    LastBlock,
}

/// Whether the CLI takes system prompts apart from the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemPlacement {
    /// Under the header, above the user's text.
    Inline,
    /// In [`Prompt::system`](crate::prompt::Prompt::system).
    Apart,
}
