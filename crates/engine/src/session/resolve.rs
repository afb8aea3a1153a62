//! Which conversation a turn is part of: one that the client names, one that it shows, or a new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use trunkline_core::event::{FoundBy, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::{Role, Turn};

use super::chain::{Chain, end_of_past, past};
use super::registry::{Claim, Known};
use super::thread::{Beginning, SessionThread};
use super::{SessionGuard, Sessions};
use crate::admission::{Admission, Reserved};
use crate::router::Candidate;
use crate::session::folder::same_folder;
use crate::start_error::StartError;

/// A turn, who may answer it, and in which conversation: none where nobody who may answer keeps any.
pub(crate) struct Resolved {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) thread: Option<SessionThread>,
}

pub(crate) struct Resolver<'a> {
    pub(crate) sessions: &'a Arc<Sessions>,
    pub(crate) admission: &'a Admission,
    pub(crate) turn: &'a Turn,
    /// The turn's slot or place in the queue. It waits for a conversation in a place, never in a slot that others could use.
    pub(crate) reserved: Mutex<Option<Reserved>>,
}

/// A conversation that the client has shown.
struct Shown<'a> {
    known: Known,
    right: SessionGuard,
    /// All that was said in it, with this turn's messages.
    all: Chain,
    claim: Claim<'a>,
}

const UNKNOWN: &str = "there is no such session; it was begun anew with the messages of the request";
const NOTHING_KEPT: &str = "the CLI has nothing to resume from an earlier turn of this session; it was begun anew";

