//! Conversations that go on: which there are, one turn at a time for each, and what their CLIs have counted so far.

mod chain;
pub(crate) mod folder;
mod lease;
mod places;
mod registry;
pub(crate) mod resolve;
mod thread;
mod totals;

pub(crate) use chain::end_of_past;
pub(crate) use places::{Place, Places};
pub(crate) use registry::whose;
pub(crate) use thread::{Sent, SessionThread};

use lease::{Lease, Leases};
use registry::SessionRegistry;
use totals::Totals;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, RwLock};
use trunkline_core::event::{SessionId, Usage};

/// How many seats are kept before those that nobody has are let go.
const MANY: usize = 4096;

/// Where they are remembered, below the state folder.
const TOTALS: &str = "totals.jsonl";
const PLACES: &str = "sessions";

/// How long whoever needs all that was said in a session waits for the last of it to be written.
const SETTLING: Duration = Duration::from_secs(5);

/// Forgets where sessions that nobody went on with for so long left off, and what they had counted. For whoever keeps to a
/// retention: what was said in them is elsewhere.
pub fn forget_sessions(state: &Path, age: Duration) -> io::Result<()> {
    Places::new(state.join(PLACES)).forget(age);
    totals::forget(&state.join(TOTALS), age)
}

pub(crate) struct Sessions {
    seats: Mutex<HashMap<SessionId, Arc<Seat>>>,
    leases: Leases,
    pub(crate) book: Arc<SessionRegistry>,
    totals: Totals,
    pub(crate) places: Places,
}

/// Where one speaks from in a session.
#[derive(Debug, Default)]
struct Seat {
    /// Locked by the turn that is on its way. What it holds keeps other processes out: until the store has what was said,
    /// which may be when the next turn of this one is on its way already.
    turn: Arc<tokio::sync::Mutex<Weak<Lease>>>,
    /// Read by whoever still writes what a turn came to.
    settling: Arc<RwLock<()>>,
}

/// The right to go on with a session. Two turns at once would fork its history, or be refused by the CLI.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    lease: Option<Arc<Lease>>,
    seat: Arc<Seat>,
    _guard: OwnedMutexGuard<Weak<Lease>>,
}

/// Held while what a turn came to is on its way into the store: other processes wait for that, this one knows it.
#[derive(Debug)]
pub(crate) struct Settling {
    _lease: Option<Arc<Lease>>,
    _reading: Option<OwnedRwLockReadGuard<()>>,
    /// The next one finds the lease there.
    _seat: Arc<Seat>,
}

impl SessionGuard {
    pub(crate) fn settling(&self) -> Settling {
        let reading = Arc::clone(&self.seat.settling).try_read_owned();
        Settling { _lease: self.lease.clone(), _reading: reading.ok(), _seat: Arc::clone(&self.seat) }
    }
}

impl Sessions {
    /// `state` is where they are remembered.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            seats: Mutex::default(),
            leases: Leases::new(state.join("turns")),
            book: Arc::default(),
            totals: Totals::load(state.join(TOTALS)),
            places: Places::new(state.join(PLACES)),
        }
    }

    /// Waits until no other turn of the session is running, in this process or another one.
    pub(crate) async fn enter(&self, session: &SessionId) -> SessionGuard {
        let seat = self.seat(session);
        let mut guard = Arc::clone(&seat.turn).lock_owned().await;
        let lease = match guard.upgrade() {
            Some(ours) => Some(ours),
            None => self.leases.wait(session).await.map(Arc::new),
        };
        *guard = lease.as_ref().map(Arc::downgrade).unwrap_or_default();
        SessionGuard { lease, seat, _guard: guard }
    }

    /// The same for a session that nobody else knows of.
    pub(crate) fn enter_new(&self, session: &SessionId) -> SessionGuard {
        let seat = self.seat(session);
        let guard = Arc::clone(&seat.turn).try_lock_owned().expect("nobody else knows of it");
        SessionGuard { lease: None, seat, _guard: guard }
    }

    /// Who else speaks in it, if that is another process.
    pub(crate) fn elsewhere(&self, session: &SessionId) -> Option<u32> {
        self.leases.holder(session)
    }

    /// Waits until all that was said in it is written, for a while.
    pub(crate) async fn settled(&self, session: &SessionId) {
        let settling = Arc::clone(&self.seat(session).settling);
        let _or_with_what_there_is = tokio::time::timeout(SETTLING, settling.write()).await;
    }

    fn seat(&self, session: &SessionId) -> Arc<Seat> {
        let mut seats = self.seats.lock().expect("no panic while holding the lock");
        if seats.len() >= MANY {
            clear(&mut seats);
        }
        Arc::clone(seats.entry(session.clone()).or_default())
    }

    /// Lets go of what is not of this moment.
    pub(crate) fn lighten(&self) {
        self.book.lighten();
        let mut seats = self.seats.lock().expect("no panic while holding the lock");
        clear(&mut seats);
        seats.shrink_to_fit();
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

/// Seats that nobody has go: each is little, but there is one for every session, wherever there was room for it.
fn clear(seats: &mut HashMap<SessionId, Arc<Seat>>) {
    seats.retain(|_, seat| Arc::strong_count(seat) > 1);
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
    async fn case_76_one_turn_at_a_time() {
        // Where nothing can be locked, too.
        for state in [tempfile::tempdir().unwrap().path().join("state"), "/dev/null/state".into()] {
            let sessions = Sessions::new(&state);
            let id = SessionId("s".into());
            let first = sessions.enter(&id).await;
            let second = sessions.enter(&id);
            tokio::pin!(second);
            assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err());
            drop(first);
            second.await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn case_76_one_process_at_a_time_until_all_is_written() {
        let folder = tempfile::tempdir().unwrap();
        // Locks of one process keep those of another out; these do not know of each other, either.
        let [one, other] = [Sessions::new(folder.path()), Sessions::new(folder.path())];
        let id = SessionId("s".into());
        let first = one.enter(&id).await;
        let theirs = other.enter(&id);
        tokio::pin!(theirs);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut theirs).await.is_err());
        assert_eq!(other.elsewhere(&id), Some(std::process::id()));
        let settling = first.settling();
        drop(first);
        // Whoever still writes has his seat.
        one.lighten();
        let second = one.enter(&id).await;
        drop(second);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut theirs).await.is_err(), "it is not written yet");
        drop(settling);
        let theirs = theirs.await;
        assert!(tokio::time::timeout(Duration::from_secs(1), one.enter(&id)).await.is_err());
        drop(theirs);
        one.enter(&id).await;
        one.lighten();
        assert_eq!(one.seats.lock().unwrap().len(), 0);
        assert_eq!(std::fs::read_dir(folder.path().join("turns")).unwrap().count(), 0, "nothing is left lying about");
    }
}
