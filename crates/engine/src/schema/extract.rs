//! Finds JSON in an answer: all of it, the content of a code fence, or a value between prose.

use serde_json::Value;

/// Maximum number of places at which a value is looked for between prose.
const MAX_PLACES: usize = 64;

/// JSON value in an answer, and its text.
pub(super) struct Candidate<'a> {
    pub(super) text: &'a str,
    pub(super) value: Value,
}

/// Returns the values that the answer may mean, the most likely first.
pub(super) fn candidates(answer: &str) -> impl Iterator<Item = Candidate<'_>> {
    let fenced = fences(answer).into_iter().rev();
    let whole = std::iter::once(answer).chain(fenced).filter_map(whole_value);
    whole.chain(between_prose(answer))
}

/// Returns why the answer as a whole is not JSON.
pub(super) fn why_not_json(answer: &str) -> String {
    match serde_json::from_str::<Value>(answer.trim()) {
        _ if answer.trim().is_empty() => "the answer is empty".to_owned(),
        Err(error) => format!("the answer is not JSON: {error}"),
        Ok(_) => "the answer is not JSON".to_owned(),
    }
}

fn whole_value(text: &str) -> Option<Candidate<'_>> {
    let text = text.trim();
    serde_json::from_str(text).ok().map(|value| Candidate { text, value })
}

/// Returns the contents of the code fences, in order. A fence ends at a line with at least as many of the same characters.
fn fences(answer: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        let mark = fence_mark(line.trim());
        match open {
            None if !mark.is_empty() => open = Some((mark, at + line.len())),
            Some((opening, start)) if mark.starts_with(opening) && line.trim() == mark => {
                found.push(&answer[start..at]);
                open = None;
            }
            None | Some(_) => {}
        }
        at += line.len();
    }
    found
}

/// Returns the three or more backticks or tildes that a line begins with, else an empty text.
fn fence_mark(line: &str) -> &str {
    for mark in ['`', '~'] {
        let rest = line.trim_start_matches(mark);
        if line.len() - rest.len() >= 3 {
            return &line[..line.len() - rest.len()];
        }
    }
    ""
}

/// Returns the objects and arrays between prose, the longest first. A value inside another value is not looked at.
fn between_prose(answer: &str) -> impl Iterator<Item = Candidate<'_>> {
    let mut found: Vec<Candidate<'_>> = Vec::new();
    let mut from = 0;
    for _ in 0..MAX_PLACES {
        let Some(start) = answer[from..].find(['{', '[']).map(|offset| from + offset) else { break };
        let mut values = serde_json::Deserializer::from_str(&answer[start..]).into_iter::<Value>();
        from = match values.next() {
            Some(Ok(value)) => {
                let end = start + values.byte_offset();
                found.push(Candidate { text: &answer[start..end], value });
                end
            }
            // The answer itself is broken: a part of it would be another answer.
            Some(Err(_)) | None if begins_json(&answer[start..]) => break,
            Some(Err(_)) | None => start + 1,
        };
    }
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.text.len()));
    found.into_iter()
}

/// Whether a text begins like a JSON object or array, as opposed to brackets in prose.
fn begins_json(text: &str) -> bool {
    let rest = text[1..].trim_start();
    if text.starts_with('{') { rest.starts_with('"') } else { rest.starts_with(['{', '[', '"']) }
}
