//! Credentials of CLIs: tells whether a user is logged in without running the CLI.

use serde::Deserialize;

/// Places where a CLI finds credentials. One of them is enough.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Login {
    /// Variables that hold credentials, or that select a service with credentials of its own.
    pub env: Vec<String>,
    /// Files that exist and are not empty once a user is logged in. `~/` is the home, `${NAME:-else}` a variable.
    pub files: Vec<Credentials>,
    /// Instructions for logging in.
    pub hint: Option<String>,
}

/// File with credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    pub path: String,
    /// Words of which the file contains at least one, for a file that also has other purposes.
    #[serde(default)]
    pub holds: Vec<String>,
}

impl Credentials {
    /// Whether the text of the file contains credentials. After a logout, a CLI leaves an empty object.
    #[must_use]
    pub fn are_in(&self, text: &str) -> bool {
        let empty = matches!(text.trim(), "" | "{}" | "[]" | "null");
        !empty && (self.holds.is_empty() || self.holds.iter().any(|word| text.contains(word.as_str())))
    }
}
