//! Ollama's API: `POST /api/chat` and `POST /api/generate`, and the routes by which its clients learn about models.
//!
//! ```text
//! request   bodies of chat and generate      encoder   events of a run as lines, or as one object
//! messages  messages, calls and images       calls     calls in an answer
//! settings  `options`, `format`, `think`     load      requests that only load a model
//! names     names with a tag                 models    version, tags, show, ps
//! errors    the body of an error             embed     embeddings
//! times     times and durations              sent_calls  ids of calls, which clients do not keep
//! ```
//!
//! Streams are lines of JSON, and a request is streamed unless it says otherwise.

mod calls;
mod embed;
mod encoder;
mod errors;
mod load;
mod messages;
mod models;
mod names;
mod request;
mod sent_calls;
mod settings;
mod times;

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, delete, get, post};
use http::request::Parts;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{AnswerTiming, Message, Options, Role, Turn};
use trunkline_wire::body;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::MAX_IMAGES;

use super::{AnswerFormat, Asked, Delivery, Dialect, RunHead};
use crate::admission;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::dialect::members::{self, MemberTable};
use crate::door::Door;
use encoder::{LineEncoder, Shape};
use request::{ChatBody, GenerateBody};
use sent_calls::ConversationCalls;
use settings::{Settings, Thinking};

pub(super) use errors::error_body;
pub(crate) use sent_calls::SentCalls;

pub(crate) struct OllamaChat;

pub(crate) struct OllamaGenerate;

/// Format of an answer, with everything that the request said about it.
pub(crate) struct OllamaFormat {
    /// The name that the client asked for.
    model: String,
    shape: Shape,
    thinking: Thinking,
    /// Calls of the conversation that is answered, if its answer may contain some.
    calls: Option<ConversationCalls>,
}

/// Adds the routes of this dialect.
pub(crate) fn routes<D: Door>(mut router: Router<Arc<App<D>>>) -> Router<Arc<App<D>>> {
    for slash in ["/", ""] {
        let path = |name: &str| format!("/api/{name}{slash}");
        router = router
            .route(&path("chat"), post(super::answer::<OllamaChat, D>))
            .route(&path("generate"), post(super::answer::<OllamaGenerate, D>))
            .route(&path("embed"), post(embed::several))
            .route(&path("embeddings"), post(embed::one))
            .route(&path("version"), get(models::version))
            .route(&path("tags"), get(models::tags))
            .route(&path("show"), post(models::show))
            .route(&path("ps"), get(models::running))
            .route(&path("delete"), delete(models::refuse_change))
            .route(&path("blobs/{digest}"), any(models::refuse_change));
        for change in ["pull", "push", "create", "copy"] {
            router = router.route(&path(change), post(models::refuse_change));
        }
    }
    router
}

impl Dialect for OllamaChat {
    type Format = OllamaFormat;
    const MEMBERS: &'static MemberTable = &members::OLLAMA;

    fn at_once<D: Door>(app: &App<D>, body: &[u8]) -> Option<Result<HttpResponse, ApiError>> {
        load::answer(app, Shape::Chat, body)
    }

    async fn read<D: Door>(app: &App<D>, head: &Parts, body: &[u8]) -> Result<Asked<OllamaFormat>, ApiError> {
        let mut request: ChatBody = body::parse(body)?;
        let settings = request.settings();
        let model = names::required(request.model)?;
        let mut calls = app.ollama_calls.of(&admission::client(head));
        let messages = messages::convert(request.messages.map(|messages| messages.0).unwrap_or_default(), &mut calls)?;
        let options = settings.options(request.tools)?;
        let mut asked = asked(app, Shape::Chat, model, messages, options, &settings)?;
        asked.format.calls = Some(calls);
        Ok(asked)
    }
}

impl Dialect for OllamaGenerate {
    type Format = OllamaFormat;
    const MEMBERS: &'static MemberTable = &members::OLLAMA;

    fn at_once<D: Door>(app: &App<D>, body: &[u8]) -> Option<Result<HttpResponse, ApiError>> {
        load::answer(app, Shape::Generate, body)
    }

    async fn read<D: Door>(app: &App<D>, _head: &Parts, body: &[u8]) -> Result<Asked<OllamaFormat>, ApiError> {
        let mut request: GenerateBody = body::parse(body)?;
        let settings = request.settings();
        let model = names::required(request.model.take())?;
        let messages = request.messages()?;
        let options = settings.options(None)?;
        asked(app, Shape::Generate, model, messages, options, &settings)
    }
}

/// The turn of a request, after the checks that both routes share.
fn asked<D: Door>(
    app: &App<D>,
    shape: Shape,
    model: String,
    messages: Vec<Message>,
    options: Options,
    settings: &Settings,
) -> Result<Asked<OllamaFormat>, ApiError> {
    let delivery = if settings.stream { Delivery::Streamed } else { Delivery::Whole };
    let shown = if settings.stream { AnswerTiming::AsItComes } else { AnswerTiming::AtTheEnd };
    let turn =
        Turn { model: names::known(&*app.door, &model)?.to_owned(), messages, options, shown, ..Turn::default() };
    let member = shape.prompt_member();
    let asks = |message: &Message| match message.role {
        Role::User | Role::Tool => !message.text.trim().is_empty() || !message.images.is_empty(),
        Role::System | Role::Assistant => false,
    };
    if !turn.messages.iter().any(asks) {
        return Err(ApiError::invalid("invalid_value", "there is no user message to answer").about(member));
    }
    if turn.images().count() > MAX_IMAGES {
        return Err(ApiError::invalid("invalid_value", format!("more than {MAX_IMAGES} images")).about(member));
    }
    Ok(Asked { turn, delivery, format: OllamaFormat { model, shape, thinking: settings.thinking, calls: None } })
}

impl AnswerFormat for OllamaFormat {
    type Frames = LineEncoder;
    type Whole = LineEncoder;

    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> LineEncoder {
        LineEncoder::new(run.created, &self.model, self.shape, self.thinking, secrets).remembering(self.calls)
    }

    fn whole(self, run: &RunHead) -> LineEncoder {
        LineEncoder::new(run.created, &self.model, self.shape, self.thinking, Arc::default()).remembering(self.calls)
    }
}
