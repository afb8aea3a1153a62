//! Frames of a stream: each has the name of its event twice, as `event:` and as `type`.

/// Sent while there is nothing to say. Anthropic's clients know this event.
pub(super) const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// Appends a frame. `write` appends the members after `type`, each after a comma.
pub(super) fn frame(out: &mut Vec<u8>, kind: &str, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: {\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
    write(out);
    out.extend_from_slice(b"}\n\n");
}
