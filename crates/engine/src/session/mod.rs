//! Sessions: which exist, the lock that admits one turn at a time to each, and the token totals that their CLIs have
//! reported so far.

mod chain;
pub(crate) mod folder;
mod lease;
mod places;
mod registry;
pub(crate) mod resolve;
mod thread;
mod totals;

pub(crate) use chain::end_of_past;
pub(crate) use places::{SessionPlace, SessionPlaces};
pub(crate) use registry::store_client_id;
pub(crate) use thread::{SessionThread, SessionWrite};

use lease::{Lease, Leases};
use registry::SessionRegistry;
use totals::SessionTotals;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, RwLock};
use trunkline_core::event::{SessionId, Usage};

/// Locks that are tracked before unused ones are removed.
const MAX_TRACKED_LOCKS: usize = 4096;

/// File with token totals, below the state folder.
const TOTALS_FILE: &str = "totals.jsonl";

/// Folder with the places of sessions, below the state folder.
const PLACES_FOLDER: &str = "sessions";

/// Time that a reader of a session waits until its last turn is written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Deletes the places and token totals of sessions that have not been used for `age`. Messages are in the store, which has
/// its own retention.
pub fn forget_sessions(state: &Path, age: Duration) -> io::Result<()> {
    SessionPlaces::new(state.join(PLACES_FOLDER)).forget(age);
    totals::forget(&state.join(TOTALS_FILE), age)
}

pub(crate) struct Sessions {
    locks: Mutex<HashMap<SessionId, Arc<SessionLock>>>,
    leases: Leases,
    pub(crate) registry: Arc<SessionRegistry>,
    totals: SessionTotals,
    pub(crate) places: SessionPlaces,
}

/// Lock of one session.
#[derive(Debug, Default)]
struct SessionLock {
    /// Locked by the running turn. The lease inside keeps other processes out until the store has the turn, which may
    /// happen after the next turn of this process has started.
    turn: Arc<tokio::sync::Mutex<Weak<Lease>>>,
    /// Locked for reading while a finished turn is being written.
    writing: Arc<RwLock<()>>,
}

/// Exclusive right to run a turn in a session. Two turns at once would fork its history, or be refused by the CLI.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    lease: Option<Arc<Lease>>,
    lock: Arc<SessionLock>,
    _guard: OwnedMutexGuard<Weak<Lease>>,
}

/// Held while a finished turn is being written to the store. Other processes wait until it is dropped; this process has
/// the result in memory.
#[derive(Debug)]
pub(crate) struct SessionWriteGuard {
    _lease: Option<Arc<Lease>>,
    _writing: Option<OwnedRwLockReadGuard<()>>,
    /// Keeps the lock in the map, where the next turn finds the lease.
    _lock: Arc<SessionLock>,
}

impl SessionGuard {
    /// Whether the process that held the session before has died without releasing it.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.taken_over)
    }

    pub(crate) fn write_guard(&self) -> SessionWriteGuard {
        let writing = Arc::clone(&self.lock.writing).try_read_owned();
        SessionWriteGuard { _lease: self.lease.clone(), _writing: writing.ok(), _lock: Arc::clone(&self.lock) }
    }
}

