//! The book of conversations: our name for each, whose it is, whom it is with, and by what a client finds it.
//!
//! What counts is in the store, which other processes read and write too. What is in memory besides is what is said just
//! now, and what the store would not take: without one, a gateway remembers until it ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use trunkline_core::event::SessionId;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{Message, Owner, Role};
use trunkline_store::{Leads, Outcome, SessionKey, SessionRow, SessionTurn, Store, StoreError, Time, Writer};

use super::chain::{Chain, Found, Heads};
use crate::runs::masking::head;

/// How many conversations are kept in memory; the oldest go first.
const MANY: usize = 4096;

/// How long a turn waits for the store before it does without.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long another process may take to write down what it has just answered.
const LATE: Duration = Duration::from_millis(60);

/// How much of its first message a title is made of.
const BEGINS: usize = 4096;

/// The most of an archived conversation that is told again, in bytes: the latest of it.
const RETOLD: usize = 256 * 1024;

/// A conversation that can be gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: SessionId,
    pub(crate) owner: Owner,
    /// By which name the model was asked for at first.
    pub(crate) model: String,
    pub(crate) provider: String,
    pub(crate) repo: PathBuf,
    /// What the provider calls it; none until a turn has succeeded.
    pub(crate) native: Option<SessionId>,
}

/// What a turn has made of a conversation.
#[derive(Debug, Clone)]
pub(crate) struct After {
    pub(crate) known: Known,
    pub(crate) succeeded: bool,
    /// The name the model was asked for by now.
    pub(crate) asked: String,
    /// What the conversation began with.
    pub(crate) begins: String,
    /// By what a client finds it that names none.
    pub(crate) heads: Vec<Chain>,
}

#[derive(Default)]
pub(crate) struct SessionRegistry {
    memory: Mutex<Memory>,
    /// Where they are kept, and the way there.
    kept: OnceLock<(Store, Writer)>,
    /// What is not to be written.
    secrets: OnceLock<Secrets>,
    /// The store has failed, and that was said.
    troubled: AtomicBool,
}

#[derive(Default)]
struct Memory {
    sessions: HashMap<SessionId, Entry>,
    /// In the order they came.
    order: VecDeque<SessionId>,
    heads: Heads,
    /// Those a turn is on its way in.
    speaking: HashSet<SessionId>,
}

struct Entry {
    known: Known,
    /// How many turns were noted.
    noted: u64,
    /// How many of them the store has. Less, and it does not have the conversation as it is here.
    kept: u64,
}

impl Entry {
    fn is_unsaved(&self) -> bool {
        self.kept < self.noted
    }
}

/// What a turn came to, and the how manieth it is that this process noted.
pub(crate) struct Noted {
    after: After,
    number: u64,
}

/// What a turn came to, on its way into the store.
pub(crate) struct OnItsWay {
    book: Arc<SessionRegistry>,
    noted: Arc<Noted>,
    /// None where there is no store.
    way: Option<trunkline_store::OnItsWay>,
}

impl OnItsWay {
    /// Waits until it is there, or cannot be.
    pub(crate) async fn kept(self) {
        if let Some(way) = self.way {
            self.book.has_kept(&self.noted, way.kept().await).await;
        }
    }
}

/// Somebody is about to speak in a conversation.
pub(crate) struct Claim<'a> {
    book: &'a SessionRegistry,
    pub(crate) id: SessionId,
    spoken: bool,
}

impl Claim<'_> {
    /// The turn is on its way.
    pub(crate) fn spoken(mut self) {
        self.spoken = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.spoken {
            self.book.memory().speaking.remove(&self.id);
        }
    }
}

impl SessionRegistry {
    /// From now on these are written nowhere.
    pub(crate) fn mask(&self, secrets: Secrets) {
        let _the_first_ones_stay = self.secrets.set(secrets);
    }

    /// From now on everything is kept there, too.
    pub(crate) fn keep_in(&self, store: Store, writer: Writer) {
        let _the_first_one_stays = self.kept.set((store, writer));
    }

    /// Waits for what another process may be about to write. False if there is nobody to wait for.
    pub(crate) async fn wait_for_others(&self) -> bool {
        if self.store().is_some() {
            tokio::time::sleep(LATE).await;
        }
        self.store().is_some()
    }

    /// A conversation of this owner, by our name for it.
    pub(crate) async fn find(&self, id: &SessionId, owner: &Owner) -> Option<Known> {
        let (remembered, unsaved) = match self.memory().sessions.get(id) {
            Some(entry) => (Some(entry.known.clone()).filter(|known| known.owner == *owner), entry.is_unsaved()),
            None => (None, false),
        };
        let Some(store) = self.store().filter(|_| !unsaved) else { return remembered };
        match store.session(&key(id), &whose(owner)).await {
            Ok(row) => row.map(|row| known(row, owner)),
            Err(error) => {
                self.trouble(&error);
                remembered
            }
        }
    }

