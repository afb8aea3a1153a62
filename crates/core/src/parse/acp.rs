//! The Agent Client Protocol, which Gemini CLI, Qwen Code and OpenCode speak when a process is kept: JSON-RPC, with the
//! agent's steps as `session/update` notifications and the end of a turn as the answer to `session/prompt`.

use serde_json::Value;

use crate::event::Usage;
use crate::failure::Category;
use crate::parse::fields::{nested, text_of, usage};
use crate::parse::transcript::{Fault, Transcript};

/// How Gemini CLI reports a change of mode, as if it were the agent's text.
const MODE_UPDATE: &str = "[MODE_UPDATE]";

pub(super) fn value(value: &Value, transcript: &mut Transcript) -> bool {
    if value.get("jsonrpc").is_none() {
        return false;
    }
    transcript.expects_end = true;
    let method = value.get("method").and_then(Value::as_str).unwrap_or_default();
    if let Some(error) = value.get("error") {
        transcript.fault = Some(fault(error));
    } else if let Some(result) = value.get("result") {
        read_result(result, transcript);
    } else if method == "session/update" {
        let params = value.get("params").unwrap_or(&Value::Null);
        transcript.started(params.get("sessionId").and_then(Value::as_str), None);
        read_update(params.get("update").unwrap_or(&Value::Null), transcript);
    } else if method == "session/request_permission" {
        let title = value.pointer("/params/toolCall/title").and_then(Value::as_str).unwrap_or("a tool");
        transcript.notice(format!("asks for permission: {title}"));
        transcript.begin_message(None);
    }
    true
}

fn read_update(update: &Value, transcript: &mut Transcript) {
    let field = |name: &str| update.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = || update.pointer("/content/text").and_then(Value::as_str).unwrap_or_default();
    if let Some(call) = update.pointer("/_meta/usage").and_then(usage) {
        // Qwen counts each call of the model by itself.
        let sum = transcript.usage.get_or_insert_default();
        sum.input_tokens = sum.input_tokens.saturating_add(call.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(call.output_tokens);
    }
    match field("sessionUpdate") {
        "agent_message_chunk" if !text().starts_with(MODE_UPDATE) => {
            transcript.completed = false;
            transcript.text(text());
        }
        "agent_thought_chunk" => transcript.thinking(text()),
        "user_message_chunk" => transcript.echo(text()),
        "tool_call" => {
            let input = update.get("rawInput").cloned().unwrap_or(Value::Null);
            transcript.tool_started(field("toolCallId"), field("title"), input);
        }
        "tool_call_update" if matches!(field("status"), "completed" | "failed") => {
            let output: Vec<String> = update
                .get("content")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|part| part.get("content")?.get("text").and_then(text_of))
                .collect();
            transcript.tool_finished(field("toolCallId"), &output.concat(), field("status") == "completed");
            transcript.begin_message(None);
        }
        _ => {}
    }
}

fn read_result(result: &Value, transcript: &mut Transcript) {
    transcript.started(result.get("sessionId").and_then(Value::as_str), None);
    let Some(reason) = result.get("stopReason").and_then(Value::as_str) else { return };
    if let Some(counted) = result.pointer("/_meta/quota/token_count").and_then(usage) {
        transcript.usage = Some(counted);
    } else if let Some(last) = result.get("usage").and_then(usage) {
        // OpenCode counts the last call of the model alone; where a tool was used, there were others.
        transcript.usage = Some(Usage { estimated: transcript.used_tools(), ..last });
    }
    let failed = |text: &str, category| Fault { text: text.to_owned(), category: Some(category), ..Fault::default() };
    transcript.fault = match reason {
        "cancelled" => Some(failed("the turn was cancelled", Category::Cancelled)),
        "refusal" => Some(failed("the model refused", Category::Validation)),
        _ => None,
    };
    transcript.completed = transcript.fault.is_none();
    transcript.begin_message(None);
}

/// Gemini's code is the HTTP status, and its message may be the service's whole answer.
fn fault(error: &Value) -> Fault {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
    let details = error.pointer("/data/details").or_else(|| error.get("data")).and_then(Value::as_str);
    let status = error.get("code").and_then(Value::as_u64).filter(|code| (400..600).contains(code));
    let inner = nested(text);
    let text = match (&inner, details) {
        (Some(inner), _) => inner.text.clone(),
        (None, Some(details)) if text == "Internal error" => details.to_owned(),
        (None, _) => text.to_owned(),
    };
    Fault {
        status: status.or_else(|| inner.as_ref()?.status),
        kind: inner.and_then(|inner| inner.kind).or_else(|| details.map(str::to_owned)),
        text,
        ..Fault::default()
    }
}
