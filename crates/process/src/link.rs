//! The gateway's end of one keeper: starting it, talking to it, and burying it whenever it dies.
//!
//! A keeper that dies unasked leaves its run's processes to us, as we are the next subreaper above it. They are told
//! from keepers by a list of all keepers of this process, and that only works if nothing else here starts processes.

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
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, send, sendmsg, shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, waitpid};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;

use crate::janitor::Janitor;
use crate::message::{self, Report};
use crate::spec::StopSignal;
use crate::{family, files};

/// How long the processes of a lost keeper may take to die before we stop trying.
const PATIENCE: Duration = Duration::from_secs(10);

/// The keepers of this process that are not reaped yet. Held while one is started and while one is reaped, so that a
/// pid in it is always a keeper's, and a child not in it never is.
static LIVING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Held while the processes of lost keepers are ended: two sweeps would reap each other's.
static SWEEPING: Mutex<()> = Mutex::new(());

/// How to start a keeper: a program that does nothing but call [`keeper_main`](crate::keeper_main).
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

impl KeeperProgram {
    /// This binary itself, even if its file was replaced since; its `main` has to look for `__keeper` first of all.
    pub fn this_binary() -> Self {
        Self { path: "/proc/self/exe".into(), args: vec!["__keeper".into()] }
    }
}

/// A living keeper. Dropping this hangs up, upon which it kills what it keeps and ends.
#[derive(Debug)]
pub(crate) struct Link {
    wire: Arc<Wire>,
    /// Done once the keeper is dead and reaped, and with it whatever it may have left to us.
    burial: JoinHandle<()>,
    reports: [u8; 4 * Report::SIZE],
    unread: usize,
}

/// What others may hold of a keeper, to end it.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: UnixStream,
    pub(crate) pid: Pid,
    /// Its run is being ended by the janitor, in its own time.
    pub(crate) leaving: AtomicBool,
}

impl Link {
    /// Starts a keeper and its burial, which waits.
    #[expect(clippy::disallowed_methods, reason = "the one place that starts keepers")]
    pub(crate) fn start(program: &KeeperProgram, janitor: &Arc<Janitor>) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let _runtime = janitor.enter();
        let socket = UnixStream::from_std(ours)?;
        let mut command = Command::new(&program.path);
        // Our environment holds secrets that a run could read in its keeper's /proc entry.
        command.args(&program.args).args(files::given().map(|files| files.to_string())).env_clear();
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::inherit());
        let (pid, end) = {
            let mut living = living();
            let pid = Pid::from_child(&command.spawn()?);
            let end = end_of(pid).inspect_err(|_| {
                // A keeper whose end nobody would notice must not begin.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
            })?;
            living.push(pid);
            (pid, end)
        };
        let wire = Arc::new(Wire { socket, pid, leaving: AtomicBool::new(false) });
        janitor.know(&wire);
        let burial = janitor.spawn(bury(Arc::clone(&wire), end, Arc::clone(janitor)));
        Ok(Self { wire, burial, reports: [0; 4 * Report::SIZE], unread: 0 })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.wire.pid.as_raw_nonzero().get() as u32
    }

    pub(crate) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.wire.leaving.store(leaving, Ordering::Relaxed);
    }

    /// Sends a request to run. `Err(Unsent::Whole)`: the keeper was dead already and has seen nothing of it.
    pub(crate) async fn send_run(&mut self, frame: &[u8], fds: [BorrowedFd<'_>; 3]) -> Result<(), Unsent> {
        let socket = &self.wire.socket;
        let first = socket.async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&fds));
            Ok(sendmsg(socket.as_fd(), &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)?)
        });
        let mut sent = first.await.map_err(Unsent::Whole)?;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            let more = socket.async_io(Interest::WRITABLE, || Ok(send(socket.as_fd(), rest, SendFlags::NOSIGNAL)?));
            sent += more.await.map_err(Unsent::Part)?;
        }
        Ok(())
    }

    pub(crate) fn hang_up(&self) {
        self.wire.hang_up();
    }

    /// Asks for the run to be stopped. A keeper that cannot take sixteen bytes is not listening: it is killed.
    pub(crate) fn send_stop(&self, signal: StopSignal, grace: Duration) {
        let frame = message::stop(signal, grace);
        match self.wire.socket.try_write(&frame) {
            Ok(written) if written == frame.len() => {}
            _ => self.kill(),
        }
    }

    /// The next thing the keeper says; an error once it is gone. Cancel safe.
    pub(crate) fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Report>> {
        while self.unread < Report::SIZE {
            ready!(self.wire.socket.poll_read_ready(cx))?;
            match self.wire.socket.try_read(&mut self.reports[self.unread..]) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.unread += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let first = *self.reports.first_chunk().expect("the buffer holds four reports");
        self.reports.copy_within(Report::SIZE..self.unread, 0);
        self.unread -= Report::SIZE;
        Poll::Ready(Report::decode(first).ok_or_else(|| io::ErrorKind::InvalidData.into()))
    }

    /// Ready once the keeper and all it kept are gone, whatever brought that about.
    pub(crate) fn poll_buried(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.burial).poll(cx).map(|_| ())
    }

    /// For a keeper that does not answer (someone stopped it): its run's processes then fall to us.
    pub(crate) fn kill(&self) {
        let living = living();
        if living.contains(&self.wire.pid) {
            let _ = kill_process(self.wire.pid, Signal::KILL);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.hang_up();
    }
}

