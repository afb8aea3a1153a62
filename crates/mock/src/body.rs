//! Response body with injected faults: split into pieces, slow, stalled or dropped.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use crate::fault::{DeliveryPlan, Stall};

/// Creates a body that sends the frames according to the plan.
pub(crate) fn body(mut frames: Vec<Vec<u8>>, plan: &DeliveryPlan) -> Body {
    // A single frame without faults is sent with a Content-Length.
    if frames.len() == 1 && plan.is_plain() {
        return frames.pop().unwrap_or_default().into();
    }
    let mut pieces = split(frames, plan.chunk_bytes);
    let end = match (plan.stall, plan.drop_after) {
        (Some(Stall::After(bytes)), _) => {
            truncate(&mut pieces, bytes);
            BodyEnd::Stall
        }
        (Some(Stall::BeforeHeaders), _) => {
            pieces.clear();
            BodyEnd::Stall
        }
        (None, Some(bytes)) => {
            truncate(&mut pieces, bytes);
            BodyEnd::Drop
        }
        (None, None) => BodyEnd::Complete,
    };
    let state = BodyStream { pieces, pace: plan.pace, first: true, end };
    Body::from_stream(stream::unfold(state, BodyStream::next))
}

/// State of the body while it is sent.
struct BodyStream {
    pieces: VecDeque<Bytes>,
    pace: Duration,
    first: bool,
    end: BodyEnd,
}

/// Action after the last piece.
#[derive(Clone, Copy)]
enum BodyEnd {
    Complete,
    Stall,
    Drop,
}

impl BodyStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if !std::mem::take(&mut self.first) {
            // Yield even without a pause: otherwise several pieces would be written, and arrive, as one.
            tokio::task::yield_now().await;
            pause(self.pace).await;
        }
        match (self.pieces.pop_front(), self.end) {
            (Some(piece), _) => Some((Ok(piece), self)),
            (None, BodyEnd::Complete) => None,
            (None, BodyEnd::Stall) => std::future::pending().await,
            (None, BodyEnd::Drop) => {
                let dropped = io::Error::new(io::ErrorKind::ConnectionAborted, "connection dropped by the script");
                Some((Err(dropped), self))
            }
        }
    }
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}

/// Returns the frames as they are, or their bytes in pieces of `size`.
fn split(frames: Vec<Vec<u8>>, size: Option<usize>) -> VecDeque<Bytes> {
    match size {
        None => frames.into_iter().map(Bytes::from).collect(),
        Some(size) => {
            let mut rest = Bytes::from(frames.concat());
            let mut pieces = VecDeque::new();
            while !rest.is_empty() {
                pieces.push_back(rest.split_to(size.min(rest.len())));
            }
            pieces
        }
    }
}

fn truncate(pieces: &mut VecDeque<Bytes>, bytes: usize) {
    let mut room = bytes;
    for piece in pieces.iter_mut() {
        piece.truncate(room);
        room -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_and_truncated() {
        let frames = || vec![b"one".to_vec(), "zwölf".as_bytes().to_vec()];
        for (size, limit, expected) in [
            (None, 99, vec!["one".as_bytes(), "zwölf".as_bytes()]),
            (Some(6), 99, vec!["onezw\u{f6}".as_bytes().split_at(6).0, &[0xb6, b'l', b'f']]),
            (Some(100), 99, vec!["onezwölf".as_bytes()]),
            (None, 4, vec![b"one", b"z"]),
            (None, 3, vec![b"one"]),
            (None, 0, vec![]),
        ] {
            let mut pieces = split(frames(), size);
            truncate(&mut pieces, limit);
            assert_eq!(pieces, expected, "{size:?} {limit}");
        }
    }
}
