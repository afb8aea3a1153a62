//! Wakes the readers of spools: one inotify instance for all of them.
//!
//! Its events are read by the waker that the runtime calls when there are some, not by a task: a task would be scheduled only
//! to wake the task of a reader, and each of them may wake a sleeping worker thread. The runtime calls it whether or not a
//! reader is polled, so that a program is stopped even if its reader has stopped polling.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

use super::SpoolState;
use crate::janitor::Janitor;
use crate::readiness::read_available;

/// Bytes of events that are read at once.
const BATCH_BYTES: usize = 4096;
/// Length of an event without its name. Only events of folders have a name.
const HEADER_BYTES: usize = 16;

/// The inotify instance, and the spools that it watches.
#[derive(Debug)]
pub(crate) struct SpoolWatch {
    /// Not a pipe, but polled and read like one.
    inotify: Receiver,
    spools: Mutex<HashMap<i32, Weak<SpoolState>>>,
    /// Held while events are read and delivered, so that their order is kept.
    reading: Mutex<()>,
    reader: Waker,
}

/// Reads the events when it is woken.
struct EventReader(Weak<SpoolWatch>);

impl Wake for EventReader {
    fn wake(self: Arc<Self>) {
        if let Some(watch) = self.0.upgrade() {
            watch.read_events();
        }
    }
}

/// Whether a file outlives its spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchedFile {
    InUse,
    /// Closed by every process. The kernel removes its watch.
    Gone,
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
        let _runtime = janitor.enter();
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let inotify = Receiver::from_owned_fd_unchecked(inotify)?;
        let watch = Arc::new_cyclic(|watch| Self {
            inotify,
            spools: Mutex::default(),
            reading: Mutex::default(),
            reader: Waker::from(Arc::new(EventReader(Weak::clone(watch)))),
        });
        // There is no event yet. This registers the waker.
        watch.read_events();
        Ok(watch)
    }

    /// Reads and delivers all events, until there are none and the waker is registered for the next.
    fn read_events(&self) {
        let _order = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = [0; BATCH_BYTES];
        // An error means that the runtime is shutting down, and this process with it.
        while let Poll::Ready(Ok(())) = self.inotify.poll_read_ready(&mut Context::from_waker(&self.reader)) {
            match read_available(&self.inotify, &mut batch) {
                Ok(count) => decode(&batch[..count]).for_each(|change| self.deliver(&change)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return tracing::error!(%error, "inotify cannot be read"),
            }
        }
    }

    /// Watches the file at `path` and reports its events to `state`.
    pub(super) fn add(&self, path: &str, state: &Arc<SpoolState>) -> io::Result<i32> {
        let mut spools = self.spools();
        let flags = WatchFlags::OPEN | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        let wd = inotify::add_watch(&self.inotify, path, flags)?;
        spools.insert(wd, Arc::downgrade(state));
        Ok(wd)
    }

    /// Watches a file no longer. Watch descriptors are not reused, so an event that is still queued is ignored.
    pub(super) fn remove(&self, wd: i32, file: WatchedFile) {
        self.spools().remove(&wd);
        if file == WatchedFile::InUse {
            let _ = inotify::remove_watch(&self.inotify, wd);
        }
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