    /// A conversation of this owner, by the provider's name for it.
    pub(crate) async fn by_native(&self, provider: &str, native: &SessionId, owner: &Owner) -> Option<SessionId> {
        let is_it = |known: &Known| {
            known.provider == provider && known.native.as_ref() == Some(native) && known.owner == *owner
        };
        let remembered = {
            let memory = self.memory();
            memory.order.iter().rev().find(|id| memory.sessions.get(id).is_some_and(|e| is_it(&e.known))).cloned()
        };
        match (remembered, self.store()) {
            (Some(id), _) => Some(id),
            (None, None) => None,
            (None, Some(store)) => match store.session_by_native(provider, native, &whose(owner)).await {
                Ok(row) => row.map(|row| SessionId(row.id.0)),
                Err(error) => {
                    self.trouble(&error);
                    None
                }
            },
        }
    }

    /// The conversation that this was said in and nothing else. Who comes with the same while it is claimed finds
    /// nothing. Whether it is still so is to be asked again, when nobody else can speak in it.
    pub(crate) async fn by_history(&self, owner: &Owner, model: &str, past: &Chain) -> Option<Claim<'_>> {
        let remembered = match self.memory().heads.find(owner, model, &past.hash) {
            Found::One(id) => Some(id.clone()),
            Found::Several => return None,
            Found::Nobody => None,
        };
        let id = match remembered {
            Some(id) => id,
            None => self.head_in_store(owner, model, past).await?,
        };
        let free = self.memory().speaking.insert(id.clone());
        free.then_some(Claim { book: self, id, spoken: false })
    }

    /// Whether exactly this, and nothing else, was said in a conversation.
    pub(crate) async fn is_head(&self, id: &SessionId, owner: &Owner, model: &str, past: &Chain) -> bool {
        let remembered = self.memory().heads.is(id, owner, model, &past.hash);
        if self.is_unsaved(id) || self.store().is_none() || self.troubled.load(Ordering::Relaxed) {
            return remembered;
        }
        self.head_in_store(owner, model, past).await.as_ref() == Some(id)
    }

    /// Something is about to be said in it, and that is on record before it is: whatever ends this process, nobody finds
    /// it by what was said before. False where another process was first.
    pub(crate) async fn take_head(&self, id: &SessionId, owner: &Owner, model: &str, past: &Chain) -> bool {
        let Some(store) = self.with_all_of(id).await else { return true };
        let (whose, key) = (whose(owner), key(id));
        match tokio::time::timeout(PATIENCE, store.chain_take(&whose, model, &past.hash, &key)).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => {
                self.trouble(&error);
                false
            }
            Err(_elapsed) => false,
        }
    }

    /// The same for a conversation that is named.
    pub(crate) async fn forget_heads(&self, id: &SessionId) {
        let Some(store) = self.with_all_of(id).await else { return };
        if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, store.chains_forget(&key(id))).await {
            self.trouble(&error);
        }
    }

    /// Lets go of what the store has as it is here, and in which nobody speaks: it is found there as well.
    pub(crate) fn lighten(&self) {
        if self.store().is_none() || self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut memory = self.memory();
        let Memory { sessions, order, heads, speaking } = &mut *memory;
        for (id, _) in sessions.extract_if(|id, entry| !entry.is_unsaved() && !speaking.contains(id)) {
            heads.take(&id);
        }
        order.retain(|id| sessions.contains_key(id));
        sessions.shrink_to_fit();
        order.shrink_to_fit();
        heads.shrink();
    }

    /// The store, if it has this conversation as it is here. What is on its way there is waited for, though not for long.
    async fn with_all_of(&self, id: &SessionId) -> Option<&Store> {
        let (store, writer) = self.kept.get().filter(|_| !self.troubled.load(Ordering::Relaxed))?;
        if writer.is_stuck() {
            return None;
        }
        if !self.is_unsaved(id) {
            return Some(store);
        }
        tokio::time::timeout(PATIENCE, writer.flush()).await.is_ok_and(|flushed| flushed.is_ok()).then_some(store)
    }

    fn is_unsaved(&self, id: &SessionId) -> bool {
        self.memory().sessions.get(id).is_some_and(Entry::is_unsaved)
    }

    fn store(&self) -> Option<&Store> {
        self.kept.get().map(|(store, _)| store)
    }

    async fn head_in_store(&self, owner: &Owner, model: &str, past: &Chain) -> Option<SessionId> {
        match self.store()?.chain_find(&whose(owner), model, &[past.hash]).await {
            Ok(found) => found.map(|(_, key)| SessionId(key.0)),
            Err(error) => {
                self.trouble(&error);
                None
            }
        }
    }

    /// A turn is on its way in it: nobody finds it by what was said before. Returns by what it was found.
    pub(crate) fn speak(&self, id: &SessionId) -> Vec<Chain> {
        let mut memory = self.memory();
        memory.speaking.insert(id.clone());
        memory.heads.take(id)
    }

    /// The turn never began: all is as it was.
    pub(crate) fn unspoken(&self, id: &SessionId, owner: &Owner, model: &str, heads: Vec<Chain>) {
        let mut memory = self.memory();
        memory.speaking.remove(id);
        memory.heads.set(id, owner, model, heads);
    }

    /// What a turn came to, at once: the next may begin. [`keep`](Self::keep) is to follow.
    pub(crate) fn note(&self, after: After) -> Noted {
        let After { known, asked, heads, .. } = &after;
        let mut memory = self.memory();
        memory.speaking.remove(&known.id);
        memory.heads.set(&known.id, &known.owner, asked, heads.clone());
        let (noted, kept) = memory.sessions.get(&known.id).map_or((0, 0), |entry| (entry.noted, entry.kept));
        let number = noted + 1;
        if memory.sessions.insert(known.id.clone(), Entry { known: known.clone(), noted: number, kept }).is_none() {
            memory.order.push_back(known.id.clone());
        }
        if memory.order.len() > MANY
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.sessions.remove(&oldest);
            memory.heads.take(&oldest);
        }
        drop(memory);
        Noted { after, number }
    }

    /// Sends what a turn came to on its way into the store: at once, and on disk, if there is room, for which the future
    /// waits. The next turn may begin meanwhile: then nobody is to find the conversation by what was said before it.
    pub(crate) fn keep(self: &Arc<Self>, mut noted: Noted) -> impl Future<Output = OnItsWay> + Send + use<> {
        // It may be long, and is not to wait with the rest.
        let begins = std::mem::take(&mut noted.after.begins);
        let (book, noted) = (Arc::clone(self), Arc::new(noted));
        let sent = self.kept.get().map(|(_, writer)| {
            let (book, noted) = (Arc::clone(self), Arc::clone(&noted));
            let turn = self.turn(&noted.after, &begins);
            writer.send_session(turn, Leads::when(move || book.they_lead(&noted.after)))
        });
        async move {
            let way = match sent {
                Some(sent) => Some(sent.await),
                None => None,
            };
            OnItsWay { book, noted, way }
        }
    }

    /// The same in the store's words.
    fn turn(&self, after: &After, begins: &str) -> SessionTurn {
        let After { known, succeeded, asked, heads, begins: _ } = after;
        // Of which the first words are kept.
        let begins = head(begins.trim_start(), BEGINS);
        SessionTurn {
            id: key(&known.id),
            owner: whose(&known.owner),
            model: known.model.clone(),
            provider: known.provider.clone(),
            repo: known.repo.to_string_lossy().into_owned(),
            begins: self.secrets.get().map_or_else(|| begins.to_owned(), |secrets| secrets.mask(begins)),
            native: known.native.clone(),
            succeeded: *succeeded,
            asked: asked.clone(),
            chains: heads.iter().map(|head| (head.hash, head.messages)).collect(),
            time: Time::now(),
        }
    }

    /// Nobody has begun to speak since.
    fn they_lead(&self, after: &After) -> bool {
        let After { known, asked, heads, .. } = after;
        let memory = self.memory();
        heads.iter().all(|head| memory.heads.is(&known.id, &known.owner, asked, &head.hash))
    }

    async fn has_kept(&self, noted: &Noted, result: Result<(), StoreError>) {
        if let Err(error) = result {
            return self.trouble(&error);
        }
        if self.troubled.swap(false, Ordering::Relaxed) {
            tracing::info!("sessions are remembered again");
        }
        let (id, spoken) = (&noted.after.known.id, !self.they_lead(&noted.after));
        let latest = self.memory().sessions.get_mut(id).is_some_and(|entry| {
            entry.kept = entry.kept.max(noted.number);
            entry.noted == noted.number
        });
        if spoken && latest {
            // Somebody began to speak in the very moment.
            self.forget_heads(id).await;
        }
    }

    /// What was said in a conversation, as far as the archive has it.
    pub(crate) async fn said(&self, id: &SessionId) -> Vec<Message> {
        let Some(store) = self.store() else { return Vec::new() };
        let turns = match store.turns(&key(id)).await {
            Ok(turns) => turns,
            Err(error) => {
                self.trouble(&error);
                return Vec::new();
            }
        };
        let mut room = RETOLD;
        let mut said = Vec::new();
        for turn in turns.into_iter().rev().filter(|turn| turn.outcome == Some(Outcome::Ok)) {
            let answer = turn.answer.unwrap_or_default();
            let Some(left) = room.checked_sub(answer.len() + turn.prompt.len()) else { break };
            room = left;
            said.push(Message::new(Role::Assistant, answer));
            said.push(Message::new(Role::User, turn.prompt));
        }
        said.reverse();
        said
    }

    fn trouble(&self, error: &StoreError) {
        if !self.troubled.swap(true, Ordering::Relaxed) {
            tracing::error!("sessions are remembered only until this process ends: {error}");
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no panic while holding the lock")
    }
}

fn key(id: &SessionId) -> SessionKey {
    SessionKey(id.0.clone())
}

/// The same owner in the store's words.
pub(crate) fn whose(owner: &Owner) -> trunkline_store::Owner {
    trunkline_store::Owner::new(owner.as_str())
}

fn known(row: SessionRow, owner: &Owner) -> Known {
    let SessionRow { id, model, provider, repo, native, .. } = row;
    Known { id: SessionId(id.0), owner: owner.clone(), model, provider, repo, native }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
