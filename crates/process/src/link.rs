//! The gateway's end of one keeper: starts it, exchanges messages with it, and reaps it when it dies.
//!
//! A keeper that dies unexpectedly leaves the processes of its run to the gateway, which is the next subreaper above it.
//! A list of all keepers tells keepers from such processes. This works only if nothing else in the gateway starts
//! processes.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, send, sendmsg, shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, waitpid};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinHandle;

use crate::janitor::Janitor;
use crate::message::{self, KeeperReport};
use crate::readiness::read_available;
use crate::spec::StopSignal;
use crate::{descendants, files};

/// Time that the processes of a lost keeper may take to die before the gateway stops killing them.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The keepers of this process that are not reaped yet. Locked while a keeper is started and while one is reaped, so that
/// a pid in the list is always a keeper's, and the pid of any other child never is in it.
static KEEPERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Locked while the processes of a lost keeper are killed: two such sweeps would reap each other's.
static SWEEP: Mutex<()> = Mutex::new(());

/// The command that starts a keeper: a program that does nothing but call [`keeper_main`](crate::keeper_main).
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

impl KeeperProgram {
    /// This binary itself, even if its file was replaced since. Its `main` has to check for `__keeper` first of all.
    pub fn this_binary() -> Self {
        Self { path: "/proc/self/exe".into(), args: vec!["__keeper".into()] }
    }
}

/// The connection to a live keeper. Dropping it hangs up: the keeper kills its descendants and ends.
#[derive(Debug)]
pub(crate) struct KeeperLink {
    handle: Arc<KeeperHandle>,
    /// Finishes once the keeper and all processes that it left behind are dead and reaped.
    reaper: JoinHandle<()>,
    /// Bytes that were received but not decoded yet.
    reports: [u8; 4 * KeeperReport::BYTES],
    unread: usize,
}

/// The shared part of a [`KeeperLink`], to end or pause the keeper's run.
#[derive(Debug)]
pub(crate) struct KeeperHandle {
    /// Registered for reading only. A stream would be registered for writing, too, and the kernel reports that a socket can
    /// be written whenever the other end has read: each request would wake a worker once more.
    socket: Receiver,
    pub(crate) pid: Pid,
    /// Whether the janitor is ending its run, which has a grace period.
    pub(crate) stopping: AtomicBool,
}

impl KeeperLink {
    /// Starts a keeper, and the task that reaps it.
    #[expect(clippy::disallowed_methods, reason = "the one place that starts keepers")]
    pub(crate) fn start(program: &KeeperProgram, janitor: &Arc<Janitor>) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let _runtime = janitor.enter();
        let socket = Receiver::from_owned_fd_unchecked(ours.into())?;
        let mut command = Command::new(&program.path);
        // The gateway's environment holds secrets, which a run could read in the keeper's /proc entry.
        command.args(&program.args).args(files::original_limit().map(|files| files.to_string())).env_clear();
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        let (pid, end) = {
            let mut keepers = keepers();
            let pid = Pid::from_child(&command.spawn()?);
            let end = end_of(pid).inspect_err(|_| {
                // A keeper whose end would go unnoticed must not run.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
            })?;
            keepers.push(pid);
            (pid, end)
        };
        let handle = Arc::new(KeeperHandle { socket, pid, stopping: AtomicBool::new(false) });
        janitor.register(&handle);
        let reaper = janitor.spawn(reap_when_dead(pid, end, Arc::clone(janitor)));
        Ok(Self { handle, reaper, reports: [0; 4 * KeeperReport::BYTES], unread: 0 })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.handle.pid.as_raw_nonzero().get() as u32
    }

    pub(crate) fn handle(&self) -> &Arc<KeeperHandle> {
        &self.handle
    }

    pub(crate) fn set_stopping(&self, stopping: bool) {
        self.handle.stopping.store(stopping, Ordering::Relaxed);
    }

    /// Sends a request to run. `Err(RequestNotSent::Whole)` means that the keeper was dead already and received nothing.
    pub(crate) async fn send_run(&mut self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), RequestNotSent> {
        let socket = &self.handle.socket;
        let first = send_when_writable(socket, || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(fds));
            sendmsg(socket, &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)
        });
        let mut sent = first.await.map_err(RequestNotSent::Whole)?;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            let more = send_when_writable(socket, || send(socket, rest, SendFlags::NOSIGNAL));
            sent += more.await.map_err(RequestNotSent::Part)?;
        }
        Ok(())
    }

    pub(crate) fn hang_up(&self) {
        self.handle.hang_up();
    }

    /// Asks the keeper to stop its run. A keeper whose socket does not take sixteen bytes does not read: it is killed.
    pub(crate) fn send_stop(&self, signal: StopSignal, grace: Duration) {
        if !self.handle.send(&message::stop(signal, grace)) {
            self.kill();
        }
    }

    /// Returns the keeper's next report. An error means that the keeper is gone. Cancel safe.
    pub(crate) fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<KeeperReport>> {
        while self.unread < KeeperReport::BYTES {
            ready!(self.handle.socket.poll_read_ready(cx))?;
            match read_available(&self.handle.socket, &mut self.reports[self.unread..]) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.unread += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let first = *self.reports.first_chunk().expect("the buffer has room for four reports");
        self.reports.copy_within(KeeperReport::BYTES..self.unread, 0);
        self.unread -= KeeperReport::BYTES;
        Poll::Ready(KeeperReport::decode(first).ok_or_else(|| io::ErrorKind::InvalidData.into()))
    }

    /// Ready once the keeper and the processes of its run are dead and reaped, for whatever reason.
    pub(crate) fn poll_reaped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.reaper).poll(cx).map(|_| ())
    }

    /// Kills a keeper that does not answer, for example because it was stopped. The processes of its run then become
    /// children of the gateway.
    pub(crate) fn kill(&self) {
        let keepers = keepers();
        if keepers.contains(&self.handle.pid) {
            let _ = kill_process(self.handle.pid, Signal::KILL);
        }
    }
}

