//! Where a CLI keeps its credentials: enough to tell, without asking it anything, whether a user is logged in.

use serde::Deserialize;

/// Signs that a CLI has credentials. Any one of them will do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Login {
    /// Variables that hold credentials, or say that another service has them.
    pub env: Vec<String>,
    /// Files that are there, and hold something, once a user is logged in. `~/` is the home, `${NAME:-else}` a variable.
    pub files: Vec<Credentials>,
    /// How to log in, in words.
    pub hint: Option<String>,
}

/// A file with credentials in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    pub path: String,
    /// Words one of which is in it, where the file is there for other reasons, too.
    #[serde(default)]
    pub holds: Vec<String>,
}

impl Credentials {
    /// Whether what the file holds are credentials. An empty object is what a CLI leaves after a logout.
    #[must_use]
    pub fn are_in(&self, text: &str) -> bool {
        let empty = matches!(text.trim(), "" | "{}" | "[]" | "null");
        !empty && (self.holds.is_empty() || self.holds.iter().any(|word| text.contains(word.as_str())))
    }
}
