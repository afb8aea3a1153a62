//! A program's stdout as a file in memory, so that all output arrives even if the program does not wait for its reader.
//!
//! # Purpose
//!
//! A Node program sets a pipe on its stdout to non-blocking and may call `process.exit()` without waiting: output that did
//! not fit into the pipe by then is lost. A pipe holds 64 KiB. An ordinary user can make it 1 MiB, and only for 64 pipes at
//! a time. A socket pair holds less. A file takes every write whole, whatever its size and whether or not it is read.
//!
//! # How it works
//!
//! ```text
//! program ──write──▶ memfd (append) ──pread──▶ Spool ──▶ caller
//!    ▲                  │ inotify: opened, written, closed
//!    │                  ▼
//!    │              SpoolWatch ──▶ SpoolState: wake the reader, balance
//!    └──SIGSTOP/SIGCONT── keeper ◀──────────────┘  more than 32 MiB unread / less than 8 MiB
//! ```
//!
//! - The program gets an open file description of its own, in append mode. inotify reports writes to it, and when its last
//!   copy is closed: that is the end of the output, as with a pipe.
//! - [`SpoolWatch`] is one inotify instance for all spools. It also works while no one polls a spool.
//! - The part of the file that was read is punched out, so its memory is freed.
//!
//! # Invariants
//!
//! - No output is lost or reordered, and the end is reported only after all output was read.
//! - Memory is bounded: a program that is more than [`MAX_UNREAD_BYTES`] ahead of its reader is stopped (`SIGSTOP`) until
//!   less than [`LOW_UNREAD_BYTES`] are unread. Dropping the spool continues a stopped program.
//! - If the end cannot be known from inotify, because the program opened `/dev/stdout` a second time or the kernel dropped
//!   events, the end of the program's last process counts instead (`driver.rs`).
//!
//! A program that opens `/dev/stdout` again and truncates it removes what was not read yet, as it does when a shell
//! redirects its output to a file.

mod watch;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use rustix::fs::inotify::ReadFlags;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, fallocate, fstat, memfd_create, open};
use rustix::io::pread;

use crate::link::KeeperHandle;
pub(crate) use watch::SpoolWatch;
use watch::WatchedFile;

/// Unread output at which the program is stopped.
const MAX_UNREAD_BYTES: u64 = 32 << 20;
/// Unread output below which a stopped program is continued.
const LOW_UNREAD_BYTES: u64 = 8 << 20;
/// Amount that is read before its memory is freed.
const FREE_INTERVAL_BYTES: u64 = 1 << 20;

/// The gateway's end of a program's stdout.
#[derive(Debug)]
pub(crate) struct Spool {
    state: Arc<SpoolState>,
    watch: Arc<SpoolWatch>,
    /// The inotify watch descriptor of the file.
    wd: i32,
    /// Offset up to which memory was freed.
    freed: u64,
    /// Whether all output was read, and no more can come.
    at_end: bool,
}

/// The part of a spool that is shared with the watch.
#[derive(Debug)]
pub(crate) struct SpoolState {
    file: OwnedFd,
    /// Offset up to which the file was read.
    read: AtomicU64,
    flags: Mutex<SpoolFlags>,
}

#[derive(Debug, Default)]
struct SpoolFlags {
    waker: Option<Waker>,
    /// Whether every copy of the program's end is closed.
    closed: bool,
    /// Whether the file was opened a second time. Then a close event does not tell which of the two was closed.
    reopened: bool,
    /// Whether the program is stopped because it is too far ahead.
    paused: bool,
    /// Whether no process of the program is left.
    over: bool,
    /// Whether all that the kernel reported so far was read. Until the next report there is nothing to read.
    caught_up: bool,
    keeper: Weak<KeeperHandle>,
}

impl Spool {
    /// Creates a spool, and the end for the program.
    pub(crate) fn new(watch: &Arc<SpoolWatch>) -> io::Result<(Self, OwnedFd)> {
        // Some systems require files in memory to be sealed against execution. Older kernels do not know the flag.
        let file = memfd_create("stdout", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create("stdout", MemfdFlags::CLOEXEC))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // A second open file description: inotify reports writes and closes only for files that were opened by path.
        let child_end = open(&path, OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC, Mode::empty())?;
        let state = Arc::new(SpoolState { file, read: AtomicU64::new(0), flags: Mutex::default() });
        let wd = watch.add(&path, &state)?;
        Ok((Self { state, watch: Arc::clone(watch), wd, freed: 0, at_end: false }, child_end))
    }

