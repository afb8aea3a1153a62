//! A session: the gateway's id of a conversation, the client it belongs to, and the provider's id for resuming it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

use crate::time::Time;

/// Limit of a title.
const MAX_TITLE_CHARS: usize = 60;

/// Hash of a history: a sequence of messages.
pub type HistoryHash = [u8; 32];

/// The gateway's id of a session, as clients know it. The provider's id is a [`SessionId`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(pub String);

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client that a session or run belongs to. Opaque here. A client never sees those of another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(String);

impl ClientId {
    /// A client with this id, such as the digest of an API key. Never the key itself.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The user of this machine.
    #[must_use]
    pub fn local() -> Self {
        Self::new("local")
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub id: SessionKey,
    pub owner: ClientId,
    pub model: String,
    pub provider: String,
    pub repo: PathBuf,
    /// The provider's id for resuming it. None until a turn has succeeded.
    pub native: Option<SessionId>,
    pub title: String,
    pub parent: Option<SessionKey>,
    pub created: Time,
    pub used: Time,
    /// Number of turns that succeeded.
    pub turns: u64,
}

/// A session after a turn, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    pub session: SessionRow,
    /// The model that the turn asked for.
    pub asked: String,
    /// Histories that lead to the session from now on. They replace all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<SessionHead>,
}

impl SessionState {
    /// Adds what only an earlier state of the session knows. False if this is not a later state of the same session.
    #[must_use]
    pub(crate) fn follow(&mut self, earlier: &Self) -> bool {
        let (this, before) = (&mut self.session, &earlier.session);
        if this.owner != before.owner || this.used < before.used {
            return false;
        }
        this.native = this.native.take().or_else(|| before.native.clone());
        this.turns = this.turns.max(before.turns);
        // A session keeps the values of its first turn.
        this.model.clone_from(&before.model);
        this.title.clone_from(&before.title);
        this.parent.clone_from(&before.parent);
        this.created = before.created;
        true
    }
}

/// A history that leads to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHead {
    #[serde(with = "crate::hex")]
    pub hash: HistoryHash,
    /// Number of its messages.
    pub messages: usize,
}

/// Converts a path to text, lossily if it is not UTF-8: it is only displayed and compared.
pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns the first line that is not blank, cut to the length of a title.
#[must_use]
pub fn first_words(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(MAX_TITLE_CHARS) {
        None => line.to_owned(),
        Some(_) => line.chars().take(MAX_TITLE_CHARS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_the_first_line_that_is_not_blank() {
        let long = "x".repeat(61);
        let cut = "x".repeat(59) + "…";
        let exact = "é".repeat(60);
        for (text, title) in [("", ""), (" \n\n  Hello \nworld", "Hello"), (&long, cut.as_str()), (&exact, &exact)] {
            assert_eq!(first_words(text), title, "{text:?}");
        }
    }
}
