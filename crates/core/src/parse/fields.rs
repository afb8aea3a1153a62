//! Well-known fields: finds answers, usage and errors in JSON of any origin.

use crate::event::Usage;
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError};

/// Reads a whole response in one object, by the priority of its fields.
pub(super) fn whole_response(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let reported = error(value);
    let content = content(value);
    if reported.is_none() && content.is_none() {
        return false;
    }
    metadata(value, transcript);
    if let Some(reported) = reported {
        transcript.error = Some(reported);
    } else if let Some(content) = content {
        // The object does not end the turn: the exit status decides whether it succeeded.
        transcript.begin_message(None);
        transcript.text(&content);
    }
    true
}

/// Reads an event that no parser knows, if it contains a piece of the answer or an error.
pub(super) fn stream_fragment(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    if let Some(reported) = error(value) {
        metadata(value, transcript);
        transcript.error = Some(reported);
        return true;
    }
    let kind = value.get("type").and_then(Value::as_str).unwrap_or("content");
    let from_user =
        value.get("role").or_else(|| value.pointer("/message/role")).is_some_and(|role| role.as_str() == Some("user"));
    // Reasoning, tools and logs have a content too: only types that mean an answer are read.
    if !ANSWER_TYPES.contains(&kind) || from_user {
        return false;
    }
    let piece = ["/delta/text", "/delta/content", "/choices/0/delta/content"];
    let piece = piece.iter().find_map(|path| value.pointer(path)?.as_str().map(str::to_owned));
    let Some(content) = piece.or_else(|| value.get("delta")?.as_str().map(str::to_owned)).or_else(|| content(value))
    else {
        return false;
    };
    metadata(value, transcript);
    transcript.text(&content);
    true
}

/// Event types whose text belongs to the answer.
const ANSWER_TYPES: [&str; 14] = [
    "answer",
    "assistant",
    "chunk",
    "completion",
    "content",
    "content_block_delta",
    "content_delta",
    "delta",
    "final",
    "message",
    "output",
    "response",
    "text",
    "text_delta",
];

fn metadata(value: &Value<'_>, transcript: &mut OutputTranscript) {
    let session = ["session_id", "sessionId", "sessionID"].iter().find_map(|name| value.get(name)?.as_str());
    transcript.started(session, value.get("model").and_then(Value::as_str));
    if let Some(usage) = value.get("usage").and_then(usage) {
        transcript.usage = Some(usage);
    }
}

/// Returns the answer of a response: strings first, then lists of blocks, then nested messages.
fn content(value: &Value<'_>) -> Option<String> {
    let direct = ["content", "text", "response", "message", "output", "result"];
    direct
        .iter()
        .find_map(|name| value.get(name)?.as_str().map(str::to_owned))
        .or_else(|| blocks(value.get("content")?))
        .or_else(|| text_of(value.pointer("/choices/0/message/content")?))
        .or_else(|| text_of(value.get("message")?.get("content")?))
        .or_else(|| text_of(value.get("message")?.get("text")?))
}

/// Returns a string, or the joined texts of a list of blocks.
pub(super) fn text_of(value: &Value<'_>) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| blocks(value))
}

/// Returns the joined texts of `[{"text": …}, …]`.
fn blocks(value: &Value<'_>) -> Option<String> {
    let texts: Vec<&str> = value.as_array()?.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    (!texts.is_empty()).then(|| texts.concat())
}

/// Returns the error that an object reports in one of the usual shapes.
pub(super) fn error(value: &Value<'_>) -> Option<ReportedError> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    if let Some(text) = error.as_str() {
        return (!text.is_empty()).then(|| ReportedError { text: text.to_owned(), ..ReportedError::default() });
    }
    let Some(text) = error.get("message").and_then(Value::as_str) else {
        // Without a message, the name of the error or the whole object is the text.
        let text = kind(error).unwrap_or_else(|| error.to_string());
        return error.is_object().then(|| ReportedError {
            text,
            status: status(error),
            kind: kind(error),
            ..ReportedError::default()
        });
    };
    Some(nested_error(text).unwrap_or_else(|| ReportedError {
        text: text.to_owned(),
        status: status(error),
        kind: kind(error),
        ..ReportedError::default()
    }))
}

/// Returns the error of a service whose JSON body is embedded in a message.
pub(super) fn nested_error(text: &str) -> Option<ReportedError> {
    let start = text.find('{')?;
    let end = text.rfind('}')?;
    let value: Value<'_> = serde_json::from_str(text.get(start..=end)?).ok()?;
    let inner = value.get("error").filter(|inner| inner.is_object()).unwrap_or(&value);
    let message = inner.get("message").and_then(Value::as_str)?;
    let (status, kind, family) = (status(inner), kind(inner), family(inner));
    Some(ReportedError { text: message.to_owned(), status, kind, family, ..ReportedError::default() })
}

