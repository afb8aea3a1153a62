//! Anthropic's Messages: `POST /v1/messages` and `/v1/messages/count_tokens`.
//!
//! ```text
//! request, blocks, tools   the body on the wire      content, frames   blocks and their frames
//! history                  messages as ours          encoder           events of a run as an answer
//! error                    errors                    models            the list of models
//! ```

mod blocks;
mod content;
mod encoder;
mod error;
mod frames;
mod history;
pub(crate) mod models;
mod request;
#[cfg(test)]
mod test_grammar;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::post;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use trunkline_core::secret::Secrets;
use trunkline_wire::error::ApiError;

use super::reasoning::Reasoning;
use super::{AnswerFormat, Asked, Dialect, RunHead, estimate};
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::connection::body;
use crate::dialect::members::{self, MemberTable};
use crate::door::Door;
use content::Form;
use encoder::MessageEncoder;
pub(super) use error::body as error_body;
use request::MessagesRequest;

/// Header that every client of Anthropic's API sends.
const VERSION_HEADER: &str = "anthropic-version";

pub(crate) struct Messages;

/// A message, with everything that the request said about it.
pub(crate) struct MessageFormat {
    model: String,
    reasoning: Reasoning,
}

/// Adds the routes of this dialect below `base`.
pub(crate) fn routes<D: Door>(router: Router<Arc<App<D>>>, base: &str) -> Router<Arc<App<D>>> {
    ["/", ""].iter().fold(router, |router, slash| {
        router
            .route(&format!("{base}/messages{slash}"), post(super::answer::<Messages, D>))
            .route(&format!("{base}/messages/count_tokens{slash}"), post(count_tokens::<D>))
    })
}

/// Whether the client of a request expects answers of this dialect.
pub(super) fn is_spoken(path: &str, headers: &HeaderMap) -> bool {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let is_below = |name: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_below("/messages") || (is_below("/models") && models::are_asked_for(headers))
}

impl Dialect for Messages {
    type Format = MessageFormat;
    const MEMBERS: &'static MemberTable = &members::MESSAGES;

    async fn read<D: Door>(_app: &App<D>, _head: &Parts, body: &[u8]) -> Result<Asked<MessageFormat>, ApiError> {
        let request = MessagesRequest::parse(body)?;
        let (delivery, reasoning) = (request.delivery(), request.reasoning());
        let turn = request.into_turn()?;
        let format = MessageFormat { model: turn.model.clone(), reasoning };
        Ok(Asked { turn, delivery, format })
    }
}

impl AnswerFormat for MessageFormat {
    type Frames = MessageEncoder;
    type Whole = MessageEncoder;

    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> MessageEncoder {
        MessageEncoder::new(run, self.model, self.reasoning, Form::Frames, secrets)
    }

    fn whole(self, run: &RunHead) -> MessageEncoder {
        MessageEncoder::new(run, self.model, self.reasoning, Form::List, Arc::default())
    }
}

#[derive(Serialize)]
struct TokenCount {
    input_tokens: usize,
}

/// `POST /v1/messages/count_tokens`: an estimate. Nothing runs.
async fn count_tokens<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    let counting = async {
        let body = body::read_json(&head.headers, body, &app.config.limits).await?;
        let turn = MessagesRequest::parse(&body)?.into_turn()?;
        if !app.door.knows(&turn.model) {
            return Err(ApiError::no_such_model().listing_models(&app.door.models()));
        }
        Ok(TokenCount { input_tokens: estimate::input_tokens(&turn) })
    };
    match counting.await {
        Ok(count) => reply::json(StatusCode::OK, &count),
        Err(error) => reply::error(&error),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn dialect_is_recognised_by_the_path_or_the_version_header() {
        for (path, by_path, by_header) in [
            ("/v1/messages", true, true),
            ("/messages/", true, true),
            ("/v1/messages/count_tokens", true, true),
            ("/v1/messages/batches", true, true),
            ("/v1/messagesx", false, false),
            ("/v1/models", false, true),
            ("/models/a/b", false, true),
            ("/v1/chat/completions", false, false),
        ] {
            let mut headers = HeaderMap::new();
            assert_eq!(is_spoken(path, &headers), by_path, "{path}");
            headers.insert(VERSION_HEADER, HeaderValue::from_static("2023-06-01"));
            assert_eq!(is_spoken(path, &headers), by_header, "{path}");
        }
    }
}
