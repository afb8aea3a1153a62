//! The body of an error, in the shape that the clients of a path expect.
//!
//! Most errors are found before a dialect sees its request: a wrong key, an unknown path, a body that is too large. So the shape is
//! chosen by the path, at the last moment, for all errors alike.

use axum::body::Body;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, StatusCode};
use trunkline_wire::error::ApiError;

use super::{gemini, messages, ollama};
use crate::answer::reply::HttpResponse;

/// The API whose shape the client of a request expects of errors. Known before the request is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerShape {
    OpenAi,
    Anthropic,
    Google,
    Ollama,
}

impl AnswerShape {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        if messages::is_spoken(request.uri().path(), request.headers()) {
            Self::Anthropic
        } else if gemini::is_spoken(request) {
            Self::Google
        } else if request.uri().path().starts_with("/api/") {
            Self::Ollama
        } else {
            Self::OpenAi
        }
    }

    /// Completes a response: replaces the body of an error, if the client expects another shape than OpenAI's.
    pub(crate) fn apply(self, request_id: &HeaderValue, response: &mut HttpResponse) {
        if self == Self::Anthropic {
            response.headers_mut().insert("request-id", request_id.clone());
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else { return };
        let body = match self {
            Self::OpenAi => return,
            Self::Anthropic => Body::from(messages::error_body(&error, request_id.to_str().ok())),
            Self::Google => Body::from(gemini::error_body(&error)),
            Self::Ollama => Body::from(ollama::error_body(&error)),
        };
        *response.body_mut() = body;
        response.headers_mut().remove(CONTENT_LENGTH);
        if let Ok(status) = StatusCode::from_u16(error.native_status()) {
            *response.status_mut() = status;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_is_chosen_by_path_and_headers() {
        use AnswerShape::{Anthropic, Google, Ollama, OpenAi};
        for (path, header, expected) in [
            ("/api/chat", "accept", Ollama),
            ("/api", "accept", OpenAi),
            ("/v1/chat/completions", "accept", OpenAi),
            ("/v1/messages", "accept", Anthropic),
            ("/messages/count_tokens", "accept", Anthropic),
            ("/v1/models", "anthropic-version", Anthropic),
            ("/v1/models", "accept", OpenAi),
            ("/v1beta/models", "accept", Google),
        ] {
            let request = Request::builder().uri(path).header(header, "x").body(()).unwrap();
            assert_eq!(AnswerShape::of(&request), expected, "{path} with {header}");
        }
    }
}
