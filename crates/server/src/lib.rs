//! The HTTP surface: OpenAI's routes and a chat page over a [`Door`], which is the engine, or a test's own.
//!
//! [`serve`] takes an open socket and a [`Stop`] and returns when the last connection has ended. Its first layer
//! (`edge`) owns connections, timers and the drain; [`auth`] decides who may come in; the handlers (`chat`, `models`,
//! `route`, `runs`, `health`, `page`) translate. What is counted has a port of its own ([`serve_metrics`]). No task outlives `serve`, and a run lives as long as the answer it is for, unless
//! it was asked for otherwise.

mod answer;
pub mod auth;
mod body;
mod chat;
mod config;
mod door;
mod edge;
mod framing;
mod health;
mod metrics;
mod models;
mod page;
mod reply;
mod route;
mod runs;
mod stall;
mod strangers;
mod streaming;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::FutureExt;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Method, Uri};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use trunkline_core::turn::Owner;
use trunkline_wire::error::ApiError;
use uuid::Uuid;

pub use config::{Config, Limits};
pub use door::{Door, Events};
use framing::Verdict;
pub use metrics::serve_metrics;
pub use page::forget_chats;
use strangers::Strangers;

/// How a server is told to end.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Accept no more, and let open answers run for [`Limits::drain`].
    pub gently: CancellationToken,
    /// End everything at once: a second signal.
    pub now: CancellationToken,
}

/// Answers on `listener` until told to stop; then drains. Returns when no connection, and so no run, is left.
pub async fn serve<D: Door>(listener: TcpListener, config: Config, door: Arc<D>, stop: Stop) {
    let app = Arc::new(App {
        door,
        chats: Arc::new(page::Chats::new(config.chats.clone())),
        config,
        started: unix_now(),
        strangers: Strangers::default(),
        stopping: stop.gently.child_token(),
        expired: CancellationToken::new(),
    });
    let ended = CancellationToken::new();
    let serving = async {
        edge::run(listener, &app, routes(Arc::clone(&app)), &stop).await;
        ended.cancel();
    };
    tokio::join!(serving, app.chats.keep(&ended));
}

/// What every handler sees.
struct App<D> {
    door: Arc<D>,
    chats: Arc<page::Chats>,
    config: Config,
    /// When this server began, in seconds since 1970: the `created` of its models.
    started: u64,
    strangers: Strangers,
    /// Cancelled when the server begins to stop.
    stopping: CancellationToken,
    /// Cancelled when open answers have had their time.
    expired: CancellationToken,
}

impl<D: Door> App<D> {
    /// What an answer that begins now is bound by.
    fn terms(&self) -> answer::Terms {
        answer::Terms {
            secrets: Arc::clone(&self.config.secrets),
            began: Instant::now(),
            keep_alive: self.config.limits.keep_alive,
            waiting: {
                let door = Arc::clone(&self.door);
                Arc::new(move || door.waiting())
            },
            expired: self.expired.clone(),
        }
    }
}

impl<D> App<D> {
    /// Counts requests without a right key, and tells those that come too often to stay away. A right one is not looked at.
    fn limit_wrong_keys(&self, peer: auth::Peer, admitted: Result<Owner, ApiError>) -> Result<Owner, ApiError> {
        match admitted {
            Err(error) if error.status == 401 => match self.strangers.refuse(peer.from) {
                Ok(()) => Err(error),
                Err(wait) => Err(ApiError::limited("too many wrong keys came from this address", wait)),
            },
            Ok(_) | Err(_) => admitted,
        }
    }
}

/// Clients are configured with and without `/v1`, and some add a slash.
fn routes<D: Door>(app: Arc<App<D>>) -> Router {
    let mut router = Router::new().route("/", get(page::page));
    for slash in ["/", ""] {
        router = router
            .route(&format!("/chat{slash}"), get(page::show).post(page::say))
            .route(&format!("/clear{slash}"), post(page::clear))
            .route(&format!("/stop{slash}"), post(page::stop))
            .route(&format!("/health{slash}"), get(health::health))
            .route(&format!("/health/providers{slash}"), get(health::providers));
    }
    for base in ["/v1", ""] {
        for slash in ["/", ""] {
            router = router
                .route(&format!("{base}/route{slash}"), get(route::explain))
                .route(&format!("{base}/chat/completions{slash}"), post(chat::completions))
                .route(&format!("{base}/models{slash}"), get(models::list))
                .route(&format!("{base}/runs{slash}"), get(runs::list))
                .route(&format!("{base}/runs/{{id}}{slash}"), get(runs::one).delete(runs::cancel))
                .route(&format!("{base}/runs/{{id}}/events{slash}"), get(runs::events))
                .route(&format!("{base}/runs/{{id}}/diff{slash}"), get(runs::diff));
        }
        router = router.route(&format!("{base}/models/{{*id}}"), get(models::one));
    }
    router.fallback(unknown_path).method_not_allowed_fallback(wrong_method).with_state(app)
}

/// One request, whoever sent it: who may not come in is told so, and a panic is this request's own.
async fn handle<D: Door>(
    app: &App<D>,
    routes: Router,
    peer: auth::Peer,
    verdict: Verdict,
    mut request: Request,
) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let admitted = check_framing(verdict)
        .and_then(|()| check_size(request.headers(), &app.config.limits))
        .and_then(|()| auth::admit(&app.config, peer, &request));
    let admitted = app.limit_wrong_keys(peer, admitted);
    let mut response = match admitted {
        Err(error) => reply::error(&error),
        Ok(_) if app.stopping.is_cancelled() && !auth::is_health(&path) => reply::error(&ApiError::stopping()),
        Ok(owner) => {
            // For the handlers that need to know whose the request is.
            request.extensions_mut().insert(owner);
            match AssertUnwindSafe(routes.oneshot(request)).catch_unwind().await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_panic) => {
                    tracing::error!(request = ?id, "a handler panicked");
                    reply::error(&ApiError::internal())
                }
            }
        }
    };
    let (status, elapsed) = (response.status().as_u16(), began.elapsed());
    tracing::debug!(request = ?id, %method, path, status, ?elapsed, "answered");
    response.headers_mut().insert("x-request-id", id);
    if verdict != Verdict::Length {
        // What follows such a request on its connection is not looked at.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn unknown_path(method: Method, uri: Uri) -> Response {
    reply::error(&ApiError::unknown_path(method.as_str(), uri.path()))
}

async fn wrong_method(method: Method) -> Response {
    reply::error(&ApiError::wrong_method(method.as_str()))
}

fn check_framing(verdict: Verdict) -> Result<(), ApiError> {
    match verdict {
        Verdict::Length | Verdict::Chunked => Ok(()),
        Verdict::Ambiguous(why) => Err(ApiError::ambiguous_framing(why)),
    }
}

/// hyper looks at its buffer's limit between reads only, so a head of up to twice that size gets through.
fn check_size(headers: &HeaderMap, limits: &Limits) -> Result<(), ApiError> {
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > limits.header_bytes { Err(ApiError::headers_too_large(limits.header_bytes)) } else { Ok(()) }
}

/// The client's own id when it is a plain word, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:".contains(c);
    match headers.get("x-request-id") {
        Some(id) if (1..=128).contains(&id.len()) && id.as_bytes().iter().all(plain) => id.clone(),
        Some(_) | None => {
            HeaderValue::from_str(&format!("req_{}", Uuid::new_v4().simple())).expect("hexadecimal is a header value")
        }
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The type of every body we send.
type HttpResponse = http::Response<Body>;
