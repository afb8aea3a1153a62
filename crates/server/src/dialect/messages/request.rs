//! The body of `POST /v1/messages`: the members that the gateway uses or passes on. All others are ignored.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, Value};
use trunkline_core::turn::{AnswerTiming, Json, Options, Turn};
use trunkline_wire::body;
use trunkline_wire::chat::{BoundedList, Wishes};
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::{may_name_a_model, missing};
use trunkline_wire::upstream::NEWER_LIMIT;

use super::blocks::{Content, WireMessage};
use super::history;
use super::tools::{self, ToolChoice};
use crate::dialect::reasoning::Reasoning;
use crate::dialect::{Delivery, functions, question};

/// Maximum number of messages, as Anthropic has it.
const MAX_MESSAGES: usize = 100_000;

/// Longest id of an end user that is passed on.
const MAX_USER_BYTES: usize = 1024;

#[derive(Debug, Deserialize)]
pub(super) struct MessagesRequest {
    model: Option<String>,
    messages: Option<BoundedList<Object<WireMessage>, MAX_MESSAGES>>,
    system: Option<Content>,
    /// Required by Anthropic. An agent has no use for it, so a request without it is answered, too.
    max_tokens: Option<u64>,
    stream: Option<bool>,
    stop_sequences: Option<BoundedList<String, 1024>>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    top_k: Option<u64>,
    metadata: Option<Object<Metadata>>,
    tools: Option<BoundedList<Box<RawValue>, 4096>>,
    tool_choice: Option<Object<ToolChoice>>,
    thinking: Option<Object<Thinking>>,
    output_config: Option<Object<OutputConfig>>,
    /// The former place of `output_config.format`.
    output_format: Option<Object<OutputFormat>>,
    /// Our extension: options for the gateway.
    trunkline: Option<Object<Wishes>>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    user_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    display: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OutputConfig {
    format: Option<Object<OutputFormat>>,
}

#[derive(Debug, Deserialize)]
struct OutputFormat {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
}

impl MessagesRequest {
    /// Parses and checks a body. The error names the invalid member.
    pub(super) fn parse(text: &[u8]) -> Result<Self, ApiError> {
        let request: Self = body::parse(text)?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), ApiError> {
        let invalid = |param: &str, message: &str| Err(ApiError::invalid("invalid_value", message).about(param));
        if self.max_tokens == Some(0) {
            return invalid("max_tokens", "`max_tokens` is at least 1");
        }
        match self.thinking.as_ref().map(|thinking| thinking.0.kind.as_str()) {
            None | Some("enabled" | "adaptive" | "disabled") => {}
            Some(_) => return invalid("thinking.type", "`thinking.type` is enabled, adaptive or disabled"),
        }
        if let Some(format) = self.format() {
            match (format.kind.as_str(), &format.schema) {
                ("json_schema", Some(Value::Object(_))) => {}
                ("json_schema", _) => return invalid("output_config.format.schema", "the schema is an object"),
                _ => return invalid("output_config.format.type", "`output_config.format.type` is json_schema"),
            }
        }
        if let Some(choice) = &self.tool_choice {
            choice.0.check()?;
        }
        tools::check(self.tools())
    }

    pub(super) fn delivery(&self) -> Delivery {
        if self.stream == Some(true) { Delivery::Streamed } else { Delivery::Whole }
    }

    /// Whether the client asked to see the reasoning.
    pub(super) fn reasoning(&self) -> Reasoning {
        match self.thinking.as_ref().map(|thinking| (thinking.0.kind.as_str(), thinking.0.display.as_deref())) {
            Some(("enabled" | "adaptive", display)) if display != Some("omitted") => Reasoning::Shown,
            Some(_) | None => Reasoning::Hidden,
        }
    }

    /// Converts the request, or returns an error that names the invalid member.
    pub(super) fn into_turn(mut self) -> Result<Turn, ApiError> {
        let options = self.options();
        let shown = match self.delivery() {
            Delivery::Streamed => AnswerTiming::AsItComes,
            Delivery::Whole | Delivery::Later => AnswerTiming::AtTheEnd,
        };
        let model = self.model.take().ok_or_else(|| missing("model"))?;
        if !may_name_a_model(&model) {
            return Err(ApiError::unknown_model(&[]));
        }
        let given = self.messages.take().ok_or_else(|| missing("messages"))?.0;
        let mut messages = Vec::with_capacity(given.len() + 1);
        messages.extend(self.system.take().map(history::system).transpose()?.flatten());
        for (index, message) in given.into_iter().enumerate() {
            history::append(&mut messages, message.0, &format!("messages[{index}]"))?;
        }
        let on_disconnect = self.trunkline.and_then(|wishes| wishes.0.on_disconnect);
        let turn = Turn { model, messages, options, shown, on_disconnect, ..Turn::default() };
        question::check(&turn, "messages")?;
        Ok(turn)
    }

    fn tools(&self) -> &[Box<RawValue>] {
        self.tools.as_ref().map(|tools| &*tools.0).unwrap_or_default()
    }

    fn format(&self) -> Option<&OutputFormat> {
        let config = self.output_config.as_ref().and_then(|config| config.0.format.as_ref());
        config.or(self.output_format.as_ref()).map(|format| &format.0)
    }

    /// The options for a provider, under the names of chat completions.
    ///
    /// `output_config.effort` and `service_tier` are not passed on: clients such as Claude Code always send them, and models
    /// of other vendors refuse a request with values that they do not know.
    fn options(&self) -> Options {
        let tools = tools::for_chat(self.tools());
        let choice = self.tool_choice.as_ref().filter(|_| tools.is_some()).map(|choice| &choice.0);
        let serial = choice.and_then(|choice| choice.disable_parallel_tool_use) == Some(true);
        let schema = self.format().and_then(|format| format.schema.as_ref());
        let stop = self.stop_sequences.as_ref().filter(|stop| !stop.0.is_empty());
        let user = self.metadata.as_ref().and_then(|metadata| metadata.0.user_id.as_deref());
        let more = [
            ("tool_choice", choice.map(ToolChoice::for_chat)),
            ("parallel_tool_calls", serial.then_some(false.into())),
            ("response_format", schema.map(|schema| functions::schema_format("output", schema))),
            ("stop", stop.map(|stop| stop.0.as_slice().into())),
            ("top_k", self.top_k.map(Value::from)),
            ("user", user.filter(|user| user.len() <= MAX_USER_BYTES).map(Value::from)),
            (NEWER_LIMIT, self.max_tokens.map(Value::from)),
        ];
        Options {
            max_tokens: self.max_tokens,
            temperature: self.temperature.clone(),
            top_p: self.top_p.clone(),
            tools: tools.map(|tools| json(&tools)),
            metadata: Vec::new(),
            more: more.into_iter().filter_map(|(name, value)| Some((name, json(&value?)))).collect(),
            choices: None,
        }
    }
}

fn json(value: &impl Serialize) -> Json {
    to_raw_value(value).expect("JSON that was parsed before always serialises").into()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