impl Resolver<'_> {
    /// Waits for the conversation, before the turn takes a slot that others could use.
    pub(crate) async fn resolve(&self, candidates: Vec<Candidate>) -> Result<Resolved, StartError> {
        let Some(asked) = &self.turn.session else {
            return Ok(match self.by_history(&candidates).await {
                Some(Shown { known, right, all, claim }) => {
                    let thread = self.beginning().going_on(known, right, FoundBy::History, Some(all));
                    claim.spoken();
                    Resolved { candidates: able(&candidates, &thread), thread: Some(thread) }
                }
                None => self.fresh(candidates),
            });
        };
        self.check(asked, &candidates)?;
        let right = self.enter(asked).await?;
        let mut late = false;
        loop {
            if let Some(known) = self.sessions.book.find(asked, &self.turn.owner).await {
                return self.go_on(known, right, candidates).await;
            }
            if let Some((known, right)) = self.by_native(asked, &candidates).await? {
                return self.go_on(known, right, candidates).await;
            }
            // Another process may have begun it just now.
            if std::mem::replace(&mut late, true) || !self.sessions.book.wait_for_others().await {
                break;
            }
        }
        if self.turn.owner.is_local() { self.adopt(asked, right, candidates) } else { self.unknown(asked, candidates) }
    }

    /// Somebody has to be able to go on with a conversation at all.
    fn check(&self, asked: &SessionId, candidates: &[Candidate]) -> Result<(), Failure> {
        match candidates.first() {
            Some(first) if !candidates.iter().any(resumes) => first.model.backend.check_session(&asked.0),
            Some(_) | None => Ok(()),
        }
    }

    fn fresh(&self, candidates: Vec<Candidate>) -> Resolved {
        let thread = candidates.iter().any(resumes).then(|| self.beginning().fresh());
        Resolved { candidates, thread }
    }

    async fn go_on(
        &self,
        known: Known,
        right: SessionGuard,
        candidates: Vec<Candidate>,
    ) -> Result<Resolved, StartError> {
        if !candidates.iter().any(|candidate| is_with(candidate, &known)) {
            return Err(elsewhere(&known, &candidates).into());
        }
        let all = match past(&self.turn.messages) {
            Some(past) if self.sessions.book.is_head(&known.id, &known.owner, &self.turn.model, &past).await => {
                Some(Chain::over(&self.turn.messages))
            }
            Some(_) | None => None,
        };
        let (id, nothing_kept) = (known.id.clone(), known.native.is_none());
        let thread = self.beginning().going_on(known, right, FoundBy::Id, all);
        // Now that it speaks: what is still on its way into the store must not lead to it, either.
        self.sessions.book.forget_heads(&id).await;
        let thread = if nothing_kept { thread.noted(NOTHING_KEPT) } else { thread };
        Ok(Resolved { candidates: able(&candidates, &thread), thread: Some(thread) })
    }

    /// Whoever uses the machine itself may name a conversation as its provider does.
    async fn by_native(
        &self,
        asked: &SessionId,
        candidates: &[Candidate],
    ) -> Result<Option<(Known, SessionGuard)>, StartError> {
        let Turn { owner, .. } = self.turn;
        for candidate in candidates.iter().filter(|_| owner.is_local()) {
            let provider = candidate.model.backend.name();
            if let Some(id) = self.sessions.book.by_native(provider, asked, owner).await {
                let right = self.enter(&id).await?;
                if let Some(known) = self.sessions.book.find(&id, owner).await {
                    return Ok(Some((known, right)));
                }
            }
        }
        Ok(None)
    }

    /// One that we have never heard of may be known to its provider all the same.
    fn adopt(
        &self,
        asked: &SessionId,
        alias: SessionGuard,
        candidates: Vec<Candidate>,
    ) -> Result<Resolved, StartError> {
        let fits = |candidate: &&Candidate| candidate.model.backend.check_session(&asked.0).is_ok();
        match candidates.iter().find(fits) {
            Some(candidate) => {
                let thread = self.beginning().adopted(asked.clone(), alias);
                Ok(Resolved { candidates: vec![candidate.clone()], thread: Some(thread) })
            }
            None => {
                let first = candidates.iter().find(|candidate| resumes(candidate));
                first.map_or(Ok(()), |first| first.model.backend.check_session(&asked.0))?;
                self.unknown(asked, candidates)
            }
        }
    }

    fn unknown(&self, asked: &SessionId, candidates: Vec<Candidate>) -> Result<Resolved, StartError> {
        if end_of_past(&self.turn.messages).is_none() {
            let failure = Failure::new(Category::Validation, format!("there is no session {asked}"));
            return Err(failure.hint("leave it out to begin a new one").into());
        }
        let Resolved { candidates, thread } = self.fresh(candidates);
        Ok(Resolved { candidates, thread: thread.map(|thread| thread.noted(UNKNOWN)) })
    }

    /// The conversation that the client shows, if it is one: all that was said in it, and nothing since.
    async fn by_history(&self, candidates: &[Candidate]) -> Option<Shown<'_>> {
        let Turn { owner, model, messages, .. } = self.turn;
        let wanted = |candidate: &Candidate| candidate.model.resume && resumes(candidate);
        let end = end_of_past(messages).filter(|_| candidates.iter().any(wanted))?;
        // New instructions: some CLIs stay with those that a conversation began with.
        if messages[end..].iter().any(|message| message.role == Role::System) {
            return None;
        }
        let before = Chain::over(&messages[..end]);
        let book = &self.sessions.book;
        let claim = book.by_history(owner, model, &before).await?;
        // The turn before may just be putting its things in order.
        let right = self.enter(&claim.id).await.ok()?;
        if !book.is_head(&claim.id, owner, model, &before).await {
            return None;
        }
        let known = book.find(&claim.id, owner).await?;
        let with = candidates.iter().find(|candidate| is_with(candidate, &known))?;
        if known.native.is_none() || !wanted(with) || !book.take_head(&claim.id, owner, model, &before).await {
            return None;
        }
        let all = messages[end..].iter().fold(before, Chain::then);
        Some(Shown { known, right, all, claim })
    }

    async fn enter(&self, id: &SessionId) -> Result<SessionGuard, StartError> {
        let enter = self.sessions.enter(id);
        tokio::pin!(enter);
        // Mostly nobody is in it: then there is no queue.
        if let Some(right) = (&mut enter).now_or_never() {
            return Ok(right);
        }
        let taken = self.reserved().take();
        let place = self.admission.place_for(&self.turn.owner, taken)?;
        let entered = self.admission.in_queue(&self.turn.owner, enter, "the session was not free").await;
        *self.reserved() = Some(place);
        entered.map_err(|error| match error {
            StartError::Busy { message, retry_after } => {
                let who = self.sessions.elsewhere(id).filter(|process| *process != std::process::id());
                let who = who.map(|process| format!(": process {process} speaks in it")).unwrap_or_default();
                StartError::Busy { message: format!("{message}{who}"), retry_after }
            }
            StartError::UnknownModel { .. }
            | StartError::Limited { .. }
            | StartError::Unavailable { .. }
            | StartError::Storage { .. }
            | StartError::Failed { .. } => error,
        })
    }

    fn reserved(&self) -> MutexGuard<'_, Option<Reserved>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beginning(&self) -> Beginning<'_> {
        Beginning { sessions: self.sessions, asked: self.turn }
    }
}

