//! The keeper: a small supervising process that the processes of a run cannot escape.
//!
//! It blocks, serves one run at a time, and ends when its socket to the gateway is closed, killing all its descendants. It
//! has one thread, except while it starts a confined program. It does not see what goes through the pipes, and it does
//! not know of limits or pools: those are the gateway's.

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
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitStatus, getpid, kill_process, kill_process_group, pidfd_open, set_child_subreaper,
    setsid,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use self::inbox::Inbox;
use crate::confinement;
use crate::descendants::{self, NoChildren};
use crate::files;
use crate::message::{FailedPart, KeeperReport, KeeperRequest, ProcessJob};
use crate::spec::StopSignal;
use crate::undumpable::set_undumpable;

/// Interval at which orphans that ended during a run are reaped, in case their SIGCHLD arrived between two waits.
const REAP_INTERVAL: Duration = Duration::from_secs(5);
/// Interval at which SIGKILL is repeated while processes survive it.
const KILL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that killed processes may take to die before the keeper reports itself dirty.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a keeper without a gateway keeps killing before it ends anyway.
const FINAL_CLEANUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Value for `oom_score_adj`, in thousandths of the machine's memory: the kernel treats a run as if it used that much more.
const OOM_SCORE_ADJ: i32 = 500;

/// The main function of a keeper. Call this, and nothing else, when the binary is started as one.
///
/// Standard input is the socket to the gateway. The exit status is success if no descendant is left.
pub fn keeper_main() -> ExitCode {
    // However it ends, be it by a panic: no descendant may survive.
    let _ = std::panic::catch_unwind(serve);
    if descendants::end_all(FINAL_CLEANUP_TIMEOUT) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Serves one run after another until the gateway hangs up.
fn serve() -> io::Result<()> {
    // A session of its own, so that Ctrl-C at the gateway's terminal reaches only the gateway. Signals that a service
    // manager sends to every process are caught for the same reason: the gateway decides when its runs end. Handlers,
    // unlike ignored signals, are not inherited by the programs started here. SIGCHLD is caught to interrupt waits, so that
    // orphans are reaped as they die.
    setsid()?;
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGCHLD] {
        flag::register(signal, Arc::default())?;
    }
    set_child_subreaper(Some(getpid()))?;
    // The last argument is the limit of open files for the programs started here, if it differs from the present one.
    if let Some(soft) = std::env::args().next_back().and_then(|soft| soft.parse().ok()) {
        files::set_limit(soft);
    }
    // Descriptors that leaked into the gateway from its parent must not be inherited further.
    close_fds::set_fds_cloexec(3, &[]);
    // Started through /proc/self/exe, the process would be called "exe". Its name differs from the gateway's: after
    // `pkill -9 trunkline` the keepers must be left to clean up.
    let _ = std::fs::write("/proc/self/comm", "line-keeper");
    raise_oom_score();
    // Requests contain the environments of programs, API keys included. Must come after the two writes to /proc/self above:
    // they would be refused.
    set_undumpable();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut gateway = KeeperSocket { socket, inbox: Inbox::default() };
    while gateway.inbox.fill_frame(&gateway.socket)? {
        let started = match gateway.inbox.request()? {
            (KeeperRequest::Run(job), fds) => Some(start(&job, fds)),
            // The run that the request is about has ended meanwhile.
            (KeeperRequest::Stop { .. } | KeeperRequest::Pause { .. }, _) => None,
        };
        gateway.inbox.pop();
        match started {
            Some(Ok(main)) => gateway.supervise(main)?,
            Some(Err((part, errno))) => gateway.report(&[KeeperReport::Failed(part, errno)])?,
            None => {}
        }
    }
    Ok(())
}

/// Makes the kernel's OOM killer prefer the processes of a run to the gateway and the user's own processes. Among them it
/// kills the largest first, which is not the keeper.
fn raise_oom_score() {
    let score = "/proc/self/oom_score_adj";
    let now = std::fs::read_to_string(score).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if now.is_some_and(|now| now < OOM_SCORE_ADJ) {
        let _ = std::fs::write(score, OOM_SCORE_ADJ.to_string());
    }
}

/// The keeper's end of the socket to the gateway.
struct KeeperSocket {
    socket: OwnedFd,
    inbox: Inbox,
}

impl KeeperSocket {
    /// Supervises a run from its start until all its processes are gone. An error means that the gateway is gone.
    fn supervise(&mut self, main: Pid) -> io::Result<()> {
        self.report(&[KeeperReport::Started(main.as_raw_nonzero().get() as u32)])?;
        let status = self.wait_for(main)?.as_raw();
        // In the common case no process is left: one write, so that the gateway wakes up once.
        if let Err(NoChildren) = descendants::reap_any() {
            return self.report(&[KeeperReport::Exited(status), KeeperReport::Clean]);
        }
        self.report(&[KeeperReport::Exited(status)])?;
        let clean = descendants::end_all(CLEANUP_TIMEOUT);
        self.report(&[if clean { KeeperReport::Clean } else { KeeperReport::Dirty }])
    }

