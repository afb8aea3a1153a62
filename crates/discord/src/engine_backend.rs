//! A backend that runs a model of the engine: a prompt becomes a turn, and its events become partials and one result.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use trunkline_core::conversation::Conversation;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::Failure;
use trunkline_core::model::Model;
use trunkline_core::turn::{AnswerTiming, Message, Role, Surface, Turn};
use trunkline_core::vocabulary::OutputForm;
use trunkline_engine::{Engine, StartError};

use crate::backend::{BackendRequest, ChatBackend, EventResult, InvalidBackend, Partials};
use crate::listener::{Listener, failure_text};

/// A model of the engine as a backend.
pub struct EngineBackend {
    engine: Engine,
    model: String,
    /// Time limit in addition to the model's own limits.
    timeout: Option<Duration>,
}

impl EngineBackend {
    #[must_use]
    pub fn new(engine: Engine, model: impl Into<String>, timeout: Option<Duration>) -> Self {
        Self { engine, model: model.into(), timeout }
    }

    fn configured_model(&self) -> Option<Arc<Model>> {
        let models = self.engine.models();
        models.iter().chain(models.built_in()).find(|model| model.name == self.model).cloned()
    }

    async fn run<'a>(&'a self, request: BackendRequest<'_>, partials: Option<Partials<'a>>) -> EventResult {
        let before = request.session.cloned();
        let (mut turn, mut conversation) = self.turn(request);
        if partials.is_none() {
            (turn.shown, turn.form) = (AnswerTiming::AtTheEnd, OutputForm::Whole);
        }
        let mut run = match self.engine.start(turn).await {
            Ok(run) => run,
            Err(error) => {
                let session_id = match &error {
                    StartError::Failed { failure, .. } => {
                        conversation.hear(&Event::Failed(failure.clone()));
                        conversation.session().cloned()
                    }
                    // The model was not called: the session is unchanged.
                    StartError::UnknownModel { .. }
                    | StartError::InvalidMember { .. }
                    | StartError::Busy { .. }
                    | StartError::Limited { .. }
                    | StartError::Unavailable { .. }
                    | StartError::Storage { .. } => before,
                };
                let reason = self.engine.secrets().mask(&refusal(&self.model, error));
                return EventResult { session_id, ..EventResult::error(reason) };
            }
        };
        let mut listener = Listener::new(conversation, self.engine.secrets(), partials);
        while let Some(event) = run.next().await {
            listener.handle(event);
        }
        listener.result()
    }

    /// The turn, and the conversation that tracks its session.
    fn turn(&self, request: BackendRequest<'_>) -> (Turn, Conversation) {
        let mut conversation = match request.session {
            Some(session) => Conversation::resume(&self.model, SessionId::clone(session)),
            None => Conversation::default(),
        };
        let mut turn = conversation.ask(&self.model, request.prompt);
        if let Some(last) = turn.messages.last_mut() {
            last.images = request.images;
        }
        let system = Some(request.system_prompt).filter(|text| !text.is_empty());
        let before = system.map(|text| Message::new(Role::System, text));
        let before =
            before.into_iter().chain(request.history.iter().map(|message| Message::new(message.role, &*message.text)));
        turn.messages.splice(0..0, before);
        turn.surface = Surface::Discord;
        (turn, conversation)
    }
}

impl ChatBackend for EngineBackend {
    fn name(&self) -> &str {
        &self.model
    }

    fn validate(&self) -> Result<(), InvalidBackend> {
        let invalid = |path: &str, why: String| InvalidBackend { name: self.model.clone(), path: path.to_owned(), why };
        let Some(model) = self.configured_model() else {
            // The name may be that of a router, or of a model that a provider lists.
            let is_routed = self.engine.models().knows(&self.model);
            return if is_routed {
                Ok(())
            } else {
                Err(invalid("-", "unknown model; see: trunkline models".to_owned()))
            };
        };
        match (self.engine.plan(&model), model.backend.program()) {
            (Some(Err(failure)), Some(provider)) => {
                Err(invalid(model.command.as_deref().unwrap_or(&provider.program), failure_text(&failure)))
            }
            _ => Ok(()),
        }
    }

    fn takes_images(&self) -> bool {
        self.configured_model().is_some_and(|model| model.backend.takes_images())
    }

    fn execute<'a>(
        &'a self,
        request: BackendRequest<'a>,
        partials: Option<Partials<'a>>,
    ) -> BoxFuture<'a, EventResult> {
        Box::pin(async move {
            let session = request.session.cloned();
            let Some(limit) = self.timeout else { return self.run(request, partials).await };
            // The timeout drops the run, which stops it.
            tokio::time::timeout(limit, self.run(request, partials)).await.unwrap_or_else(|_elapsed| EventResult {
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
        StartError::Failed { failure, .. } => failure_text(&failure),
        error @ (StartError::InvalidMember { .. }
        | StartError::Busy { .. }
        | StartError::Limited { .. }
        | StartError::Unavailable { .. }
        | StartError::Storage { .. }) => error.to_string(),
    }
}
