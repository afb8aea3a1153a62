//! Parsing of request bodies: a JSON object, with errors that name the place.

use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::object::Object;

/// Parses a body. The error names the path of the member, the line and the column.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let message = format!("the body is not UTF-8: bad byte at offset {}", error.valid_up_to());
        ApiError::invalid("invalid_json", message)
    })?;
    // Following the path to an error copies the name of every member, so that is done only if there is one.
    if let Ok(Object(request)) = serde_json::from_str(text) {
        return Ok(request);
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let Object(request) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        unreadable(&path, error.inner())
    })?;
    json.end().map_err(|error| unreadable(".", &error))?;
    Ok(request)
}

fn unreadable(path: &str, error: &serde_json::Error) -> ApiError {
    let place = format!("line {} column {}", error.line(), error.column());
    let text = error.to_string();
    // The reason may quote a value from the request, which may be megabytes long.
    let reason: String = text.strip_suffix(&format!(" at {place}")).unwrap_or(&text).chars().take(300).collect();
    match error.classify() {
        serde_json::error::Category::Data if path == "." => {
            ApiError::invalid("invalid_value", format!("invalid body at {place}: {reason}"))
        }
        serde_json::error::Category::Data => {
            ApiError::invalid("invalid_value", format!("invalid `{path}` at {place}: {reason}")).about(path)
        }
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof | serde_json::error::Category::Io => {
            ApiError::invalid("invalid_json", format!("the body is not valid JSON at {place}: {reason}"))
        }
    }
}
