//! Converts the events of a turn to partials and one [`EventResult`] at the end.

use serde_json::Value;
use trunkline_core::conversation::Conversation;
use trunkline_core::event::Event;
use trunkline_core::failure::Failure;
use trunkline_core::secret::Secrets;

use crate::backend::{EventResult, Partial, Partials};

/// Receives the events of a turn.
pub(crate) struct Listener<'a> {
    /// Tracks the session of the turn.
    conversation: Conversation,
    secrets: &'a Secrets,
    partials: Option<Partials<'a>>,
    result: EventResult,
}

impl<'a> Listener<'a> {
    pub(crate) fn new(conversation: Conversation, secrets: &'a Secrets, partials: Option<Partials<'a>>) -> Self {
        Self { conversation, secrets, partials, result: EventResult::error("the run ended without an answer") }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.conversation.hear(&event);
        match event {
            Event::Text { delta } => self.report(Partial::Text(&self.secrets.mask(&delta))),
            Event::ToolStarted { name, input, .. } => self.report(Partial::ToolStarted(&tool_summary(&name, &input))),
            Event::ToolFinished { .. } => self.report(Partial::ToolFinished),
            Event::Finished(answer) => {
                let content = self.secrets.mask(&answer.content);
                let response_text = Some(content).filter(|text| !text.trim().is_empty());
                self.result = EventResult { response_text, session_id: None, is_error: false };
            }
            Event::Failed(failure) => self.result = EventResult::error(self.secrets.mask(&failure_text(&failure))),
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => {}
        }
    }

    fn report(&mut self, partial: Partial<'_>) {
        if let Some(partials) = &mut self.partials {
            partials(partial);
        }
    }

    pub(crate) fn result(self) -> EventResult {
        EventResult { session_id: self.conversation.session().cloned(), ..self.result }
    }
}

/// Text of a failure with its hint. A timeout has the same text for every limit.
pub(crate) fn failure_text(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) if failure.message != Failure::timed_out().message => format!("{failure} ({hint})"),
        Some(_) | None => failure.to_string(),
    }
}

/// Name of a tool and a short form of its input.
fn tool_summary(name: &str, input: &Value) -> String {
    const SUMMARY_FIELDS: [&str; 8] = ["command", "cmd", "file_path", "path", "pattern", "query", "url", "description"];
    let value = SUMMARY_FIELDS.iter().find_map(|field| match &input[*field] {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    });
    let value = value.unwrap_or_default();
    let line = value.lines().next().unwrap_or_default();
    let short: String = line.chars().filter(|c| !c.is_control() && *c != '`').take(80).collect();
    if short.is_empty() { name.to_owned() } else { format!("{name}: {short}") }
}

#[cfg(test)]
mod tests;