impl Wire {
    /// The keeper sees the end of its stream: it kills what it keeps, and ends.
    pub(crate) fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Has the run stand still, or go on; true if the keeper will hear of it.
    pub(crate) fn hold(&self, still: bool) -> bool {
        let frame = message::hold(still);
        self.socket.try_write(&frame).is_ok_and(|written| written == frame.len())
    }
}

/// How much of a request did not reach its keeper.
#[derive(Debug)]
pub(crate) enum Unsent {
    Whole(io::Error),
    Part(io::Error),
}

/// Waits for the keeper's death, reaps it, and ends what it may have left behind.
async fn bury(wire: Arc<Wire>, end: Receiver, janitor: Arc<Janitor>) {
    if end.readable().await.is_err() {
        return; // the runtime is going down, and this process with it
    }
    let pid = wire.pid;
    let swept = tokio::task::spawn_blocking(move || {
        let _one_at_a_time = SWEEPING.lock().unwrap_or_else(PoisonError::into_inner);
        reap(pid) || family::end_strays(PATIENCE, strays)
    });
    if !swept.await.unwrap_or(false) {
        tracing::warn!(keeper = %pid, "processes of a lost keeper will not die");
    }
    janitor.forget(pid);
}

/// Becomes readable when the keeper can be reaped; by then its children are ours.
///
/// A pidfd is no pipe, but is polled like one; the type made for any descriptor, `AsyncFd`, takes `unsafe` to make.
fn end_of(keeper: Pid) -> io::Result<Receiver> {
    Receiver::from_owned_fd_unchecked(pidfd_open(keeper, PidfdFlags::NONBLOCK)?)
}

/// Reaps a keeper that has ended; true if it ended of its own will, which it does only when nothing is left to keep.
fn reap(pid: Pid) -> bool {
    let mut living = living();
    living.retain(|&other| other != pid);
    waitpid(Some(pid), WaitOptions::NOHANG)
        .is_ok_and(|ended| ended.is_some_and(|(_, how)| how.exit_status() == Some(0)))
}

/// Our children that are not keepers: what lost ones left to us.
fn strays() -> Vec<Pid> {
    let living = living();
    family::children(getpid()).into_iter().filter(|child| !living.contains(child)).collect()
}

fn living() -> MutexGuard<'static, Vec<Pid>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}
