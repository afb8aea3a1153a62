//! OpenAI's Responses: `POST /v1/responses`, and the routes of stored responses.
//!
//! A response is a run, seen through this dialect: its id is derived from the run's, its request is in the first record of the run,
//! and its output is made of the run's events, whenever it is asked for.
//!
//! ```text
//! request, items, tools   the body on the wire          frames            numbered frames of a stream
//! mcp_tools               MCP servers among the tools
//! messages                items as messages             output(_objects)  items and their events
//! previous                earlier responses             object            the response object
//! stored, routes          responses that are read later encoder           events of a run as a response
//! ```

mod echo;
mod encoder;
mod frames;
mod ids;
mod items;
mod mcp_tools;
mod messages;
mod object;
mod output;
mod output_objects;
mod previous;
mod request;
pub(crate) mod routes;
mod stored;
#[cfg(test)]
mod test_grammar;
mod tools;

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{AnswerTiming, Message, OnDisconnect, Role, Turn};
use trunkline_wire::body;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::{checked, may_name_a_model, missing};

use super::{AnswerFormat, Asked, Delivery, Dialect, RunHead, question};
use crate::admission;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::continuations::Continuation;
use crate::dialect::members::{self, MemberTable};
use crate::door::Door;
use encoder::ResponseEncoder;
use frames::Written;
use items::{Input, InputItem};
use object::Status;
use previous::Continued;
use request::ResponsesRequest;
use stored::StoredRequest;

pub(crate) struct Responses;

/// A response, with everything that the request said about it.
pub(crate) struct ResponseFormat {
    request: StoredRequest,
    /// Held until the answer ends.
    continuation: Option<Continuation>,
    failures_as_events: bool,
}

/// Whether a request comes from Codex CLI. It repeats a request for any 5xx, and then shows the status alone.
fn is_codex(head: &Parts) -> bool {
    let originator = head.headers.get("originator").and_then(|originator| originator.to_str().ok());
    originator.is_some_and(|originator| originator.starts_with("codex"))
}

impl Dialect for Responses {
    type Format = ResponseFormat;
    const MEMBERS: &'static MemberTable = &members::RESPONSES;

    async fn read<D: Door>(app: &App<D>, head: &Parts, body: &[u8]) -> Result<Asked<ResponseFormat>, ApiError> {
        let mut request: ResponsesRequest = body::parse(body)?;
        request.check()?;
        let model = request.model.clone().ok_or_else(|| missing("model"))?;
        if !may_name_a_model(&model) {
            return Err(ApiError::unknown_model(&[]));
        }
        let mut items = match request.input.take().ok_or_else(|| missing("input"))? {
            Input::Text(text) => vec![InputItem::of_user(text)],
            Input::List(items) => items,
        };
        let client = admission::client(head);
        // On the heap, like everything that few requests need: a future is copied several times until it runs.
        if items.iter().any(InputItem::is_reference) {
            Box::pin(previous::follow_references(app, &client, &mut items)).await?;
        }
        let wishes = request.take_wishes();
        let stored = StoredRequest {
            previous: request.previous_response_id.clone(),
            background: request.is_background(),
            tool_items: wishes.tool_items.unwrap_or(false),
            ..StoredRequest::new(request.echo(), &items, request.is_stored())
        };
        let mut messages = Vec::new();
        if let Some(instructions) = request.instructions.take().filter(|text| !text.is_empty()) {
            messages.push(Message::new(Role::System, checked(instructions, || "instructions".to_owned())?));
        }
        let (mut session, mut continuation) = (None, None);
        if let Some(id) = &request.previous_response_id {
            let brings_results = items.iter().any(|item| item.kind() == "function_call_output");
            match Box::pin(previous::resolve(app, &client, &model, id, brings_results)).await? {
                Continued::Session(known, claim) => (session, continuation) = (Some(known), Some(claim)),
                Continued::History(history) => messages.extend(history),
            }
        }
        messages::append(&mut messages, items, "input")?;
        let delivery = match (request.is_streamed(), request.is_background()) {
            (true, _) => Delivery::Streamed,
            (false, true) => Delivery::Later,
            (false, false) => Delivery::Whole,
        };
        let turn = Turn {
            model,
            messages,
            session,
            options: request.options(),
            members: request.members_of_tools(),
            servers: request.servers()?,
            shown: if delivery == Delivery::Streamed { AnswerTiming::AsItComes } else { AnswerTiming::AtTheEnd },
            on_disconnect: request.is_background().then_some(OnDisconnect::Detach).or(wishes.on_disconnect),
            request: stored.record(),
            ..Turn::default()
        };
        question::check(&turn, "input")?;
        Ok(Asked {
            turn,
            delivery,
            format: ResponseFormat { request: stored, continuation, failures_as_events: is_codex(head) },
        })
    }
}

impl AnswerFormat for ResponseFormat {
    type Frames = ResponseEncoder;
    type Whole = ResponseEncoder;

    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> ResponseEncoder {
        ResponseEncoder::new(run, self.request, secrets, Written::All)
            .holding(self.continuation)
            .failures_as_events(self.failures_as_events)
    }

    fn whole(self, run: &RunHead) -> ResponseEncoder {
        ResponseEncoder::new(run, self.request, Arc::default(), Written::None).holding(self.continuation)
    }

    fn accepted(self, run: &RunHead) -> HttpResponse {
        let encoder = ResponseEncoder::new(run, self.request, Arc::default(), Written::None);
        reply::json_bytes(StatusCode::OK, encoder.object(Status::Queued))
    }
}
