//! The two forms of a stream: server-sent events (`?alt=sse`), and one JSON array.
//!
//! Google's clients read server-sent events line by line, with more kinds of line ends than the standard has, and take a comment
//! for an answer. So a silent stream is kept alive by empty lines, and these line ends are escaped.

/// The form of a stream.
pub(crate) trait StreamSyntax: Send + 'static {
    const CONTENT_TYPE: &'static str;

    /// Appends what comes before an object. `first`: it is the first one of the stream.
    fn before(first: bool, out: &mut Vec<u8>);

    /// Appends what comes after an object.
    fn after(out: &mut Vec<u8>);

    /// Appends what comes before an error.
    fn before_error(first: bool, out: &mut Vec<u8>);

    /// Appends the end of the stream.
    fn end(out: &mut Vec<u8>);
}

pub(crate) struct ServerSentEvents;

pub(crate) struct JsonArray;

impl StreamSyntax for ServerSentEvents {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn before(_first: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: ");
    }

    fn after(out: &mut Vec<u8>) {
        out.extend_from_slice(b"\n\n");
    }

    /// An error is a line without `data:`. Google's client for JavaScript takes any other form for an answer without candidates.
    fn before_error(_first: bool, _out: &mut Vec<u8>) {}

    fn end(_out: &mut Vec<u8>) {}
}

impl StreamSyntax for JsonArray {
    const CONTENT_TYPE: &'static str = "application/json";

    fn before(first: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if first { b"[" } else { b",\n" });
    }

    fn after(_out: &mut Vec<u8>) {}

    fn before_error(first: bool, out: &mut Vec<u8>) {
        Self::before(first, out);
    }

    fn end(out: &mut Vec<u8>) {
        out.extend_from_slice(b"]\n");
    }
}

/// Escapes line ends that JSON allows in a text, in everything after `start`.
pub(super) fn escape_line_ends(start: usize, out: &mut Vec<u8>) {
    // All of them begin with one of these bytes, which are rare.
    if !out[start..].iter().any(|byte| matches!(byte, 0xc2 | 0xe2)) {
        return;
    }
    let json = String::from_utf8(out.split_off(start)).expect("JSON is UTF-8");
    let escaped = json.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    out.extend_from_slice(escaped.as_bytes());
}
