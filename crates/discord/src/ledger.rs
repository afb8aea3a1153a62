//! What the bridge remembers from one start to the next, in the store's terms.
//!
//! A message is answered once, so nothing goes on that is not on record: a store that refuses is asked until it does as it
//! is asked, which is said once. Whoever asks waits meanwhile; others do not wait for whoever asks. What was said is masked
//! as in the archive; the words of a message are kept as they are until it is answered, and not after.

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

use crate::backend::Said;
use crate::incoming::Incoming;
use crate::snowflake::Snowflake;

const PREFIX: &str = "discord:";

/// What is kept of a conversation for a backend that remembers nothing: so many messages, of so much text.
const HISTORY: (usize, usize) = (40, 32 * 1024);

/// Between two tries of what the store refused; a lock it waits for itself, for seconds.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

#[derive(Debug)]
pub(crate) struct Ledger {
    store: Store,
    secrets: Secrets,
    /// We are to end: nothing is waited for any longer.
    ending: CancellationToken,
    /// Held while what a channel talks to is read, changed and written.
    changing: tokio::sync::Mutex<()>,
    /// That it cannot be read, and that it cannot be written, was said.
    unread: AtomicBool,
    unwritten: AtomicBool,
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
    /// Once `ending` is cancelled, what the store refuses is left.
    pub(crate) fn new(store: Store, secrets: Secrets, ending: CancellationToken) -> Self {
        let (unread, unwritten) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { store, secrets, ending, changing: tokio::sync::Mutex::default(), unread, unwritten }
    }

    /// Takes a message in; false if it was known already. None, here and below: it is not known, and we are to end.
    pub(crate) async fn add(&self, incoming: &Incoming) -> Option<bool> {
        let (place, id, payload) = (place(incoming.channel), incoming.id.to_string(), json!(incoming));
        self.write(|| self.store.inbox_add(&place, &id, &payload)).await
    }

    /// What was taken in and not answered, in the order it came.
    pub(crate) async fn pending(&self) -> Option<Vec<(Incoming, Progress)>> {
        let rows = self.read(|| self.store.inbox_pending(None)).await?;
        let ours = rows.into_iter().filter(|row| row.place.starts_with(PREFIX));
        let known = ours.filter_map(|row| {
            let progress = row.detail.and_then(|detail| serde_json::from_value(detail).ok()).unwrap_or_default();
            Some((serde_json::from_value(row.payload).ok()?, progress))
        });
        Some(known.collect())
    }

    pub(crate) async fn progress(&self, message: Snowflake, progress: &Progress) -> Option<()> {
        self.move_on(message, InboxState::Answering, json!(progress)).await
    }

    pub(crate) async fn answered(&self, message: Snowflake, how: &str) -> Option<()> {
        self.move_on(message, InboxState::Answered, json!({"how": how})).await
    }

    pub(crate) async fn failed(&self, message: Snowflake, why: &str) -> Option<()> {
        self.move_on(message, InboxState::Failed, json!({"why": self.secrets.mask(why)})).await
    }

    async fn move_on(&self, message: Snowflake, state: InboxState, detail: Value) -> Option<()> {
        let id = message.to_string();
        self.write(|| self.store.inbox_state(&id, state, Some(&detail))).await.map(drop)
    }

    pub(crate) async fn talk(&self, channel: Snowflake) -> Option<Talk> {
        let place = place(channel);
        let binding = self.read(|| self.store.binding(&place)).await?;
        let Some(Binding { model, more, .. }) = binding else { return Some(Talk::default()) };
        Some(Talk { model, kept: serde_json::from_value(more).unwrap_or_default() })
    }

    /// Changes what a channel talks to; no two changes at once.
    pub(crate) async fn change_talk(&self, channel: Snowflake, change: impl FnOnce(&mut Talk) + Send) -> Option<()> {
        let _alone = self.changing.lock().await;
        let mut talk = self.talk(channel).await?;
        change(&mut talk);
        for said in &mut talk.kept.history {
            said.text = self.secrets.mask(&said.text);
        }
        let binding = Binding { session: None, model: talk.model.clone(), more: json!(talk.kept) };
        let place = place(channel);
        self.write(|| self.store.set_binding(&place, &binding)).await
    }

    /// Every channel that has talked.
    pub(crate) async fn channels(&self) -> Option<Vec<Snowflake>> {
        let places = self.read(|| self.store.bound_places(PREFIX)).await?;
        Some(places.iter().filter_map(|place| place.strip_prefix(PREFIX)?.parse().ok()).collect())
    }

