//! Strings and numbers of a request, encoded as bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Appends a string with its length before it.
pub(crate) fn put(frame: &mut Vec<u8>, string: &OsStr) {
    put_count(frame, string.len());
    frame.extend_from_slice(string.as_bytes());
}

/// A count above `u32::MAX` belongs to a frame that exceeds `MAX_FRAME_BYTES` anyway.
pub(crate) fn put_count(frame: &mut Vec<u8>, count: usize) {
    frame.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

/// Takes a string from the beginning of `rest`.
pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a OsStr> {
    let length = take_u32(rest)? as usize;
    let (string, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(OsStr::from_bytes(string))
}

pub(crate) fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*bytes))
}
