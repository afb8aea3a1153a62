//! Flags and variables that pass the permissions to a CLI.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::vocabulary::CliPermissions;

/// Grants of a recipe for each permission level.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionTable {
    #[serde(default)]
    pub read: Grant,
    #[serde(default)]
    pub edit: Grant,
    /// Grant for `edit` if the kernel confines the run; `edit` if absent.
    #[serde(default)]
    pub edit_confined: Option<Grant>,
    #[serde(default)]
    pub full: Grant,
}

/// Arguments and variables that grant a permission level.
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
    pub fn of(&self, permissions: CliPermissions) -> &Grant {
        match permissions {
            CliPermissions::Read => &self.read,
            CliPermissions::Edit => &self.edit,
            CliPermissions::EditConfined => self.edit_confined.as_ref().unwrap_or(&self.edit),
            CliPermissions::Full => &self.full,
        }
    }
}