impl Drop for KeeperLink {
    fn drop(&mut self) {
        self.handle.hang_up();
    }
}

impl KeeperHandle {
    /// Closes the socket. The keeper sees the end of the stream, kills its descendants and ends.
    pub(crate) fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Stops (`SIGSTOP`) or continues the program. Returns whether the request was sent.
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        self.send(&message::pause(paused))
    }

    /// Sends a short message without waiting. Returns whether all of it was sent.
    fn send(&self, frame: &[u8]) -> bool {
        send(&self.socket, frame, SendFlags::NOSIGNAL).is_ok_and(|sent| sent == frame.len())
    }
}

/// Sends, once the socket has room. It nearly always has: only a request that is larger than the socket's buffer waits.
async fn send_when_writable(
    socket: &Receiver,
    mut send: impl FnMut() -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    match send() {
        Err(Errno::AGAIN) => {}
        sent => return Ok(sent?),
    }
    let writable = Sender::from_owned_fd_unchecked(socket.as_fd().try_clone_to_owned()?)?;
    loop {
        writable.writable().await?;
        match writable.try_io(|| Ok(send()?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
    }
}

/// The part of a request that did not reach its keeper.
#[derive(Debug)]
pub(crate) enum RequestNotSent {
    Whole(io::Error),
    Part(io::Error),
}

/// Waits until the keeper is dead, reaps it, and kills the processes that it may have left behind.
async fn reap_when_dead(pid: Pid, end: Receiver, janitor: Arc<Janitor>) {
    if end.readable().await.is_err() {
        return; // the runtime is shutting down, and this process with it
    }
    let swept = tokio::task::spawn_blocking(move || {
        let _guard = SWEEP.lock().unwrap_or_else(PoisonError::into_inner);
        reap(pid) || descendants::end_strays(CLEANUP_TIMEOUT, strays)
    });
    if !swept.await.unwrap_or(false) {
        tracing::warn!(keeper = %pid, "processes of a lost keeper do not die");
    }
    janitor.unregister(pid);
}

/// Opens a descriptor that becomes readable when the keeper can be reaped. By then its children belong to this process.
///
/// A pidfd is not a pipe but is polled like one. `AsyncFd`, the type for any descriptor, cannot be created without
/// `unsafe`.
fn end_of(keeper: Pid) -> io::Result<Receiver> {
    Receiver::from_owned_fd_unchecked(pidfd_open(keeper, PidfdFlags::NONBLOCK)?)
}

/// Reaps a keeper that has ended. Returns true if it exited successfully, which it does only when no descendant is left.
fn reap(pid: Pid) -> bool {
    let mut keepers = keepers();
    keepers.retain(|&other| other != pid);
    waitpid(Some(pid), WaitOptions::NOHANG)
        .is_ok_and(|ended| ended.is_some_and(|(_, how)| how.exit_status() == Some(0)))
}

/// Lists the children of this process that are not keepers: lost keepers have left them behind.
fn strays() -> Vec<Pid> {
    let keepers = keepers();
    descendants::children(getpid()).into_iter().filter(|child| !keepers.contains(child)).collect()
}

fn keepers() -> MutexGuard<'static, Vec<Pid>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}
