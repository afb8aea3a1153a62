//! A streamed chunk or a complete response, as upstreams send them. Both have the same shape except for the name of one
//! member (`delta` or `message`).
//!
//! Every member may be missing, null or of the wrong type. A member that cannot be parsed counts as absent and does not
//! affect the others. The length of a list is checked while it is parsed.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use trunkline_core::event::Usage;

use crate::chat::BoundedList;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct UpstreamChunk<'a> {
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// `error` if the members of the error are at the top level instead of inside `error`.
    pub(super) object: Lenient<String>,
    pub(super) model: Lenient<String>,
    #[serde(borrow)]
    choices: Lenient<BoundedList<UpstreamChoice<'a>, 128>>,
    usage: Lenient<UpstreamUsage>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct UpstreamChoice<'a> {
    index: Lenient<u64>,
    #[serde(borrow)]
    delta: Lenient<UpstreamMessage<'a>>,
    #[serde(borrow)]
    message: Lenient<UpstreamMessage<'a>>,
    pub(super) finish_reason: Lenient<String>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// Log probabilities of the tokens in a choice.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct UpstreamLogprobs<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
}

/// A delta, or the complete message.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct UpstreamMessage<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    refusal: Lenient<String>,
    reasoning_content: Lenient<String>,
    reasoning: Lenient<String>,
    #[serde(borrow)]
    tool_calls: Lenient<BoundedList<ToolCallPiece<'a>, 1024>>,
    #[serde(borrow)]
    function_call: Lenient<UpstreamFunction<'a>>,
}

/// A piece of a tool call, or a complete one.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct ToolCallPiece<'a> {
    pub(super) index: Lenient<u64>,
    pub(super) id: Lenient<String>,
    #[serde(borrow)]
    function: Lenient<UpstreamFunction<'a>>,
    /// A custom tool that takes free text.
    #[serde(borrow)]
    custom: Lenient<UpstreamFunction<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct UpstreamFunction<'a> {
    pub(super) name: Lenient<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct UpstreamUsage {
    prompt_tokens: Lenient<u64>,
    completion_tokens: Lenient<u64>,
    prompt_tokens_details: Lenient<CachedTokens>,
    /// DeepSeek's name for `cached_tokens`.
    prompt_cache_hit_tokens: Lenient<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct CachedTokens {
    cached_tokens: Lenient<u64>,
}

/// An element of a `content` that is a list. Reasoning models send their thinking as separate parts.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct UpstreamPart<'a> {
    text: Lenient<String>,
    refusal: Lenient<String>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
}

/// A member that is `None` if it cannot be parsed.
#[derive(Debug)]
pub(super) struct Lenient<T>(pub(super) Option<T>);

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).ok()))
    }
}

impl<'a> UpstreamChunk<'a> {
    /// Parses one object. Returns `None` for any other JSON.
    pub(super) fn parse(json: &'a str) -> Option<Self> {
        // serde would accept an array as the members in their order.
        json.trim_start().starts_with('{').then(|| serde_json::from_str(json).ok()).flatten()
    }

    /// Takes the choices, each with its index. A choice without an index has that of its position.
    pub(super) fn take_choices(&mut self) -> impl Iterator<Item = (u64, UpstreamChoice<'a>)> + use<'a> {
        let choices = self.choices.0.take().map(|list| list.0).unwrap_or_default();
        (0..).zip(choices).map(|(position, choice)| (choice.index.0.unwrap_or(position), choice))
    }

    /// Returns the usage unless it is all zeros, which some servers send until they know it.
    pub(super) fn usage(&self) -> Option<Usage> {
        let counts = self.usage.0.as_ref()?;
        let details = counts.prompt_tokens_details.0.as_ref().and_then(|details| details.cached_tokens.0);
        let usage = Usage {
            input_tokens: counts.prompt_tokens.0.unwrap_or(0),
            output_tokens: counts.completion_tokens.0.unwrap_or(0),
            cached_tokens: details.or(counts.prompt_cache_hit_tokens.0).unwrap_or(0),
            estimated: false,
        };
        (usage.input_tokens > 0 || usage.output_tokens > 0).then_some(usage)
    }
}

impl<'a> UpstreamChoice<'a> {
    /// Whether it has a complete message rather than a delta.
    pub(super) fn is_whole(&self) -> bool {
        self.delta.0.is_none() && self.message.0.is_some()
    }

    pub(super) fn take_message(&mut self) -> UpstreamMessage<'a> {
        self.delta.0.take().or_else(|| self.message.0.take()).unwrap_or_default()
    }
}

impl<'a> UpstreamMessage<'a> {
    /// Takes the thinking and the answer text, in this order.
    pub(super) fn take_texts(&mut self) -> (String, String) {
        let (mut thought, mut answer) = self.content.map(texts_of).unwrap_or_default();
        answer.extend(self.refusal.0.take());
        // Servers that are migrating from one name to the other send the same text under both.
        let named = [self.reasoning_content.0.take(), self.reasoning.0.take()];
        thought.extend(named.into_iter().flatten().find(|text| !text.is_empty()));
        (thought, answer)
    }

    pub(super) fn pieces(self) -> impl Iterator<Item = ToolCallPiece<'a>> {
        let old = self
            .function_call
            .0
            .map(|function| ToolCallPiece { function: Lenient(Some(function)), ..ToolCallPiece::default() });
        self.tool_calls.0.map(|list| list.0).unwrap_or_default().into_iter().chain(old)
    }
}

impl<'a> ToolCallPiece<'a> {
    pub(super) fn function(&mut self) -> UpstreamFunction<'a> {
        self.function.0.take().or_else(|| self.custom.0.take()).unwrap_or_default()
    }
}

impl<'a> UpstreamFunction<'a> {
    /// Returns the arguments as a string of JSON. Some servers send the object itself.
    pub(super) fn arguments(&self) -> Cow<'a, str> {
        let raw = self.arguments.or(self.input).map_or("", RawValue::get);
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw).map_or(Cow::Borrowed(raw), Cow::Owned),
            _ => Cow::Borrowed(raw),
        }
    }
}

fn texts_of(content: &RawValue) -> (String, String) {
    let json = content.get();
    if let Ok(text) = serde_json::from_str::<String>(json) {
        return (String::new(), text);
    }
    let parts =
        serde_json::from_str::<BoundedList<UpstreamPart<'_>, 4096>>(json).map(|list| list.0).unwrap_or_default();
    let (mut thought, mut answer) = (String::new(), String::new());
    for part in parts {
        answer.extend(part.text.0);
        answer.extend(part.refusal.0);
        thought.extend(part.thinking.map(thinking_of));
    }
    (thought, answer)
}

/// Thinking as a string, or as parts with texts.
fn thinking_of(thinking: &RawValue) -> String {
    let json = thinking.get();
    serde_json::from_str::<String>(json).unwrap_or_else(|_| {
        let parts =
            serde_json::from_str::<BoundedList<UpstreamPart<'_>, 4096>>(json).map(|list| list.0).unwrap_or_default();
        parts.into_iter().filter_map(|part| part.text.0).collect()
    })
}
