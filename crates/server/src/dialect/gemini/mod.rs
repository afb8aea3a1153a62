//! Google's generateContent: `POST /v1beta/models/{model}:generateContent`, `:streamGenerateContent` and `:countTokens`.
//!
//! ```text
//! request, contents, tools, schema   the body on the wire   pieces, encoder   events of a run as an answer
//! history                            contents as messages   syntax            the two forms of a stream
//! error                              errors                 models            the list of models
//! ```

mod contents;
mod encoder;
mod error;
mod history;
pub(crate) mod models;
mod pieces;
mod request;
mod schema;
mod syntax;
#[cfg(test)]
mod test_grammar;
mod tools;

use std::marker::PhantomData;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::routing::get;
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::AnswerTiming;
use trunkline_wire::body;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;

use super::reasoning::Reasoning;
use super::{AnswerFormat, Asked, Delivery, Dialect, RunHead, estimate};
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::connection::body::read_json;
use crate::dialect::members::{self, MemberTable};
use crate::door::Door;
use encoder::{ResponseFrames, WholeResponse};
pub(super) use error::body as error_body;
use request::GenerateRequest;
use syntax::{JsonArray, ServerSentEvents, StreamSyntax};

/// Beginning of the paths that only this dialect has. Google's newer clients use `/v1/`.
const OWN_PREFIX: &str = "/v1beta/";

/// Requests for answers. `S` is the form of a stream.
pub(crate) struct Gemini<S>(PhantomData<S>);

/// A response, with everything that the request said about it.
pub(crate) struct ResponseFormat<S> {
    model: String,
    reasoning: Reasoning,
    syntax: PhantomData<S>,
}

/// The part of the request that is in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    model: String,
    method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Generate,
    Stream,
    Count,
}

impl Call {
    /// Parses everything after `/models/`. The name of a model may have colons, too.
    fn parse(path: &str) -> Option<Self> {
        let (model, method) = path.strip_suffix('/').unwrap_or(path).rsplit_once(':')?;
        let method = match method {
            "generateContent" => Method::Generate,
            "streamGenerateContent" => Method::Stream,
            "countTokens" => Method::Count,
            _ => return None,
        };
        Some(Self { model: model.to_owned(), method })
    }
}

/// Adds the routes that only this dialect has.
pub(crate) fn routes<D: Door>(router: Router<Arc<App<D>>>) -> Router<Arc<App<D>>> {
    router
        .route("/v1beta/models", get(models::list_route))
        .route("/v1beta/models/", get(models::list_route))
        .route("/v1beta/models/{*call}", get(models::one_route).post(call::<D>))
}

/// Whether the client of a request expects answers of this dialect.
pub(super) fn is_spoken<B>(request: &http::Request<B>) -> bool {
    let path = request.uri().path();
    let shared = path.strip_prefix("/v1").unwrap_or(path);
    path.starts_with(OWN_PREFIX)
        || (shared.starts_with("/models/") && request.method() == http::Method::POST)
        || ((shared == "/models" || shared.starts_with("/models/")) && models::are_asked_for(request.headers()))
}

/// `POST /v1beta/models/{model}:{method}`.
pub(crate) async fn call<D: Door>(
    app: State<Arc<App<D>>>,
    path: Result<Path<String>, PathRejection>,
    mut request: Request,
) -> HttpResponse {
    let Some(call) = path.ok().and_then(|path| Call::parse(&path)) else {
        return reply::error(&ApiError::unknown_path("POST", request.uri().path()));
    };
    let method = call.method;
    let as_events = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    request.extensions_mut().insert(call);
    match method {
        Method::Count => count_tokens(app, request).await,
        Method::Generate | Method::Stream if as_events => {
            super::answer::<Gemini<ServerSentEvents>, D>(app, request).await
        }
        Method::Generate | Method::Stream => super::answer::<Gemini<JsonArray>, D>(app, request).await,
    }
}

