//! Settings of a request: `stream`, `think`, `format` and `options`, under the names of chat completions.

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, json};
use trunkline_core::turn::{Json, Options};
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::is_list_of_objects;

/// Whether the answer contains the reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    Shown,
    Hidden,
}

/// `think`: whether, or how much.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Think {
    Switch(bool),
    Level(String),
}

/// The options that providers know. Ollama has many more, for its own way of running a model.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ModelOptions {
    /// Negative numbers mean no limit.
    num_predict: Option<i64>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    top_k: Option<Box<RawValue>>,
    min_p: Option<Box<RawValue>>,
    stop: Option<Box<RawValue>>,
    seed: Option<Box<RawValue>>,
    repeat_penalty: Option<Box<RawValue>>,
    presence_penalty: Option<Box<RawValue>>,
    frequency_penalty: Option<Box<RawValue>>,
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) stream: bool,
    pub(super) thinking: Thinking,
    effort: Option<String>,
    format: Option<Box<RawValue>>,
    options: ModelOptions,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
}

impl Settings {
    pub(super) fn new(
        stream: Option<bool>,
        think: Option<Think>,
        format: Option<Box<RawValue>>,
        options: Option<Object<ModelOptions>>,
    ) -> Self {
        let (thinking, effort) = match think {
            Some(Think::Switch(false)) => (Thinking::Hidden, None),
            Some(Think::Switch(true)) | None => (Thinking::Shown, None),
            Some(Think::Level(level)) => (Thinking::Shown, Some(level).filter(|level| !level.is_empty())),
        };
        let options = options.map(|options| options.0).unwrap_or_default();
        let stream = stream.unwrap_or(true);
        Self { stream, thinking, effort, format, options, logprobs: None, top_logprobs: None }
    }

    pub(super) fn with_logprobs(self, logprobs: Option<bool>, top_logprobs: Option<u64>) -> Self {
        Self { logprobs, top_logprobs, ..self }
    }

    /// The options for a provider.
    pub(super) fn options(&self, tools: Option<Box<RawValue>>) -> Result<Options, ApiError> {
        if tools.as_ref().is_some_and(|tools| !is_list_of_objects(tools)) {
            return Err(ApiError::invalid("invalid_value", "`tools` is an array of objects").about("tools"));
        }
        let given = &self.options;
        let raw = |value: &Option<Box<RawValue>>| value.clone().map(Json::from);
        let more = [
            ("response_format", self.response_format()?),
            ("reasoning_effort", self.effort.as_ref().map(|effort| Json::from(&json!(effort)))),
            ("top_k", raw(&given.top_k)),
            ("min_p", raw(&given.min_p)),
            ("stop", raw(&given.stop)),
            ("seed", raw(&given.seed)),
            ("repetition_penalty", raw(&given.repeat_penalty)),
            ("presence_penalty", raw(&given.presence_penalty)),
            ("frequency_penalty", raw(&given.frequency_penalty)),
            ("logprobs", self.logprobs.map(|wanted| Json::from(&json!(wanted)))),
            ("top_logprobs", self.top_logprobs.map(|number| Json::from(&json!(number)))),
        ];
        Ok(Options {
            max_tokens: given.num_predict.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0),
            temperature: given.temperature.clone(),
            top_p: given.top_p.clone(),
            // An empty list is the default of some clients, and an error for some services.
            tools: tools.filter(|tools| tools.get() != "[]").map(Json::from),
            metadata: Vec::new(),
            more: more.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            choices: None,
        })
    }

    /// `format`, which is `"json"` or a schema, as the `response_format` of chat completions.
    fn response_format(&self) -> Result<Option<Json>, ApiError> {
        let Some(format) = &self.format else { return Ok(None) };
        match format.get() {
            "\"\"" => Ok(None),
            "\"json\"" => Ok(Some(Json::from(&json!({"type": "json_object"})))),
            schema if schema.starts_with('{') => {
                let wanted =
                    ResponseFormat { kind: "json_schema", json_schema: Schema { name: "answer", schema: format } };
                Ok(to_raw_value(&wanted).ok().map(Json::from))
            }
            _ => Err(ApiError::invalid("invalid_value", "`format` is \"json\" or a JSON schema").about("format")),
        }
    }
}

#[derive(serde::Serialize)]
struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    json_schema: Schema<'a>,
}

#[derive(serde::Serialize)]
struct Schema<'a> {
    name: &'static str,
    schema: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn settings(think: Value, format: Value, options: Value) -> Settings {
        let raw = |value: &Value| to_raw_value(value).unwrap();
        Settings::new(
            None,
            serde_json::from_value(think).unwrap(),
            (!format.is_null()).then(|| raw(&format)),
            serde_json::from_str(&options.to_string()).unwrap(),
        )
    }

    #[test]
    fn options_get_the_names_of_chat_completions() {
        let given = json!({"num_predict": 9, "temperature": 0, "top_p": 0.5, "top_k": 4, "min_p": 0.1, "stop": ["a"],
            "seed": 7, "repeat_penalty": 1.1, "presence_penalty": 1, "frequency_penalty": 2, "num_ctx": 4096});
        let options = settings(json!("high"), json!("json"), given).options(None).unwrap();
        assert_eq!(
            (options.max_tokens, options.temperature, options.top_p),
            (Some(9), Some(0.into()), Number::from_f64(0.5))
        );
        let more: Vec<(&str, &str)> = options.more.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(
            more,
            [
                ("response_format", r#"{"type":"json_object"}"#),
                ("reasoning_effort", "\"high\""),
                ("top_k", "4"),
                ("min_p", "0.1"),
                ("stop", r#"["a"]"#),
                ("seed", "7"),
                ("repetition_penalty", "1.1"),
                ("presence_penalty", "1"),
                ("frequency_penalty", "2"),
            ]
        );
    }

    #[test]
    fn thinking_is_shown_unless_it_is_switched_off_and_answers_are_streamed_by_default() {
        for (think, thinking) in [
            (json!(null), Thinking::Shown),
            (json!(true), Thinking::Shown),
            (json!("low"), Thinking::Shown),
            (json!(false), Thinking::Hidden),
        ] {
            let settings = settings(think, json!(null), json!({}));
            assert_eq!((settings.thinking, settings.stream), (thinking, true));
        }
    }

    #[test]
    fn format_is_json_or_a_schema() {
        let format = |format: Value| settings(json!(null), format, json!({"num_predict": -1})).options(None);
        for (given, expected) in [
            (json!(""), None),
            (json!("json"), Some(r#"{"type":"json_object"}"#)),
            (
                json!({"type": "object"}),
                Some(r#"{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object"}}}"#),
            ),
        ] {
            let options = format(given).unwrap();
            assert_eq!(options.more.first().map(|(_, value)| value.as_str()), expected);
            assert_eq!(options.max_tokens, None, "a negative limit is none");
        }
        for wrong in [json!("xml"), json!(7), json!([])] {
            assert_eq!(format(wrong).unwrap_err().param.as_deref(), Some("format"));
        }
    }

    #[test]
    fn tools_are_a_list_of_objects() {
        let with = |tools: Value| settings(json!(null), json!(null), json!(null)).options(to_raw_value(&tools).ok());
        assert_eq!(with(json!([{"type": "function"}])).unwrap().tools.unwrap().as_str(), r#"[{"type":"function"}]"#);
        assert_eq!(with(json!([])).unwrap().tools, None);
        assert_eq!(with(json!({})).unwrap_err().param.as_deref(), Some("tools"));
    }
}
