//! Client of Discord's REST API, limited to the calls of the bridge. It respects rate limits: those of routes through
//! twilight's limiter, global ones by pausing all calls.

mod form;
mod rate_limit;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use twilight_http_ratelimiting::{Endpoint, Method, RateLimiter};

use self::form::form;
use self::rate_limit::RateLimitInfo;
use crate::layout::AnswerFile;
use crate::snowflake::Snowflake;
use crate::token::Token;
use crate::wire::{Channel, DiscordMessage, GuildMember};

/// Default base URL.
const DISCORD_URL: &str = "https://discord.com";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// User agent in the form that Discord requires.
const USER_AGENT: &str = concat!("DiscordBot (", env!("CARGO_PKG_REPOSITORY"), ", ", env!("CARGO_PKG_VERSION"), ")");

/// Largest response: enough for a hundred messages with embeds.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// Delay after a rate limit without a duration.
const DEFAULT_RATE_LIMIT_DELAY: Duration = Duration::from_secs(1);

/// Failure of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestError {
    #[error("cannot {what}: Discord answered {status}: {message}")]
    Refused { what: &'static str, status: u16, message: String },
    #[error("cannot {what}: {reason}")]
    Unreachable { what: &'static str, reason: String },
}

impl RestError {
    /// Whether the same call may succeed later.
    pub(crate) const fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status >= 500,
            Self::Unreachable { .. } => true,
        }
    }

    /// Whether the object does not exist.
    pub(crate) const fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// A new message. Its mentions never notify users.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewMessage<'a> {
    pub(crate) content: &'a str,
    pub(crate) file: Option<&'a AnswerFile>,
    pub(crate) replies_to: Option<Snowflake>,
    /// Discord creates only one message for the same nonce within some minutes.
    pub(crate) nonce: Option<&'a str>,
}

/// Client of the REST API.
#[derive(Clone)]
pub(crate) struct Rest {
    inner: Arc<RestInner>,
}

struct RestInner {
    http: Client,
    base: String,
    token: Token,
    limiter: RateLimiter,
    /// End of a global rate limit. No call is sent before.
    paused_until: Mutex<Option<Instant>>,
}

enum RestBody {
    None,
    Json(Value),
    Form(Value, AnswerFile),
}