    /// Sets the keeper that can stop the program.
    pub(crate) fn set_keeper(&self, keeper: &Arc<KeeperHandle>) {
        self.state.flags().keeper = Arc::downgrade(keeper);
    }

    /// Notes that no process of the program is left. Its last writes are in the file, whether or not they were reported
    /// yet. The keeper is forgotten, because it will serve other programs.
    pub(crate) fn set_over(&self) {
        let mut flags = self.state.flags();
        (flags.keeper, flags.paused, flags.over, flags.caught_up) = (Weak::new(), false, true, false);
    }

    /// Reads what is available into `buffer`. Ready with 0 at the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.at_end {
            return Poll::Ready(Ok(0));
        }
        let complete = {
            let mut flags = self.state.flags();
            if !flags.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                flags.waker = Some(cx.waker().clone());
            }
            if flags.caught_up {
                return Poll::Pending;
            }
            let complete = flags.closed || flags.over;
            // Set before the file is read: a write that the read misses is reported afterwards.
            flags.caught_up = !complete;
            complete
        };
        let count = self.read(buffer)?;
        self.at_end = complete && count < buffer.len();
        if count > 0 || self.at_end { Poll::Ready(Ok(count)) } else { Poll::Pending }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at = self.state.read.load(Ordering::Relaxed);
        let mut count = pread(&self.state.file, &mut *buffer, at)?;
        if count == 0 && at > 0 && self.state.size()? < at {
            // The program truncated the file: all its content is new.
            (at, self.freed) = (0, 0);
            count = pread(&self.state.file, &mut *buffer, at)?;
        }
        at += count as u64;
        self.state.read.store(at, Ordering::Relaxed);
        if at - self.freed >= FREE_INTERVAL_BYTES {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // An error only means that memory is freed later.
            let _ = fallocate(&self.state.file, hole, self.freed, at - self.freed);
            self.freed = at;
        }
        if count < buffer.len() {
            // The end of the file: nothing is unread.
            self.state.balance(0);
        } else {
            self.state.flags().caught_up = false;
            self.state.balance(self.state.unread());
        }
        Ok(count)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let over = self.state.flags().over;
        self.watch.remove(self.wd, if over { WatchedFile::Gone } else { WatchedFile::InUse });
        // No reader will catch up any more.
        self.state.resume();
    }
}

impl SpoolState {
    /// Handles an inotify event: the file was written to, opened or closed.
    fn changed(&self, event: ReadFlags) {
        {
            let mut flags = self.flags();
            flags.reopened |= event.contains(ReadFlags::OPEN);
            flags.closed |= event.contains(ReadFlags::CLOSE_WRITE) && !flags.reopened;
            flags.caught_up = false;
        }
        self.wake();
    }

    /// Handles the loss of events, perhaps of the close event: the end of the program counts instead.
    fn events_lost(&self) {
        {
            let mut flags = self.flags();
            (flags.reopened, flags.caught_up) = (true, false);
        }
        self.wake();
    }

    /// Wakes the reader. A reader that was not waiting may be behind, which matters while the program can be stopped.
    fn wake(&self) {
        let (waker, can_stop) = {
            let mut flags = self.flags();
            (flags.waker.take(), !flags.closed && flags.keeper.strong_count() > 0)
        };
        match waker {
            Some(waker) => waker.wake(),
            None if can_stop => self.balance(self.unread()),
            None => {}
        }
    }

    /// Stops a program that is too far ahead of its reader, and continues it once the reader has caught up.
    fn balance(&self, unread: u64) {
        let mut flags = self.flags();
        if unread > MAX_UNREAD_BYTES && !flags.paused {
            flags.paused = flags.keeper.upgrade().is_some_and(|keeper| keeper.set_paused(true));
        } else if unread < LOW_UNREAD_BYTES && flags.paused {
            flags.paused = !flags.keeper.upgrade().is_none_or(|keeper| keeper.set_paused(false));
        }
    }

    /// Number of bytes that were written and not read.
    fn unread(&self) -> u64 {
        self.size().unwrap_or(0).saturating_sub(self.read.load(Ordering::Relaxed))
    }

    fn resume(&self) {
        let mut flags = self.flags();
        if std::mem::take(&mut flags.paused)
            && let Some(keeper) = flags.keeper.upgrade()
        {
            keeper.set_paused(false);
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(self.file.as_fd())?.st_size).unwrap_or(0))
    }

    fn flags(&self) -> MutexGuard<'_, SpoolFlags> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
