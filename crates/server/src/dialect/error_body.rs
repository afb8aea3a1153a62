//! The body of an error, in the shape that the clients of a path expect.
//!
//! Most errors are found before a dialect sees its request: a wrong key, an unknown path, a body that is too large. So the shape is
//! chosen by the path, at the last moment, for all errors alike.

use axum::body::Body;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, StatusCode};
use trunkline_wire::error::ApiError;

use super::messages;
use crate::answer::reply::HttpResponse;

/// Writes the body of an error.
type ErrorBody = fn(&ApiError) -> String;

/// Beginnings of paths whose clients do not expect OpenAI's shape. The first match applies.
const ERROR_BODIES: [(&str, ErrorBody); 0] = [];

/// The form that the client of a request expects of its answer. Known before the request is read.
pub(crate) struct AnswerShape {
    is_anthropic: bool,
}

impl AnswerShape {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        Self { is_anthropic: messages::is_spoken(request.uri().path(), request.headers()) }
    }

    /// Completes a response: replaces the body of an error, if the clients of its path expect another shape than OpenAI's.
    pub(crate) fn apply(&self, path: &str, request_id: &HeaderValue, response: &mut HttpResponse) {
        if self.is_anthropic {
            response.headers_mut().insert("request-id", request_id.clone());
        }
        let Some(error) = response.extensions_mut().remove::<ApiError>() else { return };
        let body = if self.is_anthropic {
            Body::from(messages::error_body(&error, request_id.to_str().ok()))
        } else if let Some(body) = error_body(path, &ERROR_BODIES) {
            Body::from(body(&error))
        } else {
            return;
        };
        *response.body_mut() = body;
        response.headers_mut().remove(CONTENT_LENGTH);
        if error.code == "model_not_found" && self.is_anthropic {
            *response.status_mut() = StatusCode::NOT_FOUND;
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
