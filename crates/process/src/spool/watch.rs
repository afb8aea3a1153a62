//! Wakes the readers of spools: one inotify instance and one task for all of them.
//!
//! The task runs whether or not a reader does, so that a program is stopped even if its reader has stopped polling.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::SpoolState;
use crate::janitor::Janitor;

/// Bytes of events that are read at once.
const BATCH_BYTES: usize = 4096;
/// Length of an event without its name. Only events of folders have a name.
const HEADER_BYTES: usize = 16;

/// The inotify instance, and the spools that it watches.
#[derive(Debug)]
pub(crate) struct SpoolWatch {
    inotify: OwnedFd,
    spools: Mutex<HashMap<i32, Weak<SpoolState>>>,
    /// Ends the task.
    _end: DropGuard,
}

/// A change that the kernel reported.
#[derive(Debug, PartialEq, Eq)]
enum SpoolChange {
    One(i32, ReadFlags),
    /// The kernel's queue overflowed: any spool may have changed.
    Any,
}

impl SpoolWatch {
    pub(crate) fn start(janitor: &Janitor) -> io::Result<Arc<Self>> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let _runtime = janitor.enter();
        // Not a pipe, but polled and read like one.
        let changes = Receiver::from_owned_fd_unchecked(inotify.try_clone()?)?;
        let end = janitor.closing().child_token();
        let watch = Arc::new(Self { inotify, spools: Mutex::default(), _end: end.clone().drop_guard() });
        janitor.spawn(serve(Arc::downgrade(&watch), changes, end));
        Ok(watch)
    }

    /// Watches the file at `path` and reports its events to `state`.
    pub(super) fn add(&self, path: &str, state: &Arc<SpoolState>) -> io::Result<i32> {
        let mut spools = self.spools();
        let flags = WatchFlags::OPEN | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        let wd = inotify::add_watch(&self.inotify, path, flags)?;
        spools.insert(wd, Arc::downgrade(state));
        Ok(wd)
    }

    pub(super) fn remove(&self, wd: i32) {
        self.spools().remove(&wd);
        // Watch descriptors are not reused, so an event that is still queued is ignored.
        let _ = inotify::remove_watch(&self.inotify, wd);
    }

    fn deliver(&self, change: &SpoolChange) {
        match change {
            SpoolChange::One(wd, event) => {
                let state = self.spools().get(wd).and_then(Weak::upgrade);
                if let Some(state) = state {
                    state.changed(*event);
                }
            }
            SpoolChange::Any => {
                let all: Vec<_> = self.spools().values().filter_map(Weak::upgrade).collect();
                all.iter().for_each(|state| state.events_lost());
            }
        }
    }

    fn spools(&self) -> MutexGuard<'_, HashMap<i32, Weak<SpoolState>>> {
        self.spools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Delivers changes until the pool is dropped or shut down.
async fn serve(watch: Weak<SpoolWatch>, mut changes: Receiver, end: CancellationToken) {
    let mut batch = [0; BATCH_BYTES];
    // A read that does not fill the batch has emptied the queue, and tokio then waits without reading again.
    while let Some(Ok(count)) = end.run_until_cancelled(changes.read(&mut batch)).await {
        let Some(watch) = watch.upgrade() else { return };
        decode(&batch[..count]).for_each(|change| watch.deliver(&change));
    }
}

/// Decodes the bytes that were read from inotify.
fn decode(mut bytes: &[u8]) -> impl Iterator<Item = SpoolChange> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let (wd, mask) = (i32::from_ne_bytes(word(0)), ReadFlags::from_bits_retain(u32::from_ne_bytes(word(4))));
        let name = u32::from_ne_bytes(word(12)) as usize;
        bytes = rest.get(name..).unwrap_or_default();
        let overflow = mask.contains(ReadFlags::QUEUE_OVERFLOW);
        Some(if overflow { SpoolChange::Any } else { SpoolChange::One(wd, mask) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_decoded_from_inotify_events() {
        let event = |wd: i32, mask: u32, name: u32| {
            let words = [wd.to_ne_bytes(), mask.to_ne_bytes(), 0_u32.to_ne_bytes(), name.to_ne_bytes()].concat();
            [words, vec![0; name as usize]].concat()
        };
        let bytes = [event(3, 2, 0), event(4, 8, 16), event(-1, 0x4000, 0), vec![1, 2]].concat();
        let expected =
            [SpoolChange::One(3, ReadFlags::MODIFY), SpoolChange::One(4, ReadFlags::CLOSE_WRITE), SpoolChange::Any];
        assert_eq!(decode(&bytes).collect::<Vec<_>>(), expected);
    }
}
