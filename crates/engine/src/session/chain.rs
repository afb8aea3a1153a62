//! Finds the session of a request that sends its history instead of a session id.
//!
//! The messages of a session are hashed one after the other into a chain. After each turn the hash over all messages,
//! including the answer, is recorded: the session's *head*. A request whose past has that hash continues the session. A
//! session that has had another turn since has another head and is not found. Pure: no clock, no disk, no lock.

use std::collections::{HashMap, HashSet};

use trunkline_core::event::{Answer, SessionId};
use trunkline_core::turn::{ClientId, Message, Role};

/// Hash of a sequence of messages.
pub(crate) type ChainHash = [u8; blake3::OUT_LEN];

/// Hash and length of a sequence of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MessageChain {
    pub(crate) hash: ChainHash,
    pub(crate) messages: usize,
}

impl MessageChain {
    pub(crate) fn over(messages: &[Message]) -> Self {
        messages.iter().fold(Self::default(), Self::then)
    }

    /// The chain extended by one message. Every part is preceded by its length, so that the parts cannot be confused.
    pub(crate) fn then(self, message: &Message) -> Self {
        // The name is left out: an agent does not get it.
        let Message { role, text, images, calls, call_id, name: _ } = message;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.hash);
        hasher.update(&[match role {
            Role::System => b's',
            Role::User => b'u',
            Role::Assistant => b'a',
            Role::Tool => b't',
        }]);
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        // Clients differ in how they trim texts.
        part(text.trim().as_bytes());
        part(&images.len().to_le_bytes());
        for image in images {
            part(image.extension.as_bytes());
            part(&image.bytes);
        }
        part(&calls.len().to_le_bytes());
        for call in calls {
            [&call.id, &call.name, &call.arguments].iter().for_each(|text| part(text.as_bytes()));
        }
        part(call_id.as_deref().map_or(b"-".as_slice(), |_| b"+"));
        part(call_id.as_deref().unwrap_or_default().as_bytes());
        Self { hash: *hasher.finalize().as_bytes(), messages: self.messages + 1 }
    }
}

/// Number of messages in a request's past: all up to its last answer, if a user message follows it.
pub(crate) fn end_of_past(messages: &[Message]) -> Option<usize> {
    let end = messages.iter().rposition(|message| message.role == Role::Assistant)? + 1;
    messages[end..].iter().any(|message| message.role == Role::User).then_some(end)
}

/// MessageChain over the past of a request, if it has one.
pub(crate) fn past(messages: &[Message]) -> Option<MessageChain> {
    Some(MessageChain::over(&messages[..end_of_past(messages)?]))
}

/// Chains that may precede the client's next message. Some clients keep the final message, others all streamed text.
pub(crate) fn heads(asked: MessageChain, answer: &Answer, streamed: &str) -> Vec<MessageChain> {
    let followed_by = |text: &str| {
        let message = Message { calls: answer.calls.clone(), ..Message::new(Role::Assistant, text) };
        asked.then(&message)
    };
    let mut heads = vec![followed_by(&answer.content)];
    if !streamed.trim().is_empty() && streamed.trim() != answer.content.trim() {
        heads.push(followed_by(streamed));
    }
    heads
}

/// Heads of sessions. A session has one or two equivalent heads, and none during a turn.
#[derive(Debug, Default)]
pub(crate) struct SessionHeads {
    /// By client, model and hash. Several sessions may share a head: thousands, if a script sends the same request each time.
    by_hash: HashMap<(ClientId, String, ChainHash), HashSet<SessionId>>,
    of_session: HashMap<SessionId, (ClientId, String, Vec<MessageChain>)>,
}

/// Sessions that have a given head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadMatch<'a> {
    One(&'a SessionId),
    Several,
    None,
}

impl SessionHeads {
    /// Sessions of a client and model with this head. Callers must not pick one of several: equal messages do not make two
    /// sessions the same.
    pub(crate) fn find(&self, owner: &ClientId, model: &str, hash: &ChainHash) -> HeadMatch<'_> {
        let mut sessions = self.by_hash.get(&(owner.clone(), model.to_owned(), *hash)).into_iter().flatten();
        match (sessions.next(), sessions.next()) {
            (Some(one), None) => HeadMatch::One(one),
            (Some(_), Some(_)) => HeadMatch::Several,
            (None, _) => HeadMatch::None,
        }
    }

    /// Whether the session has this head.
    pub(crate) fn is(&self, session: &SessionId, owner: &ClientId, model: &str, hash: &ChainHash) -> bool {
        self.of_session.get(session).is_some_and(|(its_owner, its_model, heads)| {
            its_owner == owner && its_model == model && heads.iter().any(|head| head.hash == *hash)
        })
    }

    /// Frees the memory of removed sessions.
    pub(crate) fn shrink(&mut self) {
        self.by_hash.shrink_to_fit();
        self.of_session.shrink_to_fit();
    }

    /// Removes the heads of a session at the start of a turn, and returns them.
    pub(crate) fn take(&mut self, session: &SessionId) -> Vec<MessageChain> {
        let Some((owner, model, heads)) = self.of_session.remove(session) else { return Vec::new() };
        let mut key = (owner, model, ChainHash::default());
        for head in &heads {
            key.2 = head.hash;
            if let Some(sessions) = self.by_hash.get_mut(&key) {
                sessions.remove(session);
                if sessions.is_empty() {
                    self.by_hash.remove(&key);
                }
            }
        }
        heads
    }

    pub(crate) fn set(&mut self, session: &SessionId, owner: &ClientId, model: &str, heads: Vec<MessageChain>) {
        self.take(session);
        if heads.is_empty() {
            return;
        }
        for head in &heads {
            let sessions = self.by_hash.entry((owner.clone(), model.to_owned(), head.hash)).or_default();
            sessions.insert(session.clone());
        }
        self.of_session.insert(session.clone(), (owner.clone(), model.to_owned(), heads));
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
