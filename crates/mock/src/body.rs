//! Carries an answer to the client, well or badly: cut in pieces, slowly, stalled, dropped.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use crate::fault::{Delivery, Stall};

/// The frames of an answer, delivered as the script says.
pub(crate) fn body(mut frames: Vec<Vec<u8>>, delivery: &Delivery) -> Body {
    // A single frame has a length that can be said beforehand, unless something happens to it.
    if frames.len() == 1 && delivery.is_plain() {
        return frames.pop().unwrap_or_default().into();
    }
    let mut pieces = cut(frames, delivery.chunk_bytes);
    let end = match (delivery.stall, delivery.drop_after) {
        (Some(Stall::After(bytes)), _) => {
            truncate(&mut pieces, bytes);
            End::Silence
        }
        (Some(Stall::AtOnce), _) => {
            pieces.clear();
            End::Silence
        }
        (None, Some(bytes)) => {
            truncate(&mut pieces, bytes);
            End::Drop
        }
        (None, None) => End::Proper,
    };
    let state = Carrier { pieces, pace: delivery.pace, first: true, end };
    Body::from_stream(stream::unfold(state, Carrier::next))
}

struct Carrier {
    pieces: VecDeque<Bytes>,
    pace: Duration,
    first: bool,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Proper,
    Silence,
    Drop,
}

impl Carrier {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if !std::mem::take(&mut self.first) {
            // Also without a pace: what is written together would arrive together.
            tokio::task::yield_now().await;
            sleep_if_any(self.pace).await;
        }
        match (self.pieces.pop_front(), self.end) {
            (Some(piece), _) => Some((Ok(piece), self)),
            (None, End::Proper) => None,
            (None, End::Silence) => std::future::pending().await,
            (None, End::Drop) => {
                let dropped = io::Error::new(io::ErrorKind::ConnectionAborted, "dropped, as the script says");
                Some((Err(dropped), self))
            }
        }
    }
}

async fn sleep_if_any(pause: Duration) {
    if !pause.is_zero() {
        sleep(pause).await;
    }
}

/// Frames as they are, or all their bytes in pieces of one size.
fn cut(frames: Vec<Vec<u8>>, size: Option<usize>) -> VecDeque<Bytes> {
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
    fn pieces_and_where_they_end() {
        let frames = || vec![b"one".to_vec(), "zwölf".as_bytes().to_vec()];
        for (size, limit, expected) in [
            (None, 99, vec!["one".as_bytes(), "zwölf".as_bytes()]),
            (Some(6), 99, vec!["onezw\u{f6}".as_bytes().split_at(6).0, &[0xb6, b'l', b'f']]),
            (Some(100), 99, vec!["onezwölf".as_bytes()]),
            (None, 4, vec![b"one", b"z"]),
            (None, 3, vec![b"one"]),
            (None, 0, vec![]),
        ] {
            let mut pieces = cut(frames(), size);
            truncate(&mut pieces, limit);
            assert_eq!(pieces, expected, "{size:?} {limit}");
        }
    }
}
