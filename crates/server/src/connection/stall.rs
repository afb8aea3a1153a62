//! A socket with a time limit for writes that make no progress.
//!
//! Backpressure stops an agent whose client has stopped reading. Without this limit the agent and its slot would be blocked forever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

pub(crate) struct StallGuard<S> {
    socket: S,
    limit: Duration,
    /// Timer that runs while a write is blocked.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(socket: S, limit: Duration) -> Self {
        Self { socket, limit, stalled: None }
    }

    /// Passes on the result of a write. Progress resets the timer.
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn connection_fails_when_the_client_stops_reading() {
        let (ours, _theirs) = tokio::io::duplex(4);
        let mut guard = StallGuard::new(ours, LIMIT);
        let began = Instant::now();
        let error = guard.write_all(b"more than fits").await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_survives_a_slow_reader() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut guard = StallGuard::new(ours, LIMIT);
        let read = async {
            let mut taken = [0; 4];
            for _ in 0..5 {
                tokio::time::sleep(LIMIT / 2).await;
                theirs.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(guard.write_all(&[0; 20]), read);
        written.unwrap();
        assert!(timeout(LIMIT * 2, std::future::pending::<()>()).await.is_err());
        guard.write_all(&[0; 4]).await.unwrap();
    }
}
