//! Codex `app-server`: the threads, turns and items of `exec --json` as notifications, with the deltas that it leaves
//! out. Items are put into the other form's words, so that both give the same events.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::failure::Category;
use crate::parse::codex::{self, ItemStage};
use crate::parse::fields::usage;
use crate::parse::transcript::{OutputTranscript, ReportedError, TextOwner};

/// The most items that are remembered for having been thought aloud.
const MANY: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct AppServerParser {
    /// Pieces of reasoning that were shown as they came: the whole adds nothing.
    thought: HashSet<String>,
}

impl AppServerParser {
    pub(super) fn value(&mut self, value: &Value, transcript: &mut OutputTranscript) -> bool {
        if value.get("jsonrpc").is_some() || value.get("type").is_some() {
            return false;
        }
        if let Some(error) = value.get("error").filter(|error| value.get("id").is_some() && error.is_object()) {
            transcript.expects_end = true;
            let text = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
            transcript.fault = Some(codex::fault(text));
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
                if self.thought.len() < MANY {
                    self.thought.insert(field("itemId").to_owned());
                }
                transcript.thinking(field("delta"));
            }
            "item/started" => self.item(ItemStage::Started, params.get("item").unwrap_or(&Value::Null), transcript),
            "item/completed" => self.item(ItemStage::Completed, params.get("item").unwrap_or(&Value::Null), transcript),
            "turn/plan/updated" => {
                let steps = params.get("plan").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let step = |step: &Value| {
                    let done = step.get("status").and_then(Value::as_str) == Some("completed");
                    json!({"text": step.get("step"), "completed": done})
                };
                let items: Vec<Value> = steps.iter().map(step).collect();
                codex::read_item(ItemStage::Updated, &json!({"type": "todo_list", "items": items}), transcript);
            }
            "thread/tokenUsage/updated" => {
                if let Some(total) = params.pointer("/tokenUsage/total").map(snake_case).as_ref().and_then(usage) {
                    transcript.usage = Some(total);
                }
            }
            "warning" => transcript.notice(field("message")),
            "error" => trouble(params, transcript),
            "turn/completed" => end(params.get("turn").unwrap_or(&Value::Null), transcript),
            _ => {}
        }
        true
    }

    fn item(&self, stage: ItemStage, item: &Value, transcript: &mut OutputTranscript) {
        let item = snake_case(item);
        let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        match field("type") {
            "user_message" | "hook_prompt" | "context_compaction" => {}
            "agent_message" if stage == ItemStage::Completed => {
                transcript.whole(TextOwner::Message(Some(field("id"))), field("text"));
            }
            "reasoning" if stage == ItemStage::Completed && !self.thought.contains(field("id")) => {
                for part in item.get("summary").and_then(Value::as_array).into_iter().flatten() {
                    transcript.thinking(part.as_str().unwrap_or_default());
                }
            }
            "agent_message" | "reasoning" => {}
            _ => codex::read_item(stage, &item, transcript),
        }
    }
}

/// An error that it may get over; the last one comes again as the turn's.
fn trouble(params: &Value, transcript: &mut OutputTranscript) {
    let error = params.get("error").unwrap_or(&Value::Null);
    let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let fault = fault(error);
    if params.get("willRetry").and_then(Value::as_bool) == Some(true) {
        transcript.retries += 1;
        transcript.notice(text);
    }
    let details = error.get("additionalDetails").and_then(Value::as_str);
    transcript.transient = Some(ReportedError { text: details.unwrap_or(&fault.text).to_owned(), ..fault });
}

fn end(turn: &Value, transcript: &mut OutputTranscript) {
    let error = turn.get("error").filter(|error| error.is_object());
    match turn.get("status").and_then(Value::as_str).unwrap_or_default() {
        "interrupted" => {
            let text = "the turn was interrupted".to_owned();
            transcript.fault =
                Some(ReportedError { text, category: Some(Category::Cancelled), ..ReportedError::default() });
        }
        "failed" => transcript.fault = Some(error.map_or_else(unexplained, fault)),
        _ => {
            transcript.fault = None;
            transcript.completed = true;
        }
    }
}

fn unexplained() -> ReportedError {
    ReportedError { text: "the turn failed without a message".to_owned(), ..ReportedError::default() }
}

fn fault(error: &Value) -> ReportedError {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("the turn failed without a message");
    let info = error.get("codexErrorInfo");
    let status = info.and_then(Value::as_object).and_then(|info| info.values().next());
    let status = status.and_then(|info| info.get("httpStatusCode")).and_then(Value::as_u64);
    let fault = codex::fault(text);
    ReportedError { status: fault.status.or(status), ..fault }
}

/// The names of an object's members, and its type, as the other form writes them.
fn snake_case(item: &Value) -> Value {
    let Some(members) = item.as_object() else { return item.clone() };
    let renamed: Map<String, Value> = members
        .iter()
        .map(|(name, value)| match (name.as_str(), value.as_str()) {
            ("type" | "status", Some(word)) => (name.clone(), snake(word).into()),
            _ => (snake(name), value.clone()),
        })
        .collect();
    Value::Object(renamed)
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
