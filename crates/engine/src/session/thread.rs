//! The session of one run: its identity, whether the provider resumes it, and the update that is recorded at the end of
//! the turn.

use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::event::{Answer, FoundBy, Resumption, SessionId};
use trunkline_core::model::{AGENT, Model};
use trunkline_core::turn::{Message, Role, Turn};
use trunkline_store::{HeadCondition, SessionState, StoreError};

use super::chain::{self, MessageChain};
use super::registry::{KnownSession, NumberedUpdate, SessionRegistry, SessionUpdate};
use super::{SessionGuard, SessionPlace, SessionWriteGuard, Sessions};

/// The session during one turn. [`succeeded`](Self::succeeded) or [`failed`](Self::failed) must be called at the end of the turn.
pub(crate) struct SessionThread {
    sessions: Arc<Sessions>,
    known: KnownSession,
    /// Whether an earlier turn of the session has been recorded.
    existing: bool,
    /// The provider cannot resume the session, so the present attempt gets the whole history. The provider's id stays on
    /// record until an attempt under a new id has succeeded: a turn that fails changes nothing.
    lost: bool,
    /// Model name that the turn requested.
    asked: String,
    first_message: String,
    guard: Arc<SessionGuard>,
    /// Guard of the id that the client used, if that is the provider's own id.
    _alias: Option<SessionGuard>,
    /// All messages that the provider has received once this turn's request is in. `None` if the provider has received
    /// messages that the client does not know.
    history: Option<MessageChain>,
    found_by: Option<FoundBy>,
    note: Option<String>,
    /// Id that the provider has reported in the present attempt.
    reported: Option<SessionId>,
    /// Provider and repository of the present attempt.
    attempt: Option<(String, PathBuf)>,
    /// Heads of the session before this turn.
    heads: Vec<MessageChain>,
}

/// The end of a session's turn, to be stored. Other processes wait until it is dropped.
pub(crate) struct SessionWrite {
    registry: Arc<SessionRegistry>,
    /// `None` if there is nothing to store.
    update: Option<(Arc<NumberedUpdate>, SessionState)>,
    _guard: SessionWriteGuard,
}

impl SessionWrite {
    /// The session after the turn. `None` if the turn has not changed it.
    pub(crate) fn state(&self) -> Option<&SessionState> {
        self.update.as_ref().map(|(_, state)| state)
    }

    /// Condition for storing the heads.
    pub(crate) fn condition(&self) -> HeadCondition {
        let update = self.update.as_ref();
        update.map(|(update, _)| self.registry.head_condition(update)).unwrap_or_default()
    }

    /// Notes that the state is in the store, or that the write failed.
    pub(crate) fn saved(self, result: Result<(), StoreError>) {
        if let Some((update, _)) = &self.update {
            self.registry.write_finished(update, result);
        }
    }
}

/// Creates the [`SessionThread`] of a turn.
pub(crate) struct SessionThreadBuilder<'a> {
    pub(crate) sessions: &'a Arc<Sessions>,
    pub(crate) turn: &'a Turn,
}

impl SessionThreadBuilder<'_> {
    /// A session that starts with this turn.
    pub(crate) fn fresh(&self) -> SessionThread {
        let id = SessionId(uuid::Uuid::now_v7().to_string().into());
        let guard = self.sessions.enter_new(&id);
        let known = self.without_provider(id, None);
        self.thread(known, guard, Some(MessageChain::over(&self.turn.messages)))
    }

    /// A session that is not in the registry, and that its provider knows by this id.
    pub(crate) fn adopted(&self, native: SessionId, alias: SessionGuard) -> SessionThread {
        let id = SessionId(uuid::Uuid::now_v7().to_string().into());
        let guard = self.sessions.enter_new(&id);
        let known = self.without_provider(id, Some(native));
        SessionThread { _alias: Some(alias), found_by: Some(FoundBy::Id), ..self.thread(known, guard, None) }
    }

    /// A session of the registry. `history` is the chain over all its messages, including this turn's, if the client
    /// knows them.
    pub(crate) fn existing(
        &self,
        known: KnownSession,
        guard: SessionGuard,
        found_by: FoundBy,
        history: Option<MessageChain>,
    ) -> SessionThread {
        let history = if known.native.is_some() { history } else { Some(MessageChain::over(&self.turn.messages)) };
        SessionThread { found_by: Some(found_by), existing: true, ..self.thread(known, guard, history) }
    }

    /// A session whose provider is not known before its first attempt.
    fn without_provider(&self, id: SessionId, native: Option<SessionId>) -> KnownSession {
        let Turn { owner, model, .. } = self.turn;
        let (provider, repo) = (String::new(), PathBuf::new());
        KnownSession { id, owner: owner.clone(), model: model.clone(), provider, repo, native, earlier: None }
    }

    fn thread(&self, known: KnownSession, guard: SessionGuard, history: Option<MessageChain>) -> SessionThread {
        let first_message = self.turn.messages.iter().find(|message| message.role == Role::User);
        SessionThread {
            sessions: Arc::clone(self.sessions),
            heads: self.sessions.registry.start_turn(&known.id),
            known,
            existing: false,
            lost: false,
            asked: self.turn.model.clone(),
            first_message: first_message.map(|message| message.text.clone()).unwrap_or_default(),
            guard: Arc::new(guard),
            _alias: None,
            history,
            found_by: None,
            note: None,
            reported: None,
            attempt: None,
        }
    }
}

