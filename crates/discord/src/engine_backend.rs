//! A model of the engine as a backend: a prompt becomes a turn, its events become partials and one result.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use trunkline_core::conversation::Conversation;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::Failure;
use trunkline_core::model::Model;
use trunkline_core::turn::{Message, Role, Surface, Turn};
use trunkline_engine::{Engine, StartError};

use crate::backend::{Ask, Backend, EventResult, Invalid, Partial, Partials};

pub struct EngineBackend {
    engine: Engine,
    model: String,
    /// Beside the model's own limits.
    timeout: Option<Duration>,
}

impl EngineBackend {
    #[must_use]
    pub fn new(engine: Engine, model: impl Into<String>, timeout: Option<Duration>) -> Self {
        Self { engine, model: model.into(), timeout }
    }

    fn known(&self) -> Option<Arc<Model>> {
        let models = self.engine.models();
        models.iter().chain(models.built_in()).find(|model| model.name == self.model).cloned()
    }

    async fn run(&self, ask: Ask<'_>, mut partials: Option<Partials<'_>>) -> EventResult {
        let mut told = |partial: Partial<'_>| {
            if let Some(partials) = &mut partials {
                partials(partial);
            }
        };
        let before = ask.session.cloned();
        let (turn, mut conversation) = self.turn(ask);
        let mut run = match self.engine.start(turn).await {
            Ok(run) => run,
            Err(error) => {
                let session_id = match &error {
                    StartError::Failed { failure, .. } => {
                        conversation.hear(&Event::Failed(failure.clone()));
                        conversation.session().cloned()
                    }
                    // It was not even asked: the conversation is as it was.
                    StartError::UnknownModel { .. }
                    | StartError::Busy { .. }
                    | StartError::Limited { .. }
                    | StartError::Unavailable { .. } => before,
                };
                let told = self.engine.secrets().mask(&refusal(&self.model, error));
                return EventResult { session_id, ..EventResult::error(told) };
            }
        };
        let mut result = EventResult::error("the run ended without an answer");
        while let Some(event) = run.next().await {
            conversation.hear(&event);
            match event {
                Event::Text { delta } => told(Partial::Text(&self.engine.secrets().mask(&delta))),
                Event::ToolStarted { name, input, .. } => told(Partial::Doing(&doing(&name, &input))),
                Event::ToolFinished { .. } => told(Partial::Done),
                Event::Finished(answer) => {
                    let content = self.engine.secrets().mask(&answer.content);
                    let response_text = Some(content).filter(|text| !text.trim().is_empty());
                    result = EventResult { response_text, session_id: None, is_error: false };
                }
                Event::Failed(failure) => {
                    result = EventResult::error(self.engine.secrets().mask(&with_hint(&failure)));
                }
                Event::Started { .. }
                | Event::Thinking { .. }
                | Event::ToolCall { .. }
                | Event::Notice { .. }
                | Event::Unknown { .. }
                | Event::Workspace(_)
                | Event::Attempted(_) => {}
            }
        }
        EventResult { session_id: conversation.session().cloned(), ..result }
    }

    /// The turn, and who keeps in mind under which name it can be gone on with.
    fn turn(&self, ask: Ask<'_>) -> (Turn, Conversation) {
        let mut conversation = match ask.session {
            Some(session) => Conversation::resume(&self.model, SessionId::clone(session)),
            None => Conversation::default(),
        };
        let mut turn = conversation.ask(&self.model, ask.prompt);
        if let Some(last) = turn.messages.last_mut() {
            last.images = ask.images;
        }
        let system = Some(ask.system_prompt).filter(|text| !text.is_empty());
        let before = system.map(|text| Message::new(Role::System, text));
        let before = before.into_iter().chain(ask.history.iter().map(|said| Message::new(said.role, &*said.text)));
        turn.messages.splice(0..0, before);
        turn.surface = Surface::Discord;
        (turn, conversation)
    }
}

impl Backend for EngineBackend {
    fn name(&self) -> &str {
        &self.model
    }

    fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, why: String| Invalid { name: self.model.clone(), path: path.to_owned(), why };
        let Some(model) = self.known() else {
            // A name of the router, or one of the many models of a provider.
            let known = self.engine.models().knows(&self.model);
            return if known { Ok(()) } else { Err(invalid("-", "unknown model; see: trunkline models".to_owned())) };
        };
        match (self.engine.plan(&model), model.backend.program()) {
            (Some(Err(failure)), Some(provider)) => {
                Err(invalid(model.command.as_deref().unwrap_or(&provider.program), with_hint(&failure)))
            }
            _ => Ok(()),
        }
    }

    fn takes_images(&self) -> bool {
        self.known().is_some_and(|model| model.backend.takes_images())
    }

    fn execute<'a>(&'a self, ask: Ask<'a>, partials: Option<Partials<'a>>) -> BoxFuture<'a, EventResult> {
        Box::pin(async move {
            let session = ask.session.cloned();
            let Some(limit) = self.timeout else { return self.run(ask, partials).await };
            // Giving up on the run drops it, which stops it.
            tokio::time::timeout(limit, self.run(ask, partials)).await.unwrap_or_else(|_elapsed| EventResult {
                session_id: session,
                ..EventResult::error(Failure::timed_out().message)
            })
        })
    }
}

fn refusal(model: &str, error: StartError) -> String {
    match error {
        StartError::UnknownModel { near } if near.is_empty() => format!("unknown model {model}"),
        StartError::UnknownModel { near } => format!("unknown model {model}; did you mean {}?", near.join(" or ")),
        StartError::Failed { failure, .. } => with_hint(&failure),
        error @ (StartError::Busy { .. } | StartError::Limited { .. } | StartError::Unavailable { .. }) => {
            error.to_string()
        }
    }
}

fn with_hint(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{failure} ({hint})"),
        None => failure.to_string(),
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_in_a_few_words() {
        for (input, told) in [
            (json!({"command": "cargo test\nand more"}), "Bash: cargo test"),
            (json!({"command": ["ls", "-l"]}), "Bash: ls -l"),
            (json!({"path": "src/`x`.rs"}), "Bash: src/x.rs"),
            (json!({"unknown": 1}), "Bash"),
            (json!(null), "Bash"),
        ] {
            assert_eq!(doing("Bash", &input), told);
        }
    }
}
