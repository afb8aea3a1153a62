//! The gateway's ends of a program's three streams: input to feed, output to read, and the last part of stderr.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::spool::{Spool, SpoolWatch};

/// Amount of stderr that is kept.
const MAX_TAIL_BYTES: usize = 64 * 1024;

/// The largest pipe that an ordinary user may create.
const LARGE_PIPE_BYTES: usize = 1 << 20;

/// The gateway's ends of a program's streams. `None` once closed.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<StdinFeed>,
    pub(crate) stdout: Option<Stdout>,
    pub(crate) stderr: Option<Receiver>,
}

/// The gateway's end of a program's stdout.
#[derive(Debug)]
pub(crate) enum Stdout {
    Pipe(Receiver),
    Spool(Spool),
}

impl Stdout {
    /// Creates a pipe: a program that is ahead of its reader has to wait.
    pub(crate) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = from_child()?;
        Ok((Self::Pipe(ours), theirs))
    }

    /// Creates a file in memory: no output is lost if the program exits without waiting. Falls back to a large pipe.
    pub(crate) fn spool(watch: Option<&Arc<SpoolWatch>>) -> io::Result<(Self, OwnedFd)> {
        if let Some(Ok((ours, theirs))) = watch.map(Spool::new) {
            return Ok((Self::Spool(ours), theirs));
        }
        let (ours, theirs) = from_child()?;
        // The kernel limits how many large pipes a user may have. Beyond that, the pipe keeps its size.
        let _ = fcntl_setpipe_size(&theirs, LARGE_PIPE_BYTES);
        Ok((Self::Pipe(ours), theirs))
    }

    pub(crate) fn as_spool(&self) -> Option<&Spool> {
        match self {
            Self::Pipe(_) => None,
            Self::Spool(spool) => Some(spool),
        }
    }
}

/// A stream that a program writes to.
pub(crate) trait ChildStream {
    /// Reads what is available. Ready with nothing read at the end of the stream.
    fn poll_stream(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
}

impl ChildStream for Receiver {
    fn poll_stream(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_read(cx, buffer)
    }
}

impl ChildStream for Stdout {
    fn poll_stream(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Pipe(pipe) => pipe.poll_stream(cx, buffer),
            Self::Spool(spool) => {
                let count = ready!(spool.poll_read(cx, buffer.initialize_unfilled()))?;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Creates a pipe to read from, and the child's end of it. Only the gateway's end is non-blocking.
pub(crate) fn from_child() -> io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((Receiver::from_owned_fd_unchecked(ours)?, theirs))
}

/// Data that is still to be written to the child's stdin. Dropping it closes the pipe.
#[derive(Debug)]
pub(crate) struct StdinFeed {
    pipe: Sender,
    data: Vec<u8>,
    written: usize,
    /// Whether more data may follow, so that the pipe stays open when all is written.
    open: bool,
}

impl StdinFeed {
    /// Creates a pipe that contains `data`, or its beginning and a feed for the rest.
    ///
    /// As much as fits is written before there is a reader, so a short prompt costs neither a registration nor a wake-up.
    pub(crate) fn to_child(data: Vec<u8>) -> io::Result<(Option<Self>, OwnedFd)> {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        let written = match rustix::io::write(&ours, &data) {
            Ok(written) => written,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(error) => return Err(error.into()),
        };
        let rest = if written < data.len() {
            Some(Self { pipe: Sender::from_owned_fd_unchecked(ours)?, data, written, open: false })
        } else {
            None
        };
        Ok((rest, theirs))
    }

    /// Creates a pipe that stays open, and starts with `data`.
    pub(crate) fn open_to_child(data: Vec<u8>) -> io::Result<(Self, OwnedFd)> {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        Ok((Self { pipe: Sender::from_owned_fd_unchecked(ours)?, data, written: 0, open: true }, theirs))
    }

    /// Appends data to be written.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.data.drain(..self.written);
        self.written = 0;
        self.data.extend_from_slice(bytes);
    }

    /// Declares that no more data follows.
    pub(crate) fn close(&mut self) {
        self.open = false;
    }

    /// Writes as much as the pipe takes. Ready once all is written and no more follows, or the child has closed its stdin.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(rest) = self.data.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.pipe).poll_write(cx, rest)) {
                Ok(written) => self.written += written,
                // If the child needed its input, its exit status will show it.
                Err(_) => return Poll::Ready(()),
            }
        }
        if self.open { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// The last [`MAX_TAIL_BYTES`] of stderr.
#[derive(Debug, Default)]
pub(crate) struct StderrTail(VecDeque<u8>);

impl StderrTail {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(MAX_TAIL_BYTES)..];
        let surplus = (self.0.len() + chunk.len()).saturating_sub(MAX_TAIL_BYTES);
        self.0.drain(..surplus);
        self.0.extend(chunk);
    }

    pub(crate) fn text(&self) -> String {
        let (front, back) = self.0.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_the_last_bytes() {
        let mut tail = StderrTail::default();
        tail.push(b"first ");
        tail.push(b"second");
        assert_eq!(tail.text(), "first second");
        tail.push(&[b'x'; MAX_TAIL_BYTES - 3]);
        assert_eq!(tail.text(), format!("ond{}", "x".repeat(MAX_TAIL_BYTES - 3)));
        tail.push(&[b'y'; 3 * MAX_TAIL_BYTES]);
        assert_eq!(tail.text(), "y".repeat(MAX_TAIL_BYTES));
    }
}
