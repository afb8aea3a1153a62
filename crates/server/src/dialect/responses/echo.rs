//! The members of a response that repeat its request.
//!
//! A request gives few of them. Only those are kept and recorded with the run; the answer has the defaults of the others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Number, Value};

use super::tools::ToolChoice;

/// Members of every response, and their values if the request does not give them.
const DEFAULTS: [(&str, &str); 22] = [
    ("background", "false"),
    ("frequency_penalty", "0"),
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("presence_penalty", "0"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("service_tier", r#""default""#),
    ("store", "true"),
    ("temperature", "1.0"),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("tool_choice", r#""auto""#),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", r#""disabled""#),
    ("user", "null"),
];

/// The members that a request gives.
#[derive(Serialize)]
pub(super) struct Echo<'a> {
    pub(super) model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) background: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) include: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tool_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) previous_response_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<&'a Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) safety_identifier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<EchoedText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<&'a ToolChoice>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tools: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_logprobs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_p: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) truncation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<&'a str>,
}

/// Options for reasoning, in the request and in the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reasoning {
    pub(super) effort: Option<String>,
    pub(super) summary: Option<String>,
}

/// Format of the answer's text, in the request and in the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TextFormat {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strict: Option<bool>,
}

#[derive(Serialize)]
pub(super) struct EchoedText<'a> {
    #[serde(serialize_with = "or_text")]
    pub(super) format: Option<&'a TextFormat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verbosity: Option<&'a str>,
}

fn or_text<S: serde::Serializer>(given: &Option<&TextFormat>, serializer: S) -> Result<S::Ok, S::Error> {
    match given {
        Some(given) => given.serialize(serializer),
        None => BTreeMap::from([("type", "text")]).serialize(serializer),
    }
}

impl Echo<'_> {
    pub(super) fn to_raw(&self) -> Box<RawValue> {
        to_raw_value(self).expect("strings, numbers and JSON that was parsed before always serialise")
    }
}

/// Appends members to an object that is open and has members already: those that were given, and the defaults of the others.
pub(super) fn append(out: &mut Vec<u8>, given: &RawValue) {
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(given.get()).unwrap_or_default();
    let texts = members.iter().map(|(name, value)| (&**name, value.get()));
    let absent = DEFAULTS.into_iter().filter(|(name, _)| !members.contains_key(*name));
    for (name, value) in texts.chain(absent) {
        for text in [",\"", name, "\":", value] {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn appended(given: &Value) -> Value {
        let mut out = b"{\"id\":1".to_vec();
        append(&mut out, &to_raw_value(given).unwrap());
        out.push(b'}');
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn has_the_defaults_of_members_that_are_not_given() {
        let response = appended(&json!({"model": "m"}));
        assert_eq!(response.as_object().unwrap().len(), DEFAULTS.len() + 2, "each member once");
        assert_eq!((&response["model"], &response["text"]["format"]["type"]), (&json!("m"), &json!("text")));
        assert_eq!((&response["temperature"], &response["tools"]), (&json!(1.0), &json!([])));
    }

    #[test]
    fn has_given_members_once_and_unchanged() {
        let given = json!({"model": "m", "temperature": 0.5, "tools": [{"type": "function"}], "include": ["a"]});
        let response = appended(&given);
        for (name, value) in given.as_object().unwrap() {
            assert_eq!(&response[name], value);
        }
        let mut text = Vec::new();
        append(&mut text, &to_raw_value(&given).unwrap());
        assert_eq!(String::from_utf8(text).unwrap().matches("\"temperature\"").count(), 1);
    }
}
