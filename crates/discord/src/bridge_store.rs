//! Persistent state of the bridge: the inbox, the conversations of channels, and read cursors.
//!
//! Each message is answered exactly once, so that every step is recorded before the next. A store operation that fails is
//! retried until it succeeds, and the failure is logged once. The calling task waits; other channels continue. The history of
//! a conversation is masked as in the archive. The text of a message is stored unmasked until it is answered, then deleted.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::SessionId;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Role;
use trunkline_store::{Binding, InboxState, Store, StoreError};

use crate::backend::HistoryMessage;
use crate::incoming::IncomingMessage;
use crate::snowflake::Snowflake;

const PREFIX: &str = "discord:";

/// Messages of a conversation that are kept for a backend without sessions.
const MAX_HISTORY_MESSAGES: usize = 40;

/// Total size of these messages.
const MAX_HISTORY_BYTES: usize = 32 * 1024;

/// First delay between two attempts of a store operation. It doubles after each attempt. The store itself waits some
/// seconds for a database lock.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Longest delay between two attempts of a store operation.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Persistent state of the bridge.
///
/// All methods return `None` if the bridge shuts down before the operation has succeeded.
#[derive(Debug)]
pub(crate) struct BridgeStore {
    store: Store,
    secrets: Secrets,
    /// Cancelled on shutdown: failed operations are not retried any more.
    shutdown: CancellationToken,
    /// Held while a conversation is read, changed and written.
    updating: tokio::sync::Mutex<()>,
    /// Whether the last read failed. The failure is in the log.
    reads_failing: AtomicBool,
    /// Whether the last write failed. The failure is in the log.
    writes_failing: AtomicBool,
}

/// Progress of the answer to a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerProgress {
    /// Number of attempts.
    #[serde(default)]
    pub(crate) attempts: u32,
    /// The message that shows the answer while it is being written.
    #[serde(default)]
    pub(crate) draft: Option<Snowflake>,
    /// The whole answer, recorded before it is sent.
    #[serde(default)]
    pub(crate) answer: Option<String>,
}

/// Conversation of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChannelConversation {
    /// Model of the channel; `None` for the default.
    pub(crate) model: Option<String>,
    pub(crate) stored: StoredConversation,
}

/// Part of a conversation that is stored as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredConversation {
    #[serde(default)]
    pub(crate) guild: Option<Snowflake>,
    #[serde(default)]
    pub(crate) session: Option<SessionId>,
    #[serde(default)]
    pub(crate) history: Vec<HistoryMessage>,
    /// Number of earlier conversations in the channel. An answer to an earlier one must not change this one.
    #[serde(default)]
    pub(crate) epoch: u64,
}

impl ChannelConversation {
    /// Starts a new conversation, with this model.
    pub(crate) fn reset(&mut self, model: Option<String>) {
        let StoredConversation { guild, epoch, .. } = self.stored;
        *self = Self { model, stored: StoredConversation { guild, epoch: epoch + 1, ..StoredConversation::default() } };
    }

    /// Adds a message to the history, which stays within its limits and starts with a user message.
    pub(crate) fn add(&mut self, role: Role, text: &str) {
        let text = &text[..text.floor_char_boundary(MAX_HISTORY_BYTES / 4)];
        let history = &mut self.stored.history;
        history.push(HistoryMessage { role, text: text.to_owned() });
        let size = |history: &[HistoryMessage]| history.iter().map(|message| message.text.len()).sum::<usize>();
        while history.len() > MAX_HISTORY_MESSAGES
            || size(history) > MAX_HISTORY_BYTES
            || history.first().is_some_and(|message| message.role != Role::User)
        {
            history.remove(0);
        }
    }
}

impl BridgeStore {
    pub(crate) fn new(store: Store, secrets: Secrets, shutdown: CancellationToken) -> Self {
        let (reads_failing, writes_failing) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { store, secrets, shutdown, updating: tokio::sync::Mutex::default(), reads_failing, writes_failing }
    }

    /// Records a message. False if it was recorded before.
    pub(crate) async fn add(&self, incoming: &IncomingMessage) -> Option<bool> {
        let (place, id, payload) = (place(incoming.channel), incoming.id.to_string(), json!(incoming));
        self.write(|| async { self.store.bridge().await?.inbox_add(&place, &id, &payload).await }).await
    }

