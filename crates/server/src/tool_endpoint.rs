//! The MCP server for CLIs that call tools of clients over HTTP. It listens on a loopback port of its own, which is opened when the
//! first CLI needs it, and every CLI process has a secret of its own.
//!
//! A call may take as long as the client takes. It is answered with a stream that reports progress: without that, CLIs give up
//! after some minutes.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::{Stream, stream};
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::mcp::{self, McpCall, McpRequest};
use trunkline_engine::{ToolEndpoint, ToolPort, ToolPorts};

use crate::connection::accept;

/// Connections at once. A CLI holds one for each call.
const MAX_CONNECTIONS: usize = 4096;

/// Timeout for reading a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a message.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Interval of the reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// MCP server on a loopback port.
pub struct LoopbackToolServer {
    ports: ToolPorts,
    bound: OnceCell<SocketAddr>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl LoopbackToolServer {
    /// A server that listens once it is asked for its address.
    #[must_use]
    pub fn new(ports: ToolPorts) -> Self {
        Self { ports, bound: OnceCell::new(), stop: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Stops listening, and waits until no connection is left.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn bind(&self) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (ports, stop) = (self.ports.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            let serving =
                accept(&listener, &mut connections, MAX_CONNECTIONS, |socket, _| serve(socket, ports.clone()));
            stop.run_until_cancelled(serving).await;
        });
        tracing::debug!(%address, "listening for calls of clients' tools");
        Ok(address)
    }
}

impl ToolEndpoint for LoopbackToolServer {
    fn address(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>> {
        Box::pin(async { self.bound.get_or_try_init(|| self.bind()).await.copied() })
    }
}

async fn serve(socket: TcpStream, ports: ToolPorts) {
    // Each event is one write. Best effort.
    let _ = socket.set_nodelay(true);
    let answer = service_fn(move |request| {
        let ports = ports.clone();
        async move { Ok::<_, Infallible>(respond(request, &ports).await) }
    });
    let mut server = http1::Builder::new();
    // A connection that is kept is closed after the timeout, perhaps just when the CLI uses it for a call, which then fails.
    let connection = server.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    if let Err(error) = connection.serve_connection(TokioIo::new(socket), answer).await {
        tracing::debug!(%error, "connection for calls of tools closed");
    }
}

async fn respond(request: Request<Incoming>, ports: &ToolPorts) -> Response<Body> {
    let Some(port) = bearer(request.headers()).and_then(|token| ports.find(token)) else {
        return plain(StatusCode::UNAUTHORIZED, "this needs the secret of a running process\n");
    };
    match *request.method() {
        Method::POST => {}
        // Sent at the end of a session.
        Method::DELETE => return plain(StatusCode::OK, ""),
        _ => {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "POST messages here\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
            return response;
        }
    }
    let body = Limited::new(request.into_body(), MAX_MESSAGE_BYTES).collect();
    let message = match timeout(HEAD_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is too large or broken\n"),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the message did not come in time\n"),
    };
    let Ok(message) = std::str::from_utf8(&message) else {
        return plain(StatusCode::BAD_REQUEST, "the message is not UTF-8\n");
    };
    match mcp::receive(message, port.tools()) {
        McpRequest::Answered(answer) => typed(StatusCode::OK, "application/json", Body::from(answer)),
        McpRequest::Notification => plain(StatusCode::ACCEPTED, ""),
        McpRequest::Call(call) => {
            let mut response = typed(StatusCode::OK, "text/event-stream", Body::from_stream(events(port, call)));
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
    }
}

/// Events of a call: progress until its result, then the result. The first event comes at once.
fn events(port: Arc<ToolPort>, call: McpCall) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let (id, token) = (call.id.clone(), call.progress_token.clone());
    let result: CallFuture = Box::pin(async move { port.call(call).await });
    stream::unfold((Some(result), 0_u64), move |(result, count)| {
        let (id, token) = (id.clone(), token.clone());
        async move {
            let mut result = result?;
            let wait = if count == 0 { Duration::ZERO } else { PROGRESS_INTERVAL };
            let (event, rest) = match timeout(wait, &mut result).await {
                Ok(Ok(text)) => (mcp::call_result(&id, &text), None),
                Ok(Err(reason)) => (mcp::call_failed(&id, &reason), None),
                Err(_) => match &token {
                    Some(token) => (mcp::progress(token, count + 1), Some(result)),
                    None => return Some((Ok(Bytes::from_static(b": waiting\n\n")), (Some(result), count + 1))),
                },
            };
            let event = format!("event: message\ndata: {event}\n\n");
            Some((Ok(Bytes::from(event)), (rest, count + 1)))
        }
    })
}

type CallFuture = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", Body::from(text))
}

fn typed(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