    /// The last message of a channel that was read, if any was.
    pub(crate) async fn cursor(&self, channel: Snowflake) -> Option<Option<Snowflake>> {
        let place = place(channel);
        let cursor = self.read(|| self.store.cursor(&place)).await?;
        Some(cursor.and_then(|cursor| cursor.parse().ok()))
    }

    pub(crate) async fn set_cursor(&self, channel: Snowflake, message: Snowflake) -> Option<()> {
        let (place, message) = (place(channel), message.to_string());
        self.write(|| self.store.set_cursor(&place, &message)).await
    }

    async fn read<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.insist(&self.unread, "what the bridge remembers cannot be read, so nothing is begun", ask).await
    }

    async fn write<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.insist(&self.unwritten, "what is heard cannot be written down, so it is not answered yet", ask).await
    }

    /// Asks until it is done, or we are to end.
    async fn insist<T, F>(&self, told: &AtomicBool, trouble: &str, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (mut wait, most) = RETRY;
        loop {
            match ask().await {
                Ok(done) => {
                    if told.swap(false, Ordering::Relaxed) {
                        tracing::info!("the bridge's memory works again");
                    }
                    return Some(done);
                }
                Err(error) if !told.swap(true, Ordering::Relaxed) => tracing::error!("{trouble}: {error}; trying on"),
                Err(error) => tracing::debug!("{trouble}: {error}"),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.ending.cancelled() => return None,
            }
            wait = (wait * 2).min(most);
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
        let store = Store::in_memory().await.unwrap();
        let ledger = Ledger::new(store.clone(), Secrets::default(), CancellationToken::new());
        let channel = Snowflake(20);
        let message = |id| Incoming {
            id: Snowflake(id),
            channel,
            guild: None,
            author: Snowflake(1),
            text: format!("m{id}"),
            attachments: Vec::new(),
        };
        for (id, new) in [(9, true), (10, true), (9, false)] {
            assert_eq!(ledger.add(&message(id)).await, Some(new), "{id}");
        }
        assert_eq!(ledger.cursor(channel).await, Some(Some(Snowflake(10))));
        let progress = Progress { attempts: 1, draft: Some(Snowflake(11)), answer: Some("a".into()) };
        ledger.progress(Snowflake(10), &progress).await.unwrap();
        let pending = ledger.pending().await.unwrap();
        assert_eq!(pending, [(message(9), Progress::default()), (message(10), progress)]);
        ledger.answered(Snowflake(9), "said").await.unwrap();
        ledger.failed(Snowflake(10), "no").await.unwrap();
        assert_eq!(ledger.pending().await, Some(vec![]));
        let rows = [store.inbox_message("9").await, store.inbox_message("10").await].map(|row| row.unwrap().unwrap());
        assert!(rows.iter().all(|row| row.payload == json!({})), "what is done with is not kept: {rows:?}");

        let mut talk = ledger.talk(channel).await.unwrap();
        assert_eq!(talk, Talk::default());
        talk.kept.session = Some(SessionId("s".into()));
        ledger.change_talk(channel, |kept| *kept = talk.clone()).await.unwrap();
        assert_eq!((ledger.talk(channel).await, ledger.channels().await), (Some(talk.clone()), Some(vec![channel])));
        talk.anew(Some("m".into()));
        assert_eq!((talk.kept.session, talk.kept.epoch), (None, 1));
    }

    #[tokio::test]
    async fn what_was_said_is_masked() {
        let secrets = Secrets::new(["hunter2hunter2".to_owned()]);
        let ledger = Ledger::new(Store::in_memory().await.unwrap(), secrets, CancellationToken::new());
        let channel = Snowflake(20);
        let say = |talk: &mut Talk| talk.say(Role::User, "the key is hunter2hunter2, or sk-0123456789abcdef");
        ledger.change_talk(channel, say).await.unwrap();
        let talk = ledger.talk(channel).await.unwrap();
        assert_eq!(talk.kept.history[0].text, "the key is ***, or sk-***");
    }

    #[tokio::test]
    async fn a_store_that_refuses_is_asked_until_we_end() {
        let (store, ending) = (Store::in_memory().await.unwrap(), CancellationToken::new());
        let ledger = Ledger::new(store.clone(), Secrets::default(), ending.clone());
        store.close().await;
        let asked = ledger.set_cursor(Snowflake(20), Snowflake(1));
        tokio::pin!(asked);
        assert!(tokio::time::timeout(2 * RETRY.0, &mut asked).await.is_err());
        ending.cancel();
        assert_eq!(asked.await, None);
    }
}
