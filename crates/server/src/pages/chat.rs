//! Endpoints of the page: `POST /chat`, `GET /chat`, `POST /stop`, `POST /clear`.

use std::future::Future;
use std::sync::Arc;

use axum::extract::{Request, State};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use trunkline_core::event::Event;
use trunkline_core::failure::Category;
use trunkline_core::turn::Surface;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::page::PageEvents;
use trunkline_wire::response::Trace;
use trunkline_wire::stream::Stream;

use super::cookie::Visitor;
use super::talk::{Answering, Chat};
use crate::answer::AnswerFeed;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::answer::streaming::{ErrorReport, Frames, streamed};
use crate::app::App;
use crate::connection::body;
use crate::door::Door;

/// Model of a message that names none.
const DEFAULT_MODEL: &str = "agent";

#[derive(Deserialize)]
struct ChatMessage {
    message: String,
    model: Option<String>,
}

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

const OK: Status = Status { status: "ok" };

/// Answers a message with a stream of the page's events.
pub(crate) async fn say<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    let visitor = Visitor::of(&head.headers);
    let mut response = match begin(&app, visitor, &head, body).await {
        Ok((feed, frames)) => streamed(feed, frames, app.terms()).await,
        Err(error) => reply::error(&error),
    };
    if response.status().is_success() {
        visitor.introduce(response.headers_mut());
    }
    response
}

/// Returns the conversation so far.
pub(crate) async fn show<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let visitor = Visitor::of(request.headers());
    let chat = chat_of(&app, visitor, request.headers()).await;
    let mut response = reply::json(StatusCode::OK, &chat.shown());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    visitor.introduce(response.headers_mut());
    response
}

pub(crate) async fn stop<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    command(&app, request, |chat| chat.stop(&app.chats)).await
}

pub(crate) async fn clear<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    command(&app, request, |chat| chat.clear(&app.chats)).await
}

/// Applies `then` to the conversation of a request without content.
async fn command<D: Door>(app: &App<D>, request: Request, then: impl FnOnce(&Arc<Chat>)) -> HttpResponse {
    let (head, body) = request.into_parts();
    // An empty body needs no type. A body must be declared as JSON, which pages of other sites cannot do.
    if has_body(&head.headers)
        && let Err(error) = body::read_json(&head.headers, body, &app.config.limits).await
    {
        return reply::error(&error);
    }
    let chat = chat_of(app, Visitor::of(&head.headers), &head.headers).await;
    then(&chat);
    reply::json(StatusCode::OK, &OK)
}

/// Whether a request has a body. A content type alone does not count: `curl -d ''` sends one.
fn has_body(headers: &HeaderMap) -> bool {
    let empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    headers.contains_key(TRANSFER_ENCODING) || !empty
}

async fn begin<D: Door>(
    app: &Arc<App<D>>,
    visitor: Visitor,
    head: &Parts,
    body: axum::body::Body,
) -> Result<(AnswerFeed<D::Run>, ChatFrames), ApiError> {
    if app.stopping.is_cancelled() {
        return Err(ApiError::stopping());
    }
    let body = body::read_json(&head.headers, body, &app.config.limits).await?;
    let said = parse(&body)?;
    let model = match said.model {
        Some(model) => model,
        None => default_model(app.door.models()).ok_or_else(no_models)?,
    };
    let chat = chat_of(app, visitor, &head.headers).await;
    let (mut turn, answering) = chat.ask(&app.chats, &model, &said.message)?;
    turn.owner = head.extensions.get().cloned().unwrap_or_default();
    turn.surface = Surface::Page;
    let words = PageEvents::new(model, Arc::clone(&app.config.secrets));
    Ok((AnswerFeed::new(Arc::clone(&app.door), turn), ChatFrames { words, answering, began: false }))
}

fn parse(body: &[u8]) -> Result<ChatMessage, ApiError> {
    let Object(said): Object<ChatMessage> = serde_json::from_slice(body).map_err(|error| {
        let code = if error.is_data() { "invalid_value" } else { "invalid_json" };
        ApiError::invalid(code, format!("the body is not {{\"message\": \"…\"}}: {error}"))
    })?;
    if said.message.trim().is_empty() {
        return Err(ApiError::invalid("invalid_value", "the message is empty").about("message"));
    }
    Ok(said)
}

fn default_model(names: Vec<String>) -> Option<String> {
    let usual = names.iter().position(|name| name == DEFAULT_MODEL).unwrap_or(0);
    names.into_iter().nth(usual)
}

fn no_models() -> ApiError {
    let error = ApiError::invalid("model_not_found", "there are no models").about("model");
    error.hint("write a models.json, or install an agent CLI: trunkline doctor shows which are known")
}

fn chat_of<D>(app: &App<D>, visitor: Visitor, headers: &HeaderMap) -> impl Future<Output = Arc<Chat>> {
    let id = visitor.chat(&app.config, headers);
    async move { app.chats.open(&id).await }
}

/// Writes the page's frames, and records the answer in the conversation.
struct ChatFrames {
    words: PageEvents,
    answering: Answering,
    /// Whether the turn has begun.
    began: bool,
}

/// Category of a refusal for the conversation: an error of the request may concern its session.
const fn blamed(error: &ApiError) -> Category {
    if error.status == 400 { Category::Validation } else { Category::Cancelled }
}

impl Frames for ChatFrames {
    fn trace(&mut self) -> &mut Trace {
        &mut self.words.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        self.began = true;
        let words = self.words.of(event);
        self.answering.hear(event, &words);
        words.iter().for_each(|word| word.frame(out));
        if matches!(event, Event::Finished(_) | Event::Failed(_)) { Stream::Ended } else { Stream::Open }
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        let words = self.words.failed(error);
        self.answering.fail(&words, self.began, blamed(error));
        words.iter().for_each(|word| word.frame(out));
        Stream::Ended
    }

    /// Any event of a run starts the stream.
    fn opens(&self, _event: &Event) -> bool {
        true
    }

    /// An error of the request or of the server is a status; an error of the CLI is part of the conversation.
    fn refuse(&mut self, error: &ApiError) -> ErrorReport {
        if error.is_of_a_cli() {
            return ErrorReport::Frames;
        }
        self.answering.withdraw(blamed(error));
        ErrorReport::Status
    }

    async fn stopped(&self) {
        self.answering.stopped().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_without_content_is_no_body() {
        for (name, value, expected) in [
            ("content-type", "text/plain", false),
            ("content-length", "0", false),
            ("content-length", "2", true),
            ("transfer-encoding", "chunked", true),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
            assert_eq!(has_body(&headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn default_model_is_the_agent_if_there_is_one() {
        for (names, expected) in
            [(vec!["codex", "agent"], Some("agent")), (vec!["codex", "claude"], Some("codex")), (vec![], None)]
        {
            let names = names.into_iter().map(str::to_owned).collect();
            assert_eq!(default_model(names).as_deref(), expected);
        }
    }
}
