//! The body of `POST /v1/responses`: the members that the gateway uses, passes on or repeats in its answer.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Number, Value};
use trunkline_core::mcp_server::RequestedServer;
use trunkline_core::turn::{Json, OnDisconnect, Options, RequestMember};
use trunkline_wire::chat::BoundedList;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::missing;
use trunkline_wire::upstream::NEWER_LIMIT;

use super::echo::{Echo, EchoedText, Reasoning, TextFormat};
use super::items::Input;
use super::mcp_tools;
use super::tools::{self, ToolChoice};

/// Maximum number of entries in `metadata`, as OpenAI has it.
const MAX_METADATA: usize = 16;

#[derive(Debug, Deserialize)]
pub(super) struct ResponsesRequest {
    pub(super) model: Option<String>,
    pub(super) input: Option<Input>,
    pub(super) instructions: Option<String>,
    pub(super) previous_response_id: Option<String>,
    store: Option<bool>,
    background: Option<bool>,
    stream: Option<bool>,
    metadata: Option<Map<String, Value>>,
    reasoning: Option<Object<Reasoning>>,
    text: Option<Object<TextOptions>>,
    include: Option<BoundedList<String, 64>>,
    truncation: Option<String>,
    max_output_tokens: Option<u64>,
    max_tool_calls: Option<u64>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    top_logprobs: Option<u64>,
    tools: Option<BoundedList<Box<RawValue>, 4096>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    user: Option<String>,
    safety_identifier: Option<String>,
    prompt_cache_key: Option<String>,
    service_tier: Option<String>,
    /// Conversations and prompts that OpenAI stores. There are none here.
    conversation: Option<Box<RawValue>>,
    prompt: Option<Box<RawValue>>,
    /// Our extension: options for the gateway.
    trunkline: Option<Object<Wishes>>,
}

/// Options for the gateway rather than for the model.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wishes {
    pub(super) on_disconnect: Option<OnDisconnect>,
    /// Whether tools of the agent are items of their own, of the type `trunkline:tool_call`.
    pub(super) tool_items: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct TextOptions {
    format: Option<Object<TextFormat>>,
    verbosity: Option<String>,
}