fn resumes(candidate: &Candidate) -> bool {
    candidate.model.backend.resumes()
}

/// A conversation is one provider's, in one repository.
fn is_with(candidate: &Candidate, known: &Known) -> bool {
    candidate.model.backend.name() == known.provider && same_folder(&candidate.model.repo, &known.repo)
}

/// The one that a conversation is with: nobody else can go on with it.
fn able(candidates: &[Candidate], thread: &SessionThread) -> Vec<Candidate> {
    candidates.iter().find(|candidate| is_with(candidate, thread.known())).cloned().into_iter().collect()
}

fn elsewhere(known: &Known, candidates: &[Candidate]) -> Failure {
    let with = |provider: &str, repo: &std::path::Path| format!("{provider} in {}", repo.display());
    let here = candidates.first().map(|first| with(first.model.backend.name(), &first.model.repo));
    let message = format!(
        "the session {} is with {}, not with {}",
        known.id,
        with(&known.provider, &known.repo),
        here.unwrap_or_default()
    );
    let hint = format!("ask for the model it was begun with ({}), or leave it out to begin a new one", known.model);
    Failure::new(Category::Validation, message).hint(hint)
}

impl Resolved {
    /// What there is to tell before anything runs.
    pub(crate) fn notice(&self) -> Option<String> {
        self.thread.as_ref()?.resumption().note
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;
    use trunkline_core::model::{Backend, Model};
    use trunkline_core::provider::built_in;
    use trunkline_core::turn::Message;
    use trunkline_store::Store;

    use super::super::registry::After;
    use super::*;
    use crate::admission::Caps;
    use crate::router::Why;

    /// Sessions as another process has them, which share nothing but the store.
    fn sessions(state: &Path, store: &Store) -> Arc<Sessions> {
        let (sessions, (writer, keeping)) = (Arc::new(Sessions::new(state)), store.writer());
        TaskTracker::new().spawn(keeping.run(CancellationToken::new()));
        sessions.book.keep_in(store.clone(), writer);
        sessions
    }

    #[tokio::test]
    async fn what_another_process_has_just_answered_can_be_gone_on_with_at_once() {
        let (folder, store) = (tempfile::tempdir().unwrap(), Store::in_memory().await.unwrap());
        let [one, other] = [sessions(folder.path(), &store), sessions(folder.path(), &store)];
        let codex = Backend::Program(built_in().remove("codex").unwrap().into());
        let model = Model::new("m", codex, Path::new("/repo"));
        let turn = Turn {
            model: "m".into(),
            session: Some(SessionId("s".into())),
            messages: vec![Message::new(Role::User, "and now?")],
            ..Turn::default()
        };
        let known = Known {
            id: SessionId("s".into()),
            owner: turn.owner.clone(),
            model: "m".into(),
            provider: "codex".into(),
            repo: "/repo".into(),
            native: Some(SessionId("0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f".into())),
        };
        let after = After { known, succeeded: true, asked: "m".into(), begins: "Hi".into(), heads: Vec::new() };
        // On its way into the store, and no further.
        let _sent = one.book.keep(one.book.note(after)).await;
        let resolver = Resolver {
            sessions: &other,
            admission: &Admission::new(Caps::default()),
            turn: &turn,
            reserved: Mutex::default(),
        };
        let candidate = Candidate { model: Arc::new(model), why: Why::Asked };
        let resolved = resolver.resolve(vec![candidate]).await.unwrap_or_else(|error| panic!("{error:?}"));
        let resumption = resolved.thread.unwrap().resumption();
        assert_eq!((resumption.id.0.as_str(), resumption.resumed), ("s", true));
    }
}
