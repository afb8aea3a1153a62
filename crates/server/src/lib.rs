//! The HTTP server: the APIs of OpenAI, Anthropic, Google and Ollama, a chat page, runs and operations, over a [`Door`], which is the
//! engine or a test's own.
//!
//! [`serve`] takes an open socket and a [`ServerShutdown`], and returns when the last connection has ended. No task outlives it, and a
//! run lives as long as the answer it is for, unless the client asked for a detached run.
//!
//! ```text
//! connection/   sockets: accept loop, limits, timers, drain; one request at a time
//! auth/         keys, hosts, wrong keys
//! dialect/      API dialects, a folder for each: translations of requests into turns, and of events into answers
//! pages/        the chat page
//! runs/         runs of a client
//! ops/          health, metrics, route
//! admission.rs  shared by every API dialect: idempotency keys, Prefer, disconnect, session
//! answer/       a run's events as one response or as a stream of frames
//! tool_endpoint the MCP server through which CLIs call tools of clients
//! door.rs       the traits that an engine implements
//! ```

mod admission;
mod answer;
mod app;
pub mod auth;
mod config;
mod connection;
mod continuations;
mod dialect;
mod door;
mod ops;
mod pages;
mod repeat;
mod runs;
mod tool_endpoint;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, Uri};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use trunkline_wire::error::ApiError;

use answer::reply;
use app::App;
use auth::wrong_keys::WrongKeys;
use dialect::chat::{Chat, models};
use dialect::responses::{Responses, routes as responses};
use ops::{health, openapi, route};

pub use app::ServerShutdown;
pub use config::{HttpLimits, ServerConfig};
pub use door::{Door, RunEvents, RunFeed};
pub use ops::metrics::serve_metrics;
pub use pages::forget_chats;
pub use tool_endpoint::LoopbackToolServer;

/// Answers on `listener` until told to stop; then drains. Returns when no connection, and so no run, is left.
pub async fn serve<D: Door>(listener: TcpListener, config: ServerConfig, door: Arc<D>, stop: ServerShutdown) {
    let app = Arc::new(App {
        door,
        chats: Arc::new(pages::Chats::new(config.chats.clone())),
        config,
        started: unix_now(),
        wrong_keys: WrongKeys::default(),
        continuations: Arc::default(),
        repeats: repeat::Repeats::default(),
        ollama_calls: dialect::ollama::SentCalls::default(),
        stopping: stop.gently.child_token(),
        expired: CancellationToken::new(),
    });
    let ended = CancellationToken::new();
    let serving = async {
        connection::run(listener, &app, routes(Arc::clone(&app)), &stop).await;
        ended.cancel();
    };
    tokio::join!(serving, app.chats.keep(&ended));
}

/// Clients are configured with and without `/v1`, and some add a slash.
fn routes<D: Door>(app: Arc<App<D>>) -> Router {
    let mut router = Router::new().route("/", get(pages::page));
    for slash in ["/", ""] {
        router = router
            .route(&format!("/chat{slash}"), get(pages::show).post(pages::say))
            .route(&format!("/clear{slash}"), post(pages::clear))
            .route(&format!("/stop{slash}"), post(pages::stop))
            .route(&format!("/health{slash}"), get(health::health))
            .route(&format!("/health/providers{slash}"), get(health::providers));
    }
    for base in ["/v1", ""] {
        router = router.route(&format!("{base}/openapi.json"), get(openapi::document));
        for slash in ["/", ""] {
            router = router
                .route(&format!("{base}/route{slash}"), get(route::explain))
                .route(&format!("{base}/chat/completions{slash}"), post(dialect::answer::<Chat, D>))
                .route(&format!("{base}/responses{slash}"), post(dialect::answer::<Responses, D>))
                .route(&format!("{base}/responses/{{id}}{slash}"), get(responses::read).delete(responses::delete))
                .route(&format!("{base}/responses/{{id}}/cancel{slash}"), post(responses::cancel))
                .route(&format!("{base}/responses/{{id}}/input_items{slash}"), get(responses::input_items))
                .route(&format!("{base}/models{slash}"), get(models::list))
                .route(&format!("{base}/runs{slash}"), get(runs::list))
                .route(&format!("{base}/runs/{{id}}{slash}"), get(runs::one).delete(runs::cancel))
                .route(&format!("{base}/runs/{{id}}/events{slash}"), get(runs::events))
                .route(&format!("{base}/runs/{{id}}/diff{slash}"), get(runs::diff));
        }
        router = router.route(&format!("{base}/models/{{*id}}"), get(models::one).post(dialect::gemini::call));
        router = dialect::messages::routes(router, base);
    }
    router = dialect::completions::routes(router);
    router = dialect::embeddings::routes(router);
    router = dialect::ollama::routes(router);
    router = dialect::gemini::routes(router);
    router.fallback(unknown_path).method_not_allowed_fallback(wrong_method).with_state(app)
}

async fn unknown_path(method: Method, uri: Uri) -> Response {
    reply::error(&ApiError::unknown_path(method.as_str(), uri.path()))
}

async fn wrong_method(method: Method) -> Response {
    reply::error(&ApiError::wrong_method(method.as_str()))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
