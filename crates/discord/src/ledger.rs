//! What the bridge remembers from one start to the next, in the store's terms. A store that fails is said, loudly, and
//! done without: an answer is worth more than the certainty that it is the only one.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trunkline_core::event::SessionId;
use trunkline_core::turn::Role;
use trunkline_store::{Binding, InboxState, Store, StoreError};

use crate::backend::Said;
use crate::incoming::Incoming;
use crate::snowflake::Snowflake;

const PREFIX: &str = "discord:";

/// What is kept of a conversation for a backend that remembers nothing: so many messages, of so much text.
const HISTORY: (usize, usize) = (40, 32 * 1024);

#[derive(Debug)]
pub(crate) struct Ledger {
    store: Store,
    /// Held while what a channel talks to is read, changed and written.
    changing: tokio::sync::Mutex<()>,
}

/// How far the answer to a message has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// How often it was begun.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// The message that shows it.
    #[serde(default)]
    pub(crate) draft: Option<Snowflake>,
    /// The whole of it, written down before it is sent.
    #[serde(default)]
    pub(crate) answer: Option<String>,
}

/// What a channel talks to, and what was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    /// None is the model everybody begins with.
    pub(crate) model: Option<String>,
    pub(crate) kept: Kept,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    #[serde(default)]
    pub(crate) guild: Option<Snowflake>,
    #[serde(default)]
    pub(crate) session: Option<SessionId>,
    #[serde(default)]
    pub(crate) history: Vec<Said>,
    /// How many conversations came before: an answer to an older one leaves this one alone.
    #[serde(default)]
    pub(crate) epoch: u64,
}

impl Talk {
    /// Another conversation, perhaps with another model.
    pub(crate) fn anew(&mut self, model: Option<String>) {
        let Kept { guild, epoch, .. } = self.kept;
        *self = Self { model, kept: Kept { guild, epoch: epoch + 1, ..Kept::default() } };
    }

    pub(crate) fn say(&mut self, role: Role, text: &str) {
        let (messages, bytes) = HISTORY;
        let text = &text[..text.floor_char_boundary(bytes / 4)];
        let history = &mut self.kept.history;
        history.push(Said { role, text: text.to_owned() });
        let size = |history: &[Said]| history.iter().map(|said| said.text.len()).sum::<usize>();
        while history.len() > messages || size(history) > bytes || history.first().is_some_and(|s| s.role != Role::User)
        {
            history.remove(0);
        }
    }
}

