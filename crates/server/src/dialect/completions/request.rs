//! The body of `POST /v1/completions`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use trunkline_core::turn::{Json, Options};
use trunkline_wire::chat::StreamOptions;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::{checked, missing};
use trunkline_wire::stream::UsageChunk;

#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    pub(super) model: Option<String>,
    prompt: Option<Box<RawValue>>,
    suffix: Option<String>,
    stream: Option<bool>,
    stream_options: Option<Object<StreamOptions>>,
    echo: Option<bool>,
    n: Option<u64>,
    best_of: Option<u64>,
    logprobs: Option<Value>,
    max_tokens: Option<u64>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    stop: Option<Box<RawValue>>,
    seed: Option<Box<RawValue>>,
    presence_penalty: Option<Box<RawValue>>,
    frequency_penalty: Option<Box<RawValue>>,
    logit_bias: Option<Box<RawValue>>,
    user: Option<Box<RawValue>>,
}

impl CompletionRequest {
    /// Refuses options that would change the shape of the answer.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let one_answer = "an agent gives one answer: only 1 is supported";
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::unsupported("n", one_answer));
        }
        if self.best_of.is_some_and(|best_of| best_of != 1) {
            return Err(ApiError::unsupported("best_of", one_answer));
        }
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            let message = "a text cannot be inserted before a suffix: describe the gap in the prompt";
            return Err(ApiError::unsupported("suffix", message));
        }
        if self.logprobs.as_ref().is_some_and(|wanted| *wanted != Value::Bool(false)) {
            let message = "there are no log probabilities of a completion; a service has them for chat completions";
            return Err(ApiError::unsupported("logprobs", message));
        }
        Ok(())
    }

    /// The prompt, which is one text.
    pub(super) fn take_prompt(&mut self) -> Result<String, ApiError> {
        let given = self.prompt.take().ok_or_else(|| missing("prompt"))?;
        let invalid = |message: &str| ApiError::invalid("invalid_value", message).about("prompt");
        let json = given.get();
        let prompt = match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<String>(json).ok(),
            Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(json).unwrap_or_default().as_slice() {
                [one] if one.get().starts_with('"') => serde_json::from_str(one.get()).ok(),
                [first, _, ..] if first.get().starts_with('"') => {
                    let message = "an agent answers one prompt: send a request for each";
                    return Err(ApiError::unsupported("prompt", message));
                }
                [first, ..] if !first.get().starts_with('"') => {
                    return Err(ApiError::unsupported("prompt", "an agent takes text, not tokens"));
                }
                _ => None,
            },
            Some(_) | None => None,
        };
        let prompt = prompt.ok_or_else(|| invalid("`prompt` is a string, or an array with one string"))?;
        if prompt.trim().is_empty() {
            return Err(invalid("the prompt is empty"));
        }
        checked(prompt, || "prompt".to_owned())
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(super) fn is_echoed(&self) -> bool {
        self.echo.unwrap_or(false)
    }

    pub(super) fn usage_chunk(&self) -> UsageChunk {
        let wanted = self.stream_options.as_ref().and_then(|options| options.0.include_usage);
        if wanted == Some(true) { UsageChunk::Wanted } else { UsageChunk::No }
    }

    /// The options for a provider, under the names of chat completions.
    pub(super) fn options(self) -> Options {
        let more = [
            ("stop", self.stop),
            ("seed", self.seed),
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
            ("logit_bias", self.logit_bias),
            ("user", self.user),
        ];
        Options {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            more: more.into_iter().filter_map(|(name, value)| Some((name, Json::from(value?)))).collect(),
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(more: Value) -> CompletionRequest {
        serde_json::from_str(&more.to_string()).unwrap()
    }

    #[test]
    fn prompt_is_one_text() {
        for (prompt, expected) in [
            (json!("hi"), Ok("hi")),
            (json!(["hi"]), Ok("hi")),
            (json!(["a", "b"]), Err("unsupported_parameter")),
            (json!([1, 2]), Err("unsupported_parameter")),
            (json!([[1, 2]]), Err("unsupported_parameter")),
            (json!([]), Err("invalid_value")),
            (json!(""), Err("invalid_value")),
            (json!([" "]), Err("invalid_value")),
            (json!("a\u{0}"), Err("invalid_value")),
            (json!({}), Err("invalid_value")),
            (json!(null), Err("missing_required_parameter")),
        ] {
            let taken = request(json!({"prompt": prompt})).take_prompt();
            assert_eq!(taken.as_deref().map_err(|error| error.code), expected, "{prompt}");
            if let Err(error) = taken {
                assert_eq!(error.param.as_deref(), Some("prompt"));
            }
        }
    }

    #[test]
    fn options_that_change_the_shape_of_the_answer_are_refused() {
        for (more, param) in [
            (json!({"n": 1, "best_of": 1, "suffix": "", "logprobs": null, "echo": true}), None),
            (json!({"logprobs": false}), None),
            (json!({"n": 2}), Some("n")),
            (json!({"best_of": 3}), Some("best_of")),
            (json!({"suffix": "end"}), Some("suffix")),
            (json!({"logprobs": 0}), Some("logprobs")),
        ] {
            let refused = request(more.clone()).check().err().and_then(|error| error.param);
            assert_eq!(refused.as_deref(), param, "{more}");
        }
    }
}
