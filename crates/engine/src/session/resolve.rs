//! Finds the session of a turn: the one that the client names, the one whose history it sends, or a new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use trunkline_core::event::{FoundBy, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::{Role, Turn};

use super::chain::{MessageChain, end_of_past, past};
use super::registry::{KnownSession, SessionClaim};
use super::thread::{SessionThread, SessionThreadBuilder};
use super::{SessionGuard, Sessions};
use crate::admission::{Admission, Reserved};
use crate::router::Candidate;
use crate::session::folder::same_folder;
use crate::start_error::StartError;

/// Candidates for a turn, and its session. No session if no candidate keeps sessions.
pub(crate) struct ResolvedSession {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) thread: Option<SessionThread>,
}

/// Resolves the session of one turn.
pub(crate) struct SessionResolver<'a> {
    pub(crate) sessions: &'a Arc<Sessions>,
    pub(crate) admission: &'a Admission,
    pub(crate) turn: &'a Turn,
    /// The turn's slot or place in the queue. It waits for a session in a place, never in a slot that others could use.
    pub(crate) reserved: Mutex<Option<Reserved>>,
}

/// A session found by the history in the request.
struct HistoryMatch<'a> {
    known: KnownSession,
    guard: SessionGuard,
    /// All messages of the session, including this turn's.
    history: MessageChain,
    claim: SessionClaim<'a>,
}

const UNKNOWN_SESSION_NOTE: &str = "there is no such session; a new one was started with the messages of the request";
const NOTHING_TO_RESUME_NOTE: &str =
    "the CLI has nothing to resume from an earlier turn of this session; it was started over";

