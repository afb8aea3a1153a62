//! Chat completions exactly as on the wire: the request as clients send it, the response and the chunk as we answer.
//!
//! Requests are parsed leniently: unknown members are ignored, and every optional member may be null. Options that only
//! a model understands (`temperature`, `tools`, `response_format` …) are kept as raw JSON for providers that accept
//! them. Options that would change the shape of the answer are rejected in [`crate::request`]. The length of a list is
//! checked while it is parsed: a body full of brackets must not take a hundred times its size in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use trunkline_core::event::{Enforcement, Receipt, Resumption, SessionId};
use trunkline_core::failure::Category;
use trunkline_core::turn::{Json, OnDisconnect};

use crate::object::Object;

/// The body of `POST /v1/chat/completions`: the members the gateway uses or passes on.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    pub model: Option<String>,
    pub messages: Option<BoundedList<Object<ChatMessage>, 16_384>>,
    pub stream: Option<bool>,
    pub stream_options: Option<Object<StreamOptions>>,
    pub n: Option<u64>,
    pub user: Option<String>,
    pub modalities: Option<BoundedList<String, 8>>,
    pub audio: Option<IgnoredAny>,
    /// Our extension: the session to resume. Raw JSON, because it may be any value for models that keep no sessions.
    pub session_id: Option<Box<RawValue>>,
    /// Our extension: options for the gateway.
    pub trunkline: Option<Object<Wishes>>,
    pub metadata: Option<Metadata>,
    pub max_tokens: Option<u64>,
    pub max_completion_tokens: Option<u64>,
    pub temperature: Option<serde_json::Number>,
    pub top_p: Option<serde_json::Number>,
    pub tools: Option<Box<RawValue>>,
    pub tool_choice: Option<Box<RawValue>>,
    pub parallel_tool_calls: Option<Box<RawValue>>,
    pub response_format: Option<Box<RawValue>>,
    pub stop: Option<Box<RawValue>>,
    pub seed: Option<Box<RawValue>>,
    pub presence_penalty: Option<Box<RawValue>>,
    pub frequency_penalty: Option<Box<RawValue>>,
    pub logit_bias: Option<Box<RawValue>>,
    pub reasoning_effort: Option<Box<RawValue>>,
    pub verbosity: Option<Box<RawValue>>,
    pub service_tier: Option<Box<RawValue>>,
    pub prompt_cache_key: Option<Box<RawValue>>,
    pub top_k: Option<Box<RawValue>>,
    pub min_p: Option<Box<RawValue>>,
    pub repetition_penalty: Option<Box<RawValue>>,
    pub logprobs: Option<Box<RawValue>>,
    pub top_logprobs: Option<Box<RawValue>>,
    pub store: Option<Box<RawValue>>,
    /// The deprecated predecessors of `tools` and `tool_choice`.
    pub functions: Option<Box<RawValue>>,
    pub function_call: Option<Box<RawValue>>,
}

/// Format of the calls that a client has to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallFormat {
    #[default]
    ToolCalls,
    /// The deprecated predecessor, for a single call.
    FunctionCall,
}

/// Options for the gateway rather than for the model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wishes {
    pub on_disconnect: Option<OnDisconnect>,
}

#[derive(Debug, Deserialize)]
pub struct StreamOptions {
    pub include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub struct ChatMessage {
    pub role: String,
    pub content: Option<Content>,
    pub refusal: Option<String>,
    pub tool_calls: Option<BoundedList<Object<ChatToolCall>, 1024>>,
    /// In a tool's message: the call it answers.
    pub tool_call_id: Option<String>,
    /// Name of the participant, or of the function whose result this is.
    pub name: Option<String>,
    /// The deprecated predecessor of `tool_calls`, for a single call.
    pub function_call: Option<Object<Function>>,
}

/// Content of a message: one text, or parts.
#[derive(Debug)]
pub enum Content {
    Text(String),
    Parts(BoundedList<Object<ContentPart>, 4096>),
}

/// One part of a message. A flat struct rather than an enum, so that a parse error can name the path inside it.
#[derive(Debug, Deserialize)]
pub struct ContentPart {
    #[serde(rename = "type")]
    pub kind: String,
    pub text: Option<String>,
    pub refusal: Option<String>,
    pub image_url: Option<Object<ImageUrl>>,
}

#[derive(Debug, Deserialize)]
pub struct ImageUrl {
    pub url: String,
}

/// A call in the message history: of a function, or of a custom tool that takes free text.
#[derive(Debug, Deserialize)]
#[serde(try_from = "WireToolCall")]
pub struct ChatToolCall {
    pub id: String,
    pub function: Function,
}

#[derive(Debug, Deserialize)]
pub struct Function {
    pub name: String,
    #[serde(alias = "input")]
    pub arguments: Option<String>,
}

#[derive(Deserialize)]
struct WireToolCall {
    id: Option<String>,
    function: Option<Object<Function>>,
    custom: Option<Object<Function>>,
}

impl TryFrom<WireToolCall> for ChatToolCall {
    type Error = &'static str;

