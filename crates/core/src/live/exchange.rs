//! What the protocols share: the greeting, the meaning of a message, its bytes.

use serde_json::Value;

use crate::vocabulary::Permissions;

/// Method of the note that follows a request for permission in what a decoder reads, when the request was refused: a CLI
/// does not always say itself why it stops there.
pub(crate) const PERMISSION_REFUSED: &str = "trunkline/permission_refused";

/// What a process is told before its first turn, beside its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Greeting {
    /// Where the conversation is about.
    pub cwd: String,
    /// The model, where it is not an argument.
    pub model: Option<String>,
    /// The protocol's name for what may be done without asking, where it is not an argument.
    pub mode: Option<String>,
    /// The model that it is to fail with once, before it is ready.
    pub primer: Option<String>,
    /// Standing instructions, where they are taken apart from the prompt.
    pub system: Option<String>,
    /// What is answered when it asks whether it may do something.
    pub permissions: Permissions,
}

/// What a speaker makes of one of the other side's messages.
pub(super) enum MessageMeaning {
    /// It is about the turn.
    Said,
    /// It is about the turn, which is over with it.
    SaidLast,
    /// It is about the turn, and so is this note of ours.
    SaidWith(Value),
    /// It was for us, or is about nothing.
    Nothing,
    Ready,
    Broken(String),
}

/// A message as the bytes of its line.
pub(super) fn words(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}