impl SessionResolver<'_> {
    /// Waits for the session before the turn takes a slot that others could use.
    pub(crate) async fn resolve(&self, candidates: Vec<Candidate>) -> Result<ResolvedSession, StartError> {
        if self.turn.side.is_some() {
            return Ok(ResolvedSession { candidates, thread: None });
        }
        let Some(asked) = &self.turn.session else {
            return Ok(match self.by_history(&candidates).await {
                Some(HistoryMatch { known, guard, history, claim }) => {
                    let thread = self.builder().existing(known, guard, FoundBy::History, Some(history));
                    claim.turn_started();
                    ResolvedSession { candidates: only_provider_of(&thread, &candidates), thread: Some(thread) }
                }
                None => self.fresh(candidates),
            });
        };
        self.check_any_resumes(asked, &candidates)?;
        let guard = self.enter(asked).await?;
        let mut caught_up = false;
        loop {
            if let Some(known) = self.sessions.registry.find(asked, &self.turn.owner).await {
                return self.continue_session(known, guard, candidates).await;
            }
            if let Some((known, guard)) = self.by_native(asked, &candidates).await? {
                return self.continue_session(known, guard, candidates).await;
            }
            // Another process may have started the session just now.
            if std::mem::replace(&mut caught_up, true) || !self.sessions.registry.catch_up().await {
                break;
            }
        }
        if self.turn.owner.is_local() { self.adopt(asked, guard, candidates) } else { self.unknown(asked, candidates) }
    }

    /// Refuses a session id if no candidate can resume sessions.
    fn check_any_resumes(&self, asked: &SessionId, candidates: &[Candidate]) -> Result<(), Failure> {
        match candidates.first() {
            Some(first) if !candidates.iter().any(resumes) => first.model.backend.check_session(&asked.0),
            Some(_) | None => Ok(()),
        }
    }

    fn fresh(&self, candidates: Vec<Candidate>) -> ResolvedSession {
        let thread = candidates.iter().any(resumes).then(|| self.builder().fresh());
        ResolvedSession { candidates, thread }
    }

    async fn continue_session(
        &self,
        known: KnownSession,
        guard: SessionGuard,
        candidates: Vec<Candidate>,
    ) -> Result<ResolvedSession, StartError> {
        if !candidates.iter().any(|candidate| serves(candidate, &known)) {
            return Err(wrong_provider(&known, &candidates).into());
        }
        let history = match past(&self.turn.messages) {
            Some(past) if self.sessions.registry.is_head(&known.id, &known.owner, &self.turn.model, &past).await => {
                Some(MessageChain::over(&self.turn.messages))
            }
            Some(_) | None => None,
        };
        let (id, nothing_to_resume) = (known.id.clone(), known.native.is_none());
        let thread = self.builder().existing(known, guard, FoundBy::Id, history);
        // After the thread exists, so that heads that are still being written to the store are removed, too.
        self.sessions.registry.forget_heads(&id);
        let thread = if nothing_to_resume { thread.with_note(NOTHING_TO_RESUME_NOTE) } else { thread };
        Ok(ResolvedSession { candidates: only_provider_of(&thread, &candidates), thread: Some(thread) })
    }

    /// Finds a session by the provider's own id, which only local clients may use.
    async fn by_native(
        &self,
        asked: &SessionId,
        candidates: &[Candidate],
    ) -> Result<Option<(KnownSession, SessionGuard)>, StartError> {
        let Turn { owner, .. } = self.turn;
        for candidate in candidates.iter().filter(|_| owner.is_local()) {
            let provider = candidate.model.backend.name();
            if let Some(id) = self.sessions.registry.by_native(provider, asked, owner).await {
                let guard = self.enter(&id).await?;
                if let Some(known) = self.sessions.registry.find(&id, owner).await {
                    return Ok(Some((known, guard)));
                }
            }
        }
        Ok(None)
    }

    /// Takes over a session that is not in the registry: its provider may know the id.
    fn adopt(
        &self,
        asked: &SessionId,
        alias: SessionGuard,
        candidates: Vec<Candidate>,
    ) -> Result<ResolvedSession, StartError> {
        let fits = |candidate: &&Candidate| candidate.model.backend.check_session(&asked.0).is_ok();
        match candidates.iter().find(fits) {
            Some(candidate) => {
                let thread = self.builder().adopted(asked.clone(), alias);
                Ok(ResolvedSession { candidates: vec![candidate.clone()], thread: Some(thread) })
            }
            None => {
                let first = candidates.iter().find(|candidate| resumes(candidate));
                first.map_or(Ok(()), |first| first.model.backend.check_session(&asked.0))?;
                self.unknown(asked, candidates)
            }
        }
    }

    fn unknown(&self, asked: &SessionId, candidates: Vec<Candidate>) -> Result<ResolvedSession, StartError> {
        if end_of_past(&self.turn.messages).is_none() {
            let failure = Failure::new(Category::Validation, format!("there is no session {asked}"));
            return Err(failure.hint("leave the session out to start a new one").into());
        }
        let ResolvedSession { candidates, thread } = self.fresh(candidates);
        Ok(ResolvedSession { candidates, thread: thread.map(|thread| thread.with_note(UNKNOWN_SESSION_NOTE)) })
    }

    /// Finds the session whose messages are exactly the request's history.
    async fn by_history(&self, candidates: &[Candidate]) -> Option<HistoryMatch<'_>> {
        let Turn { owner, model, messages, .. } = self.turn;
        let wanted = |candidate: &Candidate| candidate.model.resume && resumes(candidate);
        let end = end_of_past(messages).filter(|_| candidates.iter().any(wanted))?;
        // New instructions need a new session: some CLIs keep the instructions that a session started with.
        if messages[end..].iter().any(|message| message.role == Role::System) {
            return None;
        }
        let before = MessageChain::over(&messages[..end]);
        let registry = &self.sessions.registry;
        let claim = registry.by_history(owner, model, &before).await?;
        // The previous turn may still be finishing.
        let guard = self.enter(&claim.id).await.ok()?;
        if !registry.is_head(&claim.id, owner, model, &before).await {
            return None;
        }
        let known = registry.find(&claim.id, owner).await?;
        let with = candidates.iter().find(|candidate| serves(candidate, &known))?;
        if known.native.is_none() || !wanted(with) {
            return None;
        }
        registry.forget_heads(&claim.id);
        let history = messages[end..].iter().fold(before, MessageChain::then);
        Some(HistoryMatch { known, guard, history, claim })
    }

    async fn enter(&self, id: &SessionId) -> Result<SessionGuard, StartError> {
        let enter = self.sessions.enter(id);
        tokio::pin!(enter);
        // A free session, the usual case, needs no place in the queue.
        if let Some(guard) = (&mut enter).now_or_never() {
            return Ok(self.caught_up(guard).await);
        }
        let taken = self.reserved().take();
        let place = self.admission.place_for(&self.turn.owner, taken)?;
        let entered = self.admission.in_queue(&self.turn.owner, enter, "the session was not free").await;
        *self.reserved() = Some(place);
        if let Ok(guard) = entered {
            return Ok(self.caught_up(guard).await);
        }
        entered.map_err(|error| match error {
            StartError::Busy { message, retry_after } => {
                let holder = self.sessions.lease_holder(id).filter(|process| *process != std::process::id());
                let holder = holder.map(|process| format!(": process {process} uses it")).unwrap_or_default();
                StartError::Busy { message: format!("{message}{holder}"), retry_after }
            }
            StartError::UnknownModel { .. }
            | StartError::InvalidMember { .. }
            | StartError::Limited { .. }
            | StartError::Unavailable { .. }
            | StartError::Storage { .. }
            | StartError::Failed { .. } => error,
        })
    }

    /// If the process that held the session has died, indexes what it has recorded.
    async fn caught_up(&self, guard: SessionGuard) -> SessionGuard {
        if guard.is_taken_over() {
            self.sessions.registry.catch_up().await;
        }
        guard
    }

    fn reserved(&self) -> MutexGuard<'_, Option<Reserved>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn builder(&self) -> SessionThreadBuilder<'_> {
        SessionThreadBuilder { sessions: self.sessions, turn: self.turn }
    }
}

