//! ax-glm and ax-grok: one line for each message with a `role`, or all messages in one object. There are no deltas and no
//! token counts.

use crate::parse::fields::text_of;
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError};

/// Beginning of an answer that is an error, although the exit status is 0.
const APOLOGY: &str = "Sorry, I encountered an error:";

/// Reads `{"error": …, "timestamp": …}`, which only these CLIs print.
pub(super) fn error(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let ours = value.get("timestamp").is_some() && value.get("type").is_none();
    let Some(reported) = super::fields::error(value).filter(|_| ours) else { return false };
    transcript.error = Some(reported);
    true
}

/// Reads one message, or all messages in one object.
pub(super) fn message(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    if let Some(messages) = value.get("messages").and_then(Value::as_array) {
        transcript.started(None, value.get("model").and_then(Value::as_str));
        messages.iter().filter(|message| read_message(message, transcript)).count() > 0
    } else {
        value.get("type").is_none() && read_message(value, transcript)
    }
}

fn read_message(message: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let text = message.get("content").and_then(text_of).unwrap_or_default();
    match message.get("role").and_then(Value::as_str) {
        Some("assistant") => read_assistant(message, &text, transcript),
        Some("tool") => {
            let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            transcript.tool_finished(id, &text, true);
            transcript.stopped = false;
        }
        Some("user") => transcript.echo(&text),
        Some("system" | "developer") => {}
        Some(_) | None => return false,
    }
    true
}

fn read_assistant(message: &Value<'_>, text: &str, transcript: &mut OutputTranscript) {
    // The turn ends with an assistant message that calls no more tools.
    transcript.expects_end = true;
    transcript.stopped = message.get("tool_calls").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if let Some(error) = text.trim_start().strip_prefix(APOLOGY) {
        let error = error.trim();
        transcript.error =
            Some(ReportedError { text: error.to_owned(), status: status(error), ..ReportedError::default() });
        return;
    }
    if text.starts_with("Error: ") {
        // An error only if the exit status is not 0.
        transcript.begin_message(None);
        transcript.withhold(text);
    } else if !text.is_empty() {
        transcript.begin_message(None);
        transcript.text(text);
    }
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        let field = |name: &str| call.get(name).and_then(Value::as_str).unwrap_or_default();
        let function = call.get("function");
        let name = function.and_then(|function| function.get("name")).and_then(Value::as_str).unwrap_or("tool");
        let arguments = function.and_then(|function| function.get("arguments")).and_then(Value::as_str).unwrap_or("{}");
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
        transcript.tool_started(field("id"), name, input);
    }
}

/// Returns the status in `LLM API error (model: glm-4.7): 401 …`.
fn status(error: &str) -> Option<u64> {
    let (_, text) = error.strip_prefix("LLM API error (model: ")?.split_once("): ")?;
    text.split(' ').next()?.parse().ok().filter(|status| (400..600).contains(status))
}
