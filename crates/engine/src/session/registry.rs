//! Registry of sessions: the id of each, its client, its provider with the provider's own id, and its heads.
//!
//! The store is authoritative; other processes read and write it too. Memory additionally holds running turns and
//! updates that the store does not have yet. Without a store, sessions last until the process ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use trunkline_core::event::SessionId;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{ClientId, Message, Role};
use trunkline_store::{
    HeadCondition, IndexFeed, RunOutcome, SessionHead, SessionKey, SessionRow, SessionState, Store, StoreError, Time,
    first_words,
};

use super::chain::{HeadMatch, MessageChain, SessionHeads};
use crate::runs::masking::head;

/// Sessions held in memory; the oldest is evicted first.
const MAX_CACHED_SESSIONS: usize = 4096;

/// Maximum length of the first message's start, from which the title is made.
const MAX_FIRST_MESSAGE_BYTES: usize = 4096;

/// Maximum size of an archived history that is sent to a provider again. The latest messages are kept.
const MAX_REPLAYED_BYTES: usize = 256 * 1024;

/// A session that can be continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownSession {
    pub(crate) id: SessionId,
    pub(crate) owner: ClientId,
    /// Model name that the first turn requested.
    pub(crate) model: String,
    pub(crate) provider: String,
    pub(crate) repo: PathBuf,
    /// The provider's id for the session; `None` until a turn has succeeded.
    pub(crate) native: Option<SessionId>,
    /// Facts of earlier turns. `None` if the session begins with the present turn.
    pub(crate) earlier: Option<EarlierTurns>,
}

/// Facts of the earlier turns of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EarlierTurns {
    title: String,
    created: Time,
    /// Number of turns that succeeded.
    succeeded: u64,
    parent: Option<SessionKey>,
    /// End of the last turn.
    used: Time,
}

/// State of a session after a turn.
#[derive(Debug, Clone)]
pub(crate) struct SessionUpdate {
    pub(crate) known: KnownSession,
    pub(crate) succeeded: bool,
    /// Model name that this turn requested.
    pub(crate) asked: String,
    /// First user message of the session.
    pub(crate) first_message: String,
    /// Heads by which a request without a session id finds the session.
    pub(crate) heads: Vec<MessageChain>,
}

#[derive(Default)]
pub(crate) struct SessionRegistry {
    cache: Mutex<SessionCache>,
    store: OnceLock<(Store, IndexFeed)>,
    /// Values that must not be written to the store.
    secrets: OnceLock<Secrets>,
    /// Whether the store has failed. The failure is in the log.
    store_failing: AtomicBool,
}

#[derive(Default)]
struct SessionCache {
    sessions: HashMap<SessionId, CachedSession>,
    /// Ids in order of insertion.
    order: VecDeque<SessionId>,
    heads: SessionHeads,
    /// Sessions with a running or claimed turn.
    active: HashSet<SessionId>,
}

struct CachedSession {
    known: KnownSession,
    /// Number of turns that this process has recorded.
    recorded: u64,
    /// Number of these turns that the store has. If smaller than `recorded`, the store's copy is outdated.
    saved: u64,
}

impl CachedSession {
    fn is_unsaved(&self) -> bool {
        self.saved < self.recorded
    }
}

/// A session update with its sequence number within this process.
pub(crate) struct NumberedUpdate {
    update: SessionUpdate,
    number: u64,
}

/// Reservation of a session for a turn that is about to start. Dropping it releases the session.
pub(crate) struct SessionClaim<'a> {
    registry: &'a SessionRegistry,
    pub(crate) id: SessionId,
    turn_started: bool,
}

impl SessionClaim<'_> {
    /// Keeps the session reserved, because the turn has started.
    pub(crate) fn turn_started(mut self) {
        self.turn_started = true;
    }
}

impl Drop for SessionClaim<'_> {
    fn drop(&mut self) {
        if !self.turn_started {
            self.registry.cache().active.remove(&self.id);
        }
    }
}

