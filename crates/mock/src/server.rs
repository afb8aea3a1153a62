//! The server: routes, connections, and one way from a request to its answer for all dialects.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::answer::{id_of, reply};
use crate::body::body;
use crate::dialect::{Dialect, Form, MODEL};
use crate::fault::{ErrorAnswer, Stall};
use crate::playing::Playing;
use crate::script::{Outcome, Step};

/// The largest body that is read.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Connections at once; those beyond are closed.
const MAX_CONNECTIONS: usize = 1024;

/// After an accept that failed: whoever holds the descriptors needs a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Answers on `listener` from the script until cancelled. Returns when no connection is left.
pub async fn serve(listener: TcpListener, script: Playing, cancel: CancellationToken) {
    let routes = routes(Arc::new(script));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(connection(socket, routes.clone()));
                }
                Ok((refused, _)) => drop(refused),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

async fn connection(socket: TcpStream, routes: Router) {
    // Every frame is a write of its own and must not wait for the one before.
    let _best_effort = socket.set_nodelay(true);
    let service = service_fn(|request: http::Request<Incoming>| routes.clone().oneshot(request.map(Body::new)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new());
    if let Err(error) = pin!(http.serve_connection(TokioIo::new(socket), service)).await {
        tracing::debug!(%error, "connection closed");
    }
}

type Script = State<Arc<Playing>>;

fn routes(script: Arc<Playing>) -> Router {
    let mut router = Router::new().route("/health", get(health));
    // Clients are configured with and without the version.
    for base in ["", "/v1"] {
        router = router
            .route(&format!("{base}/chat/completions"), post(chat))
            .route(&format!("{base}/responses"), post(responses))
            .route(&format!("{base}/messages"), post(messages))
            .route(&format!("{base}/messages/count_tokens"), post(count_tokens))
            .route(&format!("{base}/models"), get(models));
    }
    router
        // Gemini's own version, and the one its newer SDKs share with OpenAI's.
        .route("/v1beta/models", get(gemini_models))
        .route("/v1beta/models/{*call}", post(gemini))
        .route("/v1/models/{*call}", get(one_model).post(gemini))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(script)
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

async fn models() -> Response {
    json_response(StatusCode::OK, &json!({"object": "list", "data": [the_model()]}))
}

async fn one_model(Path(id): Path<String>) -> Response {
    match id.as_str() {
        MODEL => json_response(StatusCode::OK, &the_model()),
        _ => error(Dialect::Chat, &ErrorAnswer::new(404, format!("unknown model {id:?}: there is only {MODEL}"))),
    }
}

fn the_model() -> Value {
    json!({"id": MODEL, "object": "model", "created": 0, "owned_by": "trunkline"})
}

async fn gemini_models() -> Response {
    let model = json!({
        "name": format!("models/{MODEL}"),
        "displayName": "Mock",
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    });
    json_response(StatusCode::OK, &json!({"models": [model]}))
}

async fn chat(State(script): Script, request: Request) -> Response {
    answer(Dialect::Chat, None, &script, request).await
}

async fn responses(State(script): Script, request: Request) -> Response {
    answer(Dialect::Responses, None, &script, request).await
}

async fn messages(State(script): Script, request: Request) -> Response {
    answer(Dialect::Anthropic, None, &script, request).await
}

async fn count_tokens(request: Request) -> Response {
    count(Dialect::Anthropic, request).await
}

/// `MODEL:METHOD`; a model's name may have slashes.
async fn gemini(State(script): Script, Path(call): Path<String>, request: Request) -> Response {
    let events = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    let (model, method) = call.rsplit_once(':').unwrap_or((&call, ""));
    let form = match method {
        "generateContent" => Form::Whole,
        "streamGenerateContent" if events => Form::Events,
        "streamGenerateContent" => Form::Array,
        "countTokens" => return count(Dialect::Gemini, request).await,
        _ => return error(Dialect::Gemini, &ErrorAnswer::new(404, format!("no such method: {method:?}"))),
    };
    answer(Dialect::Gemini, Some((model.to_owned(), form)), &script, request).await
}

async fn unknown_path(method: Method, uri: Uri) -> Response {
    error(Dialect::Chat, &ErrorAnswer::new(404, format!("unknown path: {method} {}", uri.path())))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    error(Dialect::Chat, &ErrorAnswer::new(405, format!("{method} is not for {}", uri.path())))
}

/// One request and its answer. `told` is what Gemini says in the path.
async fn answer(dialect: Dialect, told: Option<(String, Form)>, script: &Playing, request: Request) -> Response {
    let (bytes, json) = match read(request).await {
        Ok(read) => read,
        Err(refusal) => return error(dialect, &refusal),
    };
    let asked = match dialect.read(&json) {
        Ok(asked) => asked,
        Err(message) => return error(dialect, &ErrorAnswer::new(400, message)),
    };
    let Step { outcome, delivery } = script.now().step(&asked.history.user_message(), asked.history.results());
    tracing::debug!(?dialect, message = asked.history.user_message(), results = asked.history.results(), "asked");
    if !delivery.delay.is_zero() {
        sleep(delivery.delay).await;
    }
    if delivery.stall == Some(Stall::AtOnce) {
        // Ends when the client hangs up, which drops this future.
        return std::future::pending().await;
    }
    let response = match outcome {
        Outcome::Response(response) => response,
        Outcome::Error(error) => {
            let whole = dialect.error(&error).to_string().into_bytes();
            return error_head(&error).body(body(vec![whole], &delivery)).expect(HEADERS);
        }
    };
    let (model, form) = told.unwrap_or_else(|| {
        let form = if asked.streams { Form::Events } else { Form::Whole };
        (asked.model.clone().unwrap_or_else(|| MODEL.to_owned()), form)
    });
    let reply = reply(&asked, response, model, id_of(&bytes), unix_now());
    let (kind, frames) = match form {
        Form::Whole => ("application/json", vec![dialect.whole(&reply).to_string().into_bytes()]),
        Form::Events => ("text/event-stream", dialect.events(&reply)),
        Form::Array => ("application/json", dialect.array(&reply)),
    };
    Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CACHE_CONTROL, "no-cache")
        .header("x-request-id", format!("mock-{}", reply.id))
        .body(body(frames, &delivery))
        .expect(HEADERS)
}

async fn count(dialect: Dialect, request: Request) -> Response {
    match read(request).await.and_then(|(_, json)| dialect.read(&json).map_err(|why| ErrorAnswer::new(400, why))) {
        Ok(asked) => json_response(StatusCode::OK, &dialect.token_count(asked.history.tokens())),
        Err(refusal) => error(dialect, &refusal),
    }
}

async fn read(request: Request) -> Result<(Bytes, Value), ErrorAnswer> {
    if let Some(encoding) = request.headers().get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(ErrorAnswer::new(415, format!("cannot read a body in {encoding:?}: send it as it is")));
    }
    let too_large = || ErrorAnswer::new(413, "the body is larger than 64 MiB");
    if request.body().size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
        Err(error) => return Err(ErrorAnswer::new(400, format!("the body cannot be read: {error}"))),
    };
    match serde_json::from_slice(&body) {
        Ok(json) => Ok((body, json)),
        Err(error) => Err(ErrorAnswer::new(400, format!("the body is not valid JSON: {error}"))),
    }
}

const HEADERS: &str = "every header is made here or was checked";

fn error(dialect: Dialect, error: &ErrorAnswer) -> Response {
    error_head(error).body(Body::from(dialect.error(error).to_string())).expect(HEADERS)
}

fn error_head(error: &ErrorAnswer) -> http::response::Builder {
    let head = Response::builder().status(error.status).header(header::CONTENT_TYPE, "application/json");
    match error.retry_after {
        Some(seconds) => head.header(header::RETRY_AFTER, seconds),
        None => head,
    }
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .expect(HEADERS)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
