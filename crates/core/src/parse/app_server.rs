//! Codex `app-server`: the threads, turns and items of `exec --json` as notifications, with deltas in addition. Items are
//! converted to the form of `exec --json`, so that both give the same events.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::failure::Category;
use crate::parse::codex::{self, ItemStage};
use crate::parse::fields::usage;
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError, TextOwner};

/// Maximum number of reasoning items whose ids are kept.
const MAX_REASONING_ITEMS: usize = 4096;

/// Parser of the app-server's notifications.
#[derive(Debug, Default)]
pub(super) struct AppServerParser {
    /// Ids of reasoning items that came in deltas: the complete item adds nothing.
    streamed_reasoning: HashSet<String>,
}

impl AppServerParser {
    pub(super) fn read_event<'v>(&mut self, value: &Value<'v>, transcript: &mut OutputTranscript) -> bool {
        if value.get("jsonrpc").is_some() || value.get("type").is_some() {
            return false;
        }
        if let Some(error) = value.get("error").filter(|error| value.get("id").is_some() && error.is_object()) {
            transcript.expects_end = true;
            let text = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
            transcript.error = Some(codex::error_from_text(text));
            return true;
        }
        let Some(method) = value.get("method").and_then(Value::as_str) else { return false };
        transcript.expects_end = true;
        let params = value.get("params").unwrap_or(&Value::Null);
        let field = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        transcript.started(params.get("threadId").and_then(Value::as_str), None);
        match method {
            "item/agentMessage/delta" => {
                transcript.begin_message(Some(field("itemId")));
                transcript.text(field("delta"));
            }
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                if self.streamed_reasoning.len() < MAX_REASONING_ITEMS {
                    self.streamed_reasoning.insert(field("itemId").to_owned());
                }
                transcript.thinking(field("delta"));
            }
            "item/started" => {
                self.read_item(ItemStage::Started, params.get("item").unwrap_or(&Value::Null), transcript)
            }
            "item/completed" => {
                self.read_item(ItemStage::Completed, params.get("item").unwrap_or(&Value::Null), transcript)
            }
            "turn/plan/updated" => {
                let steps = params.get("plan").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let step = |step: &Value<'v>| {
                    let done = step.get("status").and_then(Value::as_str) == Some("completed");
                    let text = step.get("step").cloned().unwrap_or(Value::Null);
                    object([("text", text), ("completed", Value::Bool(done))])
                };
                let items = Value::Array(steps.iter().map(step).collect());
                let kind = Value::String(Cow::Borrowed("todo_list"));
                codex::read_item(ItemStage::Updated, &object([("type", kind), ("items", items)]), transcript);
            }
            "thread/tokenUsage/updated" => {
                if let Some(total) = params.pointer("/tokenUsage/total").map(snake_case).as_ref().and_then(usage) {
                    transcript.usage = Some(total);
                }
            }
            "warning" => transcript.notice(field("message")),
            "error" => read_transient_error(params, transcript),
            "turn/completed" => read_end(params.get("turn").unwrap_or(&Value::Null), transcript),
            _ => {}
        }
        true
    }

    fn read_item(&self, stage: ItemStage, item: &Value<'_>, transcript: &mut OutputTranscript) {
        let item = snake_case(item);
        let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        match field("type") {
            "user_message" | "hook_prompt" | "context_compaction" => {}
            "agent_message" if stage == ItemStage::Completed => {
                transcript.complete_block(TextOwner::Message(Some(field("id"))), field("text"));
            }
            "reasoning" if stage == ItemStage::Completed && !self.streamed_reasoning.contains(field("id")) => {
                for part in item.get("summary").and_then(Value::as_array).into_iter().flatten() {
                    transcript.thinking(part.as_str().unwrap_or_default());
                }
            }
            "agent_message" | "reasoning" => {}
            _ => codex::read_item(stage, &item, transcript),
        }
    }
}

/// Reads an error that Codex may recover from. If it does not, the error comes again with the end of the turn.
fn read_transient_error(params: &Value<'_>, transcript: &mut OutputTranscript) {
    let error = params.get("error").unwrap_or(&Value::Null);
    let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let reported = turn_error(error);
    if params.get("willRetry").and_then(Value::as_bool) == Some(true) {
        transcript.retries += 1;
        transcript.notice(text);
    }
    let details = error.get("additionalDetails").and_then(Value::as_str);
    transcript.transient_error = Some(ReportedError { text: details.unwrap_or(&reported.text).to_owned(), ..reported });
}

fn read_end(turn: &Value<'_>, transcript: &mut OutputTranscript) {
    let error = turn.get("error").filter(|error| error.is_object());
    match turn.get("status").and_then(Value::as_str).unwrap_or_default() {
        "interrupted" => {
            let text = "the turn was interrupted".to_owned();
            transcript.error =
                Some(ReportedError { text, category: Some(Category::Cancelled), ..ReportedError::default() });
        }
        "failed" => transcript.error = Some(error.map_or_else(error_without_message, turn_error)),
        _ => {
            transcript.error = None;
            transcript.completed = true;
        }
    }
}

fn error_without_message() -> ReportedError {
    ReportedError { text: "the turn failed without a message".to_owned(), ..ReportedError::default() }
}

fn turn_error(error: &Value<'_>) -> ReportedError {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("the turn failed without a message");
    let info = error.get("codexErrorInfo");
    let status = info.and_then(Value::as_object).and_then(|info| info.first()).map(|(_, info)| info);
    let status = status.and_then(|info| info.get("httpStatusCode")).and_then(Value::as_u64);
    let reported = codex::error_from_text(text);
    ReportedError { status: reported.status.or(status), ..reported }
}

/// Converts the names of an object's members, its type and its status to snake case.
fn snake_case<'v>(item: &Value<'v>) -> Value<'v> {
    let Some(members) = item.as_object() else { return item.clone() };
    let renamed = members.iter().map(|(name, value)| match (&**name, value.as_str()) {
        ("type" | "status", Some(word)) => (name.clone(), Value::String(Cow::Owned(snake(word)))),
        _ => (Cow::Owned(snake(name)), value.clone()),
    });
    Value::Object(renamed.collect())
}

fn object<'v, const N: usize>(members: [(&'v str, Value<'v>); N]) -> Value<'v> {
    Value::Object(members.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect())
}

fn snake(word: &str) -> String {
    let mut snake = String::with_capacity(word.len() + 4);
    for c in word.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
