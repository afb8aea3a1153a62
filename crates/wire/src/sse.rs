//! Server-sent events: writing frames, and decoding a stream of bytes into frames.
//!
//! Supports only what chat streams use: `data:` and comments. `event:` and `id:` are written for browsers and ignored by
//! the decoder.

/// The last frame of a successful stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Sent while there is no data, so that no proxy closes the connection as idle.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Appends one frame. Every line of `payload` becomes its own `data:` line.
pub fn data(out: &mut Vec<u8>, payload: &str) {
    for line in payload.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends one frame with an `id:`, from which a client can resume the stream.
pub fn numbered(out: &mut Vec<u8>, number: u64, payload: &str) {
    out.extend_from_slice(format!("id: {number}\n").as_bytes());
    data(out, payload);
}

/// Appends one frame with an `event:` name. The name must be a single line; only constants are passed.
pub fn event(out: &mut Vec<u8>, name: &str, payload: &str) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    data(out, payload);
}

/// Appends a comment, which clients ignore. Control characters become spaces, so it is always one line.
pub fn comment(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b": ");
    out.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().into_bytes());
    out.push(b'\n');
}

/// Decodes frames from bytes that arrive in arbitrary pieces. Buffers at most one incomplete frame; the caller must limit
/// its size ([`SseDecoder::pending`]).
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    data: Option<String>,
    after_cr: bool,
}

impl SseDecoder {
    /// Returns the payloads that `bytes` completes, in order. Lines end in LF, CRLF or CR, also across pieces.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut frames = Vec::new();
        for &byte in bytes {
            let lf_of_crlf = byte == b'\n' && std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if lf_of_crlf => {}
                b'\n' | b'\r' => {
                    frames.extend(self.end_line());
                    self.after_cr = byte == b'\r';
                }
                _ => {
                    self.line.push(byte);
                    self.after_cr = false;
                }
            }
        }
        frames
    }

    /// Number of buffered bytes of the incomplete frame.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, String::len)
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.data.take();
        }
        let value = line.strip_prefix(b"data:")?;
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&value);
            }
            None => self.data = Some(value.into_owned()),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_encoded() {
        for (payload, frame) in [("{}", "data: {}\n\n"), ("a\nb", "data: a\ndata: b\n\n"), ("", "data: \n\n")] {
            let mut out = Vec::new();
            data(&mut out, payload);
            assert_eq!(String::from_utf8(out).unwrap(), frame);
        }
        let mut out = Vec::new();
        event(&mut out, "done", "{}");
        assert_eq!(String::from_utf8(out).unwrap(), "event: done\ndata: {}\n\n");
    }

    #[test]
    fn frames_of_other_servers_are_decoded() {
        for (bytes, frames) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\n", vec!["a"]),
            ("data: a\r\rdata: b\r\r", vec!["a", "b"]),
            (": ping\n\nevent: x\nid: 1\ndata: a\n\n", vec!["a"]),
            ("data: one\ndata: two\n\n", vec!["one\ntwo"]),
            ("data: unfinished\n", vec![]),
            ("data\n\n\n", vec![]),
        ] {
            assert_eq!(SseDecoder::default().push(bytes.as_bytes()), frames, "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn encoded_frames_are_decoded_however_the_bytes_are_split(
            payloads in proptest::collection::vec("[^\r]{0,20}", 0..8),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let mut bytes = Vec::new();
            for payload in &payloads {
                data(&mut bytes, payload);
                bytes.extend_from_slice(KEEP_ALIVE);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut decoder = SseDecoder::default();
            let mut read = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                read.extend(decoder.push(&bytes[from..cut]));
                from = cut;
            }
            assert_eq!(read, payloads);
            assert_eq!(decoder.pending(), 0);
        }
    }
}
