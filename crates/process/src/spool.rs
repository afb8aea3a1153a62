//! A program's stdout as a file in memory, so that all of it arrives.
//!
//! A Node program sets a pipe on its stdout to non-blocking and may call `process.exit()` without waiting: what did not
//! fit into the pipe by then is lost. A pipe holds 64 KiB. An ordinary user can make it 1 MiB, and only for 64 pipes at a
//! time; a socket pair holds less. A file takes every write whole, whatever its size and whether or not anyone reads.
//!
//! - The program gets a description of its own, in append mode. When the last copy is closed, that is the end of the
//!   output, as with a pipe.
//! - Waking up is [`Watch`]'s: one inotify instance for all runs.
//! - Memory is bounded. What was read is given back, and a program that is too far ahead of its reader is stopped
//!   (`SIGSTOP`) until the reader has caught up.
//!
//! A program that opens `/dev/stdout` anew and truncates it removes what was not read yet, as it does when a shell sends
//! its output to a file.

mod watch;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use rustix::fs::inotify::ReadFlags;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, fstat, memfd_create, open};
use rustix::io::pread;

use crate::link::Wire;
pub(crate) use watch::Watch;

/// How far a program may be ahead of its reader.
const MAX_UNREAD_BYTES: u64 = 32 << 20;
/// Where one that was stopped goes on.
const LOW_UNREAD_BYTES: u64 = 8 << 20;
/// How much is read before its memory is given back.
const FREED_BYTES: u64 = 1 << 20;

/// Our end of a program's stdout.
#[derive(Debug)]
pub(crate) struct Spool {
    state: Arc<State>,
    watch: Arc<Watch>,
    /// Names the file among those that are watched.
    wd: i32,
    /// Everything before it was given back.
    freed: u64,
}

/// The part of a spool that the watch shares.
#[derive(Debug)]
pub(crate) struct State {
    file: OwnedFd,
    read: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waker: Option<Waker>,
    /// Every copy of the program's end is closed.
    closed: bool,
    /// It was opened a second time: which of the two is closed cannot be told then.
    reopened: bool,
    /// The program is stopped, because it is too far ahead.
    held: bool,
    keeper: Weak<Wire>,
}

impl Spool {
    /// A spool, and the end that the program gets.
    pub(crate) fn new(watch: &Arc<Watch>) -> io::Result<(Self, OwnedFd)> {
        // Where the system wants files in memory to be sealed against execution; older kernels do not know of it.
        let file = memfd_create("stdout", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("stdout", MemfdFlags::CLOEXEC))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // Opened anew: only such a description tells of its writes and of its end.
        let theirs = open(&path, OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC, Mode::empty())?;
        let state = Arc::new(State { file, read: AtomicU64::new(0), inner: Mutex::default() });
        let wd = watch.add(&path, &state)?;
        Ok((Self { state, watch: Arc::clone(watch), wd, freed: 0 }, theirs))
    }

    /// Names the keeper that can stop the program.
    pub(crate) fn kept_by(&self, wire: &Arc<Wire>) {
        self.state.inner().keeper = Arc::downgrade(wire);
        self.state.balance();
    }

    /// The program is over, and its keeper has others to keep.
    pub(crate) fn let_go(&self) {
        let mut inner = self.state.inner();
        (inner.keeper, inner.held) = (Weak::new(), false);
    }

    /// Reads what is there into `buffer`. Ready with 0 at the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let closed = {
            let mut inner = self.state.inner();
            if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                inner.waker = Some(cx.waker().clone());
            }
            inner.closed
        };
        match self.read(buffer) {
            Ok(0) if !closed => Poll::Pending,
            result => Poll::Ready(result),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at = self.state.read.load(Ordering::Relaxed);
        if self.state.size()? < at {
            // It was truncated: what is there now is new.
            (at, self.freed) = (0, 0);
        }
        let count = pread(&self.state.file, buffer, at)?;
        at += count as u64;
        self.state.read.store(at, Ordering::Relaxed);
        if at - self.freed >= FREED_BYTES {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Only memory is at stake.
            let _ = fallocate(&self.state.file, hole, self.freed, at - self.freed);
            self.freed = at;
        }
        self.state.balance();
        Ok(count)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.watch.remove(self.wd);
        // No reader will catch up with it any more.
        self.state.release();
    }
}

impl State {
    /// It was written to, opened or closed.
    fn stirred(&self, what: ReadFlags) {
        {
            let mut inner = self.inner();
            inner.reopened |= what.contains(ReadFlags::OPEN);
            inner.closed |= what.contains(ReadFlags::CLOSE_WRITE) && !inner.reopened;
        }
        self.wake();
    }

    /// Events were lost, perhaps that of its end: the end of the program counts instead.
    fn missed(&self) {
        self.inner().reopened = true;
        self.wake();
    }

    fn wake(&self) {
        let waker = self.inner().waker.take();
        self.balance();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Stops a program that is too far ahead, and lets it go on when it no longer is.
    fn balance(&self) {
        let unread = self.size().unwrap_or(0).saturating_sub(self.read.load(Ordering::Relaxed));
        let mut inner = self.inner();
        if unread > MAX_UNREAD_BYTES && !inner.held {
            inner.held = inner.keeper.upgrade().is_some_and(|keeper| keeper.hold(true));
        } else if unread < LOW_UNREAD_BYTES && inner.held {
            inner.held = !inner.keeper.upgrade().is_none_or(|keeper| keeper.hold(false));
        }
    }

    fn release(&self) {
        let mut inner = self.inner();
        if std::mem::take(&mut inner.held)
            && let Some(keeper) = inner.keeper.upgrade()
        {
            keeper.hold(false);
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(self.file.as_fd())?.st_size).unwrap_or(0))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
