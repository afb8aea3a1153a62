//! Every conversation: the few that are used of late in memory, all of them on disk, one file each.
//!
//! Files are read and written where no connection waits for them. Changes are noted, and written by [`Chats::keep`],
//! which runs as long as the server does; what changes often is written once.

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
use super::talk::{Chat, Kept};

/// How much of an answer may be lost when the gateway is killed.
const MOMENT: Duration = Duration::from_secs(1);

/// How many conversations are held in memory while nobody uses them.
const MAX_IDLE: usize = 64;

/// How many are kept on disk; the oldest go.
const MAX_FILES: usize = 1000;

/// How many files may be written before they are counted again.
const COUNT_EVERY: usize = 256;

pub(crate) struct Chats {
    /// None: they end with the server.
    folder: Option<PathBuf>,
    open: Mutex<Open>,
    changed: Mutex<HashSet<ChatId>>,
    wake: Notify,
    later: Notify,
}

#[derive(Default)]
struct Open {
    chats: HashMap<ChatId, (Arc<Chat>, u64)>,
    /// Counts up with every use.
    clock: u64,
}

impl Chats {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, open: Mutex::default(), changed: Mutex::default(), wake: Notify::new(), later: Notify::new() }
    }

    /// The conversation of that name: as it is, as it was left, or a new one.
    pub(crate) async fn open(&self, id: &ChatId) -> Arc<Chat> {
        if let Some(chat) = lock(&self.open).get(id) {
            return chat;
        }
        let kept = self.load(id).await;
        // Somebody may have been faster: theirs is the one.
        lock(&self.open).insert(id, kept)
    }

    /// Notes that a conversation is to be saved.
    pub(crate) fn changed(&self, chat: &Chat) {
        if self.folder.is_none() {
            chat.saved(chat.unsaved().0);
            return;
        }
        lock(&self.changed).insert(chat.id.clone());
        self.wake.notify_one();
    }

    /// Notes that a conversation goes on: it is saved with the next one, or in a moment.
    pub(crate) fn grows(&self, chat: &Chat) {
        if self.folder.is_some() && lock(&self.changed).insert(chat.id.clone()) {
            self.later.notify_one();
        }
    }

    /// Saves what changes, until `ended` and once more.
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

    /// Returns a moment after something has grown.
    async fn moment(&self) {
        self.later.notified().await;
        tokio::time::sleep(MOMENT).await;
    }

    /// Writes everything that has changed; how many that was.
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
            // Also when it failed: it stays in memory as long as others do.
            chat.saved(changes);
        }
        count
    }

    async fn load(&self, id: &ChatId) -> Kept {
        let Some(folder) = &self.folder else { return Kept::default() };
        let path = disk::path(folder, id);
        match spawn_blocking(move || disk::read(&path)).await.map_err(io::Error::other).flatten() {
            Ok(kept) => kept.unwrap_or_default().settled(),
            Err(error) => {
                tracing::warn!(chat = id.as_str(), %error, "a conversation cannot be read and begins anew");
                Kept::default()
            }
        }
    }
}

impl Open {
    fn get(&mut self, id: &ChatId) -> Option<Arc<Chat>> {
        self.clock += 1;
        let (chat, used) = self.chats.get_mut(id)?;
        *used = self.clock;
        Some(Arc::clone(chat))
    }

    fn insert(&mut self, id: &ChatId, kept: Kept) -> Arc<Chat> {
        if let Some(chat) = self.get(id) {
            return chat;
        }
        let chat = Arc::new(Chat::new(id.clone(), kept));
        self.chats.insert(id.clone(), (Arc::clone(&chat), self.clock));
        if self.chats.len() > MAX_IDLE {
            self.forget_one();
        }
        chat
    }

    /// Drops the one that was used longest ago, of those that nobody has in hand.
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