impl ResponsesRequest {
    /// Refuses what cannot be done, with an error that names the member.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let invalid = |param: &str, message: &str| Err(ApiError::invalid("invalid_value", message).about(param));
        if self.is_background() && !self.is_stored() {
            return invalid("background", "a background response must be stored: leave `store` out, or set it to true");
        }
        if self.conversation.is_some() {
            let message = "conversations are not stored here: continue one with `previous_response_id`";
            return Err(ApiError::unsupported("conversation", message));
        }
        if self.prompt.is_some() {
            return Err(ApiError::unsupported("prompt", "prompts are not stored here: send it as `instructions`"));
        }
        if self.truncation.as_deref().is_some_and(|truncation| !["auto", "disabled"].contains(&truncation)) {
            return invalid("truncation", "`truncation` is auto or disabled");
        }
        if self.max_output_tokens == Some(0) {
            return invalid("max_output_tokens", "`max_output_tokens` is at least 1");
        }
        if let Some(metadata) = &self.metadata {
            if metadata.len() > MAX_METADATA {
                return invalid("metadata", "`metadata` has at most 16 entries");
            }
            if let Some((name, _)) = metadata.iter().find(|(_, value)| !value.is_string()) {
                let message = "the values of `metadata` are strings";
                return Err(ApiError::invalid("invalid_value", message).about(format!("metadata.{name}")));
            }
        }
        match self.text.as_ref().and_then(|text| text.0.format.as_ref()).map(|format| (&*format.0.kind, &format.0)) {
            None | Some(("text" | "json_object", _)) => Ok(()),
            Some(("json_schema", format)) if format.name.is_none() => Err(missing("text.format.name")),
            Some(("json_schema", format)) if format.schema.is_none() => Err(missing("text.format.schema")),
            Some(("json_schema", _)) => Ok(()),
            Some(_) => invalid("text.format.type", "`text.format.type` is text, json_object or json_schema"),
        }?;
        tools::check(self.tools())
    }

    pub(super) fn is_stored(&self) -> bool {
        self.store.unwrap_or(true)
    }

    pub(super) fn is_background(&self) -> bool {
        self.background.unwrap_or(false)
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(super) fn take_wishes(&mut self) -> Wishes {
        self.trunkline.take().map(|wishes| wishes.0).unwrap_or_default()
    }

    /// Tools that not every provider gets.
    pub(super) fn members_of_tools(&self) -> Vec<RequestMember> {
        let servers = if self.forbids_tools() { Vec::new() } else { mcp_tools::members(self.tools()) };
        tools::without_effect(self.tools()).into_iter().chain(servers).collect()
    }

    /// MCP servers that the CLI may use.
    pub(super) fn servers(&self) -> Result<Vec<RequestedServer>, ApiError> {
        let servers = mcp_tools::servers(self.tools())?;
        Ok(if self.forbids_tools() { Vec::new() } else { servers })
    }

    fn forbids_tools(&self) -> bool {
        matches!(&self.tool_choice, Some(ToolChoice::Mode(mode)) if mode == "none")
    }

    fn tools(&self) -> &[Box<RawValue>] {
        self.tools.as_ref().map(|tools| &*tools.0).unwrap_or_default()
    }

    /// The options for a provider, under the names of chat completions.
    pub(super) fn options(&self) -> Options {
        let format = self.text.as_ref().and_then(|text| text.0.format.as_ref());
        let verbosity = self.text.as_ref().and_then(|text| text.0.verbosity.as_ref());
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.0.effort.as_ref());
        let more = [
            ("tool_choice", self.tool_choice.as_ref().map(ToolChoice::for_chat)),
            ("parallel_tool_calls", self.parallel_tool_calls.map(Value::from)),
            ("response_format", format.map(|format| response_format(&format.0))),
            ("reasoning_effort", effort.map(|effort| effort.as_str().into())),
            ("verbosity", verbosity.map(|verbosity| verbosity.as_str().into())),
            ("service_tier", self.service_tier.as_deref().map(Value::from)),
            ("prompt_cache_key", self.prompt_cache_key.as_deref().map(Value::from)),
            ("user", self.user.as_deref().map(Value::from)),
            (NEWER_LIMIT, self.max_output_tokens.map(Value::from)),
        ];
        let metadata = self.metadata.iter().flatten().map(|(name, value)| (name.clone(), json(value))).collect();
        Options {
            max_tokens: self.max_output_tokens,
            temperature: self.temperature.clone(),
            top_p: self.top_p.clone(),
            tools: tools::for_chat(self.tools()).map(|tools| json(&tools)),
            metadata,
            more: more.into_iter().filter_map(|(name, value)| Some((name, json(&value?)))).collect(),
            choices: None,
        }
    }

    /// The members that the answer repeats, as far as they are given.
    pub(super) fn echo(&self) -> Box<RawValue> {
        let text = self.text.as_ref().map(|text| EchoedText {
            format: text.0.format.as_ref().map(|format| &format.0),
            verbosity: text.0.verbosity.as_deref(),
        });
        let shown = |tool: &RawValue| mcp_tools::without_secrets(tool).unwrap_or_else(|| tool.to_owned());
        let tools: Vec<Box<RawValue>> = self.tools().iter().map(|tool| shown(tool)).collect();
        let echo = Echo {
            model: self.model.as_deref().unwrap_or_default(),
            background: Some(true).filter(|_| self.is_background()),
            include: self.include.as_ref().map(|include| &*include.0).filter(|include| !include.is_empty()),
            instructions: self.instructions.as_deref(),
            max_output_tokens: self.max_output_tokens,
            max_tool_calls: self.max_tool_calls,
            metadata: self.metadata.as_ref(),
            parallel_tool_calls: self.parallel_tool_calls,
            previous_response_id: self.previous_response_id.as_deref(),
            prompt_cache_key: self.prompt_cache_key.as_deref(),
            reasoning: self.reasoning.as_ref().map(|given| &given.0),
            safety_identifier: self.safety_identifier.as_deref(),
            service_tier: self.service_tier.as_deref(),
            store: Some(false).filter(|_| !self.is_stored()),
            temperature: self.temperature.as_ref(),
            text,
            tool_choice: self.tool_choice.as_ref(),
            tools: &tools,
            top_logprobs: self.top_logprobs,
            top_p: self.top_p.as_ref(),
            truncation: self.truncation.as_deref(),
            user: self.user.as_deref(),
        };
        echo.to_raw()
    }
}

/// `text.format` as the `response_format` of chat completions.
fn response_format(format: &TextFormat) -> Value {
    let mut wanted = Map::new();
    wanted.insert("type".to_owned(), format.kind.as_str().into());
    if format.kind == "json_schema" {
        let mut schema = Map::new();
        schema.extend(format.name.as_deref().map(|name| ("name".to_owned(), name.into())));
        schema.extend(format.description.as_deref().map(|text| ("description".to_owned(), text.into())));
        let given = format.schema.as_deref().and_then(|schema| serde_json::from_str(schema.get()).ok());
        schema.extend(given.map(|given: Value| ("schema".to_owned(), given)));
        schema.extend(format.strict.map(|strict| ("strict".to_owned(), strict.into())));
        wanted.insert("json_schema".to_owned(), schema.into());
    }
    wanted.into()
}

fn json(value: &impl Serialize) -> Json {
    to_raw_value(value).expect("JSON that was parsed before always serialises").into()
}
