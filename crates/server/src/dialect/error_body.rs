//! The body of an error, in the shape that the clients of a path expect.
//!
//! Most errors are found before a dialect sees its request: a wrong key, an unknown path, a body that is too large. So the shape is
//! chosen by the path, at the last moment, for all errors alike.

use axum::body::Body;
use http::header::CONTENT_LENGTH;
use trunkline_wire::error::ApiError;

use super::ollama;
use crate::answer::reply::HttpResponse;

/// Writes the body of an error.
type ErrorBody = fn(&ApiError) -> String;

/// Beginnings of paths whose clients do not expect OpenAI's shape. The first match applies.
const ERROR_BODIES: [(&str, ErrorBody); 1] = [("/api/", ollama::error_body)];

/// Replaces the body of an error response, if the clients of its path expect another shape than OpenAI's.
pub(crate) fn shape_error(path: &str, response: &mut HttpResponse) {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return };
    if let Some(body) = error_body(path, &ERROR_BODIES) {
        *response.body_mut() = Body::from(body(&error));
        response.headers_mut().remove(CONTENT_LENGTH);
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
