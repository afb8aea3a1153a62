//! Discord's REST interface, as far as we call it. Waits as long as Discord asks: its limits per route through
//! twilight's limiter, a limit on everything by keeping still.

mod form;
mod limit;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use twilight_http_ratelimiting::{Endpoint, Method, RateLimiter};

use self::form::form;
use self::limit::Limit;
use crate::layout::File;
use crate::snowflake::Snowflake;
use crate::token::Token;
use crate::wire::{Channel, Member, Message};

/// Where Discord is.
const DISCORD: &str = "https://discord.com";

const TIMEOUT: Duration = Duration::from_secs(30);

/// Discord refuses callers that do not say who they are in this form.
const USER_AGENT: &str = concat!("DiscordBot (", env!("CARGO_PKG_REPOSITORY"), ", ", env!("CARGO_PKG_VERSION"), ")");

/// The largest answer: a hundred messages with all their trimmings.
const LARGEST: usize = 16 * 1024 * 1024;

/// Where a limit does not say when it ends.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RestError {
    #[error("cannot {what}: Discord answered {status}: {message}")]
    Refused { what: &'static str, status: u16, message: String },
    #[error("cannot {what}: {reason}")]
    Unreachable { what: &'static str, reason: String },
}

impl RestError {
    /// Whether the same call may succeed later.
    pub(crate) const fn passes(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status >= 500,
            Self::Unreachable { .. } => true,
        }
    }

    /// Whether what was asked for is not there.
    pub(crate) const fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// A new message. It can never ping anybody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewMessage<'a> {
    pub(crate) content: &'a str,
    pub(crate) file: Option<&'a File>,
    pub(crate) replies_to: Option<Snowflake>,
    /// Discord makes only one message of the same one, for some minutes.
    pub(crate) nonce: Option<&'a str>,
}

#[derive(Clone)]
pub(crate) struct Rest {
    inner: Arc<Inner>,
}

struct Inner {
    http: Client,
    base: String,
    token: Token,
    limiter: RateLimiter,
    /// Nothing is sent before.
    frozen: Mutex<Option<Instant>>,
}

enum Body {
    None,
    Json(Value),
    Form(Value, File),
}

impl Rest {
    /// Needs a tokio runtime. `api` is where Discord is, if not where it always is.
    pub(crate) fn new(http: Client, token: Token, api: Option<&str>) -> Self {
        let base = format!("{}/api/v10", api.unwrap_or(DISCORD).trim_end_matches('/'));
        let inner = Inner { http, base, token, limiter: RateLimiter::default(), frozen: Mutex::new(None) };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) async fn post(&self, channel: Snowflake, message: NewMessage<'_>) -> Result<Snowflake, RestError> {
        let mut json = json!({"content": message.content, "allowed_mentions": {"parse": [], "replied_user": false}});
        if let Some(nonce) = message.nonce {
            (json["nonce"], json["enforce_nonce"]) = (json!(nonce), json!(true));
        }
        if let Some(id) = message.replies_to {
            json["message_reference"] = json!({"message_id": id, "fail_if_not_exists": false});
        }
        let body = match message.file {
            Some(file) => {
                json["attachments"] = json!([{"id": 0, "filename": file.name}]);
                Body::Form(json, file.clone())
            }
            None => Body::Json(json),
        };
        let path = format!("channels/{channel}/messages");
        let posted: Message = self.call("post a message", Method::Post, &path, &path, body).await?;
        Ok(posted.id)
    }

    pub(crate) async fn edit(&self, channel: Snowflake, message: Snowflake, content: &str) -> Result<(), RestError> {
        let path = format!("channels/{channel}/messages/{message}");
        let json = json!({"content": content, "allowed_mentions": {"parse": []}});
        // Every message of a channel has the same limit: to the limiter they are one.
        let route = format!("channels/{channel}/messages/0");
        self.call::<Value>("edit a message", Method::Patch, &route, &path, Body::Json(json)).await.map(drop)
    }

    pub(crate) async fn typing(&self, channel: Snowflake) -> Result<(), RestError> {
        let path = format!("channels/{channel}/typing");
        self.send("show that we are typing", Method::Post, &path, &path, Body::None).await.map(drop)
    }

    /// At most a hundred messages that came after one, the oldest first; or the latest one, if none is named.
    pub(crate) async fn messages(
        &self,
        channel: Snowflake,
        after: Option<Snowflake>,
    ) -> Result<Vec<Message>, RestError> {
        let path = format!("channels/{channel}/messages");
        let query = after.map_or_else(|| "limit=1".to_owned(), |after| format!("after={after}&limit=100"));
        let full = format!("{path}?{query}");
        let found: Vec<Value> = self.call("read messages", Method::Get, &path, &full, Body::None).await?;
        // One that we cannot read must not hide the others.
        let mut found: Vec<Message> =
            found.into_iter().filter_map(|message| serde_json::from_value(message).ok()).collect();
        found.sort_by_key(|message| message.id);
        Ok(found)
    }