impl SessionRegistry {
    /// Masks these values in everything that is written from now on. Later calls have no effect.
    pub(crate) fn set_secrets(&self, secrets: Secrets) {
        let _ = self.secrets.set(secrets);
    }

    /// Saves every update in this store from now on. Later calls have no effect.
    pub(crate) fn set_store(&self, store: Store, feed: IndexFeed) {
        let _ = self.store.set((store, feed));
    }

    /// Indexes the turns that other processes have recorded, and not indexed yet. False without a store.
    pub(crate) async fn catch_up(&self) -> bool {
        let Some(store) = self.store() else { return false };
        if let Err(error) = store.catch_up(None).await {
            tracing::warn!(%error, "sessions of other processes could not be read");
        }
        true
    }

    /// A session of this client, by its id.
    pub(crate) async fn find(&self, id: &SessionId, owner: &ClientId) -> Option<KnownSession> {
        let (remembered, unsaved) = match self.cache().sessions.get(id) {
            Some(cached) => (Some(cached.known.clone()).filter(|known| known.owner == *owner), cached.is_unsaved()),
            None => (None, false),
        };
        let Some(store) = self.store().filter(|_| !unsaved) else { return remembered };
        match store.session(&key(id), &store_client_id(owner)).await {
            Ok(row) => row.map(|row| known_session(row, owner)),
            Err(error) => {
                self.store_failed(&error);
                remembered
            }
        }
    }

    /// Id of a session of this client, by the provider's id.
    pub(crate) async fn by_native(&self, provider: &str, native: &SessionId, owner: &ClientId) -> Option<SessionId> {
        let matches = |known: &KnownSession| {
            known.provider == provider && known.native.as_ref() == Some(native) && known.owner == *owner
        };
        let remembered = {
            let cache = self.cache();
            cache.order.iter().rev().find(|id| cache.sessions.get(id).is_some_and(|e| matches(&e.known))).cloned()
        };
        match (remembered, self.store()) {
            (Some(id), _) => Some(id),
            (None, None) => None,
            (None, Some(store)) => match store.session_by_native(provider, native, &store_client_id(owner)).await {
                Ok(row) => row.map(|row| SessionId(row.id.0.into())),
                Err(error) => {
                    self.store_failed(&error);
                    None
                }
            },
        }
    }