impl Sessions {
    /// Sessions that are persisted in the `state` folder.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            locks: Mutex::default(),
            leases: Leases::new(state.join("turns")),
            registry: Arc::default(),
            totals: SessionTotals::load(state.join(TOTALS_FILE)),
            places: SessionPlaces::new(state.join(PLACES_FOLDER)),
        }
    }

    /// Waits until no other turn of the session is running, in this process or another one.
    pub(crate) async fn enter(&self, session: &SessionId) -> SessionGuard {
        let lock = self.lock(session);
        let mut guard = Arc::clone(&lock.turn).lock_owned().await;
        let lease = match guard.upgrade() {
            Some(ours) => Some(ours),
            None => self.leases.wait(session).await.map(Arc::new),
        };
        *guard = lease.as_ref().map(Arc::downgrade).unwrap_or_default();
        SessionGuard { lease, lock, _guard: guard }
    }

    /// Enters a session whose id has just been generated, so that no other turn can hold it.
    pub(crate) fn enter_new(&self, session: &SessionId) -> SessionGuard {
        let lock = self.lock(session);
        let guard = Arc::clone(&lock.turn).try_lock_owned().expect("the id of a new session is not shared yet");
        SessionGuard { lease: None, lock, _guard: guard }
    }

    /// Process id of the live process that holds the session's lease.
    pub(crate) fn lease_holder(&self, session: &SessionId) -> Option<u32> {
        self.leases.holder(session)
    }

    /// Waits until all finished turns of a session are written, for at most [`WRITE_TIMEOUT`].
    pub(crate) async fn wait_until_written(&self, session: &SessionId) {
        let writing = Arc::clone(&self.lock(session).writing);
        // After the timeout the caller reads what is in the store.
        let _ = tokio::time::timeout(WRITE_TIMEOUT, writing.write()).await;
    }

    fn lock(&self, session: &SessionId) -> Arc<SessionLock> {
        let mut locks = self.locks.lock().expect("no panic while holding the lock");
        if locks.len() >= MAX_TRACKED_LOCKS {
            remove_unused(&mut locks);
        }
        Arc::clone(locks.entry(session.clone()).or_default())
    }

    /// Frees memory that no running turn needs.
    pub(crate) fn free_unused(&self) {
        self.registry.free_unused();
        let mut locks = self.locks.lock().expect("no panic while holding the lock");
        remove_unused(&mut locks);
        locks.shrink_to_fit();
    }

    /// Usage of one turn, from the running total of a CLI that counts the whole session.
    pub(crate) fn turn_usage(&self, session: &SessionId, total: Usage) -> Usage {
        if total.estimated {
            return total;
        }
        let before = self.totals.replace(session, total);
        // A smaller total: the CLI has restarted its count.
        before.filter(|before| before.input_tokens <= total.input_tokens).map_or(total, |before| total.since(before))
    }
}

/// Removes locks that no turn holds. Each is small, but every session leaves one.
fn remove_unused(locks: &mut HashMap<SessionId, Arc<SessionLock>>) {
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn running_total_is_split_into_turns() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(folder.path());
        let id = SessionId("s".into());
        let total = |input_tokens| Usage { input_tokens, output_tokens: 1, ..Usage::default() };
        assert_eq!(sessions.turn_usage(&id, total(1234)).input_tokens, 1234);
        assert_eq!(sessions.turn_usage(&id, total(2468)).input_tokens, 1234);
        let after_restart = Sessions::new(folder.path());
        assert_eq!(after_restart.turn_usage(&id, total(3702)).input_tokens, 1234);
        assert_eq!(after_restart.turn_usage(&id, total(100)).input_tokens, 100);
    }

    #[tokio::test]
    async fn case_76_admits_one_turn_at_a_time() {
        // Also where files cannot be locked.
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
    async fn case_76_admits_one_process_at_a_time_until_turn_is_written() {
        let folder = tempfile::tempdir().unwrap();
        // Two instances exclude each other through file locks, as two processes do.
        let [one, other] = [Sessions::new(folder.path()), Sessions::new(folder.path())];
        let id = SessionId("s".into());
        let first = one.enter(&id).await;
        let theirs = other.enter(&id);
        tokio::pin!(theirs);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut theirs).await.is_err());
        assert_eq!(other.lease_holder(&id), Some(std::process::id()));
        let writing = first.write_guard();
        drop(first);
        // The lock of a turn that is being written is still in use.
        one.free_unused();
        let second = one.enter(&id).await;
        drop(second);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), &mut theirs).await.is_err(),
            "the first turn is not written yet"
        );
        drop(writing);
        let theirs = theirs.await;
        assert!(tokio::time::timeout(Duration::from_secs(1), one.enter(&id)).await.is_err());
        drop(theirs);
        one.enter(&id).await;
        one.free_unused();
        assert_eq!(one.locks.lock().unwrap().len(), 0);
        assert_eq!(std::fs::read_dir(folder.path().join("turns")).unwrap().count(), 0, "no lease file is left");
    }
}
