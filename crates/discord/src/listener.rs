//! The events of a turn as one hears them who waits for its result: partials on the way, one [`EventResult`] at the end.

use serde_json::Value;
use trunkline_core::conversation::Conversation;
use trunkline_core::event::Event;
use trunkline_core::failure::Failure;
use trunkline_core::secret::Secrets;

use crate::backend::{EventResult, Partial, Partials};

pub(crate) struct Listener<'a> {
    /// Knows under which name the turn can be gone on with.
    conversation: Conversation,
    secrets: &'a Secrets,
    partials: Option<Partials<'a>>,
    result: EventResult,
}

impl<'a> Listener<'a> {
    pub(crate) fn new(conversation: Conversation, secrets: &'a Secrets, partials: Option<Partials<'a>>) -> Self {
        Self { conversation, secrets, partials, result: EventResult::error("the run ended without an answer") }
    }

    pub(crate) fn hear(&mut self, event: Event) {
        self.conversation.hear(&event);
        match event {
            Event::Text { delta } => self.tell(Partial::Text(&self.secrets.mask(&delta))),
            Event::ToolStarted { name, input, .. } => self.tell(Partial::Doing(&doing(&name, &input))),
            Event::ToolFinished { .. } => self.tell(Partial::Done),
            Event::Finished(answer) => {
                let content = self.secrets.mask(&answer.content);
                let response_text = Some(content).filter(|text| !text.trim().is_empty());
                self.result = EventResult { response_text, session_id: None, is_error: false };
            }
            Event::Failed(failure) => self.result = EventResult::error(self.secrets.mask(&told(&failure))),
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => {}
        }
    }

    fn tell(&mut self, partial: Partial<'_>) {
        if let Some(partials) = &mut self.partials {
            partials(partial);
        }
    }

    pub(crate) fn result(self) -> EventResult {
        EventResult { session_id: self.conversation.session().cloned(), ..self.result }
    }
}

/// A failure with what to do about it. Time that has run out has one wording, whichever limit it was.
pub(crate) fn told(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) if failure.message != Failure::timed_out().message => format!("{failure} ({hint})"),
        Some(_) | None => failure.to_string(),
    }
}

/// A tool and what it is given, in a few words.
fn doing(name: &str, input: &Value) -> String {
    const TELLING: [&str; 8] = ["command", "cmd", "file_path", "path", "pattern", "query", "url", "description"];
    let telling = TELLING.iter().find_map(|field| match &input[*field] {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    });
    let telling = telling.unwrap_or_default();
    let line = telling.lines().next().unwrap_or_default();
    let short: String = line.chars().filter(|c| !c.is_control() && *c != '`').take(80).collect();
    if short.is_empty() { name.to_owned() } else { format!("{name}: {short}") }
}

#[cfg(test)]
mod tests;
