//! A turn becomes the body of `POST /chat/completions`. What the client did not ask for is not sent.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::{self, Display};

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, Serializer};
use trunkline_core::event::Call;
use trunkline_core::turn::{Image, Json, Message, Role, Shown, Turn};

/// What `max_tokens` is called by newer clients, for models that take no other name.
pub const NEWER_LIMIT: &str = "max_completion_tokens";

/// The body that asks an upstream for `turn`, with `system_prompt` above all it says, on the upstream's `model`.
#[must_use]
pub fn request(turn: &Turn, system_prompt: Option<&str>, model: Option<&str>) -> Vec<u8> {
    let body = Body { turn, messages: messages(turn, system_prompt), model };
    serde_json::to_vec(&body).expect("text, numbers and JSON that was read before always serialise")
}

struct Body<'a> {
    turn: &'a Turn,
    messages: Vec<WireMessage<'a>>,
    model: Option<&'a str>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let options = &self.turn.options;
        let mut body = serializer.serialize_map(None)?;
        entry(&mut body, "model", self.model)?;
        body.serialize_entry("messages", &self.messages)?;
        match self.turn.shown {
            Shown::AsItComes => {
                body.serialize_entry("stream", &true)?;
                body.serialize_entry("stream_options", &StreamOptions { include_usage: true })?;
            }
            Shown::AtTheEnd => body.serialize_entry("stream", &false)?,
        }
        let named_anew = options.more.iter().any(|(name, _)| *name == NEWER_LIMIT);
        entry(&mut body, "max_tokens", options.max_tokens.filter(|_| !named_anew))?;
        entry(&mut body, "temperature", options.temperature.as_ref())?;
        entry(&mut body, "top_p", options.top_p.as_ref())?;
        entry(&mut body, "tools", options.tools.as_ref())?;
        for (name, json) in &options.more {
            body.serialize_entry(name, json)?;
        }
        entry(&mut body, "metadata", (!options.metadata.is_empty()).then_some(Entries(&options.metadata)))?;
        body.end()
    }
}

fn entry<M: SerializeMap>(map: &mut M, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

#[derive(serde::Serialize)]
struct StreamOptions {
    include_usage: bool,
}

struct Entries<'a>(&'a [(String, Json)]);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, json)| (name, json)))
    }
}

#[derive(serde::Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
    /// Of an assistant that only asked for calls.
    Null,
}

#[derive(serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(serde::Serialize)]
struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

/// Written piece by piece: a picture in base64 is never held beside the body.
struct DataUrl<'a>(&'a Image);

#[derive(serde::Serialize)]
struct WireCall<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
}

#[derive(serde::Serialize)]
struct WireFunction<'a> {
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

/// The conversation in the order it was held. Our own instructions stand above the client's in one message: templates of
/// local models refuse a second system message.
fn messages<'a>(turn: &'a Turn, system_prompt: Option<&'a str>) -> Vec<WireMessage<'a>> {
    let mut unanswered = VecDeque::new();
    let mut messages: Vec<WireMessage<'a>> =
        turn.messages.iter().enumerate().map(|(at, message)| convert(message, at, &mut unanswered)).collect();
    let Some(extra) = system_prompt.filter(|prompt| !prompt.is_empty()) else { return messages };
    match messages.first_mut() {
        Some(WireMessage { role: "system", content: Content::Text(text), .. }) => {
            *text = format!("{extra}\n\n{text}").into();
        }
        Some(_) | None => messages.insert(0, WireMessage::new("system", Content::Text(extra.into()))),
    }
    messages
}

/// One message. Calls and results of the old `function_call` have no ids, without which they are refused today: they get
/// one here, and `unanswered` keeps it for the result that follows.
fn convert<'a>(message: &'a Message, at: usize, unanswered: &mut VecDeque<String>) -> WireMessage<'a> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut tool_calls = Vec::with_capacity(message.calls.len());
    for (nth, Call { id, name, arguments }) in message.calls.iter().enumerate() {
        let id = if id.is_empty() {
            unanswered.push_back(format!("call_{at}_{nth}"));
            Cow::Owned(format!("call_{at}_{nth}"))
        } else {
            Cow::Borrowed(id.as_str())
        };
        tool_calls.push(WireCall { id, kind: "function", function: WireFunction { name, arguments } });
    }
    let answered = || (message.role == Role::Tool).then(|| unanswered.pop_front()).flatten().map(Cow::Owned);
    let tool_call_id = message.call_id.as_deref().map(Cow::Borrowed).or_else(answered);
    let content = match (&*message.text, &*message.images) {
        ("", []) if !message.calls.is_empty() => Content::Null,
        (text, []) => Content::Text(text.into()),
        (text, images) => {
            let text = (!text.is_empty()).then_some(Part::Text { text });
            let images = images.iter().map(|image| Part::ImageUrl { image_url: ImageUrl { url: DataUrl(image) } });
            Content::Parts(text.into_iter().chain(images).collect())
        }
    };
    WireMessage { tool_calls, tool_call_id, ..WireMessage::new(role, content) }
}

impl<'a> WireMessage<'a> {
    fn new(role: &'static str, content: Content<'a>) -> Self {
        Self { role, content, tool_calls: Vec::new(), tool_call_id: None }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
