//! Permissions: the levels of a model, and the flags and variables by which a CLI is told them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Level of what an agent may do without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
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
pub enum Told {
    Read,
    #[default]
    Edit,
    /// `edit` in a run that the kernel keeps from writing outside the workspace: commands need no approval.
    EditConfined,
    Full,
}

impl Told {
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

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionTable {
    #[serde(default)]
    pub read: Grant,
    #[serde(default)]
    pub edit: Grant,
    /// `edit` where the kernel confines the run; `edit` itself where this is missing.
    #[serde(default)]
    pub edit_confined: Option<Grant>,
    #[serde(default)]
    pub full: Grant,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl PermissionTable {
    #[must_use]
    pub fn of(&self, told: Told) -> &Grant {
        match told {
            Told::Read => &self.read,
            Told::Edit => &self.edit,
            Told::EditConfined => self.edit_confined.as_ref().unwrap_or(&self.edit),
            Told::Full => &self.full,
        }
    }
}
