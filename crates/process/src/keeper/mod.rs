//! The keeper: a small process of our own that a run's processes cannot escape.
//!
//! It is blocking, serves one run at a time, and ends when its socket to the gateway does, taking everything along. It has
//! one thread, but for the moment in which it starts a confined run. It knows nothing of pipes' contents, limits or
//! pools: those are the gateway's.

mod inbox;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitStatus, getpid, kill_process, kill_process_group, pidfd_open, set_child_subreaper,
    setsid,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use self::inbox::Inbox;
use crate::confinement;
use crate::family::{self, NoChildren};
use crate::files;
use crate::message::{Blame, Job, Report, Request};
use crate::spec::StopSignal;

/// How often orphans that ended during a run are looked for, should their signal have come between two waits.
const REAP_EVERY: Duration = Duration::from_secs(5);
/// How soon those that survived a SIGKILL are looked for again.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How long the dying may take before the gateway is told that they do not.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a keeper whose gateway is gone goes on trying.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// How much more memory a run seems to use, when somebody has to go: in thousandths of all there is.
const EXPENDABLE: i32 = 500;

/// The body of a keeper: call this, and nothing else, when the binary is started as one.
///
/// Standard input is its socket to the gateway. Its exit status says whether it leaves nothing behind.
pub fn keeper_main() -> ExitCode {
    // Whether the gateway hung up, or there is a bug in here: no process may be let go.
    let _why_it_ended = std::panic::catch_unwind(serve);
    if family::end_descendants(LAST_PATIENCE) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Serves one run after the other, until the gateway hangs up.
fn serve() -> io::Result<()> {
    // A session of its own: Ctrl-C at the gateway's terminal is the gateway's business. So is the signal that a service
    // manager sends to everyone: the gateway decides what becomes of its runs. Handlers, unlike ignored signals, are
    // not inherited by what we start. A child's end is heard as well: it cuts our waiting short, and orphans are reaped
    // as they die.
    setsid()?;
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGCHLD] {
        flag::register(signal, Arc::default())?;
    }
    set_child_subreaper(Some(getpid()))?;
    // The last argument is the limit of open files for what we start, if it is not our own.
    if let Some(soft) = std::env::args().next_back().and_then(|soft| soft.parse().ok()) {
        files::take(soft);
    }
    // Whatever leaked into the gateway from its own parent stops here.
    close_fds::set_fds_cloexec(3, &[]);
    // Started through /proc/self/exe it would be called "exe". Not by the gateway's name either: `pkill -9 trunkline` must
    // leave somebody to clean up.
    let _ = std::fs::write("/proc/self/comm", "line-keeper");
    offer_first();
    // It is told the keys of what it starts. After those two: they could not be written any more.
    crate::close_to_others();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut line = Line { socket, inbox: Inbox::default() };
    while line.inbox.fill_frame(&line.socket)? {
        let started = match line.inbox.request()? {
            (Request::Run(job), fds) => Some(start(&job, fds)),
            // It crossed with the end of the run that it was about.
            (Request::Stop { .. } | Request::Hold { .. }, _) => None,
        };
        line.inbox.done();
        match started {
            Some(Ok(main)) => line.tend(main)?,
            Some(Err((blame, errno))) => line.say(&[Report::Failed(blame, errno)])?,
            None => {}
        }
    }
    Ok(())
}

/// Has the kernel take this process and what it starts, when memory runs out, rather than the gateway and the user's own:
/// of those, the largest goes first, which is not the keeper.
fn offer_first() {
    let score = "/proc/self/oom_score_adj";
    let now = std::fs::read_to_string(score).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if now.is_some_and(|now| now < EXPENDABLE) {
        let _ = std::fs::write(score, EXPENDABLE.to_string());
    }
}

/// The keeper's end of the socket.
struct Line {
    socket: OwnedFd,
    inbox: Inbox,
}

impl Line {
    /// Stays with a run from its start until nothing is left of it. An error means that the gateway is gone.
    fn tend(&mut self, main: Pid) -> io::Result<()> {
        self.say(&[Report::Started(main.as_raw_nonzero().get() as u32)])?;
        let status = self.wait_for(main)?.as_raw();
        // The common case, nothing left behind, costs the gateway one wake-up.
        if let Err(NoChildren) = family::reap_any() {
            return self.say(&[Report::Exited(status), Report::Clean]);
        }
        self.say(&[Report::Exited(status)])?;
        let clean = family::end_descendants(PATIENCE);
        self.say(&[if clean { Report::Clean } else { Report::Dirty }])
    }

