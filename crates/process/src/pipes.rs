//! The three pipes of a run, seen from our side: what is fed to it, and the end of what it complains about.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe::{Receiver, Sender};

/// How much of stderr is kept.
const TAIL: usize = 64 * 1024;

/// Our ends of a run's pipes; `None` when done with.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<Feed>,
    pub(crate) stdout: Option<Receiver>,
    pub(crate) stderr: Option<Receiver>,
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
