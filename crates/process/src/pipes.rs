//! The three streams of a run, seen from our side: what is fed to it, what it prints, and the end of what it complains
//! about.

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

use crate::spool::{Spool, Watch};

/// How much of stderr is kept.
const TAIL: usize = 64 * 1024;

/// The largest pipe that an ordinary user gets.
const LARGE_PIPE_BYTES: usize = 1 << 20;

/// Our ends of a run's pipes; `None` when done with.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<Feed>,
    pub(crate) stdout: Option<Stdout>,
    pub(crate) stderr: Option<Receiver>,
}

/// What a program prints.
#[derive(Debug)]
pub(crate) enum Stdout {
    Pipe(Receiver),
    Spool(Spool),
}

impl Stdout {
    /// A pipe: a program that is ahead of its reader waits.
    pub(crate) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = from_child()?;
        Ok((Self::Pipe(ours), theirs))
    }

    /// A file in memory: nothing is lost of a program that does not wait. Where that cannot be had, a large pipe.
    pub(crate) fn spool(watch: Option<&Arc<Watch>>) -> io::Result<(Self, OwnedFd)> {
        if let Some(Ok((ours, theirs))) = watch.map(Spool::new) {
            return Ok((Self::Spool(ours), theirs));
        }
        let (ours, theirs) = from_child()?;
        // A user who has many of them gets no more: then it stays as it is.
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

/// A stream that a program writes.
pub(crate) trait Source {
    /// Reads what is there; ready with nothing at the end.
    fn poll_source(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
}

impl Source for Receiver {
    fn poll_source(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_read(cx, buffer)
    }
}

impl Source for Stdout {
    fn poll_source(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Pipe(pipe) => pipe.poll_source(cx, buffer),
            Self::Spool(spool) => {
                let count = ready!(spool.poll_read(cx, buffer.initialize_unfilled()))?;
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// A pipe that we read from, and the end that the child gets: only ours does not block.
pub(crate) fn from_child() -> io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((Receiver::from_owned_fd_unchecked(ours)?, theirs))
}

/// What is still to be written to the child's stdin. Dropping it closes the pipe.
#[derive(Debug)]
pub(crate) struct Feed {
    pipe: Sender,
    data: Vec<u8>,
    written: usize,
    /// More may follow: it is not over when all is written.
    open: bool,
}

impl Feed {
    /// A pipe that holds `data`, or its beginning and a feed for the rest.
    ///
    /// What fits is written before there is a reader, so a short prompt costs neither a registration nor a wake-up.
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

    /// A pipe that stays open, and begins with `data`.
    pub(crate) fn open_to_child(data: Vec<u8>) -> io::Result<(Self, OwnedFd)> {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        Ok((Self { pipe: Sender::from_owned_fd_unchecked(ours)?, data, written: 0, open: true }, theirs))
    }

    /// More to write, after what was not yet.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.data.drain(..self.written);
        self.written = 0;
        self.data.extend_from_slice(bytes);
    }

    /// Nothing more follows.
    pub(crate) fn close(&mut self) {
        self.open = false;
    }

    /// Writes what the pipe takes; ready once there is nothing left to do, be it that the child stopped reading.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(rest) = self.data.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.pipe).poll_write(cx, rest)) {
                Ok(written) => self.written += written,
                // A child that does not want its input says so by its exit status, if at all.
                Err(_) => return Poll::Ready(()),
            }
        }
        if self.open { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// The last 64 KiB of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tail(VecDeque<u8>);

impl Tail {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(TAIL)..];
        let surplus = (self.0.len() + chunk.len()).saturating_sub(TAIL);
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
    fn a_tail_keeps_the_end() {
        let mut tail = Tail::default();
        tail.push(b"first ");
        tail.push(b"second");
        assert_eq!(tail.text(), "first second");
        tail.push(&[b'x'; TAIL - 3]);
        assert_eq!(tail.text(), format!("ond{}", "x".repeat(TAIL - 3)));
        tail.push(&[b'y'; 3 * TAIL]);
        assert_eq!(tail.text(), "y".repeat(TAIL));
    }
}
