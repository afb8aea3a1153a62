//! Connections: their limits, timeouts and shutdown.
//!
//! `axum::serve` is not used: it installs no timers, and its shutdown waits for open streams without a limit. Half-closed
//! connections are deliberately not supported: a client that sends FIN has disconnected, and its run stops.

mod accept;
pub(crate) mod body;
pub(crate) mod framing;
pub(crate) mod handler;
mod stall;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::app::ServerShutdown;
use crate::auth::Peer;
use crate::door::Door;
pub(crate) use accept::accept;
use accept::report;
use framing::{Framed, Verdict};
use handler::handle;
use stall::StallGuard;

/// Time for the last frames to reach their clients after the drain.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The same after a second signal.
const FORCED_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// Connections that are served at once during the drain, to answer that the server is stopping.
const MAX_LATE_CONNECTIONS: usize = 256;

/// Time for which the rest of a refused body is read.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Accepts connections until shutdown, then drains. Returns when no connection is left.
pub(crate) async fn run<D: Door>(listener: TcpListener, app: &Arc<App<D>>, routes: Router, stop: &ServerShutdown) {
    let mut connections = JoinSet::new();
    let limit = app.config.limits.connections;
    tokio::select! {
        biased;
        () = stop.now.cancelled() => {}
        () = stop.gently.cancelled() => {}
        () = accept(&listener, &mut connections, limit, |socket, from| {
            connection(socket, from, Arc::clone(app), routes.clone(), Arrival::Serving)
        }) => {}
    }
    drain(listener, connections, app, routes, stop).await;
}

/// Whether a connection was accepted before or during shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Serving,
    /// During the drain: every request is answered with 503.
    Draining,
}

/// Lets open answers finish, then asks them to end, then aborts them. New connections get 503 meanwhile.
async fn drain<D: Door>(
    listener: TcpListener,
    mut connections: JoinSet<()>,
    app: &Arc<App<D>>,
    routes: Router,
    stop: &ServerShutdown,
) {
    app.stopping.cancel();
    let mut late = JoinSet::new();
    let turn_away = accept(&listener, &mut late, MAX_LATE_CONNECTIONS, |socket, from| {
        connection(socket, from, Arc::clone(app), routes.clone(), Arrival::Draining)
    });
    tokio::select! {
        () = turn_away => {}
        () = all_ended(&mut connections) => {}
        () = sleep(app.config.limits.drain) => {}
        () = stop.now.cancelled() => {}
    }
    drop(listener);
    app.expired.cancel();
    tokio::select! {
        () = all_ended(&mut connections) => {}
        () = sleep(FLUSH_TIMEOUT) => {}
        () = async { stop.now.cancelled().await; sleep(FORCED_FLUSH_TIMEOUT).await } => {}
    }
    connections.shutdown().await;
    let _ = timeout(FORCED_FLUSH_TIMEOUT, all_ended(&mut late)).await;
    late.shutdown().await;
}

async fn all_ended(connections: &mut JoinSet<()>) {
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

async fn connection<D: Door>(socket: TcpStream, from: IpAddr, app: Arc<App<D>>, routes: Router, arrival: Arrival) {
    let Ok(dialled) = socket.local_addr() else { return };
    let peer = Peer { from, dialled: dialled.ip() };
    // Each frame is one write, and must not wait for the acknowledgement of the one before. Best effort.
    let _ = socket.set_nodelay(true);
    let limits = &app.config.limits;
    // hyper accepts up to twice its buffer size before it refuses a head as too large.
    let (mut io, verdicts) = Framed::new(StallGuard::new(socket, limits.write_stall), 4 * limits.header_bytes);
    let refused = AtomicBool::new(false);
    let service = service_fn(|request: http::Request<Incoming>| {
        let routes = routes.clone();
        let (app, refused, verdict) = (&app, &refused, verdicts.next());
        async move {
            let has_body = !request.is_end_stream();
            let response = handle(app, routes, peer, verdict, request.map(Body::new)).await;
            let unread = matches!(verdict, Verdict::Ambiguous(_)) || leaves_body_unread(response.status());
            refused.store(has_body && unread, Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .keep_alive(arrival == Arrival::Serving)
        .header_read_timeout(limits.header_read)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes);
    {
        let mut open = pin!(http.serve_connection(TokioIo::new(&mut io), service));
        let ended = tokio::select! {
            ended = open.as_mut() => ended,
            () = app.stopping.cancelled(), if arrival == Arrival::Serving => {
                open.as_mut().graceful_shutdown();
                open.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection closed");
        }
    }
    if refused.load(Ordering::Relaxed) {
        linger(&mut io).await;
    }
}

/// Statuses with which a request is refused before its body was read to the end.
fn leaves_body_unread(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 429 | 403 | 404 | 405 | 408 | 413 | 415 | 431)
}

/// Reads the rest of a refused request for a while. Closing a socket with unread bytes resets the connection, and the client would see
/// the reset instead of the error.
async fn linger(io: &mut (impl AsyncRead + Unpin)) {
    let mut unread = [0; 8192];
    let read_to_end = async { while io.read(&mut unread).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(LINGER_TIMEOUT, read_to_end).await;
}