    /// Waits for the main process, stopping it when told to.
    fn wait_for(&mut self, main: Pid) -> io::Result<WaitStatus> {
        let pidfd = pidfd_open(main, PidfdFlags::empty())?;
        let mut kill_at: Option<Instant> = None;
        loop {
            let pause = kill_at.map_or(REAP_EVERY, |at| at.saturating_duration_since(Instant::now()));
            let spoken_to = self.inbox.holds_frame() || self.readable_or_ended(&pidfd, pause)?;
            while let Ok(Some((pid, status))) = family::reap_any() {
                if pid == main {
                    return Ok(status);
                }
            }
            if spoken_to {
                if !self.inbox.fill_frame(&self.socket)? {
                    kill(main);
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                match self.inbox.request()?.0 {
                    Request::Stop { signal, grace } => {
                        ask_to_stop(main, signal);
                        kill_at = Some(Instant::now() + grace);
                    }
                    // One that was asked to stop needs to run for that.
                    Request::Hold { still } if kill_at.is_none() => {
                        let _ = kill_process_group(main, if still { Signal::STOP } else { Signal::CONT });
                    }
                    Request::Hold { .. } | Request::Run(_) => {}
                }
                self.inbox.done();
            }
            if kill_at.is_some_and(|at| at <= Instant::now()) {
                kill(main);
                kill_at = Some(Instant::now() + KILL_AGAIN);
            }
        }
    }

    /// Sleeps until the gateway speaks (true), the process ended, or the time is up.
    fn readable_or_ended(&self, pidfd: &OwnedFd, pause: Duration) -> io::Result<bool> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN),
        ];
        let timeout = Timespec { tv_sec: pause.as_secs() as _, tv_nsec: pause.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn say(&self, reports: &[Report]) -> io::Result<()> {
        let bytes: Vec<u8> = reports.iter().flat_map(|report| report.encode()).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match rustix::io::write(&self.socket, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Starts the program in a process group of its own, with exactly the given environment and the three descriptors.
#[expect(clippy::disallowed_methods, reason = "the one place that starts the programs of others")]
fn start(job: &Job<'_>, fds: &mut Vec<OwnedFd>) -> Result<Pid, (Blame, i32)> {
    let mut fds = fds.drain(..);
    let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
        return Err((Blame::Program, Errno::BADF.raw_os_error()));
    };
    let program = look_up(job).map_err(|errno| (Blame::Program, errno.raw_os_error()))?;
    let mut command = Command::new(program);
    command
        .arg0(job.program)
        .args(&job.args)
        .env_clear()
        .envs(job.env.iter().copied())
        .current_dir(job.cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    let spawned = match &job.places {
        None => command.spawn(),
        Some(places) => confinement::within(places, move || command.spawn())
            .map_err(|error| (Blame::Confinement, errno_of(&error)))?,
    };
    match spawned {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => {
            // The kernel's errno does not say which of the two paths it is about.
            let blame = if Path::new(job.cwd).is_dir() && access(job.cwd, Access::EXEC_OK).is_ok() {
                Blame::Program
            } else {
                Blame::Directory
            };
            Err((blame, errno_of(&error)))
        }
    }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())
}

/// Finds a bare name in the child's own `PATH`, as a shell would; a path is taken as it is.
///
/// Left to `Command`, a look-up in another `PATH` than ours would cost the `posix_spawn` fast path.
fn look_up(job: &Job<'_>) -> Result<PathBuf, Errno> {
    let program = Path::new(job.program);
    if job.program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let path = job.env.iter().find(|(name, _)| *name == "PATH").map_or("/bin:/usr/bin".as_ref(), |(_, path)| *path);
    let mut seen = Errno::NOENT;
    for folder in std::env::split_paths(path) {
        let candidate = folder.join(program);
        match candidate.metadata() {
            Ok(found) if found.is_file() && access(&candidate, Access::EXEC_OK).is_ok() => return Ok(candidate),
            Ok(_) => seen = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(seen)
}

/// Signals the main process's group, once: some CLIs take a second signal as an order to skip their clean-up.
fn ask_to_stop(main: Pid, signal: StopSignal) {
    // `main` is not reaped yet, so neither its pid nor its group's can belong to anyone else.
    if kill_process_group(main, signal.signal()).is_err() {
        let _ = kill_process(main, signal.signal());
    }
    // A stopped process acts on a signal only once it goes on.
    if kill_process_group(main, Signal::CONT).is_err() {
        let _ = kill_process(main, Signal::CONT);
    }
}

/// Kills the main process's group, which needs no look at `/proc`, and then all the others.
fn kill(main: Pid) {
    let _ = kill_process_group(main, Signal::KILL);
    let _ = kill_process(main, Signal::KILL);
    family::kill_descendants();
}
