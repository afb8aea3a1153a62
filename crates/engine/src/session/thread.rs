//! The conversation of one run: which it is, whether its provider goes on with what it remembers, and what is noted at
//! the end.

use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::event::{Answer, FoundBy, Resumption, SessionId};
use trunkline_core::model::{AGENT, Model};
use trunkline_core::turn::{Message, Role, Turn};

use super::chain::{self, Chain};
use super::registry::{After, Known, OnItsWay};
use super::{Place, Sessions, Settling};

/// It has to be told of its turn's end, whatever that is.
pub(crate) struct SessionThread {
    sessions: Arc<Sessions>,
    known: Known,
    /// Others know of it: a turn of it has been noted before.
    old: bool,
    /// The provider cannot resume it, so the present attempt is told everything. Its name stays on record until another
    /// one has proved to work: a turn that fails changes nothing.
    lost: bool,
    asked: String,
    begins: String,
    /// Nobody else speaks in it.
    turn: Arc<super::SessionGuard>,
    /// The same for the name the client used, where that is the provider's own.
    _alias: Option<super::SessionGuard>,
    /// All that the provider has been told when this turn is over, as the client knows it; none where it knows more.
    told: Option<Chain>,
    found: Option<FoundBy>,
    note: Option<String>,
    /// What the provider calls it, in the present attempt.
    heard: Option<SessionId>,
    /// Provider and repository of the present attempt.
    here: Option<(String, PathBuf)>,
    /// By what it was found before.
    heads: Vec<Chain>,
}

/// What a turn came to, on its way into the store. Other processes wait until it is there.
pub(crate) struct Sent {
    /// None where there is nothing to write.
    way: Option<OnItsWay>,
    _settling: Settling,
}

impl Sent {
    pub(crate) async fn kept(self) {
        if let Some(way) = self.way {
            way.kept().await;
        }
    }
}

/// How a thread comes about.
pub(crate) struct Beginning<'a> {
    pub(crate) sessions: &'a Arc<Sessions>,
    pub(crate) asked: &'a Turn,
}

impl Beginning<'_> {
    /// One that begins with this turn.
    pub(crate) fn fresh(&self) -> SessionThread {
        let id = SessionId(uuid::Uuid::now_v7().to_string());
        let turn = self.sessions.enter_new(&id);
        let known = self.nobodys(id, None);
        self.thread(known, turn, Some(Chain::over(&self.asked.messages)))
    }

    /// One that only its provider knows of, by this name.
    pub(crate) fn adopted(&self, native: SessionId, alias: super::SessionGuard) -> SessionThread {
        let id = SessionId(uuid::Uuid::now_v7().to_string());
        let turn = self.sessions.enter_new(&id);
        let known = self.nobodys(id, Some(native));
        SessionThread { _alias: Some(alias), found: Some(FoundBy::Id), ..self.thread(known, turn, None) }
    }

    /// One that goes on. `told` is all that was said in it, with this turn's messages, if the client knows that.
    pub(crate) fn going_on(
        &self,
        known: Known,
        turn: super::SessionGuard,
        found: FoundBy,
        told: Option<Chain>,
    ) -> SessionThread {
        let told = if known.native.is_some() { told } else { Some(Chain::over(&self.asked.messages)) };
        SessionThread { found: Some(found), old: true, ..self.thread(known, turn, told) }
    }

    fn nobodys(&self, id: SessionId, native: Option<SessionId>) -> Known {
        let Turn { owner, model, .. } = self.asked;
        let (provider, repo) = (String::new(), PathBuf::new());
        Known { id, owner: owner.clone(), model: model.clone(), provider, repo, native }
    }

    fn thread(&self, known: Known, turn: super::SessionGuard, told: Option<Chain>) -> SessionThread {
        let begins = self.asked.messages.iter().find(|message| message.role == Role::User);
        SessionThread {
            sessions: Arc::clone(self.sessions),
            heads: self.sessions.book.speak(&known.id),
            known,
            old: false,
            lost: false,
            asked: self.asked.model.clone(),
            begins: begins.map(|message| message.text.clone()).unwrap_or_default(),
            turn: Arc::new(turn),
            _alias: None,
            told,
            found: None,
            note: None,
            heard: None,
            here: None,
        }
    }
}

