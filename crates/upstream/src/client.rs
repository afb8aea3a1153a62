//! The HTTP client: how upstreams are reached, all of them the same way.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};
use trunkline_core::api::Api;
use trunkline_core::failure::{Category, Failure, Rule};
use trunkline_wire::upstream::{self, Headers};

use crate::address::Address;
use crate::call::Call;
use crate::fault;

/// The most of an error's body that is read.
const MAX_ERROR: usize = 64 * 1024;

/// How long an error's body may take: its status has said the most.
const ERROR_BODY: Duration = Duration::from_secs(5);

/// The most of a list of models that is read.
const MAX_MODELS: usize = 16 * 1024 * 1024;

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// In all.
    pub total: Duration,
    /// Without a word.
    pub silence: Duration,
}

impl Patience {
    /// An answer that is there within `limit`, silent or not.
    #[must_use]
    pub const fn in_all(limit: Duration) -> Self {
        Self { total: limit, silence: limit }
    }
}

/// Calls upstreams. Cheap to clone; clones share their connections. Costs next to nothing until it is first used.
#[derive(Debug, Clone, Default)]
pub struct Upstream {
    clients: Arc<Clients>,
}

/// Apart, because certificates are only looked for when a connection needs them: reading them takes time and memory,
/// and a machine that has none can still call what is local.
#[derive(Debug, Default)]
struct Clients {
    /// What is on this machine is not reached through a proxy, whatever the environment says.
    local: OnceLock<Client>,
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

impl Upstream {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A chat completion with this request body. Nothing is sent before [`Call::next`].
    #[must_use]
    pub fn call(&self, api: &Api, body: Vec<u8>, rules: &[Rule], patience: Patience, prompt: String) -> Call {
        Call::new(self.clone(), api, body, rules, patience, prompt)
    }

    /// How many models the upstream lists: whether it is there and takes the key, at no cost.
    pub async fn models(&self, api: &Api, limit: Duration) -> Result<usize, Failure> {
        let address = Address::new(api, &["models"])?;
        let deadline = deadline(limit);
        let counted = async {
            let request = self.request(Method::GET, &address)?;
            let mut response = request.send().await.map_err(|error| fault::failure(&error, &address.host))?;
            if !response.status().is_success() {
                return Err(refused(response, deadline, &[]).await);
            }
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|error| fault::failure(&error, &address.host))? {
                body.extend_from_slice(&piece);
                if body.len() > MAX_MODELS {
                    break;
                }
            }
            upstream::models(&body).ok_or_else(|| {
                let message = format!("{} answered with something else than a list of models", address.host);
                Failure::new(Category::Configuration, message).hint("check base_url: it usually ends in /v1")
            })
        };
        let counted = timeout_at(deadline, counted).await;
        counted.unwrap_or_else(|_| Err(Failure::timed_out())).map_err(|failure| address.told(failure))
    }

    pub(crate) fn request(&self, method: Method, address: &Address) -> Result<RequestBuilder, Failure> {
        let request = self.clients.to(address)?.request(method, address.url.clone());
        Ok(match &address.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        })
    }

    pub(crate) fn post(&self, address: &Address, body: Vec<u8>) -> Result<RequestBuilder, Failure> {
        Ok(self.request(Method::POST, address)?.header(CONTENT_TYPE, "application/json").body(body))
    }
}

impl Clients {
    fn to(&self, address: &Address) -> Result<&Client, Failure> {
        let secure = address.url.scheme() == "https";
        let local = !secure && is_loopback(&address.url);
        let cell = match (secure, local) {
            (true, _) => &self.secure,
            (false, true) => &self.local,
            (false, false) => &self.plain,
        };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        // Fails only if somebody chose another provider before, which is as good.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .user_agent(concat!("trunkline/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(fault::CONNECT)
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(4);
        let builder = if secure { builder } else { builder.tls_certs_only([]) };
        let builder = if local { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| {
            let message = format!("cannot call {}: {}", address.host, fault::reason(&error));
            Failure::new(Category::Configuration, message).hint("are the system's CA certificates installed?")
        })?;
        Ok(cell.get_or_init(|| client))
    }
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What an answer with an error's status says.
pub(crate) async fn refused(mut response: Response, deadline: Instant, rules: &[Rule]) -> Failure {
    let until = deadline.min(Instant::now() + ERROR_BODY);
    let mut body = Vec::new();
    // Whatever has arrived by then must do.
    while body.len() < MAX_ERROR
        && let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(MAX_ERROR);
    let status = response.status().as_u16();
    upstream::failure(status, &headers(response.headers()), &body, rules)
}

fn headers<'h>(headers: &'h HeaderMap) -> Headers<'h> {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let text = |value: Option<&'h HeaderValue>| value.and_then(|value| value.to_str().ok());
    Headers {
        retry_after: text(headers.get(RETRY_AFTER)),
        retry_after_ms: text(headers.get("retry-after-ms")),
        date: text(headers.get(DATE)),
        now: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
    }
}

/// The end of `limit`, or of the longest time there is.
pub(crate) fn deadline(limit: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_hours(24 * 365);
    Instant::now() + limit.min(LONGEST)
}
