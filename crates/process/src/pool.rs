//! The keepers of a gateway: the idle ones waiting for their next run, and the way to start one.

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

use crate::janitor::Janitor;
use crate::link::{KeeperProgram, Link, Unsent};
use crate::message::{self, Blame, Report};
use crate::pipes::{self, Feed, Pipes, Stdout};
use crate::pulse::Pulse;
use crate::running::Running;
use crate::spec::{SpawnError, Spec};
use crate::spool::Watch;

/// How many idle keepers are kept however long nothing happens, unless more were asked to be warm.
const KEPT: usize = 4;
/// How long an idle keeper above that number is kept, in case of another burst.
const IDLE: Duration = Duration::from_secs(10);
/// A start that takes longer is a keeper in trouble, not a slow disk.
const START: Duration = Duration::from_secs(30);

/// The only way to start a process.
///
/// Cloning is cheap and gives the same keepers. Dropping the last clone ends the idle ones; [`shutdown`](Self::shutdown)
/// ends all, and waits.
#[derive(Debug, Clone)]
pub struct Keepers {
    pool: Arc<Pool>,
}

impl Keepers {
    /// Starts `warm` keepers, and makes this process the reaper of whatever a lost one leaves behind.
    ///
    /// From here on, every child of this process that is not a keeper may be killed: nothing else may start processes.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(program: KeeperProgram, warm: usize) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let janitor = Janitor::new(Handle::current());
        let pulse = Pulse::start(&janitor);
        let watch = Watch::start(&janitor).inspect_err(|error| {
            tracing::warn!(%error, "no inotify: of a program that exits without waiting for its reader, 1 MiB is kept");
        });
        let (idle, retiring, kept) = (Mutex::default(), AtomicBool::new(false), warm.max(KEPT));
        let pool = Arc::new(Pool { program, kept, null, idle, retiring, janitor, pulse, watch: watch.ok() });
        for _ in 0..warm {
            let link = Link::start(&pool.program, &pool.janitor)?;
            pool.put(link);
        }
        Ok(Self { pool })
    }

    /// Starts a program under a keeper, with pipes. Dropping the future ends whatever it has started.
    pub async fn spawn(&self, mut spec: Spec) -> Result<Running, SpawnError> {
        let stdin = Input::Closed(std::mem::take(&mut spec.stdin));
        self.start(spec, stdin, Stdout::pipe).await
    }

    /// The same for a program that may exit without waiting for its reader: all that it prints arrives, though it is
    /// not slowed down until it is far ahead (`spool.rs`).
    pub async fn spawn_spooled(&self, mut spec: Spec) -> Result<Running, SpawnError> {
        let stdin = Input::Closed(std::mem::take(&mut spec.stdin));
        self.start(spec, stdin, || Stdout::spool(self.pool.watch.as_ref())).await
    }

    /// As [`spawn_spooled`](Self::spawn_spooled), for a program that is talked to: its stdin stays open for
    /// [`Running::write`], after what the spec holds.
    pub async fn spawn_open(&self, mut spec: Spec) -> Result<Running, SpawnError> {
        let stdin = Input::Open(std::mem::take(&mut spec.stdin));
        self.start(spec, stdin, || Stdout::spool(self.pool.watch.as_ref())).await
    }

    async fn start(
        &self,
        spec: Spec,
        stdin: Input,
        stdout: impl FnOnce() -> io::Result<(Stdout, OwnedFd)>,
    ) -> Result<Running, SpawnError> {
        let frame = message::run(&spec).map_err(|error| refused(&spec, Blame::Program, error))?;
        let (pipes, theirs) = open_pipes(stdin, stdout).map_err(no_keeper)?;
        let mut link = self.send(&frame, &theirs).await?;
        drop((frame, theirs));
        let report = std::future::poll_fn(|cx| link.poll_report(cx));
        match tokio::time::timeout(START, report).await {
            Ok(Ok(Report::Started(pid))) => Ok(Running::new(Arc::clone(&self.pool), link, pid, pipes, &spec)),
            Ok(Ok(Report::Failed(blame, errno))) => {
                self.pool.put(link);
                Err(refused(&spec, blame, io::Error::from_raw_os_error(errno)))
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

    /// Refuses new runs, kills those that still go on, lets those being stopped have their grace, and waits until not
    /// one process is left.
    pub async fn shutdown(&self) {
        self.pool.janitor.closing().cancel();
        let idle = std::mem::take(&mut *self.pool.idle());
        drop(idle);
        self.pool.janitor.close().await;
    }

    /// Hands the request to an idle keeper that lives, or else to a new one.
    async fn send(&self, frame: &[u8], theirs: &Theirs) -> Result<Link, SpawnError> {
        let stdin = theirs.stdin.as_ref().unwrap_or(&self.pool.null);
        let fds = [stdin.as_fd(), theirs.stdout.as_fd(), theirs.stderr.as_fd()];
        loop {
            if self.pool.janitor.closing().is_cancelled() {
                return Err(SpawnError::ShutDown);
            }
            let idle = self.pool.idle().pop();
            let fresh = idle.is_none();
            let mut link = match idle {
                Some(idle) => idle.link,
                None => Link::start(&self.pool.program, &self.pool.janitor).map_err(no_keeper)?,
            };
            match link.send_run(frame, fds).await {
                Ok(()) => return Ok(link),
                // Somebody killed it while it was idle.
                Err(Unsent::Whole(_)) if !fresh => {}
                Err(Unsent::Whole(error) | Unsent::Part(error)) => return Err(SpawnError::Keeper(error)),
            }
        }
    }
}

/// What all clones of [`Keepers`] share, and every run of theirs.
#[derive(Debug)]
pub(crate) struct Pool {
    program: KeeperProgram,
    kept: usize,
    null: OwnedFd,
    /// The one used last is used next: it is warm, and the others can grow old and be retired.
    idle: Mutex<Vec<Idle>>,
    /// Someone is already looking after the surplus.
    retiring: AtomicBool,
    pub(crate) janitor: Arc<Janitor>,
    pub(crate) pulse: Arc<Pulse>,
    /// None where the kernel offers none.
    watch: Option<Arc<Watch>>,
}

#[derive(Debug)]
struct Idle {
    link: Link,
    since: Instant,
}

impl Pool {
    /// Takes back a keeper that has nothing left to keep.
    pub(crate) fn put(self: &Arc<Self>, link: Link) {
        link.set_leaving(false);
        let surplus = {
            let mut idle = self.idle();
            if self.janitor.closing().is_cancelled() {
                return;
            }
            idle.push(Idle { link, since: Instant::now() });
            idle.len() > self.kept
        };
        if surplus && !self.retiring.swap(true, Ordering::Relaxed) {
            self.janitor.spawn(retire(Arc::downgrade(self), self.janitor.closing().clone()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the keepers that were not needed for a while; true if there may be more of them later.
    fn retire_surplus(&self) -> bool {
        let mut idle = self.idle();
        let surplus = idle.len().saturating_sub(self.kept);
        let old = idle.iter().take(surplus).take_while(|keeper| keeper.since.elapsed() >= IDLE).count();
        idle.drain(..old);
        let more = idle.len() > self.kept;
        self.retiring.store(more, Ordering::Relaxed);
        more
    }
}

async fn retire(pool: Weak<Pool>, closing: tokio_util::sync::CancellationToken) {
    loop {
        let again = closing.run_until_cancelled(tokio::time::sleep(IDLE / 2)).await.is_some();
        if !again || !pool.upgrade().is_some_and(|pool| pool.retire_surplus()) {
            return;
        }
    }
}

/// The ends of a run's pipes that the child gets. Stdin is `/dev/null` if there is nothing to say.
struct Theirs {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// What a program gets to read.
enum Input {
    /// This and no more.
    Closed(Vec<u8>),
    /// This, and what is written later.
    Open(Vec<u8>),
}

fn open_pipes(stdin: Input, stdout: impl FnOnce() -> io::Result<(Stdout, OwnedFd)>) -> io::Result<(Pipes, Theirs)> {
    let (feed, stdin) = match stdin {
        Input::Closed(data) if data.is_empty() => (None, None),
        Input::Closed(data) => {
            let (feed, theirs) = Feed::to_child(data)?;
            (feed, Some(theirs))
        }
        Input::Open(data) => {
            let (feed, theirs) = Feed::open_to_child(data)?;
            (Some(feed), Some(theirs))
        }
    };
    let (our_stdout, stdout) = stdout()?;
    let (our_stderr, stderr) = pipes::from_child()?;
    let ours = Pipes { stdin: feed, stdout: Some(our_stdout), stderr: Some(our_stderr) };
    Ok((ours, Theirs { stdin, stdout, stderr }))
}

fn no_keeper(error: io::Error) -> SpawnError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) if is_want(errno) => SpawnError::Exhausted(error),
        Some(_) | None => SpawnError::Keeper(error),
    }
}

/// Whether the kernel only lacks something that others may give back.
fn is_want(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
}

/// Puts the errno of a failed start in words.
fn refused(spec: &Spec, blame: Blame, source: io::Error) -> SpawnError {
    let program = spec.program.clone();
    match (blame, source.raw_os_error().map(Errno::from_raw_os_error)) {
        (_, Some(errno)) if is_want(errno) => SpawnError::Exhausted(source),
        (Blame::Directory, _) => SpawnError::BadDirectory { cwd: spec.cwd.clone(), source },
        (Blame::Confinement, _) => SpawnError::Unconfined { program, source },
        (Blame::Program, Some(Errno::NOENT | Errno::NOTDIR)) => SpawnError::NotFound { program, source },
        (Blame::Program, Some(Errno::ACCESS | Errno::PERM | Errno::NOEXEC | Errno::ISDIR)) => {
            SpawnError::NotExecutable { program, source }
        }
        (Blame::Program, Some(Errno::TOOBIG)) => SpawnError::TooLong { program, source },
        (Blame::Program, _) => SpawnError::Other { program, source },
    }
}
