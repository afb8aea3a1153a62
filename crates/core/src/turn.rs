//! What is asked of an agent, whoever asks: HTTP, a terminal, a chat channel.

use crate::event::SessionId;

/// One request in our own words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turn {
    /// The name the client asked for.
    pub model: String,
    pub messages: Vec<Message>,
    /// A conversation to go on with; the CLI's own id, as an earlier turn reported it.
    pub session: Option<SessionId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub text: String,
    pub images: Vec<Image>,
}

impl Message {
    #[must_use]
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), images: Vec::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
