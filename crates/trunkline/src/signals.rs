//! Signals that ask the program to stop or to reload.

use std::io::{self, IsTerminal};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Listener for the signals that ask a program to stop.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Listens for SIGTERM and SIGINT. From here on they no longer end the program by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: None })
    }

    /// Like [`listen`](Self::listen), and also for SIGHUP, which is sent when the terminal is closed. Without a terminal
    /// SIGHUP keeps its disposition: `nohup` may have set it.
    pub(crate) fn listen_with_hangup() -> io::Result<Self> {
        let hangup = if io::stdin().is_terminal() { Some(signal(SignalKind::hangup())?) } else { None };
        Ok(Self { hangup, ..Self::listen()? })
    }

    /// Returns the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> ReceivedSignal {
        tokio::select! {
            _ = self.terminate.recv() => ReceivedSignal::Terminate,
            _ = self.interrupt.recv() => ReceivedSignal::Interrupt,
            Some(_) = async { self.hangup.as_mut()?.recv().await } => ReceivedSignal::Hangup,
        }
    }
}

/// A signal that was received. On a terminal, an interrupt may be meant only for the answer in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceivedSignal {
    Terminate,
    Interrupt,
    /// The terminal is gone: nothing can be shown on it or read from it.
    Hangup,
}

/// Listener for SIGHUP as daemons use it: reload the configuration. If the terminal was closed, it means stop instead.
pub(crate) struct ReloadRequests {
    hangup: Signal,
    terminal: bool,
    closed: CancellationToken,
}

impl ReloadRequests {
    /// From here on SIGHUP no longer ends the program by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { hangup, terminal: io::stdin().is_terminal(), closed: CancellationToken::new() })
    }

    /// Cancelled when the terminal that the program was started on is closed.
    pub(crate) fn terminal_closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Returns when the configuration is to be reloaded. Cancel safe.
    pub(crate) async fn next(&mut self) {
        loop {
            if self.hangup.recv().await.is_none() {
                return std::future::pending().await;
            }
            // Once the terminal is closed, stdin is no longer a terminal.
            if !self.terminal || io::stdin().is_terminal() {
                return;
            }
            self.closed.cancel();
        }
    }
}
