//! Serialisation of a turn as the body of `POST /chat/completions`. Options that the client did not set are not sent.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::{self, Display};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, Serializer};
use trunkline_core::event::ToolCall;
use trunkline_core::turn::{AnswerTiming, Image, Json, Message, Role, Turn};

/// The newer name of `max_tokens`, the only one that newer models accept.
pub const NEWER_LIMIT: &str = "max_completion_tokens";

/// The deprecated name of `tools`. A request with it has messages in the old format, too.
pub const FUNCTIONS: &str = "functions";

/// Returns the request body for `turn` on the upstream's `model`, with `system_prompt` before all other messages.
#[must_use]
pub fn request(turn: &Turn, system_prompt: Option<&str>, model: Option<&str>) -> Vec<u8> {
    let body = RequestBody { turn, messages: messages(turn, system_prompt), model };
    serde_json::to_vec(&body).expect("text, numbers and JSON that was parsed before always serialise")
}

struct RequestBody<'a> {
    turn: &'a Turn,
    messages: Vec<SentMessage<'a>>,
    model: Option<&'a str>,
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let options = &self.turn.options;
        let mut body = serializer.serialize_map(None)?;
        entry(&mut body, "model", self.model)?;
        body.serialize_entry("messages", &self.messages)?;
        match self.turn.shown {
            AnswerTiming::AsItComes => {
                body.serialize_entry("stream", &true)?;
                body.serialize_entry("stream_options", &SentStreamOptions { include_usage: true })?;
            }
            AnswerTiming::AtTheEnd => body.serialize_entry("stream", &false)?,
        }
        let has_newer_limit = options.more.iter().any(|(name, _)| *name == NEWER_LIMIT);
        entry(&mut body, "max_tokens", options.max_tokens.filter(|_| !has_newer_limit))?;
        entry(&mut body, "temperature", options.temperature.as_ref())?;
        entry(&mut body, "top_p", options.top_p.as_ref())?;
        entry(&mut body, "tools", options.tools.as_ref())?;
        entry(&mut body, "n", options.choices)?;
        for (name, json) in &options.more {
            body.serialize_entry(name, json)?;
        }
        entry(&mut body, "metadata", (!options.metadata.is_empty()).then_some(SentMetadata(&options.metadata)))?;
        body.end()
    }
}

fn entry<M: SerializeMap>(map: &mut M, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

#[derive(serde::Serialize)]
struct SentStreamOptions {
    include_usage: bool,
}

struct SentMetadata<'a>(&'a [(String, Json)]);

impl Serialize for SentMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, json)| (name, json)))
    }
}

#[derive(serde::Serialize)]
struct SentMessage<'a> {
    role: &'static str,
    content: SentContent<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<SentCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<SentFunction<'a>>,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum SentContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<SentPart<'a>>),
    /// For an assistant message that only has tool calls.
    Null,
}

#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SentPart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: SentImageUrl<'a> },
}

#[derive(serde::Serialize)]
struct SentImageUrl<'a> {
    url: DataUrl<'a>,
}

/// Serialised piece by piece, so that the base64 of an image is never held in memory in addition to the body.
struct DataUrl<'a>(&'a Image);

#[derive(serde::Serialize)]
struct SentCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: SentFunction<'a>,
}

#[derive(serde::Serialize)]
struct SentFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl Display for DataUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = Base64Display::new(&self.0.bytes, &STANDARD);
        write!(f, "data:image/{};base64,{data}", self.0.extension)
    }
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Converts the conversation, in order. Our system prompt is merged into the client's system message if that
/// comes first, because templates of local models reject a second one.
fn messages<'a>(turn: &'a Turn, system_prompt: Option<&'a str>) -> Vec<SentMessage<'a>> {
    let mut unanswered = VecDeque::new();
    let old = turn.options.more.iter().any(|(name, _)| *name == FUNCTIONS);
    let mut convert = |(at, message)| old_format(message, old).unwrap_or_else(|| convert(message, at, &mut unanswered));
    let mut messages: Vec<SentMessage<'a>> = turn.messages.iter().enumerate().map(&mut convert).collect();
    let Some(extra) = system_prompt.filter(|prompt| !prompt.is_empty()) else { return messages };
    match messages.first_mut() {
        Some(SentMessage { role: "system", content: SentContent::Text(text), .. }) => {
            *text = format!("{extra}\n\n{text}").into();
        }
        Some(_) | None => messages.insert(0, SentMessage::new("system", SentContent::Text(extra.into()))),
    }
    messages
}

/// Converts one message. Calls and results of the deprecated `function_call` have no ids, and servers reject calls
/// without them. Such calls get a generated id here; `unanswered` keeps it for the result that follows.
fn convert<'a>(message: &'a Message, at: usize, unanswered: &mut VecDeque<String>) -> SentMessage<'a> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut tool_calls = Vec::with_capacity(message.calls.len());
    for (nth, ToolCall { id, name, arguments }) in message.calls.iter().enumerate() {
        let id = if id.is_empty() {
            unanswered.push_back(format!("call_{at}_{nth}"));
            Cow::Owned(format!("call_{at}_{nth}"))
        } else {
            Cow::Borrowed(id.as_str())
        };
        tool_calls.push(SentCall { id, kind: "function", function: SentFunction { name, arguments } });
    }
    let answered = || (message.role == Role::Tool).then(|| unanswered.pop_front()).flatten().map(Cow::Owned);
    let tool_call_id = message.call_id.as_deref().map(Cow::Borrowed).or_else(answered);
    let name = message.name.as_deref();
    SentMessage { tool_calls, tool_call_id, name, ..SentMessage::new(role, content(message)) }
}

/// Converts a call or a result of the deprecated `function_call`, if the request has `functions` as well.
fn old_format(message: &Message, has_functions: bool) -> Option<SentMessage<'_>> {
    let name = message.name.as_deref();
    match (message.role, &*message.calls) {
        (Role::Assistant, [ToolCall { id, name: function, arguments }]) if has_functions && id.is_empty() => {
            let function_call = Some(SentFunction { name: function, arguments });
            Some(SentMessage { name, function_call, ..SentMessage::new("assistant", content(message)) })
        }
        (Role::Tool, _) if has_functions && message.call_id.is_none() && name.is_some() => {
            Some(SentMessage { name, ..SentMessage::new("function", content(message)) })
        }
        (Role::System | Role::User | Role::Assistant | Role::Tool, _) => None,
    }
}

fn content(message: &Message) -> SentContent<'_> {
    match (&*message.text, &*message.images) {
        ("", []) if !message.calls.is_empty() => SentContent::Null,
        (text, []) => SentContent::Text(text.into()),
        (text, images) => {
            let text = (!text.is_empty()).then_some(SentPart::Text { text });
            let images =
                images.iter().map(|image| SentPart::ImageUrl { image_url: SentImageUrl { url: DataUrl(image) } });
            SentContent::Parts(text.into_iter().chain(images).collect())
        }
    }
}

impl<'a> SentMessage<'a> {
    fn new(role: &'static str, content: SentContent<'a>) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None, name: None, function_call: None }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
