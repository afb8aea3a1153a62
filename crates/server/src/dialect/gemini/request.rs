//! The body of `:generateContent`, `:streamGenerateContent` and `:countTokens`: the members that the gateway uses or passes on.
//! All others, such as `safetySettings`, are ignored.

use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use serde_json::{Number, Value, json};
use trunkline_core::turn::{AnswerTiming, Json, Options, Turn};
use trunkline_wire::chat::{BoundedList, Wishes};
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::{may_name_a_model, missing};
use trunkline_wire::upstream::NEWER_LIMIT;

use super::contents::{Content, OneOrMany};
use super::history::History;
use super::schema::json_schema;
use super::tools::{self, Tool, ToolConfig};
use crate::dialect::reasoning::Reasoning;
use crate::dialect::{functions, question};

/// Maximum number of contents.
const MAX_CONTENTS: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerateRequest {
    contents: Option<OneOrMany<Content, MAX_CONTENTS>>,
    #[serde(alias = "system_instruction")]
    system_instruction: Option<Object<Content>>,
    #[serde(alias = "generation_config")]
    generation_config: Option<Object<GenerationConfig>>,
    tools: Option<OneOrMany<Tool, 1024>>,
    #[serde(alias = "tool_config")]
    tool_config: Option<Object<ToolConfig>>,
    #[serde(alias = "cached_content")]
    cached_content: Option<String>,
    /// Our extension: options for the gateway.
    trunkline: Option<Object<Wishes>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    temperature: Option<Number>,
    #[serde(alias = "top_p")]
    top_p: Option<Number>,
    #[serde(alias = "top_k")]
    top_k: Option<Number>,
    seed: Option<Number>,
    #[serde(alias = "presence_penalty")]
    presence_penalty: Option<Number>,
    #[serde(alias = "frequency_penalty")]
    frequency_penalty: Option<Number>,
    #[serde(alias = "candidate_count")]
    candidate_count: Option<u64>,
    #[serde(alias = "max_output_tokens")]
    max_output_tokens: Option<u64>,
    #[serde(alias = "stop_sequences")]
    stop_sequences: Option<BoundedList<String, 1024>>,
    #[serde(alias = "response_modalities")]
    response_modalities: Option<BoundedList<String, 16>>,
    #[serde(alias = "response_mime_type")]
    response_mime_type: Option<String>,
    #[serde(alias = "response_schema")]
    response_schema: Option<Value>,
    #[serde(alias = "response_json_schema")]
    response_json_schema: Option<Value>,
    #[serde(alias = "thinking_config")]
    thinking_config: Option<Object<ThinkingConfig>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    #[serde(alias = "include_thoughts")]
    include_thoughts: Option<bool>,
}

impl GenerateRequest {
    /// Whether the client asked to see the reasoning.
    pub(super) fn reasoning(&self) -> Reasoning {
        let config = self.generation_config.as_ref().and_then(|config| config.0.thinking_config.as_ref());
        match config.and_then(|thinking| thinking.0.include_thoughts) {
            Some(true) => Reasoning::Shown,
            Some(false) | None => Reasoning::Hidden,
        }
    }

    /// Converts the request, or returns an error that names the invalid member.
    pub(super) fn into_turn(mut self, model: &str, shown: AnswerTiming) -> Result<Turn, ApiError> {
        if !may_name_a_model(model) {
            return Err(ApiError::unknown_model(&[]));
        }
        if self.cached_content.is_some() {
            return Err(ApiError::unsupported(
                "cachedContent",
                "contents are not stored here: send them as `contents`",
            ));
        }
        let config = self.generation_config.take().map(|config| config.0).unwrap_or_default();
        config.check()?;
        let tools = tools::for_chat(self.tools.take().map(|tools| tools.0).unwrap_or_default())?;
        let choice = self.tool_config.as_ref().filter(|_| tools.is_some()).and_then(|config| config.0.for_chat());
        let options = config.into_options(tools, choice);
        let mut history = History::default();
        if let Some(instruction) = self.system_instruction {
            history.instruct(instruction.0)?;
        }
        for (index, content) in self.contents.ok_or_else(|| missing("contents"))?.0.into_iter().enumerate() {
            history.append(content, &format!("contents[{index}]"))?;
        }
        let on_disconnect = self.trunkline.and_then(|wishes| wishes.0.on_disconnect);
        let messages = history.into_messages();
        let turn = Turn { model: model.to_owned(), messages, options, shown, on_disconnect, ..Turn::default() };
        question::check(&turn, "contents")?;
        Ok(turn)
    }
}

impl GenerationConfig {
    fn check(&self) -> Result<(), ApiError> {
        if self.candidate_count.is_some_and(|count| count > 1) {
            let message = "an agent gives one answer: only one candidate is supported";
            return Err(ApiError::unsupported("generationConfig.candidateCount", message));
        }
        let modalities = self.response_modalities.as_ref().map(|wanted| wanted.0.as_slice()).unwrap_or_default();
        if modalities.iter().any(|modality| !modality.eq_ignore_ascii_case("text")) {
            return Err(ApiError::unsupported("generationConfig.responseModalities", "agents answer in text only"));
        }
        if self.max_output_tokens == Some(0) {
            let message = "`maxOutputTokens` is at least 1";
            return Err(ApiError::invalid("invalid_value", message).about("generationConfig.maxOutputTokens"));
        }
        Ok(())
    }

    /// The options for a provider, under the names of chat completions.
    fn into_options(self, tools: Option<Value>, choice: Option<Value>) -> Options {
        let number = |number: Option<Number>| number.map(Value::Number);
        let wants_json = self.response_mime_type.as_deref() == Some("application/json");
        let schema = self.response_json_schema.or_else(|| self.response_schema.map(json_schema));
        let format = match schema.filter(|schema| schema.is_object()) {
            Some(schema) => Some(functions::schema_format("response", &schema)),
            None => wants_json.then(|| json!({"type": "json_object"})),
        };
        let stop = self.stop_sequences.map(|stop| stop.0).filter(|stop| !stop.is_empty());
        let more = [
            ("tool_choice", choice),
            ("response_format", format),
            ("stop", stop.map(Value::from)),
            ("seed", number(self.seed)),
            ("presence_penalty", number(self.presence_penalty)),
            ("frequency_penalty", number(self.frequency_penalty)),
            ("top_k", self.top_k.map(whole_number)),
            (NEWER_LIMIT, self.max_output_tokens.map(Value::from)),
        ];
        Options {
            max_tokens: self.max_output_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            tools: tools.map(|tools| raw_json(&tools)),
            metadata: Vec::new(),
            more: more.into_iter().filter_map(|(name, value)| Some((name, raw_json(&value?)))).collect(),
            choices: None,
        }
    }
}

/// Google's clients send `topK` as `40.0`, which other vendors refuse.
fn whole_number(number: Number) -> Value {
    match number.as_f64().filter(|value| value.fract() == 0.0 && (0.0..1e9).contains(value)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        Some(value) => Value::from(value as u64),
        None => Value::Number(number),
    }
}

fn raw_json(value: &impl Serialize) -> Json {
    to_raw_value(value).expect("JSON that was parsed before always serialises").into()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