    /// Recorded messages without an answer, oldest first.
    pub(crate) async fn pending(&self) -> Option<Vec<(IncomingMessage, AnswerProgress)>> {
        let rows = self.read(|| async { self.store.bridge().await?.inbox_pending(None).await }).await?;
        let ours = rows.into_iter().filter(|row| row.place.starts_with(PREFIX));
        let known = ours.filter_map(|row| {
            let progress = row.detail.and_then(|detail| serde_json::from_value(detail).ok()).unwrap_or_default();
            Some((serde_json::from_value(row.payload).ok()?, progress))
        });
        Some(known.collect())
    }

    pub(crate) async fn save_progress(&self, message: Snowflake, progress: &AnswerProgress) -> Option<()> {
        self.set_state(message, InboxState::Answering, json!(progress)).await
    }

    pub(crate) async fn mark_answered(&self, message: Snowflake, how: &str) -> Option<()> {
        self.set_state(message, InboxState::Answered, json!({"how": how})).await
    }

    pub(crate) async fn mark_failed(&self, message: Snowflake, reason: &str) -> Option<()> {
        self.set_state(message, InboxState::Failed, json!({"why": self.secrets.mask(reason)})).await
    }

    async fn set_state(&self, message: Snowflake, state: InboxState, detail: Value) -> Option<()> {
        let id = message.to_string();
        self.write(|| async { self.store.bridge().await?.inbox_state(&id, state, Some(&detail)).await }).await.map(drop)
    }

    pub(crate) async fn conversation(&self, channel: Snowflake) -> Option<ChannelConversation> {
        let place = place(channel);
        let binding = self.read(|| async { self.store.bridge().await?.binding(&place).await }).await?;
        let Some(Binding { model, more, .. }) = binding else { return Some(ChannelConversation::default()) };
        Some(ChannelConversation { model, stored: serde_json::from_value(more).unwrap_or_default() })
    }

    /// Changes the conversation of a channel. Changes are serialized.
    pub(crate) async fn update_conversation(
        &self,
        channel: Snowflake,
        change: impl FnOnce(&mut ChannelConversation) + Send,
    ) -> Option<()> {
        let _guard = self.updating.lock().await;
        let mut conversation = self.conversation(channel).await?;
        change(&mut conversation);
        for message in &mut conversation.stored.history {
            message.text = self.secrets.mask(&message.text);
        }
        let binding = Binding { session: None, model: conversation.model.clone(), more: json!(conversation.stored) };
        let place = place(channel);
        self.write(|| async { self.store.bridge().await?.set_binding(&place, &binding).await }).await
    }

    /// All channels with a conversation.
    pub(crate) async fn channels(&self) -> Option<Vec<Snowflake>> {
        let places = self.read(|| async { self.store.bridge().await?.bound_places(PREFIX).await }).await?;
        Some(places.iter().filter_map(|place| place.strip_prefix(PREFIX)?.parse().ok()).collect())
    }

    /// Last message of a channel that was read.
    pub(crate) async fn cursor(&self, channel: Snowflake) -> Option<Option<Snowflake>> {
        let place = place(channel);
        let cursor = self.read(|| async { self.store.bridge().await?.cursor(&place).await }).await?;
        Some(cursor.and_then(|cursor| cursor.parse().ok()))
    }

    pub(crate) async fn set_cursor(&self, channel: Snowflake, message: Snowflake) -> Option<()> {
        let (place, message) = (place(channel), message.to_string());
        self.write(|| async { self.store.bridge().await?.set_cursor(&place, &message).await }).await
    }

    async fn read<T, F>(&self, operation: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.retry(
            &self.reads_failing,
            "cannot read the state of the bridge, so that no message is answered",
            operation,
        )
        .await
    }

    async fn write<T, F>(&self, operation: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.retry(&self.writes_failing, "cannot record messages, so that they are not answered yet", operation).await
    }

    /// Repeats an operation until it succeeds or the bridge shuts down.
    async fn retry<T, F>(&self, failing: &AtomicBool, problem: &str, operation: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut wait = MIN_RETRY_DELAY;
        loop {
            match operation().await {
                Ok(done) => {
                    if failing.swap(false, Ordering::Relaxed) {
                        tracing::info!("the state of the bridge can be read and written again");
                    }
                    return Some(done);
                }
                Err(error) if !failing.swap(true, Ordering::Relaxed) => tracing::error!("{problem}: {error}; retrying"),
                Err(error) => tracing::debug!("{problem}: {error}"),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.shutdown.cancelled() => return None,
            }
            wait = (wait * 2).min(MAX_RETRY_DELAY);
        }
    }
}

