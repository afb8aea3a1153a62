//! The accept loop of every listening socket.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

/// Pause after an accept that failed for lack of descriptors or memory, so that others can release some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until this future is dropped. Each is served by a task in `connections`; beyond `limit` tasks, a new
/// connection is closed at once.
pub(crate) async fn accept<Serving>(
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    limit: usize,
    serve: impl Fn(TcpStream, IpAddr) -> Serving,
) where
    Serving: Future<Output = ()> + Send + 'static,
{
    loop {
        tokio::select! {
            biased;
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((socket, from)) if connections.len() < limit => {
                    connections.spawn(serve(socket, from.ip()));
                }
                Ok((socket, _)) => {
                    tracing::warn!(limit, "too many connections: one is refused");
                    drop(socket);
                }
                Err(error) if is_the_peers(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

pub(crate) fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended badly");
    }
}

/// Errors of a connection that was gone before it was accepted.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
