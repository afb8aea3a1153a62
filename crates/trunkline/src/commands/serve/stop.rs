//! Events that stop the gateway.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use trunkline_engine::Engine;
use trunkline_server::ServerShutdown;

use crate::service::ServiceManager;
use crate::signals::StopSignals;

/// Waits for runs without a client after a stop signal, for as long as open answers may take.
pub(super) async fn drain_detached(engine: &Engine, stop: &ServerShutdown, drain: Duration) {
    stop.gently.cancelled().await;
    engine.retire();
    tokio::select! {
        () = engine.settled() => {}
        () = tokio::time::sleep(drain) => {}
        () = stop.now.cancelled() => {}
    }
}

/// The first signal drains, the second stops at once. A closed stdin or terminal counts as the first, never as the second.
/// Never returns.
pub(super) async fn stop_on(
    signals: &mut StopSignals,
    closed: [CancellationToken; 2],
    stop: &ServerShutdown,
    manager: &ServiceManager,
) {
    let [stdin, terminal] = closed;
    for (token, how) in [(&stop.gently, "; send the signal again to stop now"), (&stop.now, " now")] {
        tokio::select! {
            _ = signals.next() => {}
            () = stdin.cancelled(), if !stop.gently.is_cancelled() => {}
            () = terminal.cancelled(), if !stop.gently.is_cancelled() => {}
        }
        tracing::info!("stopping{how}");
        manager.stopping();
        token.cancel();
    }
    std::future::pending().await
}

/// Handles SIGXFSZ, so that a write beyond `ulimit -f` is an error and does not end this process. Child processes are not
/// affected: a handler is not inherited.
pub(super) fn handle_file_size_signal() -> io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// Token that is cancelled when stdin is closed. Input is discarded.
pub(super) fn stdin_closed() -> CancellationToken {
    let closed = CancellationToken::new();
    let end = closed.clone();
    // A separate thread that is never joined: a read of stdin cannot be cancelled.
    drop(thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end.cancel();
    }));
    closed
}
