//! Permissions: the levels of a model, and the flags and variables by which a CLI is told them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::vocabulary::CliPermissions;

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
    pub fn of(&self, told: CliPermissions) -> &Grant {
        match told {
            CliPermissions::Read => &self.read,
            CliPermissions::Edit => &self.edit,
            CliPermissions::EditConfined => self.edit_confined.as_ref().unwrap_or(&self.edit),
            CliPermissions::Full => &self.full,
        }
    }
}