    /// Waits for the main process to end, and handles requests about it meanwhile.
    fn wait_for(&mut self, main: Pid) -> io::Result<WaitStatus> {
        let pidfd = pidfd_open(main, PidfdFlags::empty())?;
        let mut kill_at: Option<Instant> = None;
        loop {
            let pause = kill_at.map_or(REAP_INTERVAL, |at| at.saturating_duration_since(Instant::now()));
            let has_request = self.inbox.holds_frame() || self.readable_or_ended(&pidfd, pause)?;
            while let Ok(Some((pid, status))) = descendants::reap_any() {
                if pid == main {
                    return Ok(status);
                }
            }
            if has_request {
                if !self.inbox.fill_frame(&self.socket)? {
                    kill(main);
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                match self.inbox.request()?.0 {
                    KeeperRequest::Stop { signal, grace } => {
                        ask_to_stop(main, signal);
                        kill_at = Some(Instant::now() + grace);
                    }
                    // A program that was asked to stop must be able to run for that.
                    KeeperRequest::Pause { paused } if kill_at.is_none() => {
                        let _ = kill_process_group(main, if paused { Signal::STOP } else { Signal::CONT });
                    }
                    KeeperRequest::Pause { .. } | KeeperRequest::Run(_) => {}
                }
                self.inbox.pop();
            }
            if kill_at.is_some_and(|at| at <= Instant::now()) {
                kill(main);
                kill_at = Some(Instant::now() + KILL_INTERVAL);
            }
        }
    }

    /// Waits until a request arrives (true), the process ends, or the time is over.
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

    fn report(&self, reports: &[KeeperReport]) -> io::Result<()> {
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

/// Starts the program in a process group of its own, with exactly the given environment and standard streams.
#[expect(clippy::disallowed_methods, reason = "the one place that starts programs")]
fn start(job: &ProcessJob<'_>, fds: &mut Vec<OwnedFd>) -> Result<Pid, (FailedPart, i32)> {
    let mut fds = fds.drain(..);
    let stdin = match job.stdin {
        Some(data) => Some(filled_pipe(data).map_err(|errno| (FailedPart::Program, errno.raw_os_error()))?),
        None => fds.next(),
    };
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, fds.next(), fds.next()) else {
        return Err((FailedPart::Program, Errno::BADF.raw_os_error()));
    };
    let program = look_up(job).map_err(|errno| (FailedPart::Program, errno.raw_os_error()))?;
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
    let spawned = match &job.confined_to {
        None => command.spawn(),
        Some(paths) => confinement::within(paths, move || command.spawn())
            .map_err(|error| (FailedPart::Confinement, errno_of(&error)))?,
    };
    match spawned {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => {
            // The errno does not tell which of the two paths is at fault.
            let part = if Path::new(job.cwd).is_dir() && access(job.cwd, Access::EXEC_OK).is_ok() {
                FailedPart::Program
            } else {
                FailedPart::Directory
            };
            Err((part, errno_of(&error)))
        }
    }
}

/// Creates a pipe that contains `data` and ends after it.
fn filled_pipe(data: &[u8]) -> Result<OwnedFd, Errno> {
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    let written = rustix::io::write(&ours, data)?;
    if written == data.len() { Ok(theirs) } else { Err(Errno::IO) }
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())
}

/// Finds a bare name in the child's `PATH`, as a shell would. A path is taken as it is.
///
/// `Command` would do this too, but a `PATH` that differs from this process's own costs it the `posix_spawn` fast path.
fn look_up(job: &ProcessJob<'_>) -> Result<PathBuf, Errno> {
    let program = Path::new(job.program);
    if job.program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let path = job.env.iter().rfind(|(name, _)| *name == "PATH").map_or("/bin:/usr/bin".as_ref(), |(_, path)| *path);
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

/// Signals the group of the main process, once: some CLIs take a second signal as an order to skip their cleanup.
fn ask_to_stop(main: Pid, signal: StopSignal) {
    // `main` is not reaped yet, so neither its pid nor the id of its group can have been reused.
    if kill_process_group(main, signal.signal()).is_err() {
        let _ = kill_process(main, signal.signal());
    }
    // A stopped process handles the signal only once it is continued.
    if kill_process_group(main, Signal::CONT).is_err() {
        let _ = kill_process(main, Signal::CONT);
    }
}

/// Kills the group of the main process, which takes no search in `/proc`, and then all other descendants.
fn kill(main: Pid) {
    let _ = kill_process_group(main, Signal::KILL);
    let _ = kill_process(main, Signal::KILL);
    descendants::kill_all();
}