fn resumes(candidate: &Candidate) -> bool {
    candidate.model.backend.resumes()
}

/// Whether the candidate is the provider and repository that the session belongs to.
fn serves(candidate: &Candidate, known: &KnownSession) -> bool {
    candidate.model.backend.name() == known.provider && same_folder(&candidate.model.repo, &known.repo)
}

/// The candidate that a session belongs to: no other can continue it.
fn only_provider_of(thread: &SessionThread, candidates: &[Candidate]) -> Vec<Candidate> {
    candidates.iter().find(|candidate| serves(candidate, thread.known())).cloned().into_iter().collect()
}

fn wrong_provider(known: &KnownSession, candidates: &[Candidate]) -> Failure {
    let place = |provider: &str, repo: &std::path::Path| format!("{provider} in {}", repo.display());
    let here = candidates.first().map(|first| place(first.model.backend.name(), &first.model.repo));
    let message = format!(
        "the session {} belongs to {}, not to {}",
        known.id,
        place(&known.provider, &known.repo),
        here.unwrap_or_default()
    );
    let hint = format!("request the model that it was started with ({}), or leave the session out", known.model);
    Failure::new(Category::Validation, message).hint(hint)
}

impl ResolvedSession {
    /// Notice for the client, to be sent before an attempt starts.
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
    use trunkline_store::{DATABASE_FILE, Durability, LogRecord, LogWriter, Purpose, Store, log_line};

    use super::super::registry::SessionUpdate;
    use super::*;
    use crate::admission::Caps;
    use crate::router::Why;

    /// Sessions of another process on the same state folder.
    async fn sessions(state: &Path) -> Arc<Sessions> {
        let store = Store::open(&state.join(DATABASE_FILE)).await.unwrap();
        let (sessions, (feed, task)) = (Arc::new(Sessions::new(state)), store.index(None));
        TaskTracker::new().spawn(task.run(CancellationToken::new()));
        sessions.registry.set_store(store, feed);
        sessions
    }

    #[tokio::test]
    async fn continues_session_at_once_when_another_process_has_just_answered() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [sessions(folder.path()).await, sessions(folder.path()).await];
        let codex = Backend::Program(built_in().remove("codex").unwrap().into());
        let model = Model::new("m", codex, Path::new("/repo"));
        let turn = Turn {
            model: "m".into(),
            session: Some(SessionId("s".into())),
            messages: vec![Message::new(Role::User, "and now?")],
            ..Turn::default()
        };
        let known = KnownSession {
            id: SessionId("s".into()),
            owner: turn.owner.clone(),
            model: "m".into(),
            provider: "codex".into(),
            repo: "/repo".into(),
            native: Some(SessionId("0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f".into())),
            earlier: None,
        };
        let update =
            SessionUpdate { known, succeeded: true, asked: "m".into(), first_message: "Hi".into(), heads: Vec::new() };
        // In the log of the first process, which is alive and has not indexed it yet.
        let log = LogWriter::new(folder.path(), Durability::Process);
        let (_, state) = one.registry.record(update);
        let mut line = Vec::new();
        log_line(&mut line, "run", &LogRecord::Session(state.into()));
        log.append(&line, Purpose::Continue, |_| {}).unwrap();
        let resolver = SessionResolver {
            sessions: &other,
            admission: &Admission::new(Caps::default()),
            turn: &turn,
            reserved: Mutex::default(),
        };
        let candidate = Candidate { model: Arc::new(model), why: Why::Asked };
        let resolved = resolver.resolve(vec![candidate]).await.unwrap_or_else(|error| panic!("{error:?}"));
        let resumption = resolved.thread.unwrap().resumption();
        assert_eq!((&*resumption.id.0, resumption.resumed), ("s", true));
    }
}