fn place(channel: Snowflake) -> String {
    format!("{PREFIX}{channel}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_bounded_and_starts_with_a_user_message() {
        let mut conversation = ChannelConversation::default();
        for turn in 0..100 {
            conversation.add(Role::User, &format!("question {turn}"));
            conversation.add(Role::Assistant, &"ä".repeat(1 + turn * 100));
        }
        let history = &conversation.stored.history;
        assert!(history.len() <= MAX_HISTORY_MESSAGES && history[0].role == Role::User);
        assert!(history.iter().map(|message| message.text.len()).sum::<usize>() <= MAX_HISTORY_BYTES);
        assert_eq!(history[history.len() - 2].text, "question 99");
    }

    #[tokio::test]
    async fn messages_progress_and_conversations_are_stored() {
        let store = Store::in_memory().await.unwrap();
        let database = store.bridge().await.unwrap();
        let bridge_store = BridgeStore::new(store.clone(), Secrets::default(), CancellationToken::new());
        let channel = Snowflake(20);
        let message = |id| IncomingMessage {
            id: Snowflake(id),
            channel,
            guild: None,
            author: Snowflake(1),
            text: format!("m{id}"),
            attachments: Vec::new(),
        };
        for (id, new) in [(9, true), (10, true), (9, false)] {
            assert_eq!(bridge_store.add(&message(id)).await, Some(new), "{id}");
        }
        assert_eq!(bridge_store.cursor(channel).await, Some(Some(Snowflake(10))));
        let progress = AnswerProgress { attempts: 1, draft: Some(Snowflake(11)), answer: Some("a".into()) };
        bridge_store.save_progress(Snowflake(10), &progress).await.unwrap();
        let pending = bridge_store.pending().await.unwrap();
        assert_eq!(pending, [(message(9), AnswerProgress::default()), (message(10), progress)]);
        bridge_store.mark_answered(Snowflake(9), "sent").await.unwrap();
        bridge_store.mark_failed(Snowflake(10), "no").await.unwrap();
        assert_eq!(bridge_store.pending().await, Some(vec![]));
        let rows = [database.inbox_message("9").await, database.inbox_message("10").await];
        let rows = rows.map(|row| row.unwrap().unwrap());
        assert!(rows.iter().all(|row| row.payload == json!({})), "the text is deleted after the answer: {rows:?}");

        let mut conversation = bridge_store.conversation(channel).await.unwrap();
        assert_eq!(conversation, ChannelConversation::default());
        conversation.stored.session = Some(SessionId("s".into()));
        bridge_store.update_conversation(channel, |stored| *stored = conversation.clone()).await.unwrap();
        let read = (bridge_store.conversation(channel).await, bridge_store.channels().await);
        assert_eq!(read, (Some(conversation.clone()), Some(vec![channel])));
        conversation.reset(Some("m".into()));
        assert_eq!((conversation.stored.session, conversation.stored.epoch), (None, 1));
    }

    #[tokio::test]
    async fn secrets_in_history_are_masked() {
        let secrets = Secrets::new(["hunter2hunter2".to_owned()]);
        let bridge_store = BridgeStore::new(Store::in_memory().await.unwrap(), secrets, CancellationToken::new());
        let channel = Snowflake(20);
        let add = |conversation: &mut ChannelConversation| {
            conversation.add(Role::User, "the key is hunter2hunter2, or sk-0123456789abcdef")
        };
        bridge_store.update_conversation(channel, add).await.unwrap();
        let conversation = bridge_store.conversation(channel).await.unwrap();
        assert_eq!(conversation.stored.history[0].text, "the key is ***, or sk-***");
    }

    #[tokio::test]
    async fn failing_store_operation_is_retried_until_shutdown() {
        let (store, shutdown) = (Store::in_memory().await.unwrap(), CancellationToken::new());
        let bridge_store = BridgeStore::new(store.clone(), Secrets::default(), shutdown.clone());
        store.close().await;
        let operation = bridge_store.set_cursor(Snowflake(20), Snowflake(1));
        tokio::pin!(operation);
        assert!(tokio::time::timeout(2 * MIN_RETRY_DELAY, &mut operation).await.is_err());
        shutdown.cancel();
        assert_eq!(operation.await, None);
    }
}
