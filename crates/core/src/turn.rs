//! What is asked of an agent, whoever asks: HTTP, a terminal, a chat channel.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::event::{SessionId, ToolCall};
use crate::vocabulary::OutputForm;

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::{AnswerTiming as Shown, ClientId as Owner};

/// One request in our own words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// The name the client asked for.
    pub model: String,
    pub messages: Vec<Message>,
    /// A conversation to go on with, by the id that an earlier turn reported. Whom it is with, and what that one calls it,
    /// is looked up by the engine.
    pub session: Option<SessionId>,
    /// Who asks: a conversation is its owner's alone.
    pub owner: ClientId,
    /// Where it is asked.
    pub surface: Surface,
    /// What the client asks of the model itself. An agent CLI cannot be told; executables and upstreams can.
    pub options: Options,
    pub shown: AnswerTiming,
    /// How a CLI is asked to print it. Streamed, its tools are seen, and that it lives, whatever is shown to the caller.
    pub form: OutputForm,
    /// The name of its run, where whoever asks has given it one.
    pub run: Option<String>,
    /// None leaves it to the model.
    pub on_disconnect: Option<OnDisconnect>,
}

/// What becomes of a run whose client goes away before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// It is stopped.
    #[default]
    Cancel,
    /// It goes on, and its answer waits.
    Detach,
}

/// Who asks, in a word that says nothing else about them: `local`, or the digest of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ClientId {
    /// None for the local user.
    key: Option<String>,
}

impl ClientId {
    const LOCAL: &str = "local";

    /// The holder of a key, by its digest in hexadecimal.
    #[must_use]
    pub fn of_key(digest: &str) -> Self {
        Self { key: Some(format!("key-{digest}")) }
    }

    /// The owner of that name, as [`as_str`](Self::as_str) gave it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { key: (name != Self::LOCAL).then(|| name.to_owned()) }
    }

    /// Whoever uses this machine as the gateway's own user, and needs no key.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.key.is_none()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.key.as_deref().unwrap_or(Self::LOCAL)
    }
}

/// Where a turn was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surface {
    #[default]
    Http,
    Run,
    Repl,
    Page,
    Discord,
}

impl Surface {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Run => "run",
            Self::Repl => "repl",
            Self::Page => "page",
            Self::Discord => "discord",
        }
    }
}

/// When the caller sees an answer: pieces as they come, or all of it at the end. What was not seen can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerTiming {
    #[default]
    AsItComes,
    AtTheEnd,
}

/// A client's wishes, absent where it has none: 0 and false are wishes too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    pub max_tokens: Option<u64>,
    pub temperature: Option<serde_json::Number>,
    pub top_p: Option<serde_json::Number>,
    /// Functions the client offers to call itself, as it sent them.
    pub tools: Option<Json>,
    /// What the client wants to find again.
    pub metadata: Vec<(String, Json)>,
    /// Further members by their names on the wire, for an upstream that speaks the client's own language.
    pub more: Vec<(&'static str, Json)>,
}

/// A piece of JSON, checked and kept as text: as a tree it could be a hundred times its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.get().into())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub text: String,
    pub images: Vec<Image>,
    /// Of an assistant: functions it asked the client to call.
    pub calls: Vec<ToolCall>,
    /// Of a tool: the call it answers.
    pub call_id: Option<String>,
}

impl Message {
    #[must_use]
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), images: Vec::new(), calls: Vec::new(), call_id: None }
    }

    /// Whether there is nothing in it to tell an agent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// `system` and `developer`.
    System,
    User,
    Assistant,
    /// The result of a tool the client ran: part of the history it replays.
    Tool,
}

/// A picture a client sent along, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file name's ending, from the media type: `png`, `jpeg`, `gif`, `webp`.
    pub extension: &'static str,
    pub bytes: Vec<u8>,
}

impl Turn {
    /// Every picture of the turn, in order.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.messages.iter().flat_map(|message| &message.images)
    }
}