impl SessionThread {
    /// The provider's id for resuming the session. `None` if the provider has to start a new one.
    pub(crate) fn native(&self) -> Option<&SessionId> {
        self.known.native.as_ref().filter(|_| !self.lost)
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.known.id
    }

    pub(super) fn known(&self) -> &KnownSession {
        &self.known
    }

    pub(crate) fn guard(&self) -> Arc<SessionGuard> {
        Arc::clone(&self.guard)
    }

    /// Worktree and commit where the last turn ended.
    pub(crate) fn place(&self) -> Option<SessionPlace> {
        if !self.existing && !self.resumes() {
            return None;
        }
        let places = &self.sessions.places;
        places.of(self.id()).or_else(|| places.of(self.native()?))
    }

    /// The provider's id of the session after an attempt, if the provider can resume it.
    pub(crate) fn native_after_attempt(&self) -> Option<SessionId> {
        self.reported.clone().or_else(|| self.native().cloned())
    }

    /// Worktree and commit where the last attempt of this turn ended.
    pub(crate) fn place_after_attempt(&self) -> Option<SessionPlace> {
        self.sessions.places.of(self.id())
    }

    /// Records that an attempt with this model has started.
    pub(crate) fn attempt_started(&mut self, model: &Model) {
        self.attempt = Some((model.backend.name().to_owned(), model.repo.clone()));
        self.reported = None;
    }

    /// Records the id that the provider has reported for the session.
    pub(crate) fn set_native(&mut self, native: SessionId) {
        self.reported = Some(native);
    }

    /// Whether the provider has an id for the session, so that a later turn can resume it.
    pub(crate) fn is_resumable(&self) -> bool {
        self.reported.is_some() || self.resumes()
    }

    /// Whether the present attempt resumes the provider's session.
    pub(crate) fn resumes(&self) -> bool {
        self.native().is_some()
    }

    /// Starts a new provider session under the same id. `messages` is the history that the provider gets, if the client
    /// knows the same history.
    pub(crate) fn start_over(&mut self, why: String, messages: Option<&[Message]>) {
        self.lost = true;
        self.history = messages.map(MessageChain::over);
        self.note = Some(why);
    }

    /// Adds the note of a session that starts over from the beginning of the turn.
    pub(crate) fn with_note(mut self, why: &str) -> Self {
        self.note = Some(why.to_owned());
        self
    }

    /// Continues the turn with another request of the client. If the request has the whole history, a later request is recognised
    /// by it.
    pub(crate) fn continue_in(&mut self, turn: &Turn) {
        let knows_all = self.history.is_some() && turn.session.is_none();
        self.history = knows_all.then(|| MessageChain::over(&turn.messages));
    }

    pub(crate) fn resumption(&self) -> Resumption {
        let resumed = self.resumes();
        Resumption {
            id: self.known.id.clone(),
            native: self.reported.clone().or_else(|| self.native().cloned()),
            resumed,
            how: self.found_by.filter(|_| resumed),
            note: self.note.clone(),
        }
    }

    /// Records a turn that has succeeded. `streamed` is all text that was streamed to the client. The next turn of this
    /// process may start at once; other processes wait until the store has the returned state.
    pub(crate) fn succeeded(self, answer: &Answer, streamed: &str) -> SessionWrite {
        let heads = self.history.map(|history| chain::heads(history, answer, streamed)).unwrap_or_default();
        let heads = if self.is_resumable() { heads } else { Vec::new() };
        let native = self.reported.clone().or_else(|| self.known.native.clone());
        self.end(true, native, heads)
    }

    /// Records a turn that has failed, was cancelled, or never started. It is unknown which messages the provider has
    /// received, so that the session gets no head and is not found by its history.
    pub(crate) fn failed(self) -> SessionWrite {
        // The built-in agent has saved the messages so far; the state of other providers is unknown.
        let by_agent = self.attempt.as_ref().is_some_and(|(provider, _)| provider == AGENT);
        let native = self.reported.clone().filter(|_| by_agent).or_else(|| self.known.native.clone());
        self.end(false, native, Vec::new())
    }

    fn end(mut self, succeeded: bool, native: Option<SessionId>, heads: Vec<MessageChain>) -> SessionWrite {
        let attempt = self.attempt.take();
        let attempt = attempt.filter(|_| self.existing || self.reported.is_some() || (succeeded && native.is_some()));
        let registry = Arc::clone(&self.sessions.registry);
        let update = match attempt {
            Some((provider, repo)) => {
                let known = KnownSession { provider, repo, native, ..self.known.clone() };
                let (asked, first_message) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.first_message));
                let update = SessionUpdate { known, succeeded, asked, first_message, heads };
                let (update, state) = registry.record(update);
                Some((Arc::new(update), state))
            }
            None => {
                self.restore_heads();
                None
            }
        };
        SessionWrite { registry, update, _guard: self.guard.write_guard() }
    }

    /// Makes the session findable by its history again, after a turn that never reached a provider.
    fn restore_heads(&mut self) {
        let heads = std::mem::take(&mut self.heads);
        self.sessions.registry.restore(&self.known.id, &self.known.owner, &self.asked, heads);
    }
}