fn status(error: &Value<'_>) -> Option<u64> {
    ["statusCode", "status_code", "status", "code"]
        .iter()
        .find_map(|name| error.get(name)?.as_u64())
        .filter(|status| (400..600).contains(status))
}

/// Returns the most specific name of an error: its code, else its status, else its type.
fn kind(error: &Value<'_>) -> Option<String> {
    ["code", "status", "type"].iter().find_map(|name| error.get(name)?.as_str()).map(str::to_owned)
}

fn family(error: &Value<'_>) -> Option<String> {
    error.get("type").and_then(Value::as_str).map(str::to_owned)
}

/// Returns token counts with any of the usual names. In the result, cached input is part of the input.
pub(super) fn usage(value: &Value<'_>) -> Option<Usage> {
    let number = |names: &[&str]| names.iter().find_map(|name| value.get(name)?.as_u64());
    let input = number(&["input_tokens", "prompt_tokens", "inputTokens"]);
    let output = number(&["output_tokens", "completion_tokens", "outputTokens"]);
    if input.is_none() && output.is_none() {
        return None;
    }
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    let written = number(&["cache_creation_input_tokens"]);
    let read = number(&["cache_read_input_tokens"]);
    // Anthropic counts cached input separately. If there is a total that adds up without it, it is included already.
    let separate = number(&["total_tokens"]).is_none_or(|total| total != input.saturating_add(output));
    let extra = if separate { written.unwrap_or(0).saturating_add(read.unwrap_or(0)) } else { 0 };
    let cached = read.or_else(|| number(&["cached_input_tokens", "cached"])).unwrap_or(0);
    Some(Usage {
        input_tokens: input.saturating_add(extra),
        output_tokens: output,
        cached_tokens: cached,
        estimated: false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_fields_by_their_priority() {
        for (value, expected) in [
            (json!({"content": "a", "text": "b"}), "a"),
            (json!({"text": "b", "response": "c"}), "b"),
            (json!({"response": "c", "message": "d"}), "c"),
            (json!({"message": "d", "output": "e"}), "d"),
            (json!({"output": "e", "result": "f"}), "e"),
            (json!({"result": "f", "content": [{"type": "text", "text": "g"}]}), "f"),
            (json!({"content": [{"text": "g"}, {"text": "h"}]}), "gh"),
            (json!({"choices": [{"message": {"content": "i"}}]}), "i"),
            (json!({"message": {"content": "j"}}), "j"),
            (json!({"message": {"text": "k"}}), "k"),
        ] {
            assert_eq!(content(&(&value).into()).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(content(&(&json!({"other": 1})).into()), None);
    }

    #[test]
    fn counts_cached_input_once() {
        let tokens = |value: serde_json::Value| {
            usage(&(&value).into()).map(|usage| (usage.input_tokens, usage.output_tokens, usage.cached_tokens))
        };
        assert_eq!(
            tokens(
                json!({"input_tokens": 12, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 4000, "output_tokens": 6})
            ),
            Some((4312, 6, 4000))
        );
        assert_eq!(
            tokens(
                json!({"input_tokens": 1200, "output_tokens": 34, "cache_read_input_tokens": 200, "total_tokens": 1234})
            ),
            Some((1200, 34, 200))
        );
        assert_eq!(tokens(json!({"prompt_tokens": 10, "completion_tokens": 8})), Some((10, 8, 0)));
        assert_eq!(
            tokens(json!({"input_tokens": 1234, "cached_input_tokens": 1000, "output_tokens": 56})),
            Some((1234, 56, 1000))
        );
        assert_eq!(tokens(json!({"total_tokens": 5})), None);
    }

    #[test]
    fn reads_errors_in_the_usual_shapes() {
        let text = |value: serde_json::Value| {
            error(&(&value).into()).map(|reported| (reported.text, reported.status, reported.kind))
        };
        assert_eq!(text(json!({"error": "boom"})), Some(("boom".into(), None, None)));
        assert_eq!(text(json!({"error": ""})), None);
        assert_eq!(text(json!({"error": null})), None);
        assert_eq!(
            text(json!({"error": {"message": "bad key", "code": 401, "type": "x"}})),
            Some(("bad key".into(), Some(401), Some("x".into())))
        );
        assert_eq!(
            text(json!({"error": {"message": r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#}})),
            Some(("too long".into(), None, Some("context_length_exceeded".into())))
        );
    }
}
