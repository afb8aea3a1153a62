//! A chunk or a whole completion as upstreams send them. Both have one shape: what differs is the name of one member.
//!
//! Everything may be missing, null or of another type than it should be; a member that cannot be read is as good as
//! absent, and the others still count. Lists are bounded while they are read.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use trunkline_core::event::Usage;

use crate::chat::List;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// `error` where the members of an error stand beside it, not inside.
    pub(super) object: Lenient<String>,
    pub(super) model: Lenient<String>,
    #[serde(borrow)]
    choices: Lenient<List<Choice<'a>, 128>>,
    usage: Lenient<Counts>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    index: Lenient<u64>,
    #[serde(borrow)]
    delta: Lenient<Said<'a>>,
    #[serde(borrow)]
    message: Lenient<Said<'a>>,
    pub(super) finish_reason: Lenient<String>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A delta, or the whole message.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Said<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    refusal: Lenient<String>,
    reasoning_content: Lenient<String>,
    reasoning: Lenient<String>,
    #[serde(borrow)]
    tool_calls: Lenient<List<Piece<'a>, 1024>>,
    #[serde(borrow)]
    function_call: Lenient<Function<'a>>,
}

/// A piece of a call, or all of it.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Piece<'a> {
    pub(super) index: Lenient<u64>,
    pub(super) id: Lenient<String>,
    #[serde(borrow)]
    function: Lenient<Function<'a>>,
    /// A tool with free text for input.
    #[serde(borrow)]
    custom: Lenient<Function<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    pub(super) name: Lenient<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Counts {
    prompt_tokens: Lenient<u64>,
    completion_tokens: Lenient<u64>,
    prompt_tokens_details: Lenient<CachedCount>,
    /// DeepSeek's name for what came from its cache.
    prompt_cache_hit_tokens: Lenient<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct CachedCount {
    cached_tokens: Lenient<u64>,
}

/// A part of a content that is a list. Reasoning models put what they thought into parts of its own.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Part<'a> {
    text: Lenient<String>,
    refusal: Lenient<String>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
}

/// A member that is none when it cannot be read.
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

impl<'a> Chunk<'a> {
    /// Reads one object; none if it is anything else.
    pub(super) fn parse(json: &'a str) -> Option<Self> {
        // A list would be read as the members in their order.
        json.trim_start().starts_with('{').then(|| serde_json::from_str(json).ok()).flatten()
    }

    /// The first choice: nobody asked for more.
    pub(super) fn choice(&mut self) -> Option<Choice<'a>> {
        let choices = self.choices.0.take()?.0;
        choices.into_iter().find(|choice| choice.index.0.unwrap_or(0) == 0)
    }

    /// None where nothing was counted: some servers send zeros until they know.
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

impl<'a> Choice<'a> {
    /// Whether it has a whole message rather than a piece of one.
    pub(super) fn is_whole(&self) -> bool {
        self.delta.0.is_none() && self.message.0.is_some()
    }

    pub(super) fn said(&mut self) -> Said<'a> {
        self.delta.0.take().or_else(|| self.message.0.take()).unwrap_or_default()
    }
}

impl<'a> Said<'a> {
    /// What was thought and what was answered.
    pub(super) fn words(&mut self) -> (String, String) {
        let (mut thought, mut answer) = self.content.map(words_of).unwrap_or_default();
        answer.extend(self.refusal.0.take());
        // Servers in between versions send the same text under both names.
        let named = [self.reasoning_content.0.take(), self.reasoning.0.take()];
        thought.extend(named.into_iter().flatten().find(|text| !text.is_empty()));
        (thought, answer)
    }

    pub(super) fn pieces(self) -> impl Iterator<Item = Piece<'a>> {
        let old = self.function_call.0.map(|function| Piece { function: Lenient(Some(function)), ..Piece::default() });
        self.tool_calls.0.map(|list| list.0).unwrap_or_default().into_iter().chain(old)
    }
}

impl<'a> Piece<'a> {
    pub(super) fn function(&mut self) -> Function<'a> {
        self.function.0.take().or_else(|| self.custom.0.take()).unwrap_or_default()
    }
}

impl<'a> Function<'a> {
    /// Some servers send the object itself where a string of JSON belongs.
    pub(super) fn arguments(&self) -> Cow<'a, str> {
        let raw = self.arguments.or(self.input).map_or("", RawValue::get);
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw).map_or(Cow::Borrowed(raw), Cow::Owned),
            _ => Cow::Borrowed(raw),
        }
    }
}

fn words_of(content: &RawValue) -> (String, String) {
    let json = content.get();
    if let Ok(text) = serde_json::from_str::<String>(json) {
        return (String::new(), text);
    }
    let parts = serde_json::from_str::<List<Part<'_>, 4096>>(json).map(|list| list.0).unwrap_or_default();
    let (mut thought, mut answer) = (String::new(), String::new());
    for part in parts {
        answer.extend(part.text.0);
        answer.extend(part.refusal.0);
        thought.extend(part.thinking.map(thinking_of));
    }
    (thought, answer)
}

/// A text, or parts with texts.
fn thinking_of(thinking: &RawValue) -> String {
    let json = thinking.get();
    serde_json::from_str::<String>(json).unwrap_or_else(|_| {
        let parts = serde_json::from_str::<List<Part<'_>, 4096>>(json).map(|list| list.0).unwrap_or_default();
        parts.into_iter().filter_map(|part| part.text.0).collect()
    })
}
