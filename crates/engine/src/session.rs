//! Conversations that go on: which there are, one turn at a time for each, and what their CLIs have counted so far.

mod book;
mod chain;
mod places;
pub(crate) mod resolve;
mod thread;
mod totals;

pub(crate) use book::whose;
pub(crate) use chain::end_of_past;
pub(crate) use places::{Place, Places};
pub(crate) use thread::Thread;

use book::Book;

use totals::Totals;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;
use trunkline_core::event::{SessionId, Usage};

/// How many locks are kept before those that nobody holds are let go.
const MANY: usize = 4096;

pub(crate) struct Sessions {
    locks: Mutex<HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>>,
    pub(crate) book: Book,
    totals: Totals,
    pub(crate) places: Places,
}

/// The right to go on with a session. Two turns at once would fork its history, or be refused by the CLI.
#[derive(Debug)]
pub(crate) struct Turn {
    _guard: OwnedMutexGuard<()>,
}

impl Sessions {
    /// `state` is where they are remembered.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            locks: Mutex::default(),
            book: Book::default(),
            totals: Totals::load(state.join("totals.jsonl")),
            places: Places::new(state.join("sessions")),
        }
    }

    /// Waits until no other turn of the session is running.
    pub(crate) async fn enter(&self, session: &SessionId) -> Turn {
        Turn { _guard: self.lock_of(session).lock_owned().await }
    }

    /// The same for one who would not wait.
    pub(crate) fn enter_now(&self, session: &SessionId) -> Option<Turn> {
        self.lock_of(session).try_lock_owned().ok().map(|guard| Turn { _guard: guard })
    }

    fn lock_of(&self, session: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().expect("no panic while holding the lock");
        if locks.len() >= MANY {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        Arc::clone(locks.entry(session.clone()).or_default())
    }

    /// What this turn cost, from a CLI that counts the whole session.
    pub(crate) fn turn_usage(&self, session: &SessionId, total: Usage) -> Usage {
        if total.estimated {
            return total;
        }
        let before = self.totals.replace(session, total);
        // Less than before: the CLI began to count anew.
        before.filter(|before| before.input_tokens <= total.input_tokens).map_or(total, |before| total.since(before))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_running_total_becomes_turns() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(folder.path());
        let id = SessionId("s".into());
        let total = |input_tokens| Usage { input_tokens, output_tokens: 1, ..Usage::default() };
        assert_eq!(sessions.turn_usage(&id, total(1234)).input_tokens, 1234);
        assert_eq!(sessions.turn_usage(&id, total(2468)).input_tokens, 1234);
        let after_a_restart = Sessions::new(folder.path());
        assert_eq!(after_a_restart.turn_usage(&id, total(3702)).input_tokens, 1234);
        assert_eq!(after_a_restart.turn_usage(&id, total(100)).input_tokens, 100);
    }

    #[tokio::test]
    async fn one_turn_at_a_time() {
        let sessions = Sessions::new(Path::new("/nowhere"));
        let id = SessionId("s".into());
        let first = sessions.enter(&id).await;
        let second = sessions.enter(&id);
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err());
        drop(first);
        second.await;
    }
}