impl Ledger {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, changing: tokio::sync::Mutex::default() }
    }

    /// Takes a message in; false if it was known already.
    pub(crate) async fn add(&self, incoming: &Incoming) -> bool {
        let payload = json!(incoming);
        let added = self.store.inbox_add(&place(incoming.channel), &incoming.id.to_string(), &payload).await;
        told(added, "remember a message").unwrap_or(true)
    }

    /// What was taken in and not answered, in the order it came.
    pub(crate) async fn pending(&self) -> Vec<(Incoming, Progress)> {
        let rows = told(self.store.inbox_pending(None).await, "read what is to be answered").unwrap_or_default();
        let ours = rows.into_iter().filter(|row| row.place.starts_with(PREFIX));
        ours.filter_map(|row| {
            let progress = row.detail.and_then(|detail| serde_json::from_value(detail).ok()).unwrap_or_default();
            Some((serde_json::from_value(row.payload).ok()?, progress))
        })
        .collect()
    }

    pub(crate) async fn progress(&self, message: Snowflake, progress: &Progress) {
        self.move_on(message, InboxState::Answering, json!(progress)).await;
    }

    pub(crate) async fn answered(&self, message: Snowflake, how: &str) {
        self.move_on(message, InboxState::Answered, json!({"how": how})).await;
    }

    pub(crate) async fn failed(&self, message: Snowflake, why: &str) {
        self.move_on(message, InboxState::Failed, json!({"why": why})).await;
    }

    async fn move_on(&self, message: Snowflake, state: InboxState, detail: Value) {
        let moved = self.store.inbox_state(&message.to_string(), state, Some(&detail)).await;
        told(moved, "note how far an answer has come");
    }

    pub(crate) async fn talk(&self, channel: Snowflake) -> Talk {
        let binding = told(self.store.binding(&place(channel)).await, "read what a channel talks to").flatten();
        let Some(Binding { model, more, .. }) = binding else { return Talk::default() };
        Talk { model, kept: serde_json::from_value(more).unwrap_or_default() }
    }

    /// Changes what a channel talks to; no two changes at once.
    pub(crate) async fn change_talk(&self, channel: Snowflake, change: impl FnOnce(&mut Talk) + Send) {
        let _alone = self.changing.lock().await;
        let mut talk = self.talk(channel).await;
        change(&mut talk);
        let binding = Binding { session: None, model: talk.model.clone(), more: json!(talk.kept) };
        told(self.store.set_binding(&place(channel), &binding).await, "remember what a channel talks to");
    }

    /// Every channel that has talked.
    pub(crate) async fn channels(&self) -> Vec<Snowflake> {
        let places = told(self.store.bound_places(PREFIX).await, "read which channels talk").unwrap_or_default();
        places.iter().filter_map(|place| place.strip_prefix(PREFIX)?.parse().ok()).collect()
    }

    /// The last message of a channel that was read.
    pub(crate) async fn cursor(&self, channel: Snowflake) -> Option<Snowflake> {
        let cursor = told(self.store.cursor(&place(channel)).await, "read how far a channel was read");
        cursor.flatten()?.parse().ok()
    }

    pub(crate) async fn set_cursor(&self, channel: Snowflake, message: Snowflake) {
        let set = self.store.set_cursor(&place(channel), &message.to_string()).await;
        told(set, "remember how far a channel was read");
    }
}

fn place(channel: Snowflake) -> String {
    format!("{PREFIX}{channel}")
}

fn told<T>(result: Result<T, StoreError>, what: &str) -> Option<T> {
    result.inspect_err(|error| tracing::error!("cannot {what}: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_bounded_and_begins_with_a_question() {
        let mut talk = Talk::default();
        for turn in 0..100 {
            talk.say(Role::User, &format!("question {turn}"));
            talk.say(Role::Assistant, &"ä".repeat(1 + turn * 100));
        }
        let history = &talk.kept.history;
        assert!(history.len() <= HISTORY.0 && history[0].role == Role::User);
        assert!(history.iter().map(|said| said.text.len()).sum::<usize>() <= HISTORY.1);
        assert_eq!(history[history.len() - 2].text, "question 99");
    }

    #[tokio::test]
    async fn what_is_remembered() {
        let ledger = Ledger::new(Store::in_memory().await.unwrap());
        let channel = Snowflake(20);
        let message = |id| Incoming {
            id: Snowflake(id),
            channel,
            guild: None,
            author: Snowflake(1),
            text: format!("m{id}"),
            attachments: Vec::new(),
        };
        assert!(ledger.add(&message(9)).await && ledger.add(&message(10)).await && !ledger.add(&message(9)).await);
        assert_eq!(ledger.cursor(channel).await, Some(Snowflake(10)));
        let progress = Progress { attempts: 1, draft: Some(Snowflake(11)), answer: Some("a".into()) };
        ledger.progress(Snowflake(10), &progress).await;
        let pending = ledger.pending().await;
        assert_eq!(pending, [(message(9), Progress::default()), (message(10), progress)]);
        ledger.answered(Snowflake(9), "said").await;
        ledger.failed(Snowflake(10), "no").await;
        assert_eq!(ledger.pending().await, []);

        let mut talk = ledger.talk(channel).await;
        assert_eq!(talk, Talk::default());
        talk.kept.session = Some(SessionId("s".into()));
        ledger.change_talk(channel, |kept| *kept = talk.clone()).await;
        assert_eq!((ledger.talk(channel).await, ledger.channels().await), (talk.clone(), vec![channel]));
        talk.anew(Some("m".into()));
        assert_eq!((talk.kept.session, talk.kept.epoch), (None, 1));
    }
}