    fn try_from(call: WireToolCall) -> Result<Self, Self::Error> {
        let function = call.function.or(call.custom).ok_or("a tool call needs a `function`")?;
        Ok(Self { id: call.id.unwrap_or_default(), function: function.0 })
    }
}

impl ChatRequest {
    /// Treats `session_id` and `metadata.session_id` as the client's own data, for a model that keeps no sessions.
    pub fn ignore_session(&mut self) {
        self.session_id = None;
        if let Some(metadata) = &mut self.metadata
            && let Some(id) = metadata.session_id.take()
        {
            metadata.entries.push((SESSION_ENTRY.to_owned(), id.into()));
        }
    }

    /// Format in which the client gets its calls.
    #[must_use]
    pub fn call_format(&self) -> CallFormat {
        let old = self.functions.is_some() && self.tools.is_none();
        if old { CallFormat::FunctionCall } else { CallFormat::ToolCalls }
    }

    /// Whether the client wants a last chunk with the usage.
    #[must_use]
    pub fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.0.include_usage).unwrap_or(false)
    }
}

/// A list of at most `MAX` elements; parsing fails at the first element beyond that.
#[derive(Debug)]
pub struct BoundedList<T, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = BoundedList<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element()? {
            if list.len() == MAX {
                return Err(serde::de::Error::invalid_length(MAX + 1, &self));
            }
            list.push(element);
        }
        Ok(BoundedList(list))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, null or an array of content parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Content, A::Error> {
                ListVisitor(PhantomData).visit_seq(seq).map(Content::Parts)
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}

const SESSION_ENTRY: &str = "session_id";

/// The request's `metadata`. OpenAI allows sixteen entries; the gateway itself only uses `session_id`.
#[derive(Debug, Default)]
pub struct Metadata {
    pub session_id: Option<Box<RawValue>>,
    /// All other entries.
    pub entries: Vec<(String, Json)>,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;
        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of at most 16 entries")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut metadata = Metadata::default();
                let mut entries = 0;
                while let Some(key) = map.next_key::<String>()? {
                    entries += 1;
                    if entries > 16 {
                        return Err(serde::de::Error::invalid_length(entries, &self));
                    }
                    if key == SESSION_ENTRY {
                        metadata.session_id = map.next_value()?;
                    } else {
                        metadata.entries.push((key, map.next_value::<Box<RawValue>>()?.into()));
                    }
                }
                Ok(metadata)
            }
        }
        deserializer.deserialize_map(MetadataVisitor)
    }
}

/// A complete, non-streamed response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    pub id: String,
    pub object: String,
    pub created: u64,
    pub model: String,
    pub choices: Vec<Choice>,
    pub usage: TokenCounts,
    pub trunkline: Extension,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub index: u32,
    pub message: AssistantMessage,
    pub finish_reason: FinishReason,
    pub logprobs: Option<Logprobs>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    pub role: String,
    /// Null when there are only tool calls.
    pub content: Option<String>,
    pub refusal: (),
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<MessageCall>,
    /// The deprecated predecessor of `tool_calls`, for clients that sent `functions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_call: Option<CalledFunction>,
}

/// Log probabilities as the upstream sent them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Logprobs(Box<RawValue>);

impl Logprobs {
    /// Log probabilities from their JSON text.
    #[must_use]
    pub fn new(json: String) -> Option<Self> {
        RawValue::from_string(json).ok().map(Self)
    }
}

impl PartialEq for Logprobs {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A complete tool call that the client is asked to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCall {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub function: CalledFunction,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalledFunction {
    pub name: String,
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    Length,
    ContentFilter,
    ToolCalls,
    FunctionCall,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub prompt_tokens_details: PromptTokens,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTokens {
    pub cached_tokens: u64,
}

/// Our addition to OpenAI's members: how the answer was produced, and the workspace it left behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    pub run: String,
    pub provider: String,
    pub session_id: Option<SessionId>,
    /// How the turn got its session; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Resumption>,
    pub attempts: Vec<AttemptObject>,
    pub workspace: Option<Receipt>,
    /// Set when the CLI reported no usage and it was estimated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub usage_estimated: bool,
    /// The provider's metadata about its answer.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Remarks of the gateway about the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Members of the request that had no effect on the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

/// One attempt at the turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptObject {
    pub provider: String,
    pub model: String,
    /// `ok`, or the name of a failure's category.
    pub outcome: String,
    /// Null when the attempt succeeded.
    pub category: Option<Category>,
    pub duration_ms: u64,
    /// The failure's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The workspace of a failed attempt, if the next attempt started over in its own worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Receipt>,
    /// The sandbox that enforced its permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Enforcement>,
}

/// One step of a streamed answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatChunk {
    pub id: String,
    pub object: String,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChunkChoice>,
    /// Absent unless the client asked for it; then null in every chunk but the last.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub usage: Option<Option<TokenCounts>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunkline: Option<Extension>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    pub index: u32,
    pub delta: Delta,
    pub finish_reason: Option<FinishReason>,
    pub logprobs: Option<Logprobs>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Delta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Thinking and tool activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
}

/// Distinguishes null from an absent member.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
