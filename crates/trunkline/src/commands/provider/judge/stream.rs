//! Checks the output of `stream`: one JSON object per line, growing content, and one end.

use serde_json::Value;

use super::finding::ProtocolFinding;
use super::members::{CHUNK, JsonObject, check, excerpt};
use super::object::utf8;

/// An object, and the line it is on.
pub(super) struct OutputObject {
    pub(super) line: usize,
    pub(super) object: JsonObject,
}

/// The objects in `stdout`, and findings about lines that are not objects.
pub(super) fn read(stdout: &[u8]) -> (Vec<OutputObject>, Vec<ProtocolFinding>) {
    let text = match utf8(stdout) {
        Ok(text) => text,
        Err(finding) => return (Vec::new(), vec![finding]),
    };
    if text.trim().is_empty() {
        let fix = "print a JSON object for each piece of the answer, and one with \"done\": true at the end";
        return (Vec::new(), vec![ProtocolFinding::fail("stdout is empty", "a JSON object on each line", fix)]);
    }
    let (mut chunks, mut findings) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => chunks.push(OutputObject { line, object }),
            _ if text.trim().is_empty() => {
                let fix = "end each object with one line break";
                findings.push(ProtocolFinding::warn("an empty line", "a JSON object on each line", fix).line(line));
            }
            _ => {
                let fix = "write each object on a single line, without indentation, and logs to stderr";
                let found = format!("is not a JSON object: {}", excerpt(text));
                findings
                    .push(ProtocolFinding::fail(found, "a JSON object on each line, and nothing else", fix).line(line));
            }
        }
    }
    (chunks, findings)
}

/// Checks that the objects form an answer.
pub(super) fn answer(chunks: &[OutputObject]) -> Vec<ProtocolFinding> {
    let mut findings: Vec<ProtocolFinding> = Vec::new();
    for chunk in chunks {
        findings.extend(check(&chunk.object, &CHUNK).into_iter().map(|finding| finding.line(chunk.line)));
    }
    findings.extend(growth(chunks));
    findings.extend(end(chunks));
    findings
}

/// Checks that each `content` is the previous one followed by `delta`.
fn growth(chunks: &[OutputObject]) -> Vec<ProtocolFinding> {
    let mut findings = Vec::new();
    let mut before = String::new();
    for OutputObject { line, object } in chunks {
        let (Some(content), Some(delta)) = (text(object, "content"), text(object, "delta")) else { continue };
        let expected = format!("{before}{delta}");
        if content != expected {
            let found = format!("is {:?} after {:?} and delta {:?}", tail(content), tail(&before), tail(delta));
            let fix = "content is the complete answer so far: append delta to it, then print both";
            findings.push(
                ProtocolFinding::fail(found, "the previous content followed by delta", fix)
                    .line(*line)
                    .field("content"),
            );
        }
        content.clone_into(&mut before);
    }
    findings
}

/// Checks that only the last line has `done`.
fn end(chunks: &[OutputObject]) -> Vec<ProtocolFinding> {
    let Some(last) = chunks.last() else { return Vec::new() };
    let done: Vec<&OutputObject> =
        chunks.iter().filter(|chunk| chunk.object.get("done") == Some(&Value::Bool(true))).collect();
    let Some(first) = done.first() else {
        let fix = "end with a line that has \"done\": true; without it the stream counts as cut off";
        let finding = ProtocolFinding::fail("no line has \"done\": true", "\"done\": true on the last line", fix);
        return vec![finding.line(last.line).field("done")];
    };
    let mut findings = Vec::new();
    if let Some(after) = chunks.iter().find(|chunk| chunk.line > first.line) {
        let found = format!("a line after \"done\": true, which was on line {}", first.line);
        let fix = "print \"done\": true once, with the last piece, and stop";
        findings.push(ProtocolFinding::fail(found, "nothing after the end", fix).line(after.line).field("done"));
    }
    if first.object.get("tokens_used").is_none() {
        let fix = "add tokens_used to the last line, if you know it; otherwise the gateway guesses";
        findings.push(
            ProtocolFinding::warn("is missing", "the total on the last line", fix)
                .line(first.line)
                .field("tokens_used"),
        );
    }
    if text(&first.object, "content").is_some_and(|content| content.trim().is_empty()) {
        let fix = "print the model's text; if there is none, print the reason in error";
        findings.push(ProtocolFinding::warn("is empty", "some text", fix).line(first.line).field("content"));
    }
    findings
}

fn text<'a>(object: &'a JsonObject, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// End of a text, where the difference is.
fn tail(text: &str) -> String {
    const MAX_CHARS: usize = 30;
    let skipped = text.chars().count().saturating_sub(MAX_CHARS);
    let end: String = text.chars().skip(skipped).collect();
    if skipped > 0 { format!("…{end}") } else { end }
}
