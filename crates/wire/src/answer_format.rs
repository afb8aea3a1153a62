//! The form of an answer that a request asks for. Every dialect gives it to HTTP upstreams as the `response_format` of chat
//! completions; here it is read from there, once for all dialects.

use serde::Deserialize;
use serde_json::value::RawValue;
use trunkline_core::turn::{AnswerFormat, Json, JsonShape, Options};

use crate::error::ApiError;

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<SchemaFormat>,
}

#[derive(Deserialize)]
struct SchemaFormat {
    schema: Option<Box<RawValue>>,
    strict: Option<bool>,
}

/// Returns the form of the answer. `member` is the place of the schema in the client's own dialect. None if the client asks
/// for plain text, or for a form that only a service knows.
pub fn answer_format(options: &Options, member: &'static str) -> Result<Option<AnswerFormat>, ApiError> {
    let Some((_, json)) = options.more.iter().find(|(name, _)| *name == "response_format") else { return Ok(None) };
    if json.as_str() == "null" {
        return Ok(None);
    }
    let format: ResponseFormat = serde_json::from_str(json.as_str()).map_err(|error| {
        let root = member.split('.').next().unwrap_or(member);
        let reason: String = error.to_string().chars().take(200).collect();
        ApiError::invalid("invalid_value", format!("`{root}` is invalid: {reason}")).about(root)
    })?;
    let (shape, strict) = match (format.kind.as_str(), format.json_schema) {
        ("json_object", _) | ("json_schema", None) => (JsonShape::Object, None),
        ("json_schema", Some(SchemaFormat { schema: None, strict })) => (JsonShape::Object, strict),
        ("json_schema", Some(SchemaFormat { schema: Some(schema), strict })) => {
            (JsonShape::Schema(Json::from(schema)), strict)
        }
        _ => return Ok(None),
    };
    Ok(Some(AnswerFormat { shape, strict: strict.unwrap_or(true), member }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(format: &Value) -> Result<Option<(bool, bool)>, Option<Box<str>>> {
        let options = Options { more: vec![("response_format", Json::from(format))], ..Options::default() };
        let read = answer_format(&options, "text.format.schema").map_err(|error| error.param)?;
        Ok(read.map(|format| (matches!(format.shape, JsonShape::Schema(_)), format.strict)))
    }

    #[test]
    fn forms_of_every_kind_are_read() {
        assert_eq!(answer_format(&Options::default(), "format"), Ok(None));
        for (format, expected) in [
            (json!(null), Ok(None)),
            (json!({"type": "text"}), Ok(None)),
            (json!({"type": "grammar", "grammar": "x"}), Ok(None)),
            (json!({"type": "json_object"}), Ok(Some((false, true)))),
            (json!({"type": "json_schema"}), Ok(Some((false, true)))),
            (json!({"type": "json_schema", "json_schema": {"name": "n"}}), Ok(Some((false, true)))),
            (json!({"type": "json_schema", "json_schema": {"schema": {}}}), Ok(Some((true, true)))),
            (json!({"type": "json_schema", "json_schema": {"schema": {}, "strict": null}}), Ok(Some((true, true)))),
            (json!({"type": "json_schema", "json_schema": {"schema": {}, "strict": false}}), Ok(Some((true, false)))),
            (json!({"type": 7}), Err(Some("text".into()))),
            (json!("json"), Err(Some("text".into()))),
        ] {
            assert_eq!(read(&format), expected, "{format}");
        }
    }
}
