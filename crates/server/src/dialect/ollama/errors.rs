//! The body of an error: one text, because Ollama's clients show nothing else.

use serde::Serialize;
use trunkline_wire::chat::Extension;
use trunkline_wire::error::ApiError;

#[derive(Serialize)]
struct ErrorObject<'a> {
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trunkline: Option<&'a Extension>,
}

/// Returns `{"error":"…"}`, for a response body or the last line of a failed stream.
pub(in crate::dialect) fn error_body(error: &ApiError) -> String {
    let object = ErrorObject { error: text(error), trunkline: error.trace.as_deref() };
    serde_json::to_string(&object).expect("strings and numbers always serialise")
}

/// The message with the member that it is about, if it does not name it, and the advice.
fn text(error: &ApiError) -> String {
    let mut text = error.message.to_string();
    if let Some(param) = error.param.as_deref().filter(|param| *param != "model" && !text.contains(*param)) {
        text = format!("{param}: {text}");
    }
    if let Some(hint) = &error.hint {
        text.push_str("; ");
        text.push_str(hint);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn error_is_one_text_with_member_and_advice() {
        for (error, text) in [
            (ApiError::invalid("x", "is wrong"), "is wrong"),
            (ApiError::invalid("x", "is wrong").about("options.seed"), "options.seed: is wrong"),
            (ApiError::invalid("x", "`seed` is wrong").about("seed"), "`seed` is wrong"),
            (ApiError::invalid("x", "is wrong").hint("leave it out"), "is wrong; leave it out"),
        ] {
            let body: Value = serde_json::from_str(&error_body(&error)).unwrap();
            assert_eq!(body, json!({"error": text}));
        }
    }
}
