//! The body of an error, in the shape that the clients of a path expect.
//!
//! Most errors are found before a dialect sees its request: a wrong key, an unknown path, a body that is too large. So the shape is
//! chosen by the path, at the last moment, for all errors alike.

use axum::body::Body;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, StatusCode};
use trunkline_wire::error::ApiError;

use super::{gemini, messages};
use crate::answer::reply::HttpResponse;

/// Writes the body of an error.
type ErrorBody = fn(&ApiError) -> String;

/// Beginnings of paths whose clients do not expect OpenAI's shape. The first match applies.
const ERROR_BODIES: [(&str, ErrorBody); 0] = [];

/// The form that the client of a request expects of its answer. Known before the request is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerShape {
    Anthropic,
    Google,
    /// OpenAI's, unless [`ERROR_BODIES`] has another one.
    ByPath,
}

impl AnswerShape {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        if messages::is_spoken(request.uri().path(), request.headers()) {
            Self::Anthropic
        } else if gemini::is_spoken(request) {
            Self::Google
        } else {
            Self::ByPath
        }
    }

    /// Completes a response: replaces the body of an error, if the client expects another shape than OpenAI's.
    pub(crate) fn apply(self, path: &str, request_id: &HeaderValue, response: &mut HttpResponse) {
        if self == Self::Anthropic {
            response.headers_mut().insert("request-id", request_id.clone());
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else { return };
        let body = match (self, error_body(path, &ERROR_BODIES)) {
            (Self::Anthropic, _) => Body::from(messages::error_body(&error, request_id.to_str().ok())),
            (Self::Google, _) => Body::from(gemini::error_body(&error)),
            (Self::ByPath, Some(body)) => Body::from(body(&error)),
            (Self::ByPath, None) => return,
        };
        *response.body_mut() = body;
        response.headers_mut().remove(CONTENT_LENGTH);
        if let Ok(status) = StatusCode::from_u16(error.native_status()) {
            *response.status_mut() = status;
        }
    }
}

fn error_body(path: &str, bodies: &[(&str, ErrorBody)]) -> Option<ErrorBody> {
    bodies.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, body)| *body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_is_chosen_by_the_beginning_of_the_path() {
        fn plain(error: &ApiError) -> String {
            error.message.to_string()
        }
        let bodies: [(&str, ErrorBody); 1] = [("/api/", plain)];
        for (path, expected) in [("/api/chat", true), ("/api", false), ("/v1/chat/completions", false)] {
            assert_eq!(error_body(path, &bodies).is_some(), expected, "{path}");
        }
    }
}
