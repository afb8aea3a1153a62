//! The HTTP client that all upstreams share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};
use trunkline_core::api::Api;
use trunkline_core::failure::{Category, Failure, FailureRule};
use trunkline_wire::upstream::{self, UpstreamHeaders};

use crate::address::Address;
use crate::call::UpstreamCall;
use crate::fault;

/// Limit of the body of an error that is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Time that the body of an error may take. Its status tells most of it already.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of a list of models that is read.
const MAX_MODELS_BYTES: usize = 16 * 1024 * 1024;

/// Limit of embeddings that are read: 2048 long vectors as text.
const MAX_EMBEDDINGS_BYTES: usize = 128 * 1024 * 1024;

/// Limits of the time that an answer may take.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamTimeouts {
    /// Limit for the whole answer.
    pub total: Duration,
    /// Limit for a pause without any data.
    pub silence: Duration,
}

impl UpstreamTimeouts {
    /// Limits only the whole answer: it may be silent for all of `limit`.
    #[must_use]
    pub const fn in_all(limit: Duration) -> Self {
        Self { total: limit, silence: limit }
    }
}

/// Facts about a request that its answer is read with.
#[derive(Debug, Clone)]
pub struct RequestFacts {
    /// Texts of the request, for an estimate if the upstream reports no usage.
    pub prompt: String,
    /// Number of choices that the request asks for.
    pub choices: u32,
}

impl From<String> for RequestFacts {
    /// A request for one choice.
    fn from(prompt: String) -> Self {
        Self { prompt, choices: 1 }
    }
}

/// Calls upstreams. Cheap to clone: clones share their connections. Costs next to nothing until its first use.
#[derive(Debug, Clone, Default)]
pub struct Upstream {
    clients: Arc<HttpClients>,
}

/// One client per kind of connection. Certificates are loaded only when a connection needs them: that takes time and
/// memory, and a machine without certificates can still call a local upstream.
#[derive(Debug, Default)]
struct HttpClients {
    /// For this machine: never uses a proxy, whatever the environment asks for.
    local: OnceLock<Client>,
    /// For `http` elsewhere.
    plain: OnceLock<Client>,
    /// For `https`.
    secure: OnceLock<Client>,
}

impl Upstream {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Prepares a chat completion with this request body. Nothing is sent before [`UpstreamCall::next`].
    #[must_use]
    pub fn call(
        &self,
        api: &Api,
        body: Vec<u8>,
        rules: &[FailureRule],
        timeouts: UpstreamTimeouts,
        facts: RequestFacts,
    ) -> UpstreamCall {
        UpstreamCall::new(self.clone(), api, body, rules, timeouts, facts)
    }

    /// Counts the models that the upstream lists: a free check that it is reachable and accepts the key.
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
                if body.len() > MAX_MODELS_BYTES {
                    break;
                }
            }
            upstream::models(&body).ok_or_else(|| {
                let message = format!("{} did not answer with a list of models", address.host);
                Failure::new(Category::Configuration, message).hint("check base_url: it usually ends in /v1")
            })
        };
        let counted = timeout_at(deadline, counted).await;
        counted.unwrap_or_else(|_| Err(Failure::timed_out())).map_err(|failure| address.for_display(failure))
    }

    /// Computes embeddings with this request body. Returns the body of the answer, which has embeddings.
    pub async fn embeddings(&self, api: &Api, body: Vec<u8>, limit: Duration) -> Result<Vec<u8>, Failure> {
        let address = Address::new(api, &["embeddings"])?;
        let deadline = deadline(limit);
        let computed = async {
            let broken = |error: reqwest::Error| fault::failure(&error, &address.host);
            let mut response = self.post(&address, body)?.send().await.map_err(broken)?;
            if !response.status().is_success() {
                return Err(refused(response, deadline, &[]).await);
            }
            let mut answer = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(broken)? {
                answer.extend_from_slice(&piece);
                if answer.len() > MAX_EMBEDDINGS_BYTES {
                    return Err(Failure::new(Category::Server, "the upstream's answer is larger than 128 MiB"));
                }
            }
            upstream::check_embeddings(&answer, &[]).map(|()| answer)
        };
        let computed = timeout_at(deadline, computed).await;
        let timed_out = || Failure::timed_out().hint("the upstream took longer than its total limit (config.timeout)");
        computed.unwrap_or_else(|_| Err(timed_out())).map_err(|failure| address.for_display(failure))
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

impl HttpClients {
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
        // Fails only if another provider was installed before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .user_agent(concat!("trunkline/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(fault::CONNECT_TIMEOUT)
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

/// Reads the failure from an answer with an error status.
pub(crate) async fn refused(mut response: Response, deadline: Instant, rules: &[FailureRule]) -> Failure {
    let until = deadline.min(Instant::now() + ERROR_BODY_TIMEOUT);
    let mut body = Vec::new();
    // If the timeout is reached, what has arrived is used.
    while body.len() < MAX_ERROR_BYTES
        && let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(MAX_ERROR_BYTES);
    let status = response.status().as_u16();
    upstream::failure(status, &headers(response.headers()), &body, rules)
}

fn headers<'h>(headers: &'h HeaderMap) -> UpstreamHeaders<'h> {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let text = |value: Option<&'h HeaderValue>| value.and_then(|value| value.to_str().ok());
    UpstreamHeaders {
        retry_after: text(headers.get(RETRY_AFTER)),
        retry_after_ms: text(headers.get("retry-after-ms")),
        date: text(headers.get(DATE)),
        now: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
    }
}

/// Returns the instant `limit` from now, a year at most: the sum must not overflow.
pub(crate) fn deadline(limit: Duration) -> Instant {
    const MAX_LIMIT: Duration = Duration::from_hours(24 * 365);
    Instant::now() + limit.min(MAX_LIMIT)
}
