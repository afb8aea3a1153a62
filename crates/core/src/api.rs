//! An OpenAI-compatible HTTP service, as data: where it is and which key opens it.

use std::fmt;

/// One service that answers chat completions over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// What the configuration calls it.
    pub name: String,
    /// Up to and without `/chat/completions`: `https://api.openai.com/v1`.
    pub base_url: String,
    /// None for a service that asks for none.
    pub key: Option<Key>,
}

/// What the built-in agent thinks with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Llm {
    Service {
        api: Api,
        /// How long one of its messages may be.
        max_tokens: u64,
    },
    /// The mock that the gateway itself brings along: it answers a newcomer, and no more.
    Embedded,
}

impl Llm {
    #[must_use]
    pub const fn api(&self) -> Option<&Api> {
        match self {
            Self::Service { api, .. } => Some(api),
            Self::Embedded => None,
        }
    }
}

/// A key and where it comes from. It is looked up once and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The environment variable that holds it: what a reader is told to set.
    pub variable: String,
    /// None when the variable is not set.
    pub value: Option<String>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("variable", &self.variable)
            .field("value", &self.value.as_ref().map(|_| "***"))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_names_the_variable_and_not_the_value() {
        let key = Key { variable: "OPENAI_API_KEY".into(), value: Some("hunter2-hunter2".into()) };
        let api = Api { name: "openai".into(), base_url: "https://api.openai.com/v1".into(), key: Some(key) };
        let shown = format!("{api:?}");
        assert!(shown.contains("OPENAI_API_KEY") && shown.contains("***") && !shown.contains("hunter2"), "{shown}");
    }
}
