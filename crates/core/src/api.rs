//! An OpenAI-compatible HTTP service, as data: where it is and which key opens it.

use std::fmt;

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::ServiceKey as Key;

/// One service that answers chat completions over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// What the configuration calls it.
    pub name: String,
    /// Up to and without `/chat/completions`: `https://api.openai.com/v1`.
    pub base_url: String,
    /// None for a service that asks for none.
    pub key: Option<ServiceKey>,
}

impl Api {
    /// Its address as it may be shown: a URL may hold a password, or a key.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let url = self.base_url.split(['?', '#']).next().unwrap_or_default();
        let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}{path}")
    }
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
pub struct ServiceKey {
    /// The environment variable that holds it: what a reader is told to set.
    pub variable: String,
    /// None when the variable is not set.
    pub value: Option<String>,
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceKey")
            .field("variable", &self.variable)
            .field("value", &self.value.as_ref().map(|_| "***"))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_is_secret_in_it() {
        for (base_url, shown) in [
            ("http://h:1/v1", "http://h:1/v1"),
            ("https://bob:pass@h/v1?api-key=k#f", "https://h/v1"),
            ("http://bob:p@ss@h", "http://h"),
            ("nonsense", "nonsense"),
        ] {
            let api = Api { name: "a".into(), base_url: base_url.into(), key: None };
            assert_eq!(api.shown_url(), shown);
        }
    }

    #[test]
    fn debug_names_the_variable_and_not_the_value() {
        let key = ServiceKey { variable: "OPENAI_API_KEY".into(), value: Some("hunter2-hunter2".into()) };
        let api = Api { name: "openai".into(), base_url: "https://api.openai.com/v1".into(), key: Some(key) };
        let shown = format!("{api:?}");
        assert!(shown.contains("OPENAI_API_KEY") && shown.contains("***") && !shown.contains("hunter2"), "{shown}");
    }
}
