//! HTTP server: connections, routes, and the handling of requests of all dialects.

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

use crate::body::body;
use crate::dialect::{ApiDialect, MODEL, ReplyFormat};
use crate::fault::{ScriptedError, Stall};
use crate::reply::{build_reply, request_id};
use crate::script::{ScriptStep, StepOutcome};
use crate::script_source::ScriptSource;

/// Largest request body that is accepted.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Most connections at the same time; further ones are closed at once.
const MAX_CONNECTIONS: usize = 1024;

/// Pause after a failed accept: when file descriptors run out, other connections need time to close.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Serves the script on `listener` until cancelled. Returns when all connections are closed.
pub async fn serve(listener: TcpListener, script: ScriptSource, cancel: CancellationToken) {
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
                Ok((excess, _)) => drop(excess),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

async fn connection(socket: TcpStream, routes: Router) {
    // Each frame is a separate write and must not be delayed by Nagle's algorithm. Failure only costs latency.
    let _ = socket.set_nodelay(true);
    let service = service_fn(|request: http::Request<Incoming>| routes.clone().oneshot(request.map(Body::new)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new());
    if let Err(error) = pin!(http.serve_connection(TokioIo::new(socket), service)).await {
        tracing::debug!(%error, "connection closed");
    }
}

type ScriptState = State<Arc<ScriptSource>>;

fn routes(script: Arc<ScriptSource>) -> Router {
    let mut router = Router::new().route("/health", get(health));
    // Clients are configured with and without the version in their base URL.
    for base in ["", "/v1"] {
        router = router
            .route(&format!("{base}/chat/completions"), post(chat))
            .route(&format!("{base}/responses"), post(responses))
            .route(&format!("{base}/messages"), post(messages))
            .route(&format!("{base}/messages/count_tokens"), post(count_tokens))
            .route(&format!("{base}/models"), get(models));
    }
    router
        // Gemini's own version, and the one that its newer SDKs share with OpenAI.
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
    json_response(StatusCode::OK, &json!({"object": "list", "data": [model_json()]}))
}

async fn one_model(Path(id): Path<String>) -> Response {
    match id.as_str() {
        MODEL => json_response(StatusCode::OK, &model_json()),
        _ => error(ApiDialect::Chat, &ScriptedError::new(404, format!("unknown model {id:?}: only {MODEL} exists"))),
    }
}

fn model_json() -> Value {
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

async fn chat(State(script): ScriptState, request: Request) -> Response {
    answer(ApiDialect::Chat, None, &script, request).await
}

async fn responses(State(script): ScriptState, request: Request) -> Response {
    answer(ApiDialect::Responses, None, &script, request).await
}

async fn messages(State(script): ScriptState, request: Request) -> Response {
    answer(ApiDialect::Anthropic, None, &script, request).await
}

async fn count_tokens(request: Request) -> Response {
    count(ApiDialect::Anthropic, request).await
}

/// Handles `MODEL:METHOD`. The name of a model can contain slashes.
async fn gemini(State(script): ScriptState, Path(call): Path<String>, request: Request) -> Response {
    let events = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    let (model, method) = call.rsplit_once(':').unwrap_or((&call, ""));
    let format = match method {
        "generateContent" => ReplyFormat::Whole,
        "streamGenerateContent" if events => ReplyFormat::Events,
        "streamGenerateContent" => ReplyFormat::Array,
        "countTokens" => return count(ApiDialect::Gemini, request).await,
        _ => return error(ApiDialect::Gemini, &ScriptedError::new(404, format!("no such method: {method:?}"))),
    };
    answer(ApiDialect::Gemini, Some((model.to_owned(), format)), &script, request).await
}

async fn unknown_path(method: Method, uri: Uri) -> Response {
    error(ApiDialect::Chat, &ScriptedError::new(404, format!("unknown path: {method} {}", uri.path())))
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    error(ApiDialect::Chat, &ScriptedError::new(405, format!("{method} is not allowed for {}", uri.path())))
}

/// Handles one request. `from_path` is the model and format for Gemini, which has them in the path.
async fn answer(
    dialect: ApiDialect,
    from_path: Option<(String, ReplyFormat)>,
    script: &ScriptSource,
    request: Request,
) -> Response {
    let (bytes, json) = match read(request).await {
        Ok(read) => read,
        Err(rejection) => return error(dialect, &rejection),
    };
    let request = match dialect.parse(&json) {
        Ok(request) => request,
        Err(message) => return error(dialect, &ScriptedError::new(400, message)),
    };
    let (message, results) = (request.history.user_message(), request.history.result_count());
    let ScriptStep { outcome, delivery } = script.current().step(&message, results);
    tracing::debug!(?dialect, message, results, "request");
    if !delivery.delay.is_zero() {
        sleep(delivery.delay).await;
    }
    if delivery.stall == Some(Stall::BeforeHeaders) {
        // Ends when the client disconnects, which drops this future.
        return std::future::pending().await;
    }
    let response = match outcome {
        StepOutcome::Response(response) => match request.history.last_result() {
            Some(result) => response.with_result(&result),
            None => response,
        },
        StepOutcome::Error(error) => {
            let whole = dialect.error(&error).to_string().into_bytes();
            return error_head(&error).body(body(vec![whole], &delivery)).expect(VALID_HEADERS);
        }
    };
    let (model, format) = from_path.unwrap_or_else(|| {
        let format = if request.stream { ReplyFormat::Events } else { ReplyFormat::Whole };
        (request.model.clone().unwrap_or_else(|| MODEL.to_owned()), format)
    });
    let reply = build_reply(&request, response, model, request_id(&bytes), unix_now());
    let (content_type, frames) = match format {
        ReplyFormat::Whole => ("application/json", vec![dialect.whole(&reply).to_string().into_bytes()]),
        ReplyFormat::Events => ("text/event-stream", dialect.events(&reply)),
        ReplyFormat::Array => ("application/json", dialect.array(&reply)),
    };
    Response::builder()
        .header(header::CONTENT_TYPE, content_type)
        .header(header::CACHE_CONTROL, "no-cache")
        .header("x-request-id", format!("mock-{}", reply.id))
        .body(body(frames, &delivery))
        .expect(VALID_HEADERS)
}

async fn count(dialect: ApiDialect, request: Request) -> Response {
    let parse = |json: &Value| dialect.parse(json).map_err(|message| ScriptedError::new(400, message));
    match read(request).await.and_then(|(_, json)| parse(&json)) {
        Ok(request) => json_response(StatusCode::OK, &dialect.token_count(request.history.tokens())),
        Err(rejection) => error(dialect, &rejection),
    }
}

async fn read(request: Request) -> Result<(Bytes, Value), ScriptedError> {
    if let Some(encoding) = request.headers().get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(ScriptedError::new(
            415,
            format!("unsupported content encoding {encoding:?}: send the body uncompressed"),
        ));
    }
    let too_large = || ScriptedError::new(413, "the body is larger than 64 MiB");
    if request.body().size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let body = match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
        Err(error) => return Err(ScriptedError::new(400, format!("cannot read the body: {error}"))),
    };
    match serde_json::from_slice(&body) {
        Ok(json) => Ok((body, json)),
        Err(error) => Err(ScriptedError::new(400, format!("the body is not valid JSON: {error}"))),
    }
}

const VALID_HEADERS: &str = "every header is a constant or was validated";

fn error(dialect: ApiDialect, error: &ScriptedError) -> Response {
    error_head(error).body(Body::from(dialect.error(error).to_string())).expect(VALID_HEADERS)
}

fn error_head(error: &ScriptedError) -> http::response::Builder {
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
        .expect(VALID_HEADERS)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
