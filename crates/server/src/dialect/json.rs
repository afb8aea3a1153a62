//! JSON, appended to the bytes of an answer.

use serde::Serialize;

/// Appends a value.
pub(crate) fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("strings and numbers always serialise, and a Vec takes them");
}

/// Appends a member to an object that is open and has members already.
pub(crate) fn member(out: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    json(out, value);
}
