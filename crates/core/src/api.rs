//! OpenAI-compatible HTTP services: their address and API key.

use std::fmt;

/// HTTP service that answers chat completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Name in the configuration.
    pub name: String,
    /// URL without `/chat/completions`, for example `https://api.openai.com/v1`.
    pub base_url: String,
    /// None for a service that needs no key.
    pub key: Option<ServiceKey>,
}

impl Api {
    /// Returns the URL without credentials and query, which may contain a password or a key.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let url = self.base_url.split(['?', '#']).next().unwrap_or_default();
        let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}{path}")
    }
}

/// LLM of the built-in agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Llm {
    Service {
        api: Api,
        /// Maximum length of one message.
        max_tokens: u64,
    },
    /// The mock LLM that comes with the gateway. It gives a new user a first answer without an API key.
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

/// API key of a service, and the variable that it comes from. The value is read once and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceKey {
    /// Environment variable that holds the key. Error messages name it.
    pub variable: String,
    /// None if the variable is not set.
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
    fn shown_url_has_no_credentials_and_no_query() {
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
    fn debug_shows_the_variable_but_not_the_value() {
        let key = ServiceKey { variable: "OPENAI_API_KEY".into(), value: Some("hunter2-hunter2".into()) };
        let api = Api { name: "openai".into(), base_url: "https://api.openai.com/v1".into(), key: Some(key) };
        let shown = format!("{api:?}");
        assert!(shown.contains("OPENAI_API_KEY") && shown.contains("***") && !shown.contains("hunter2"), "{shown}");
    }
}
