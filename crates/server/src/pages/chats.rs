//! All conversations: the recently used ones in memory, all of them on disk, one file each.
//!
//! File access does not block connections. Changes are queued and written by [`Chats::keep`], which runs as long as the server;
//! frequent changes of one conversation are written once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::cookie::ChatId;
use super::disk;
use super::talk::{Chat, SavedChat};

/// Delay before a growing answer is saved: the most that is lost when the gateway is killed.
const SAVE_DELAY: Duration = Duration::from_secs(1);

/// Idle conversations that are kept in memory.
const MAX_IDLE_CHATS: usize = 64;

/// Conversations that are kept on disk; the oldest are removed.
const MAX_FILES: usize = 1000;

/// Number of writes after which the files are counted again.
const COUNT_EVERY: usize = 256;

pub(crate) struct Chats {
    /// `None` if conversations end with the server.
    folder: Option<PathBuf>,
    open: Mutex<OpenChat>,
    changed: Mutex<HashSet<ChatId>>,
    wake: Notify,
    later: Notify,
}

#[derive(Default)]
struct OpenChat {
    chats: HashMap<ChatId, (Arc<Chat>, u64)>,
    /// Sequence number of the last use.
    clock: u64,
}

impl Chats {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, open: Mutex::default(), changed: Mutex::default(), wake: Notify::new(), later: Notify::new() }
    }

    /// The conversation with this id: from memory, from disk, or a new one.
    pub(crate) async fn open(&self, id: &ChatId) -> Arc<Chat> {
        if let Some(chat) = lock(&self.open).get(id) {
            return chat;
        }
        let kept = self.load(id).await;
        // A concurrent request may have loaded it first; its value is used.
        lock(&self.open).insert(id, kept)
    }

    /// Queues a conversation to be saved.
    pub(crate) fn changed(&self, chat: &Chat) {
        if self.folder.is_none() {
            chat.saved(chat.unsaved().0);
            return;
        }
        lock(&self.changed).insert(chat.id.clone());
        self.wake.notify_one();
    }

    /// Queues a conversation whose answer is growing: it is saved with the next one, or after [`SAVE_DELAY`].
    pub(crate) fn grows(&self, chat: &Chat) {
        if self.folder.is_some() && lock(&self.changed).insert(chat.id.clone()) {
            self.later.notify_one();
        }
    }

    /// Saves queued conversations until `ended`, and once more after it.
    pub(crate) async fn keep(&self, ended: &CancellationToken) {
        let Some(folder) = &self.folder else { return };
        let mut written = COUNT_EVERY;
        loop {
            if written >= COUNT_EVERY {
                let folder = folder.clone();
                report(
                    spawn_blocking(move || disk::bound(&folder, MAX_FILES)).await.map_err(io::Error::other).flatten(),
                );
                written = 0;
            }
            let last = tokio::select! {
                () = self.wake.notified() => false,
                () = self.moment() => false,
                () = ended.cancelled() => true,
            };
            written += self.save().await;
            if last {
                return;
            }
        }
    }

    /// Returns [`SAVE_DELAY`] after an answer has grown.
    async fn moment(&self) {
        self.later.notified().await;
        tokio::time::sleep(SAVE_DELAY).await;
    }

    /// Writes all queued conversations, and returns their number.
    async fn save(&self) -> usize {
        let changed = std::mem::take(&mut *lock(&self.changed));
        let Some(folder) = &self.folder else { return 0 };
        let count = changed.len();
        for id in changed {
            let Some(chat) = lock(&self.open).get(&id) else { continue };
            let (changes, kept) = chat.unsaved();
            let path = disk::path(folder, &id);
            let written =
                spawn_blocking(move || if kept.is_empty() { disk::remove(&path) } else { disk::write(&path, &kept) });
            report(written.await.map_err(io::Error::other).flatten());
            // Also after an error: the conversation stays in memory like others.
            chat.saved(changes);
        }
        count
    }

    async fn load(&self, id: &ChatId) -> SavedChat {
        let Some(folder) = &self.folder else { return SavedChat::default() };
        let path = disk::path(folder, id);
        match spawn_blocking(move || disk::read(&path)).await.map_err(io::Error::other).flatten() {
            Ok(kept) => kept.unwrap_or_default().settled(),
            Err(error) => {
                tracing::warn!(chat = id.as_str(), %error, "a conversation cannot be read; starting a new one");
                SavedChat::default()
            }
        }
    }
}

impl OpenChat {
    fn get(&mut self, id: &ChatId) -> Option<Arc<Chat>> {
        self.clock += 1;
        let (chat, used) = self.chats.get_mut(id)?;
        *used = self.clock;
        Some(Arc::clone(chat))
    }

    fn insert(&mut self, id: &ChatId, kept: SavedChat) -> Arc<Chat> {
        if let Some(chat) = self.get(id) {
            return chat;
        }
        let chat = Arc::new(Chat::new(id.clone(), kept));
        self.chats.insert(id.clone(), (Arc::clone(&chat), self.clock));
        if self.chats.len() > MAX_IDLE_CHATS {
            self.forget_one();
        }
        chat
    }

    /// Evicts the least recently used conversation that is not in use.
    fn forget_one(&mut self) {
        let idle = self.chats.iter().filter(|(_, (chat, _))| Arc::strong_count(chat) == 1 && chat.is_idle());
        if let Some(oldest) = idle.min_by_key(|(_, (_, used))| *used).map(|(id, _)| id.clone()) {
            self.chats.remove(&oldest);
        }
    }
}

fn report(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(%error, "a conversation is not saved");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "chats_tests.rs"]
mod tests;