impl Rest {
    /// Must be called in a tokio runtime. `api` replaces the default base URL.
    pub(crate) fn new(http: Client, token: Token, api: Option<&str>) -> Self {
        let base = format!("{}/api/v10", api.unwrap_or(DISCORD_URL).trim_end_matches('/'));
        let inner = RestInner { http, base, token, limiter: RateLimiter::default(), paused_until: Mutex::new(None) };
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
                RestBody::Form(json, file.clone())
            }
            None => RestBody::Json(json),
        };
        let path = format!("channels/{channel}/messages");
        let posted: DiscordMessage = self.call("post a message", Method::Post, &path, &path, body).await?;
        Ok(posted.id)
    }

    pub(crate) async fn edit(&self, channel: Snowflake, message: Snowflake, content: &str) -> Result<(), RestError> {
        let path = format!("channels/{channel}/messages/{message}");
        let json = json!({"content": content, "allowed_mentions": {"parse": []}});
        // All messages of a channel share one rate limit, so that the limiter sees one route.
        let route = format!("channels/{channel}/messages/0");
        self.call::<Value>("edit a message", Method::Patch, &route, &path, RestBody::Json(json)).await.map(drop)
    }

    pub(crate) async fn typing(&self, channel: Snowflake) -> Result<(), RestError> {
        let path = format!("channels/{channel}/typing");
        self.send("show the typing indicator", Method::Post, &path, &path, RestBody::None).await.map(drop)
    }

    /// Up to a hundred messages after the given one, oldest first. Without it, the latest message.
    pub(crate) async fn messages(
        &self,
        channel: Snowflake,
        after: Option<Snowflake>,
    ) -> Result<Vec<DiscordMessage>, RestError> {
        let path = format!("channels/{channel}/messages");
        let query = after.map_or_else(|| "limit=1".to_owned(), |after| format!("after={after}&limit=100"));
        let full = format!("{path}?{query}");
        let found: Vec<Value> = self.call("read messages", Method::Get, &path, &full, RestBody::None).await?;
        // A message that cannot be parsed must not hide the others.
        let mut found: Vec<DiscordMessage> =
            found.into_iter().filter_map(|message| serde_json::from_value(message).ok()).collect();
        found.sort_by_key(|message| message.id);
        Ok(found)
    }

    pub(crate) async fn channel(&self, channel: Snowflake) -> Result<Channel, RestError> {
        let path = format!("channels/{channel}");
        self.call("look up a channel", Method::Get, &path, &path, RestBody::None).await
    }

    pub(crate) async fn member(&self, guild: Snowflake, user: Snowflake) -> Result<GuildMember, RestError> {
        let (route, path) = (format!("guilds/{guild}/members/0"), format!("guilds/{guild}/members/{user}"));
        self.call("look up a member", Method::Get, &route, &path, RestBody::None).await
    }

    pub(crate) async fn set_commands(
        &self,
        application: Snowflake,
        guild: Snowflake,
        commands: Value,
    ) -> Result<(), RestError> {
        let path = format!("applications/{application}/guilds/{guild}/commands");
        self.send("register commands", Method::Put, &path, &path, RestBody::Json(commands)).await.map(drop)
    }

    /// Responds to a slash command. Only its user sees the response.
    pub(crate) async fn respond(&self, interaction: Snowflake, key: &str, content: &str) -> Result<(), RestError> {
        let (route, path) = ("interactions/0/callback", format!("interactions/{interaction}/{key}/callback"));
        let data = json!({"content": content, "flags": 64, "allowed_mentions": {"parse": []}});
        let json = json!({"type": 4, "data": data});
        self.send("answer a command", Method::Post, route, &path, RestBody::Json(json)).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        what: &'static str,
        method: Method,
        route: &str,
        path: &str,
        body: RestBody,
    ) -> Result<T, RestError> {
        let bytes = self.send(what, method, route, path, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| RestError::Unreachable { what, reason: error.to_string() })
    }

    /// Sends a request, and repeats it while it is rate limited.
    async fn send(
        &self,
        what: &'static str,
        method: Method,
        route: &str,
        path: &str,
        body: RestBody,
    ) -> Result<Vec<u8>, RestError> {
        let unreachable = |error: reqwest::Error| RestError::Unreachable { what, reason: reason(&error) };
        loop {
            self.wait_while_paused().await;
            let permit = self.inner.limiter.acquire(Endpoint { method, path: route.to_owned() }).await;
            let mut response = self.request(method, path, &body).send().await.map_err(unreachable)?;
            let (status, limit) = (response.status().as_u16(), RateLimitInfo::of(response.headers()));
            if status == 429 {
                let wait = limit.wait.unwrap_or(DEFAULT_RATE_LIMIT_DELAY);
                tracing::info!(?wait, "rate limited by Discord");
                let bucket = limit.exhausted(wait);
                if bucket.is_none() {
                    self.pause(wait);
                }
                permit.complete(bucket);
                continue;
            }
            permit.complete(limit.bucket);
            let mut bytes = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(unreachable)? {
                if bytes.len() + piece.len() > MAX_RESPONSE_BYTES {
                    return Err(RestError::Unreachable { what, reason: "the answer is too large".to_owned() });
                }
                bytes.extend_from_slice(&piece);
            }
            if (200..300).contains(&status) {
                return Ok(bytes);
            }
            let error = serde_json::from_slice::<Value>(&bytes).ok();
            let message = error.as_ref().and_then(|error| error["message"].as_str()).unwrap_or("no reason given");
            let message = self.inner.token.mask(&message.chars().take(200).collect::<String>());
            return Err(RestError::Refused { what, status, message });
        }
    }

    fn request(&self, method: Method, path: &str, body: &RestBody) -> reqwest::RequestBuilder {
        let RestInner { http, base, token, .. } = &*self.inner;
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
        let request = request.header(AUTHORIZATION, secret).timeout(REQUEST_TIMEOUT);
        match body {
            RestBody::None => request,
            RestBody::Json(json) => request.header(CONTENT_TYPE, "application/json").body(json.to_string()),
            RestBody::Form(json, file) => {
                let (kind, form) = form(json, file);
                request.header(CONTENT_TYPE, kind).body(form)
            }
        }
    }

    /// Delays all calls.
    fn pause(&self, wait: Duration) {
        let mut paused_until = self.inner.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        *paused_until = (*paused_until).max(Some(Instant::now() + wait));
    }

    async fn wait_while_paused(&self) {
        let until = *self.inner.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// HTTP client for Discord. It follows no redirects, which could send the token to another host.
pub(crate) fn client(local: bool) -> Result<Client, String> {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10));
    let builder = if local { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| reason(&error))
}

/// The innermost cause. The outer errors add only the URL.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no response in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
