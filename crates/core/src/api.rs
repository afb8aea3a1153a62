//! An OpenAI-compatible HTTP service as a provider: where it is, and the key it wants. Plain data.

use std::fmt;

/// One upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    pub name: String,
    /// Up to and without `/chat/completions`.
    pub base_url: String,
    pub key: Option<Key>,
}

/// A key by the variable that holds it. Its value is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub variable: String,
    /// None when the variable is not set.
    pub value: Option<String>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_some() { "***" } else { "not set" };
        write!(f, "Key({}: {value})", self.variable)
    }
}
