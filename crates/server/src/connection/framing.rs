//! Check of request framing on the raw bytes, because hyper silently removes headers that contradict the framing it has chosen.
//!
//! Two servers that disagree about the end of a request also disagree about the next request (request smuggling). So a request with
//! both `Content-Length` and `Transfer-Encoding`, or with any `Transfer-Encoding` other than a single `chunked`, is refused and its
//! connection is closed. hyper refuses everything else that is malformed (two different lengths, folded lines, spaces before a
//! colon), also with 400.
//!
//! [`Framing`] follows the requests of a connection by their lengths. It stops after a request with `Transfer-Encoding`: the
//! connection is closed after that request.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size of the buffer that an idle connection keeps for its next head.
const MAX_SPARE_BYTES: usize = 1024;

/// Framing of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// `Content-Length`, or no body.
    Length,
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Both, or an unknown transfer encoding.
    Ambiguous(&'static str),
}

/// Verdicts on requests that were read and not yet answered, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdicts(Arc<Mutex<VecDeque<Verdict>>>);

impl Verdicts {
    /// The verdict on the next request. Without one, hyper has parsed a head that this module has not recognised.
    pub(crate) fn next(&self) -> Verdict {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or(Verdict::Ambiguous("the request's framing cannot be told"))
    }

    fn push(&self, verdict: Verdict) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(verdict);
    }
}

/// A socket whose requests are checked while they are read.
pub(crate) struct Framed<S> {
    socket: S,
    framing: Framing,
    verdicts: Verdicts,
}

impl<S> Framed<S> {
    /// `max_head` is the maximum size of a head in bytes; hyper refuses larger ones earlier.
    pub(crate) fn new(socket: S, max_head: usize) -> (Self, Verdicts) {
        let verdicts = Verdicts::default();
        let framing = Framing { state: FramingState::Head(Vec::new()), max_head, spare: Vec::new() };
        (Self { socket, framing, verdicts: verdicts.clone() }, verdicts)
    }
}

/// Parser of the request boundaries on a connection.
#[derive(Debug)]
struct Framing {
    state: FramingState,
    max_head: usize,
    /// Buffer of the last head, for the next one.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum FramingState {
    /// Inside a head; its bytes so far.
    Head(Vec<u8>),
    /// Inside a body; its remaining bytes.
    Body(u64),
    /// The rest of the connection is ignored.
    Over,
}

impl Framing {
    fn read(&mut self, mut bytes: &[u8], verdicts: &Verdicts) {
        while !bytes.is_empty() {
            match &mut self.state {
                FramingState::Over => return,
                FramingState::Body(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        self.state = FramingState::Head(std::mem::take(&mut self.spare));
                    }
                }
                FramingState::Head(head) => {
                    let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
                    let (first, rest) = bytes.split_at(line);
                    head.extend_from_slice(first);
                    bytes = rest;
                    if head.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                        // Empty lines before a request are skipped.
                        head.clear();
                    } else if head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n") {
                        let (verdict, length) = judge(head);
                        verdicts.push(verdict);
                        head.clear();
                        head.shrink_to(MAX_SPARE_BYTES);
                        self.spare = std::mem::take(head);
                        self.state = match (verdict, length) {
                            (Verdict::Length, 0) => FramingState::Head(std::mem::take(&mut self.spare)),
                            (Verdict::Length, length) => FramingState::Body(length),
                            (Verdict::Chunked | Verdict::Ambiguous(_), _) => FramingState::Over,
                        };
                    } else if head.len() > self.max_head {
                        self.state = FramingState::Over;
                    }
                }
            }
        }
    }
}

/// The framing of a head, and the length of its body.
fn judge(head: &[u8]) -> (Verdict, u64) {
    let (mut lengths, mut encodings) = (Vec::new(), Vec::new());
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            lengths.push(value);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            encodings.push(value);
        }
    }
    match (&lengths[..], &encodings[..]) {
        ([], []) => (Verdict::Length, 0),
        (_, []) => match length_of(&lengths) {
            Some(length) => (Verdict::Length, length),
            None => (Verdict::Ambiguous("the Content-Length is not one number"), 0),
        },
        ([], [encoding]) if encoding.eq_ignore_ascii_case(b"chunked") => (Verdict::Chunked, 0),
        ([], _) => (Verdict::Ambiguous("the only Transfer-Encoding that is accepted is chunked"), 0),
        (_, _) => (Verdict::Ambiguous("a request has a Content-Length or a Transfer-Encoding, not both"), 0),
    }
}

/// The length, if all headers agree.
fn length_of(lengths: &[&[u8]]) -> Option<u64> {
    let (first, others) = lengths.split_first()?;
    let digits = !first.is_empty() && first.iter().all(u8::is_ascii_digit) && others.iter().all(|other| other == first);
    std::str::from_utf8(first).ok().filter(|_| digits)?.parse().ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let this = &mut *self;
        let read = Pin::new(&mut this.socket).poll_read(cx, buf);
        this.framing.read(&buf.filled()[before..], &this.verdicts);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