    /// Claims the session whose messages are exactly this past. A second request with the same past finds nothing while
    /// the claim is held. The caller must check the head again once it holds the session's lock.
    pub(crate) async fn by_history(
        &self,
        owner: &ClientId,
        model: &str,
        past: &MessageChain,
    ) -> Option<SessionClaim<'_>> {
        let remembered = match self.cache().heads.find(owner, model, &past.hash) {
            HeadMatch::One(id) => Some(id.clone()),
            HeadMatch::Several => return None,
            HeadMatch::None => None,
        };
        let id = match remembered {
            Some(id) => id,
            None => self.head_in_store(owner, model, past).await?,
        };
        let free = self.cache().active.insert(id.clone());
        free.then_some(SessionClaim { registry: self, id, turn_started: false })
    }

    /// Whether the session's messages are exactly this past.
    pub(crate) async fn is_head(&self, id: &SessionId, owner: &ClientId, model: &str, past: &MessageChain) -> bool {
        let remembered = self.cache().heads.is(id, owner, model, &past.hash);
        if self.is_unsaved(id) || self.store().is_none() || self.store_failing.load(Ordering::Relaxed) {
            return remembered;
        }
        self.head_in_store(owner, model, past).await.as_ref() == Some(id)
    }

    /// Removes all heads of a session from the store, because a turn starts in it. Other processes wait for the session's
    /// lease and check the heads after that; if this process is killed, the log says that a turn has started.
    pub(crate) fn forget_heads(&self, id: &SessionId) {
        if let Some((_, feed)) = self.store.get() {
            feed.take_heads(&key(id));
        }
    }

    /// Evicts sessions that the store has in full and that have no running turn.
    pub(crate) fn free_unused(&self) {
        if self.store().is_none() || self.store_failing.load(Ordering::Relaxed) {
            return;
        }
        let mut cache = self.cache();
        let SessionCache { sessions, order, heads, active } = &mut *cache;
        for (id, _) in sessions.extract_if(|id, cached| !cached.is_unsaved() && !active.contains(id)) {
            heads.take(&id);
        }
        order.retain(|id| sessions.contains_key(id));
        sessions.shrink_to_fit();
        order.shrink_to_fit();
        heads.shrink();
    }

    fn is_unsaved(&self, id: &SessionId) -> bool {
        self.cache().sessions.get(id).is_some_and(CachedSession::is_unsaved)
    }

    fn store(&self) -> Option<&Store> {
        self.store.get().map(|(store, _)| store)
    }

    async fn head_in_store(&self, owner: &ClientId, model: &str, past: &MessageChain) -> Option<SessionId> {
        match self.store()?.chain_find(&store_client_id(owner), model, &[past.hash]).await {
            Ok(found) => found.map(|(_, key)| SessionId(key.0.into())),
            Err(error) => {
                self.store_failed(&error);
                None
            }
        }
    }

    /// Marks the start of a turn: the session is no longer found by its history. Returns its heads, for
    /// [`restore`](Self::restore).
    pub(crate) fn start_turn(&self, id: &SessionId) -> Vec<MessageChain> {
        let mut cache = self.cache();
        cache.active.insert(id.clone());
        cache.heads.take(id)
    }

    /// Restores the state before [`start_turn`](Self::start_turn) for a turn that never reached a provider.
    pub(crate) fn restore(&self, id: &SessionId, owner: &ClientId, model: &str, heads: Vec<MessageChain>) {
        let mut cache = self.cache();
        cache.active.remove(id);
        cache.heads.set(id, owner, model, heads);
    }

    /// Records the result of a turn in memory. The next turn may start at once. Returns the state to be stored.
    pub(crate) fn record(&self, mut update: SessionUpdate) -> (NumberedUpdate, SessionState) {
        let state = self.session_state(&update);
        update.known.earlier = Some(EarlierTurns {
            title: state.session.title.clone(),
            created: state.session.created,
            succeeded: state.session.turns,
            parent: state.session.parent.clone(),
            used: state.session.used,
        });
        let SessionUpdate { known, asked, heads, .. } = &update;
        let mut cache = self.cache();
        cache.active.remove(&known.id);
        cache.heads.set(&known.id, &known.owner, asked, heads.clone());
        let (recorded, saved) = cache.sessions.get(&known.id).map_or((0, 0), |cached| (cached.recorded, cached.saved));
        let number = recorded + 1;
        let cached = CachedSession { known: known.clone(), recorded: number, saved };
        if cache.sessions.insert(known.id.clone(), cached).is_none() {
            cache.order.push_back(known.id.clone());
        }
        if cache.order.len() > MAX_CACHED_SESSIONS
            && let Some(oldest) = cache.order.pop_front()
        {
            cache.sessions.remove(&oldest);
            cache.heads.take(&oldest);
        }
        drop(cache);
        // The first message may be long and is not needed any more.
        update.first_message = String::new();
        (NumberedUpdate { update, number }, state)
    }

    /// Condition for storing the heads of an update: if the next turn starts before the write, they are outdated.
    pub(crate) fn head_condition(self: &Arc<Self>, update: &Arc<NumberedUpdate>) -> HeadCondition {
        let (registry, update) = (Arc::clone(self), Arc::clone(update));
        HeadCondition::when(move || registry.heads_are_current(&update.update))
    }

    /// Converts an update to the store's type.
    fn session_state(&self, update: &SessionUpdate) -> SessionState {
        let SessionUpdate { known, succeeded, asked, heads, first_message } = update;
        let now = Time::now();
        let EarlierTurns { title, created, succeeded: turns, parent, used } =
            known.earlier.clone().unwrap_or_else(|| {
                let begins = head(first_message.trim_start(), MAX_FIRST_MESSAGE_BYTES);
                let begins = self.secrets.get().map_or_else(|| begins.to_owned(), |secrets| secrets.mask(begins));
                EarlierTurns { title: first_words(&begins), created: now, succeeded: 0, parent: None, used: now }
            });
        let session = SessionRow {
            id: key(&known.id),
            owner: store_client_id(&known.owner),
            model: known.model.clone(),
            provider: known.provider.clone(),
            // As text, lossily if it is not UTF-8: it is displayed and compared.
            repo: known.repo.to_string_lossy().into_owned().into(),
            native: known.native.clone(),
            title,
            parent,
            created,
            // The clock may have been set back. The latest state must win.
            used: now.max(used),
            turns: turns + u64::from(*succeeded),
        };
        let heads = heads.iter().map(|head| SessionHead { hash: head.hash, messages: head.messages }).collect();
        SessionState { session, asked: asked.clone(), heads }
    }

    /// Whether no turn has started in the session since this update.
    fn heads_are_current(&self, update: &SessionUpdate) -> bool {
        let SessionUpdate { known, asked, heads, .. } = update;
        let cache = self.cache();
        heads.iter().all(|head| cache.heads.is(&known.id, &known.owner, asked, &head.hash))
    }

    /// Notes that an update is in the store, or that the write failed.
    pub(crate) fn write_finished(&self, update: &NumberedUpdate, result: Result<(), StoreError>) {
        if let Err(error) = result {
            return self.store_failed(&error);
        }
        if self.store_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("sessions are remembered again");
        }
        let (id, outdated) = (&update.update.known.id, !self.heads_are_current(&update.update));
        let latest = self.cache().sessions.get_mut(id).is_some_and(|cached| {
            cached.saved = cached.saved.max(update.number);
            cached.recorded == update.number
        });
        if outdated && latest {
            // A turn started while the heads were being written.
            self.forget_heads(id);
        }
    }

    /// Messages of a session's successful turns, as far as the archive has them.
    pub(crate) async fn archived_messages(&self, id: &SessionId) -> Vec<Message> {
        let Some(store) = self.store() else { return Vec::new() };
        let turns = match store.turns(&key(id)).await {
            Ok(turns) => turns,
            Err(error) => {
                self.store_failed(&error);
                return Vec::new();
            }
        };
        let mut room = MAX_REPLAYED_BYTES;
        let mut messages = Vec::new();
        for turn in turns.into_iter().rev().filter(|turn| turn.outcome == Some(RunOutcome::Ok)) {
            let answer = turn.answer.unwrap_or_default();
            let Some(left) = room.checked_sub(answer.len() + turn.prompt.len()) else { break };
            room = left;
            messages.push(Message::new(Role::Assistant, answer));
            messages.push(Message::new(Role::User, turn.prompt));
        }
        messages.reverse();
        messages
    }

    fn store_failed(&self, error: &StoreError) {
        if !self.store_failing.swap(true, Ordering::Relaxed) {
            tracing::error!("sessions are remembered only until this process ends: {error}");
        }
    }

    fn cache(&self) -> MutexGuard<'_, SessionCache> {
        self.cache.lock().expect("no panic while holding the lock")
    }
}

fn key(id: &SessionId) -> SessionKey {
    SessionKey((*id.0).to_owned())
}

/// Converts a client id to the store's type.
pub(crate) fn store_client_id(owner: &ClientId) -> trunkline_store::ClientId {
    trunkline_store::ClientId::new(owner.as_str())
}

fn known_session(row: SessionRow, owner: &ClientId) -> KnownSession {
    let SessionRow { id, model, provider, repo, native, title, parent, created, used, turns, .. } = row;
    let earlier = Some(EarlierTurns { title, created, succeeded: turns, parent, used });
    KnownSession { id: SessionId(id.0.into()), owner: owner.clone(), model, provider, repo, native, earlier }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
