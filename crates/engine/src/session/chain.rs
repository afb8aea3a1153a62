//! Which conversation a client means that names none, but sends all that was said in it.
//!
//! Everything that was said so far comes to one hash, message by message. After a turn we note the hash of all of it,
//! answer included: the conversation's *head*. A request whose past has that hash goes on with that conversation, unless
//! something else was said in it since: then its head is another. Pure: no clock, no disk, no lock.

use std::collections::{HashMap, HashSet};

use trunkline_core::event::{Answer, SessionId};
use trunkline_core::turn::{Message, Owner, Role};

/// A hash of messages, one after the other.
pub(crate) type Hash = [u8; blake3::OUT_LEN];

/// Messages in their order, as one hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Chain {
    pub(crate) hash: Hash,
    pub(crate) messages: usize,
}

impl Chain {
    pub(crate) fn over(messages: &[Message]) -> Self {
        messages.iter().fold(Self::default(), Self::then)
    }

    /// The same and one message more. Every part has its length before it, so that none can pass for another's.
    pub(crate) fn then(self, message: &Message) -> Self {
        let Message { role, text, images, calls, call_id } = message;
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
        // Clients differ in what they keep of the blanks around a text.
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

/// Where the past of a request ends: behind its last answer, if a user says something after it.
pub(crate) fn end_of_past(messages: &[Message]) -> Option<usize> {
    let end = messages.iter().rposition(|message| message.role == Role::Assistant)? + 1;
    messages[end..].iter().any(|message| message.role == Role::User).then_some(end)
}

/// What a request says was said before, if it says so.
pub(crate) fn past(messages: &[Message]) -> Option<Chain> {
    Some(Chain::over(&messages[..end_of_past(messages)?]))
}

/// How a client may tell of a turn when it comes back: some keep the final message, some everything that was streamed.
pub(crate) fn heads(asked: Chain, answer: &Answer, streamed: &str) -> Vec<Chain> {
    let said = |text: &str| {
        let message = Message { calls: answer.calls.clone(), ..Message::new(Role::Assistant, text) };
        asked.then(&message)
    };
    let mut heads = vec![said(&answer.content)];
    if !streamed.trim().is_empty() && streamed.trim() != answer.content.trim() {
        heads.push(said(streamed));
    }
    heads
}

/// The heads of conversations: each has one, by one or two names, or none while somebody speaks in it.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// The same may have been said in several: in thousands, where a script asks the same each time.
    by_hash: HashMap<(Owner, String, Hash), HashSet<SessionId>>,
    of_session: HashMap<SessionId, (Owner, String, Vec<Chain>)>,
}

/// Whose head something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    One(&'a SessionId),
    Several,
    Nobody,
}

impl Heads {
    /// The one it is the head of. Several are nobody's: the same words are not the same conversation.
    pub(crate) fn find(&self, owner: &Owner, model: &str, hash: &Hash) -> Found<'_> {
        let mut sessions = self.by_hash.get(&(owner.clone(), model.to_owned(), *hash)).into_iter().flatten();
        match (sessions.next(), sessions.next()) {
            (Some(one), None) => Found::One(one),
            (Some(_), Some(_)) => Found::Several,
            (None, _) => Found::Nobody,
        }
    }

    /// Whether this is a head of that very conversation.
    pub(crate) fn is(&self, session: &SessionId, owner: &Owner, model: &str, hash: &Hash) -> bool {
        self.of_session.get(session).is_some_and(|(whose, of, heads)| {
            whose == owner && of == model && heads.iter().any(|head| head.hash == *hash)
        })
    }

    /// Gives back the memory of those that are gone.
    pub(crate) fn shrink(&mut self) {
        self.by_hash.shrink_to_fit();
        self.of_session.shrink_to_fit();
    }

    /// Something is being said in it: from now on it has no head. Returns what it had.
    pub(crate) fn take(&mut self, session: &SessionId) -> Vec<Chain> {
        let Some((owner, model, heads)) = self.of_session.remove(session) else { return Vec::new() };
        let mut key = (owner, model, Hash::default());
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

    pub(crate) fn set(&mut self, session: &SessionId, owner: &Owner, model: &str, heads: Vec<Chain>) {
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
