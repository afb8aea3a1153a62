//! A model of the engine as a backend: a prompt becomes a turn, its events become partials and one result.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use trunkline_core::conversation::Conversation;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::Failure;
use trunkline_core::model::Model;
use trunkline_core::provider::Form;
use trunkline_core::turn::{Message, Role, Shown, Surface, Turn};
use trunkline_engine::{Engine, StartError};

use crate::backend::{Ask, Backend, EventResult, Invalid, Partials};
use crate::listener::{Listener, told};

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

    async fn run<'a>(&'a self, ask: Ask<'_>, partials: Option<Partials<'a>>) -> EventResult {
        let before = ask.session.cloned();
        let (mut turn, mut conversation) = self.turn(ask);
        if partials.is_none() {
            (turn.shown, turn.form) = (Shown::AtTheEnd, Form::Whole);
        }
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
                    | StartError::Unavailable { .. }
                    | StartError::Storage { .. } => before,
                };
                let why = self.engine.secrets().mask(&refusal(&self.model, error));
                return EventResult { session_id, ..EventResult::error(why) };
            }
        };
        let mut listener = Listener::new(conversation, self.engine.secrets(), partials);
        while let Some(event) = run.next().await {
            listener.hear(event);
        }
        listener.result()
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
                Err(invalid(model.command.as_deref().unwrap_or(&provider.program), told(&failure)))
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
        StartError::UnknownModel { cli: Some(cli), .. } => format!("unknown model {model}: {}", cli.why),
        StartError::UnknownModel { near, .. } if near.is_empty() => format!("unknown model {model}"),
        StartError::UnknownModel { near, .. } => {
            format!("unknown model {model}; did you mean {}?", near.join(" or "))
        }
        StartError::Failed { failure, .. } => told(&failure),
        error @ (StartError::Busy { .. }
        | StartError::Limited { .. }
        | StartError::Unavailable { .. }
        | StartError::Storage { .. }) => error.to_string(),
    }
}