impl SessionThread {
    /// By which name the provider goes on with it.
    pub(crate) fn native(&self) -> Option<&SessionId> {
        self.known.native.as_ref().filter(|_| !self.lost)
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.known.id
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    pub(crate) fn lock(&self) -> Arc<super::SessionGuard> {
        Arc::clone(&self.turn)
    }

    /// Where it left off.
    pub(crate) fn place(&self) -> Option<Place> {
        if !self.old && !self.resumes() {
            return None;
        }
        let places = &self.sessions.places;
        places.of(self.id()).or_else(|| places.of(self.native()?))
    }

    /// An attempt runs.
    pub(crate) fn begun_by(&mut self, model: &Model) {
        self.here = Some((model.backend.name().to_owned(), model.repo.clone()));
        self.heard = None;
    }

    /// The provider has named the conversation.
    pub(crate) fn hear(&mut self, native: SessionId) {
        self.heard = Some(native);
    }

    /// Whether there is something to go on with next time.
    pub(crate) fn is_named(&self) -> bool {
        self.heard.is_some() || self.resumes()
    }

    /// Whether the provider was asked to go on with what it remembers.
    pub(crate) fn resumes(&self) -> bool {
        self.native().is_some()
    }

    /// Begins anew under the same name, because of this. `messages` are what the provider is told then, if that is what
    /// the client knows, too.
    pub(crate) fn anew(&mut self, why: String, messages: Option<&[Message]>) {
        self.lost = true;
        self.told = messages.map(Chain::over);
        self.note = Some(why);
    }

    /// The same, where that was clear from the start.
    pub(crate) fn noted(mut self, why: &str) -> Self {
        self.note = Some(why.to_owned());
        self
    }

    pub(crate) fn resumption(&self) -> Resumption {
        let resumed = self.resumes();
        Resumption {
            id: self.known.id.clone(),
            native: self.heard.clone().or_else(|| self.native().cloned()),
            resumed,
            how: self.found.filter(|_| resumed),
            note: self.note.clone(),
        }
    }

    /// The turn has succeeded. `streamed` is all that was shown of its text. Others of this process may speak at once;
    /// those of other processes, when it is in the store, where the future sends it to.
    pub(crate) fn succeeded(self, answer: &Answer, streamed: &str) -> impl Future<Output = Sent> + Send + use<> {
        let heads = self.told.map(|told| chain::heads(told, answer, streamed)).unwrap_or_default();
        let heads = if self.is_named() { heads } else { Vec::new() };
        let native = self.heard.clone().or_else(|| self.known.native.clone());
        self.end(true, native, heads)
    }

    /// The turn has failed, was given up, or never began. What the provider heard of it is not known, so nobody finds the conversation by
    /// what was said in it.
    pub(crate) fn failed(self) -> impl Future<Output = Sent> + Send + use<> {
        // The built-in agent keeps what was said so far; others may have kept anything.
        let by_agent = self.here.as_ref().is_some_and(|(provider, _)| provider == AGENT);
        let native = self.heard.clone().filter(|_| by_agent).or_else(|| self.known.native.clone());
        self.end(false, native, Vec::new())
    }

    fn end(
        mut self,
        succeeded: bool,
        native: Option<SessionId>,
        heads: Vec<Chain>,
    ) -> impl Future<Output = Sent> + Send + use<> {
        let after = self.here.take().filter(|_| self.old || self.heard.is_some() || (succeeded && native.is_some()));
        let after = after.map(|(provider, repo)| {
            let known = Known { provider, repo, native, ..self.known.clone() };
            let (asked, begins) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.begins));
            After { known, succeeded, asked, begins, heads }
        });
        let sent = match after {
            Some(after) => Some(self.sessions.book.keep(self.sessions.book.note(after))),
            None => {
                self.put_back();
                None
            }
        };
        let settling = self.turn.settling();
        async move {
            let way = match sent {
                Some(sent) => Some(sent.await),
                None => None,
            };
            Sent { way, _settling: settling }
        }
    }

    fn put_back(&mut self) {
        let heads = std::mem::take(&mut self.heads);
        self.sessions.book.unspoken(&self.known.id, &self.known.owner, &self.asked, heads);
    }
}
