//! Codex `exec --json`: threads, turns and items. Descriptions of other CLIs use these events too.
//!
//! Lines are read as untyped values, because `web_search` items contain the key `id` twice.

use std::time::Duration;

use crate::parse::fields::{error, nested_error, text_of, usage};
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError};

/// Stage of an item that an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemStage {
    Started,
    Updated,
    Completed,
}

pub(super) fn read_event(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "thread.started" => {
            transcript.expects_end = true;
            transcript.started(value.get("thread_id").and_then(Value::as_str), None);
        }
        "turn.started" => transcript.expects_end = true,
        "content" => {
            let Some(text) = value.get("content").and_then(text_of) else { return false };
            transcript.text(&text);
        }
        "item.started" => return read_item_of(value, ItemStage::Started, transcript),
        "item.updated" => return read_item_of(value, ItemStage::Updated, transcript),
        "item.completed" => return read_item_of(value, ItemStage::Completed, transcript),
        "error" => {
            // An error with a message is not terminal: each retry prints one.
            if let Some(text) = value.get("message").and_then(Value::as_str) {
                transcript.transient_error = Some(error_from_text(text));
                if text.starts_with("Reconnecting") {
                    transcript.retrying(Duration::ZERO);
                }
                transcript.notice(text);
            } else if let Some(reported) = error(value) {
                transcript.error = Some(reported);
            } else {
                return false;
            }
        }
        "turn.completed" => {
            if let Some(usage) = value.get("usage").and_then(usage) {
                transcript.usage = Some(usage);
            }
            // Codex recovered from any earlier error.
            transcript.error = None;
            transcript.completed = true;
        }
        "turn.failed" => {
            let text = value.pointer("/error/message").or_else(|| value.get("error")).or_else(|| value.get("message"));
            let text = text.and_then(Value::as_str).unwrap_or("the turn failed without a message");
            transcript.error = Some(error_from_text(text));
        }
        _ => return false,
    }
    true
}

/// Creates an error from its text. If the text is the JSON body of a service, its message is taken.
pub(super) fn error_from_text(text: &str) -> ReportedError {
    let whole_body = text.trim_start().starts_with('{');
    whole_body
        .then(|| nested_error(text))
        .flatten()
        .unwrap_or_else(|| ReportedError { text: text.to_owned(), ..ReportedError::default() })
}

fn read_item_of(event: &Value<'_>, stage: ItemStage, transcript: &mut OutputTranscript) -> bool {
    let Some(item) = event.get("item") else { return false };
    read_item(stage, item, transcript);
    true
}

pub(super) fn read_item(stage: ItemStage, item: &Value<'_>, transcript: &mut OutputTranscript) {
    let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    let done = stage == ItemStage::Completed;
    let kind = if field("type").is_empty() { field("item_type") } else { field("type") };
    match kind {
        "agent_message" | "assistant_message" | "" if done => {
            let text =
                item.get("text").and_then(Value::as_str).or_else(|| item.get("agent_message")?.get("text")?.as_str());
            if let Some(text) = text {
                transcript.begin_message(None);
                transcript.text(text);
            }
        }
        "agent_message" | "assistant_message" | "" => {}
        "reasoning" if done => transcript.thinking(field("text")),
        "reasoning" => {}
        "context_compaction" | "contextCompaction" => transcript.compacting(!done),
        // A warning, for example about an unknown model, an ignored setting or another transport.
        "error" => transcript.notice(field("message")),
        "todo_list" => transcript.notice(todo(item)),
        _ if stage == ItemStage::Started => transcript.tool_started(field("id"), tool_name(item), tool_input(item)),
        _ if done => finish_tool(item, transcript),
        _ => {}
    }
}

fn finish_tool(item: &Value<'_>, transcript: &mut OutputTranscript) {
    let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
    let status = item.get("status").and_then(Value::as_str).unwrap_or("completed");
    let error = item.get("error").and_then(|error| error.get("message")).and_then(Value::as_str);
    let output = item
        .get("aggregated_output")
        .and_then(text_of)
        .or_else(|| item.get("result")?.get("content").and_then(text_of))
        .or_else(|| error.map(str::to_owned))
        .unwrap_or_default();
    transcript.tool_finished(id, &output, status == "completed" && error.is_none());
}

fn tool_name<'v>(item: &'v Value<'_>) -> &'v str {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match field("type") {
        Some("mcp_tool_call" | "collab_tool_call") => field("tool").unwrap_or("tool"),
        Some(kind) => kind,
        None => "tool",
    }
}

fn tool_input(item: &Value<'_>) -> serde_json::Value {
    ["command", "changes", "arguments", "query", "prompt"]
        .iter()
        .find_map(|name| item.get(name).map(|value| serde_json::json!({ *name: value.to_owned() })))
        .unwrap_or_default()
}

fn todo(item: &Value<'_>) -> String {
    let entries = item.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let line = |entry: &Value<'_>| {
        let done = entry.get("completed").and_then(Value::as_bool).unwrap_or(false);
        format!(
            "{} {}",
            if done { "[x]" } else { "[ ]" },
            entry.get("text").and_then(Value::as_str).unwrap_or_default()
        )
    };
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}
