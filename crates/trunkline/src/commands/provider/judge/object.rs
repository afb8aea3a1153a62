//! Parses the output of `generate`: exactly one JSON object.

use serde_json::{Deserializer, Value};

use super::finding::ProtocolFinding;
use super::members::{JsonObject, excerpt};

const FIX_NOISE: &str = "print one JSON object on stdout and nothing else; logs, banners and progress go to stderr";

/// The line of a member, or the first line of the object if the member is missing.
pub(super) fn line_of(stdout: &[u8], field: &str) -> usize {
    let text = String::from_utf8_lossy(stdout);
    let named = text.find(&format!("\"{field}\""));
    line_at(&text, named.unwrap_or_else(|| text.len() - text.trim_start().len()))
}

/// The object in `stdout`, and findings about anything else in it.
pub(super) fn read(stdout: &[u8]) -> (Option<JsonObject>, Vec<ProtocolFinding>) {
    let text = match utf8(stdout) {
        Ok(text) => text,
        Err(finding) => return (None, vec![finding]),
    };
    if text.trim().is_empty() {
        let fix = "print the answer as a JSON object on stdout; after a failure, one with error";
        return (None, vec![ProtocolFinding::fail("stdout is empty", "one JSON object", fix)]);
    }
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(Value::Object(object))) => {
            let rest = &text[values.byte_offset()..];
            let mut findings = Vec::new();
            if !rest.trim().is_empty() {
                let line = line_at(text, text.len() - rest.trim_start().len());
                let found = format!("more after the object: {}", excerpt(rest.trim()));
                findings.push(ProtocolFinding::fail(found, "one JSON object and nothing else", FIX_NOISE).line(line));
            }
            (Some(object), findings)
        }
        Some(Ok(other)) => {
            let found = format!("is {}", excerpt(&other.to_string()));
            let line = line_at(text, text.len() - text.trim_start().len());
            (None, vec![ProtocolFinding::fail(found, "one JSON object", FIX_NOISE).line(line)])
        }
        Some(Err(error)) => {
            let line = error.line().max(1);
            let shown = text.lines().nth(line - 1).unwrap_or_default();
            let finding = if error.is_eof() {
                let fix = "write the complete object before you exit; build it with a JSON library";
                ProtocolFinding::fail("the JSON is incomplete", "one complete JSON object", fix)
            } else {
                let fix = if text.trim_start().starts_with('{') {
                    "build the object with a JSON library: quotes, backslashes and line breaks in strings must be escaped"
                } else {
                    FIX_NOISE
                };
                ProtocolFinding::fail(
                    format!("is not JSON: {}", excerpt(shown)),
                    "one JSON object and nothing else",
                    fix,
                )
            };
            (None, vec![finding.line(line)])
        }
        None => (None, Vec::new()),
    }
}

pub(super) fn utf8(stdout: &[u8]) -> Result<&str, ProtocolFinding> {
    std::str::from_utf8(stdout).map_err(|error| {
        let line = stdout[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        let fix = "write UTF-8, whatever the locale; never cut a character in two";
        ProtocolFinding::fail("the bytes are not UTF-8", "UTF-8", fix).line(line)
    })
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}
