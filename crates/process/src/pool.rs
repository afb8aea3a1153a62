//! The keepers of a gateway: a pool of idle ones, and the functions that start programs under them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::awake::AwakeClock;
use crate::janitor::Janitor;
use crate::link::{KeeperLink, KeeperProgram, RequestNotSent};
use crate::message::{self, FailedPart, KeeperReport};
use crate::pipes::{self, Pipes, StdinFeed, Stdout};
use crate::running::RunningProcess;
use crate::spec::{SpawnError, Spec};
use crate::spool::SpoolWatch;

/// Number of idle keepers that are never retired, unless the caller asked for more warm ones.
const MIN_IDLE_KEEPERS: usize = 4;
/// Time that an idle keeper above that number is kept, in case of another burst.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Input that is sent with the request. An empty pipe takes at least one page without waiting for its reader.
const MAX_REQUEST_STDIN_BYTES: usize = 4096;
/// A start that takes longer means that the keeper is in trouble, not that the disk is slow.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The only way to start a process.
///
/// Cheap to clone: clones share the same keepers. Dropping the last clone ends the idle keepers.
/// [`shutdown`](Self::shutdown) ends all keepers and waits for them.
#[derive(Debug, Clone)]
pub struct Keepers {
    pool: Arc<KeeperPool>,
}

