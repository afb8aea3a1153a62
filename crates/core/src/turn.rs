//! One request to an agent, from any surface: HTTP, a terminal, a chat channel.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::event::{SessionId, ToolCall};
use crate::mcp_server::RequestedServer;
use crate::vocabulary::OutputForm;

/// One request to a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// Model name from the request.
    pub model: String,
    pub messages: Vec<Message>,
    /// Session to continue, by the id that an earlier turn reported. The engine looks up its provider and the provider's
    /// own id for it.
    pub session: Option<SessionId>,
    /// Client that sent the request. Only the client that began a session can continue it.
    pub owner: ClientId,
    /// Surface that the request came through.
    pub surface: Surface,
    /// Options for the model. Executables and HTTP upstreams receive them; an agent CLI has no place for them.
    pub options: Options,
    /// Form of the answer, if the client asked for one. HTTP upstreams get it as `response_format`, in `options`. The gateway
    /// checks the answers of all providers.
    pub answer_format: Option<AnswerFormat>,
    /// Members of the request that may have no effect on the model.
    pub members: Vec<RequestMember>,
    pub shown: AnswerTiming,
    /// Form that a CLI prints its output in. With streamed output, tool calls and signs of life are seen even if the
    /// caller waits for the whole answer.
    pub form: OutputForm,
    /// Id of the run, if the caller chose one.
    pub run: Option<String>,
    /// None applies the setting of the model.
    pub on_disconnect: Option<OnDisconnect>,
    /// The request in the words of its API dialect, if the client may ask for it later. Recorded with the run.
    pub request: Option<Json>,
    /// Client and purpose of a [side request](crate::side_request), which runs without worktree, session and write permission.
    pub side: Option<Arc<str>>,
    /// Whether the CLI keeps its own tools. None applies the setting of the model.
    pub own_tools: Option<OwnTools>,
    /// MCP servers that the client wants the CLI to use. The model decides which are allowed.
    pub servers: Vec<RequestedServer>,
    /// Time that the client waits for the answer, if it announced one.
    pub patience: Option<Patience>,
}

/// Time that a client waits for an answer. A client that disconnects afterwards has not cancelled: it probably asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time after which the client disconnects.
    pub limit: Duration,
    /// Time after the disconnection in which the run waits for the repeated request.
    pub repeat_wait: Duration,
}

/// Fate of a run whose client disconnects before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// The run is stopped.
    #[default]
    Cancel,
    /// The run continues, and its answer is kept.
    Detach,
}

/// Fate of the tools that a CLI brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnTools {
    #[default]
    Keep,
    /// The CLI has no shell, no files and no web: it is a plain model.
    Off,
}

/// Identity of a client: `local`, or the digest of its API key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ClientId {
    /// None for the local client.
    key: Option<String>,
}

impl ClientId {
    const LOCAL: &str = "local";

    /// Client that presented an API key, by the hexadecimal digest of the key.
    #[must_use]
    pub fn of_key(digest: &str) -> Self {
        Self { key: Some(format!("key-{digest}")) }
    }

    /// Client with an id that [`as_str`](Self::as_str) returned.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { key: (name != Self::LOCAL).then(|| name.to_owned()) }
    }

    /// Whether this is the user that the gateway runs as, on the same machine. That user needs no key.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.key.is_none()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.key.as_deref().unwrap_or(Self::LOCAL)
    }
}

/// Surface that a turn came through.
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

/// When the caller sees an answer: in pieces while it is written, or all of it at the end. A retry is possible only while
/// the caller has seen nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerTiming {
    #[default]
    AsItComes,
    AtTheEnd,
}

/// Options that a client sets for the model. An absent option is `None`; 0 and false are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    pub max_tokens: Option<u64>,
    pub temperature: Option<serde_json::Number>,
    pub top_p: Option<serde_json::Number>,
    /// Functions that the client offers to call itself, as the client sent them.
    pub tools: Option<Json>,
    /// Number of answers, if the client asked for more than one.
    pub choices: Option<u32>,
    /// Metadata that the client attached to the request.
    pub metadata: Vec<(String, Json)>,
    /// Other members of the request by their wire names, for an upstream with the same API dialect.
    pub more: Vec<(&'static str, Json)>,
}

/// Form of the answer that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerFormat {
    pub shape: JsonShape,
    /// Whether an answer in another form is a failure of the run.
    pub strict: bool,
    /// Member of the request that has the schema, by its wire name.
    pub member: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonShape {
    /// Any JSON object.
    Object,
    /// A JSON value that matches a JSON Schema.
    Schema(Json),
}

/// Member of a request that not every model honours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMember {
    /// Path of the member, as the client sent it.
    pub name: String,
    /// Name of the option in chat completions, for HTTP upstreams. None if no provider gets the member.
    pub option: Option<&'static str>,
}

/// JSON value that is checked and kept as text. As a tree it could take a hundred times the memory.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    #[must_use]
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

/// Equal text.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self(to_raw_value(value).expect("a JSON value always serialises"))
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub text: String,
    pub images: Vec<Image>,
    /// For an assistant message: functions that it asked the client to call.
    pub calls: Vec<ToolCall>,
    /// For a tool message: the call that it answers.
    pub call_id: Option<String>,
    /// Name of the participant, or of the function whose result this is. Only HTTP upstreams get it.
    pub name: Option<String>,
}

impl Message {
    #[must_use]
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), images: Vec::new(), calls: Vec::new(), call_id: None, name: None }
    }

    /// Whether the message has neither text nor calls.
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
    /// Result of a tool that the client ran; part of the history that the client sends.
    Tool,
}

/// Decoded image of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// File name extension, from the media type: `png`, `jpeg`, `gif` or `webp`.
    pub extension: &'static str,
    pub bytes: Vec<u8>,
}

impl Turn {
    /// Returns every image of the turn, in order.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.messages.iter().flat_map(|message| &message.images)
    }
}