fn call_of(head: &Parts) -> Result<&Call, ApiError> {
    head.extensions.get().ok_or_else(|| ApiError::unknown_path(head.method.as_str(), head.uri.path()))
}

impl<S: StreamSyntax> Dialect for Gemini<S> {
    type Format = ResponseFormat<S>;
    const MEMBERS: &'static MemberTable = &members::GEMINI;

    /// The model and the method are in the path.
    fn target(head: &Parts) -> &str {
        head.uri.path()
    }

    async fn read<D: Door>(_app: &App<D>, head: &Parts, body: &[u8]) -> Result<Asked<ResponseFormat<S>>, ApiError> {
        let call = call_of(head)?;
        let (delivery, shown) = match call.method {
            Method::Stream => (Delivery::Streamed, AnswerTiming::AsItComes),
            Method::Generate | Method::Count => (Delivery::Whole, AnswerTiming::AtTheEnd),
        };
        let request: GenerateRequest = body::parse(body)?;
        let reasoning = request.reasoning();
        let turn = request.into_turn(&call.model, shown)?;
        let format = ResponseFormat { model: turn.model.clone(), reasoning, syntax: PhantomData };
        Ok(Asked { turn, delivery, format })
    }
}

impl<S: StreamSyntax> AnswerFormat for ResponseFormat<S> {
    type Frames = ResponseFrames<S>;
    type Whole = WholeResponse;

    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> ResponseFrames<S> {
        ResponseFrames::new(run, &self.model, self.reasoning, secrets)
    }

    fn whole(self, run: &RunHead) -> WholeResponse {
        WholeResponse::new(run, &self.model, self.reasoning)
    }
}

/// The body of a count: contents, or a whole request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeRequest {
    #[serde(alias = "generate_content_request")]
    generate_content_request: Option<Object<GenerateRequest>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenCount {
    total_tokens: usize,
}

/// An estimate. Nothing runs.
async fn count_tokens<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    let counting = async {
        let call = call_of(&head)?;
        let body = read_json(&head.headers, body, &app.config.limits).await?;
        let request = match body::parse::<WholeRequest>(&body)?.generate_content_request {
            Some(request) => request.0,
            None => body::parse::<GenerateRequest>(&body)?,
        };
        let turn = request.into_turn(&call.model, AnswerTiming::AtTheEnd)?;
        if !app.door.knows(&turn.model) {
            return Err(ApiError::no_such_model().listing_models(&app.door.models()));
        }
        Ok(TokenCount { total_tokens: estimate::input_tokens(&turn) })
    };
    match counting.await {
        Ok(count) => reply::json(StatusCode::OK, &count),
        Err(error) => reply::error(&error),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn dialect_is_recognised_by_the_path_the_method_or_a_header() {
        for (method, path, header, expected) in [
            ("POST", "/v1beta/models/m:generateContent", None, true),
            ("GET", "/v1beta/models", None, true),
            ("GET", "/v1beta/other", None, true),
            ("POST", "/v1/models/m:generateContent", None, true),
            ("GET", "/v1/models", None, false),
            ("GET", "/v1/models", Some("x-goog-api-client"), true),
            ("GET", "/models/m", Some("x-goog-api-key"), true),
            ("POST", "/v1/chat/completions", Some("x-goog-api-key"), false),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = header.into_iter().fold(request, |request, name| request.header(name, "x"));
            assert_eq!(is_spoken(&request.body(()).unwrap()), expected, "{method} {path} {header:?}");
        }
    }

    #[test]
    fn model_and_method_are_split_at_the_last_colon() {
        for (path, expected) in [
            ("m:generateContent", Some(("m", Method::Generate))),
            ("up/gpt:free:streamGenerateContent", Some(("up/gpt:free", Method::Stream))),
            ("auto:fast:countTokens/", Some(("auto:fast", Method::Count))),
            ("m:embedContent", None),
            ("m", None),
            ("", None),
        ] {
            let call = Call::parse(path);
            assert_eq!(call.as_ref().map(|call| (call.model.as_str(), call.method)), expected, "{path}");
        }
    }
}