    pub(crate) async fn channel(&self, channel: Snowflake) -> Result<Channel, RestError> {
        let path = format!("channels/{channel}");
        self.call("look up a channel", Method::Get, &path, &path, Body::None).await
    }

    pub(crate) async fn member(&self, guild: Snowflake, user: Snowflake) -> Result<Member, RestError> {
        let (route, path) = (format!("guilds/{guild}/members/0"), format!("guilds/{guild}/members/{user}"));
        self.call("look up a member", Method::Get, &route, &path, Body::None).await
    }

    pub(crate) async fn set_commands(
        &self,
        application: Snowflake,
        guild: Snowflake,
        commands: Value,
    ) -> Result<(), RestError> {
        let path = format!("applications/{application}/guilds/{guild}/commands");
        self.send("register commands", Method::Put, &path, &path, Body::Json(commands)).await.map(drop)
    }

    /// Answers a slash command, for the eyes of whoever used it.
    pub(crate) async fn respond(&self, interaction: Snowflake, key: &str, content: &str) -> Result<(), RestError> {
        let (route, path) = ("interactions/0/callback", format!("interactions/{interaction}/{key}/callback"));
        let data = json!({"content": content, "flags": 64, "allowed_mentions": {"parse": []}});
        let json = json!({"type": 4, "data": data});
        self.send("answer a command", Method::Post, route, &path, Body::Json(json)).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        what: &'static str,
        method: Method,
        route: &str,
        path: &str,
        body: Body,
    ) -> Result<T, RestError> {
        let bytes = self.send(what, method, route, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| RestError::Unreachable { what, reason: error.to_string() })
    }

    /// Sends a request, as often as it takes until no limit is in its way.
    async fn send(
        &self,
        what: &'static str,
        method: Method,
        route: &str,
        path: &str,
        body: Body,
    ) -> Result<Vec<u8>, RestError> {
        let unreachable = |error: reqwest::Error| RestError::Unreachable { what, reason: reason(&error) };
        loop {
            self.thaw().await;
            let permit = self.inner.limiter.acquire(Endpoint { method, path: route.to_owned() }).await;
            let mut response = self.request(method, path, &body).send().await.map_err(unreachable)?;
            let (status, limit) = (response.status().as_u16(), Limit::of(response.headers()));
            if status == 429 {
                let wait = limit.wait.unwrap_or(UNKNOWN_WAIT);
                tracing::info!(?wait, "Discord asks to wait");
                let bucket = limit.exhausted(wait);
                if bucket.is_none() {
                    self.freeze(wait);
                }
                permit.complete(bucket);
                continue;
            }
            permit.complete(limit.bucket);
            let mut bytes = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(unreachable)? {
                if bytes.len() + piece.len() > LARGEST {
                    return Err(RestError::Unreachable { what, reason: "the answer is too large".to_owned() });
                }
                bytes.extend_from_slice(&piece);
            }
            if (200..300).contains(&status) {
                return Ok(bytes);
            }
            let said = serde_json::from_slice::<Value>(&bytes).ok();
            let message = said.as_ref().and_then(|said| said["message"].as_str()).unwrap_or("no reason given");
            let message = self.inner.token.mask(&message.chars().take(200).collect::<String>());
            return Err(RestError::Refused { what, status, message });
        }
    }

    fn request(&self, method: Method, path: &str, body: &Body) -> reqwest::RequestBuilder {
        let Inner { http, base, token, .. } = &*self.inner;
        let url = format!("{base}/{path}");
        let request = match method {
            Method::Get => http.get(url),
            Method::Post => http.post(url),
            Method::Patch => http.patch(url),
            Method::Put => http.put(url),
            Method::Delete | _ => http.delete(url),
        };
        let mut secret = HeaderValue::try_from(token.header()).unwrap_or_else(|_| HeaderValue::from_static("Bot"));
        secret.set_sensitive(true);
        let request = request.header(AUTHORIZATION, secret).timeout(TIMEOUT);
        match body {
            Body::None => request,
            Body::Json(json) => request.header(CONTENT_TYPE, "application/json").body(json.to_string()),
            Body::Form(json, file) => {
                let (kind, form) = form(json, file);
                request.header(CONTENT_TYPE, kind).body(form)
            }
        }
    }

    fn freeze(&self, wait: Duration) {
        let mut frozen = self.inner.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        *frozen = (*frozen).max(Some(Instant::now() + wait));
    }

    async fn thaw(&self) {
        let until = *self.inner.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// Who calls Discord, and nobody else: a redirect would carry the token elsewhere.
pub(crate) fn client(local: bool) -> Result<Client, String> {
    // Fails only if somebody chose another provider before, which is as good.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10));
    let builder = if local { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| reason(&error))
}

/// The innermost cause: the outer ones only say that there is one, and name the address.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