impl Keepers {
    /// Starts `warm` keepers, and makes this process the subreaper of processes that a lost keeper leaves behind.
    ///
    /// From here on, every child of this process that is not a keeper may be killed: nothing else may start processes.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn new(program: KeeperProgram, warm: usize) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let janitor = Janitor::new(Handle::current());
        let clock = AwakeClock::start(&janitor);
        let watch = SpoolWatch::start(&janitor).inspect_err(|error| {
            tracing::warn!(%error, "no inotify: a program that exits without waiting for its reader keeps at most 1 MiB of unread output");
        });
        let (idle, retiring, min_idle) = (Mutex::default(), AtomicBool::new(false), warm.max(MIN_IDLE_KEEPERS));
        let pool = Arc::new(KeeperPool { program, min_idle, null, idle, retiring, janitor, clock, watch: watch.ok() });
        for _ in 0..warm {
            let link = KeeperLink::start(&pool.program, &pool.janitor)?;
            pool.put(link);
        }
        Ok(Self { pool })
    }

    /// Starts a program under a keeper, with a pipe for its stdout. Dropping the future ends what it has started.
    pub async fn spawn(&self, mut spec: Spec) -> Result<RunningProcess, SpawnError> {
        let stdin = StdinData::Closed(std::mem::take(&mut spec.stdin));
        self.start(spec, stdin, Stdout::pipe).await
    }

    /// As [`spawn`](Self::spawn), for a program that may exit without waiting for its reader. Its stdout is a file in
    /// memory (`spool.rs`): all output arrives, and the program is not slowed down until it is far ahead of its reader.
    pub async fn spawn_spooled(&self, mut spec: Spec) -> Result<RunningProcess, SpawnError> {
        let stdin = StdinData::Closed(std::mem::take(&mut spec.stdin));
        self.start(spec, stdin, || Stdout::spool(self.pool.watch.as_ref())).await
    }

    /// As [`spawn_spooled`](Self::spawn_spooled), for an interactive program: after the input of the spec, its stdin stays
    /// open for [`RunningProcess::write`].
    pub async fn spawn_open(&self, mut spec: Spec) -> Result<RunningProcess, SpawnError> {
        let stdin = StdinData::Open(std::mem::take(&mut spec.stdin));
        self.start(spec, stdin, || Stdout::spool(self.pool.watch.as_ref())).await
    }

    async fn start(
        &self,
        spec: Spec,
        stdin: StdinData,
        stdout: impl FnOnce() -> io::Result<(Stdout, OwnedFd)>,
    ) -> Result<RunningProcess, SpawnError> {
        let frame = message::run(&spec, stdin.for_keeper());
        let frame = frame.map_err(|error| start_error(&spec, FailedPart::Program, error))?;
        let (pipes, child_ends) = open_pipes(stdin, stdout).map_err(keeper_error)?;
        let mut link = self.send(&frame, &child_ends).await?;
        drop((frame, child_ends));
        let report = std::future::poll_fn(|cx| link.poll_report(cx));
        match tokio::time::timeout(START_TIMEOUT, report).await {
            Ok(Ok(KeeperReport::Started(pid))) => {
                Ok(RunningProcess::new(Arc::clone(&self.pool), link, pid, pipes, &spec))
            }
            Ok(Ok(KeeperReport::Failed(part, errno))) => {
                self.pool.put(link);
                Err(start_error(&spec, part, io::Error::from_raw_os_error(errno)))
            }
            Ok(Ok(_)) => Err(SpawnError::Keeper(io::ErrorKind::InvalidData.into())),
            Ok(Err(_)) if self.pool.janitor.closing().is_cancelled() => Err(SpawnError::ShutDown),
            Ok(Err(error)) => Err(SpawnError::Keeper(error)),
            Err(_elapsed) => {
                link.kill();
                Err(SpawnError::Keeper(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Refuses new programs, kills the running ones, leaves those being stopped their grace period, and waits until no
    /// process is left.
    pub async fn shutdown(&self) {
        self.pool.janitor.closing().cancel();
        let idle = std::mem::take(&mut *self.pool.idle());
        drop(idle);
        self.pool.janitor.close().await;
    }

    /// Sends the request to an idle keeper that is alive, or else to a new one.
    async fn send(&self, frame: &[u8], child_ends: &ChildEnds) -> Result<KeeperLink, SpawnError> {
        let stdin = match &child_ends.stdin {
            ChildStdin::InRequest => None,
            ChildStdin::Null => Some(&self.pool.null),
            ChildStdin::Pipe(pipe) => Some(pipe),
        };
        let [stdout, stderr] = [child_ends.stdout.as_fd(), child_ends.stderr.as_fd()];
        let all = [stdin.map_or(stdout, |stdin| stdin.as_fd()), stdout, stderr];
        let fds = if stdin.is_some() { &all[..] } else { &all[1..] };
        loop {
            if self.pool.janitor.closing().is_cancelled() {
                return Err(SpawnError::ShutDown);
            }
            let idle = self.pool.idle().pop();
            let fresh = idle.is_none();
            let mut link = match idle {
                Some(idle) => idle.link,
                None => KeeperLink::start(&self.pool.program, &self.pool.janitor).map_err(keeper_error)?,
            };
            match link.send_run(frame, fds).await {
                Ok(()) => return Ok(link),
                // The keeper was killed while it was idle.
                Err(RequestNotSent::Whole(_)) if !fresh => {}
                Err(RequestNotSent::Whole(error) | RequestNotSent::Part(error)) => {
                    return Err(SpawnError::Keeper(error));
                }
            }
        }
    }
}

/// The state that all clones of [`Keepers`] and all their programs share.
#[derive(Debug)]
pub(crate) struct KeeperPool {
    program: KeeperProgram,
    min_idle: usize,
    /// `/dev/null`, for programs without input.
    null: OwnedFd,
    /// A stack: the keeper used last is used next, being warm, and the others age until they are retired.
    idle: Mutex<Vec<IdleKeeper>>,
    /// Whether a task that retires surplus keepers is running.
    retiring: AtomicBool,
    pub(crate) janitor: Arc<Janitor>,
    pub(crate) clock: Arc<AwakeClock>,
    /// None if the kernel has no inotify.
    watch: Option<Arc<SpoolWatch>>,
}

#[derive(Debug)]
struct IdleKeeper {
    link: KeeperLink,
    since: Instant,
}

impl KeeperPool {
    /// Takes back a keeper that has no processes left.
    pub(crate) fn put(self: &Arc<Self>, link: KeeperLink) {
        link.set_stopping(false);
        let surplus = {
            let mut idle = self.idle();
            if self.janitor.closing().is_cancelled() {
                return;
            }
            idle.push(IdleKeeper { link, since: Instant::now() });
            idle.len() > self.min_idle
        };
        if surplus && !self.retiring.swap(true, Ordering::Relaxed) {
            self.janitor.spawn(retire(Arc::downgrade(self), self.janitor.closing().clone()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleKeeper>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends surplus keepers that were idle for [`IDLE_TIMEOUT`]. Returns whether there are more that are not old enough.
    fn retire_surplus(&self) -> bool {
        let mut idle = self.idle();
        let surplus = idle.len().saturating_sub(self.min_idle);
        let old = idle.iter().take(surplus).take_while(|keeper| keeper.since.elapsed() >= IDLE_TIMEOUT).count();
        idle.drain(..old);
        let more = idle.len() > self.min_idle;
        self.retiring.store(more, Ordering::Relaxed);
        more
    }
}

async fn retire(pool: Weak<KeeperPool>, closing: tokio_util::sync::CancellationToken) {
    loop {
        let again = closing.run_until_cancelled(tokio::time::sleep(IDLE_TIMEOUT / 2)).await.is_some();
        if !again || !pool.upgrade().is_some_and(|pool| pool.retire_surplus()) {
            return;
        }
    }
}

/// The child's ends of its streams.
struct ChildEnds {
    stdin: ChildStdin,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// The child's stdin.
enum ChildStdin {
    /// A pipe that the keeper makes, with the data in the request.
    InRequest,
    Null,
    Pipe(OwnedFd),
}

/// Input for a program.
enum StdinData {
    /// The whole input.
    Closed(Vec<u8>),
    /// The beginning of the input. More may be written later.
    Open(Vec<u8>),
}

impl StdinData {
    /// The data, if the keeper can write it: an empty pipe takes this much at once, so that the keeper does not wait.
    fn for_keeper(&self) -> Option<&[u8]> {
        match self {
            Self::Closed(data) if (1..=MAX_REQUEST_STDIN_BYTES).contains(&data.len()) => Some(data),
            Self::Closed(_) | Self::Open(_) => None,
        }
    }
}

fn open_pipes(
    stdin: StdinData,
    stdout: impl FnOnce() -> io::Result<(Stdout, OwnedFd)>,
) -> io::Result<(Pipes, ChildEnds)> {
    let (feed, stdin) = match stdin {
        StdinData::Closed(data) if data.is_empty() => (None, ChildStdin::Null),
        stdin if stdin.for_keeper().is_some() => (None, ChildStdin::InRequest),
        StdinData::Closed(data) => {
            let (feed, child_end) = StdinFeed::to_child(data)?;
            (feed, ChildStdin::Pipe(child_end))
        }
        StdinData::Open(data) => {
            let (feed, child_end) = StdinFeed::open_to_child(data)?;
            (Some(feed), ChildStdin::Pipe(child_end))
        }
    };
    let (our_stdout, stdout) = stdout()?;
    let (our_stderr, stderr) = pipes::from_child()?;
    let ours = Pipes { stdin: feed, stdout: Some(our_stdout), stderr: Some(our_stderr) };
    Ok((ours, ChildEnds { stdin, stdout, stderr }))
}

fn keeper_error(error: io::Error) -> SpawnError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) if is_exhaustion(errno) => SpawnError::Exhausted(error),
        Some(_) | None => SpawnError::Keeper(error),
    }
}

/// Whether the kernel lacks a resource that may become free again.
fn is_exhaustion(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
}

/// Classifies the errno of a failed start.
fn start_error(spec: &Spec, part: FailedPart, source: io::Error) -> SpawnError {
    let program = spec.program.clone();
    match (part, source.raw_os_error().map(Errno::from_raw_os_error)) {
        (_, Some(errno)) if is_exhaustion(errno) => SpawnError::Exhausted(source),
        (FailedPart::Directory, _) => SpawnError::BadDirectory { cwd: spec.cwd.clone(), source },
        (FailedPart::Confinement, _) => SpawnError::Unconfined { program, source },
        (FailedPart::Program, Some(Errno::NOENT | Errno::NOTDIR)) => SpawnError::NotFound { program, source },
        (FailedPart::Program, Some(Errno::ACCESS | Errno::PERM | Errno::NOEXEC | Errno::ISDIR)) => {
            SpawnError::NotExecutable { program, source }
        }
        (FailedPart::Program, Some(Errno::TOOBIG)) => SpawnError::TooLong { program, source },
        (FailedPart::Program, _) => SpawnError::Other { program, source },
    }
}
