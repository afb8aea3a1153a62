//! The URL and the key of a request, checked before anything is sent.

use reqwest::Url;
use reqwest::header::HeaderValue;
use trunkline_core::api::{Api, Key};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::secret::Secrets;

/// One endpoint of an upstream.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) url: Url,
    /// Host and port, for error messages: the URL may contain a password.
    pub(crate) host: String,
    pub(crate) authorization: Option<HeaderValue>,
    /// Name of the environment variable that holds the key.
    variable: Option<String>,
    secrets: Secrets,
}

impl Address {
    /// Builds the address of the endpoint at `path` below the upstream's base URL.
    pub(crate) fn new(api: &Api, path: &[&str]) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::new(Category::Configuration, format!("the base_url of {} {why}", api.name))
                .hint("write it like http://localhost:11434/v1")
        };
        let mut url = Url::parse(&api.base_url).map_err(|error| wrong(&format!("is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither http nor https"));
        }
        url.path_segments_mut().map_err(|()| wrong("has no path"))?.pop_if_empty().extend(path);
        let name = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let value = api.key.as_ref().map(value).transpose()?;
        let secrets = value.into_iter().chain(url.password()).map(str::to_owned);
        Ok(Self {
            host,
            authorization: api.key.as_ref().map(bearer).transpose()?,
            variable: api.key.as_ref().map(|key| key.variable.clone()),
            secrets: Secrets::new(secrets.collect::<Vec<_>>()),
            url,
        })
    }

    /// Prepares a failure for display: masks the key, which upstreams like to quote, and adds a hint.
    pub(crate) fn for_display(&self, failure: Failure) -> Failure {
        let default_hint = || {
            (failure.category == Category::Authentication).then(|| match &self.variable {
                Some(variable) => format!("check the key in {variable}"),
                None => "name the variable that holds its key in config.api_key_env".to_owned(),
            })
        };
        let hint = failure.hint.clone().or_else(default_hint).map(|hint| self.secrets.mask(&hint));
        Failure { message: self.secrets.mask(&failure.message), hint, ..failure }
    }
}

fn value(key: &Key) -> Result<&str, Failure> {
    let variable = &key.variable;
    key.value.as_deref().map(str::trim).filter(|value| !value.is_empty()).ok_or_else(|| {
        Failure::new(Category::Configuration, format!("the variable {variable} is not set"))
            .hint(format!("export {variable}=… and restart"))
    })
}

fn bearer(key: &Key) -> Result<HeaderValue, Failure> {
    let mut header = HeaderValue::try_from(format!("Bearer {}", value(key)?)).map_err(|_| {
        let message = format!("the value of {} cannot be a key: it has characters no header can hold", key.variable);
        Failure::new(Category::Configuration, message).hint(format!("export {}=… and restart", key.variable))
    })?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(base_url: &str, key: Option<Option<&str>>) -> Api {
        let key = key.map(|value| Key { variable: "THE_KEY".into(), value: value.map(str::to_owned) });
        Api { name: "up".into(), base_url: base_url.into(), key }
    }

    #[test]
    fn path_is_appended_to_any_base_url() {
        for (base, url, host) in [
            ("http://h:1/v1", "http://h:1/v1/chat/completions", "h:1"),
            ("http://h:1/v1/", "http://h:1/v1/chat/completions", "h:1"),
            ("https://h", "https://h/chat/completions", "h"),
            ("https://h/a/b?api-version=7", "https://h/a/b/chat/completions?api-version=7", "h"),
            ("http://user:password1@[::1]:80/v1", "http://user:password1@[::1]/v1/chat/completions", "[::1]"),
        ] {
            let address = Address::new(&api(base, None), &["chat", "completions"]).unwrap();
            assert_eq!((address.url.as_str(), address.host.as_str()), (url, host));
        }
    }

    #[test]
    fn invalid_base_url_or_key_is_a_configuration_failure() {
        for (api, message) in [
            (api("localhost:1/v1", None), "the base_url of up is neither http nor https"),
            (api("", None), "the base_url of up is not a URL: relative URL without a base"),
            (api("http://h", Some(None)), "the variable THE_KEY is not set"),
            (api("http://h", Some(Some(" \n"))), "the variable THE_KEY is not set"),
            (
                api("http://h", Some(Some("a\nb"))),
                "the value of THE_KEY cannot be a key: it has characters no header can hold",
            ),
        ] {
            let failure = Address::new(&api, &[]).unwrap_err();
            assert_eq!((failure.category, failure.message.as_str()), (Category::Configuration, message));
            assert!(failure.hint.is_some());
        }
    }

    #[test]
    fn displayed_failure_has_no_key_but_a_hint() {
        let key = "hunter2-hunter2";
        let address = Address::new(&api("http://h", Some(Some(key))), &[]).unwrap();
        let shown = address.for_display(Failure::new(Category::Authentication, format!("bad key {key}")));
        assert_eq!((shown.message.as_str(), shown.hint.as_deref()), ("bad key ***", Some("check the key in THE_KEY")));
        assert!(!format!("{address:?}").contains(key));
        let open = Address::new(&api("http://h", None), &[]).unwrap();
        let shown = open.for_display(Failure::new(Category::Authentication, "no"));
        assert!(shown.hint.unwrap().contains("api_key_env"));
        assert_eq!(open.for_display(Failure::new(Category::Server, "no")).hint, None);
    }
}
