//! Frames of a stream: each has the name of its event twice (`event:` and `type`) and a sequence number.

use serde::Serialize;

use crate::dialect::json::json;

/// Which frames are written. All of them are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    None,
    All,
    /// Frames with a larger sequence number.
    After(u64),
}

/// Writer of numbered frames.
#[derive(Debug)]
pub(super) struct FrameWriter {
    next: u64,
    written: Written,
}

impl FrameWriter {
    pub(super) fn new(written: Written) -> Self {
        Self { next: 0, written }
    }

    /// Appends a frame. `members` are those after `type` and `sequence_number`.
    pub(super) fn frame(&mut self, kind: &str, members: &impl Serialize, out: &mut Vec<u8>) {
        self.frame_with(kind, out, |out| {
            let start = out.len();
            json(out, members);
            // The members go into the object that is open.
            out[start] = b',';
            out.pop();
        });
    }

    /// As [`frame`](Self::frame), with members that `write` appends, each after a comma.
    pub(super) fn frame_with(&mut self, kind: &str, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let number = self.next;
        self.next += 1;
        match self.written {
            Written::None => return,
            Written::After(last) if number <= last => return,
            Written::All | Written::After(_) => {}
        }
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: {\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"sequence_number\":");
        json(out, &number);
        write(out);
        out.extend_from_slice(b"}\n\n");
    }
}
