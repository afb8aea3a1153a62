//! Connections: how many, how long they may be silent, and how they end.
//!
//! Not `axum::serve`, which installs no timer and waits for open streams as long as their clients like. Half-closing is
//! not supported on purpose: a client that sends FIN is gone, and its run stops.

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

/// What the last frames get to reach their clients once the drain is over.
const FLUSH: Duration = Duration::from_secs(2);

/// The same when there is no time at all: enough for who reads.
const LAST_FLUSH: Duration = Duration::from_millis(100);

/// How many may be told at once that the server goes down.
const MOST_LATE: usize = 256;

/// How long we go on reading from a client that was refused while it was still sending.
const LINGER: Duration = Duration::from_secs(2);

/// Accepts until told to stop, then drains; leaves no connection behind.
pub(crate) async fn run<D: Door>(listener: TcpListener, app: &Arc<App<D>>, routes: Router, stop: &ServerShutdown) {
    let mut connections = JoinSet::new();
    let limit = app.config.limits.connections;
    tokio::select! {
        biased;
        () = stop.now.cancelled() => {}
        () = stop.gently.cancelled() => {}
        () = accept(&listener, &mut connections, limit, |socket, from| {
            connection(socket, from, Arc::clone(app), routes.clone(), Came::InTime)
        }) => {}
    }
    drain(listener, connections, app, routes, stop).await;
}

/// When a connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    InTime,
    /// The server was on its way out: there is nothing here but the news of that.
    Late,
}

/// Lets open answers end by themselves, then tells them to, then ends them. Whoever comes meanwhile is told to come back.
async fn drain<D: Door>(
    listener: TcpListener,
    mut connections: JoinSet<()>,
    app: &Arc<App<D>>,
    routes: Router,
    stop: &ServerShutdown,
) {
    app.stopping.cancel();
    let mut late = JoinSet::new();
    let turn_away = accept(&listener, &mut late, MOST_LATE, |socket, from| {
        connection(socket, from, Arc::clone(app), routes.clone(), Came::Late)
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
        () = sleep(FLUSH) => {}
        () = async { stop.now.cancelled().await; sleep(LAST_FLUSH).await } => {}
    }
    connections.shutdown().await;
    let _in_time = timeout(LAST_FLUSH, all_ended(&mut late)).await;
    late.shutdown().await;
}

async fn all_ended(connections: &mut JoinSet<()>) {
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

async fn connection<D: Door>(socket: TcpStream, from: IpAddr, app: Arc<App<D>>, routes: Router, came: Came) {
    let Ok(dialled) = socket.local_addr() else { return };
    let peer = Peer { from, dialled: dialled.ip() };
    // Every frame is a write of its own and must not wait for the one before.
    let _best_effort = socket.set_nodelay(true);
    let limits = &app.config.limits;
    // hyper takes up to twice its buffer before it says that a head is too large.
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
        .keep_alive(came == Came::InTime)
        .header_read_timeout(limits.header_read)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes);
    {
        let mut open = pin!(http.serve_connection(TokioIo::new(&mut io), service));
        let ended = tokio::select! {
            ended = open.as_mut() => ended,
            () = app.stopping.cancelled(), if came == Came::InTime => {
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

/// The refusals that are made by a request's head, or in the middle of its body.
fn leaves_body_unread(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 429 | 403 | 404 | 405 | 408 | 413 | 415 | 431)
}

/// Reads on for a while after the last answer. Closing a socket with unread bytes resets it, and a client that was
/// refused in the middle of its body would see the reset instead of the reason.
async fn linger(io: &mut (impl AsyncRead + Unpin)) {
    let mut unread = [0; 8192];
    let read_to_end = async { while io.read(&mut unread).await.is_ok_and(|count| count > 0) {} };
    let _in_time = timeout(LINGER, read_to_end).await;
}
