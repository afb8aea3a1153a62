//! Gemini CLI: `init`, `message`, `tool_use`, `tool_result`, `error` and `result`, or one object with the whole response.

use crate::event::Usage;
use crate::parse::fields::{error, nested_error, text_of, usage};
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError, TextOwner};

pub(super) fn read_event(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    match field("type") {
        "init" => {
            transcript.expects_end = true;
            transcript
                .started(value.get("session_id").and_then(Value::as_str), value.get("model").and_then(Value::as_str));
        }
        "message" => read_message(value, transcript),
        "tool_use" => {
            let input = value.get("parameters").map(Value::to_owned).unwrap_or_default();
            transcript.tool_started(field("tool_id"), field("tool_name"), input);
        }
        "tool_result" => {
            let error = value.get("error").and_then(|error| error.get("message")).and_then(Value::as_str);
            let output = value.get("output").and_then(text_of).or_else(|| error.map(str::to_owned)).unwrap_or_default();
            transcript.tool_finished(field("tool_id"), &output, field("status") == "success");
            // The answer is the text after the last tool.
            transcript.begin_message(None);
        }
        "error" if value.get("severity").is_some() => {
            let text = field("message");
            if field("severity") == "error" {
                transcript.transient_error = Some(ReportedError { text: text.to_owned(), ..ReportedError::default() });
            }
            transcript.notice(text);
        }
        "result" if value.get("status").is_some() => read_result(value, transcript),
        "" => return read_whole(value, transcript),
        _ => return false,
    }
    transcript.note_time(value);
    true
}

fn read_message(value: &Value<'_>, transcript: &mut OutputTranscript) {
    let text = value.get("content").and_then(text_of).unwrap_or_default();
    match value.get("role").and_then(Value::as_str) {
        Some("user") => transcript.echo(&text),
        Some("assistant" | "model") => {
            if value.get("delta").and_then(Value::as_bool) == Some(true) {
                transcript.text(&text);
            } else {
                transcript.complete_block(TextOwner::Message(None), &text);
            }
            if let Some(usage) = value.get("usage").and_then(usage) {
                transcript.usage = Some(usage);
            }
        }
        Some(_) | None => {}
    }
}

fn read_result(value: &Value<'_>, transcript: &mut OutputTranscript) {
    if let Some(usage) = value.get("stats").and_then(with_thoughts) {
        transcript.usage = Some(usage);
    }
    if value.get("status").and_then(Value::as_str) == Some("success") {
        transcript.completed = true;
        return;
    }
    let reported = value.get("error").and_then(|_| error_of(value));
    transcript.error = reported.or_else(|| transcript.transient_error.take()).or_else(|| {
        Some(ReportedError {
            text: "gemini reported an error without a message".to_owned(),
            ..ReportedError::default()
        })
    });
}

/// Reads the object of `-o json`: `{session_id, response, stats}` or `{session_id, error}`.
fn read_whole(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let response = value.get("response").and_then(Value::as_str);
    let reported = error_of(value);
    let ours = value.get("session_id").is_some() || value.get("stats").is_some();
    if !ours || (response.is_none() && reported.is_none()) {
        return false;
    }
    transcript.started(value.get("session_id").and_then(Value::as_str), None);
    if let Some(usage) = value.get("stats").and_then(|stats| stats.get("models")).and_then(sum_of_models) {
        transcript.usage = Some(usage);
    }
    if let Some(response) = response.filter(|text| !text.is_empty() || reported.is_none()) {
        transcript.begin_message(None);
        transcript.text(response);
    }
    transcript.completed = reported.is_none();
    transcript.error = reported;
    true
}

fn error_of(value: &Value<'_>) -> Option<ReportedError> {
    let reported = error(value)?;
    Some(match nested_error(&reported.text) {
        Some(inner) => ReportedError { status: inner.status.or(reported.status), ..inner },
        None => reported,
    })
}

/// Returns the tokens at the end of a stream. Reasoning is output, but only the total includes it there.
fn with_thoughts(stats: &Value<'_>) -> Option<Usage> {
    let counted = usage(stats)?;
    let total = stats.get("total_tokens").and_then(Value::as_u64).unwrap_or(0);
    let output_tokens = counted.output_tokens.max(total.saturating_sub(counted.input_tokens));
    Some(Usage { output_tokens, ..counted })
}

fn sum_of_models(models: &Value<'_>) -> Option<Usage> {
    let mut sum = Usage::default();
    for (_, model) in models.as_object()? {
        let tokens =
            |name: &str| model.get("tokens").and_then(|tokens| tokens.get(name)).and_then(Value::as_u64).unwrap_or(0);
        sum.input_tokens = sum.input_tokens.saturating_add(tokens("prompt"));
        sum.output_tokens = sum.output_tokens.saturating_add(tokens("candidates")).saturating_add(tokens("thoughts"));
        sum.cached_tokens = sum.cached_tokens.saturating_add(tokens("cached"));
    }
    Some(sum)
}
