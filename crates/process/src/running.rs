//! The public handle of a started program.
//!
//! [`ProcessDriver`] does the work and is driven by polling. This handle polls it on behalf of the caller. When the caller
//! drops the handle, the driver moves to a task of the janitor, which ends the program.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use trunkline_core::limits::RunLimits;
use trunkline_core::phase::Phase;

use crate::descendants;
use crate::driver::ProcessDriver;
use crate::link::KeeperLink;
use crate::pipes::Pipes;
use crate::pool::KeeperPool;
use crate::spec::{ProcessEvent, ProcessExit, Spec};

/// A program that was started. Dropping it stops the program in the background: signal, grace period, SIGKILL.
#[derive(Debug)]
pub struct RunningProcess {
    driver: Option<ProcessDriver>,
}

impl RunningProcess {
    pub(crate) fn new(pool: Arc<KeeperPool>, link: KeeperLink, pid: u32, pipes: Pipes, spec: &Spec) -> Self {
        Self { driver: Some(ProcessDriver::new(pool, link, pid, pipes, spec)) }
    }

    /// Returns the next event. Cancel safe.
    ///
    /// All work is done in here, limits included: while the caller does not call, no output is read and no limit applies.
    pub async fn next(&mut self) -> ProcessEvent {
        let driver = self.driver();
        poll_fn(|cx| driver.poll_next(cx)).await
    }

    /// Writes to a program that was started with [`Keepers::spawn_open`](crate::Keepers::spawn_open). The data is sent
    /// during calls of [`next`](Self::next), as fast as the program reads. If it has closed its stdin, nothing is written.
    pub fn write(&mut self, bytes: &[u8]) {
        self.driver().write(bytes);
    }

    /// Replaces the limits and restarts them from now. A program that serves several turns is limited in each of them.
    pub fn limit(&mut self, limits: RunLimits) {
        self.driver().set_limits(limits);
    }

    /// Sets the phase that the program's output shows it to be in: how long it may be silent depends on the phase.
    pub fn enter(&mut self, phase: Phase) {
        self.driver().enter(phase);
    }

    /// Returns the last 64 KiB of stderr that were read.
    pub fn stderr_tail(&self) -> String {
        self.driver.as_ref().map(|driver| driver.stderr_tail()).unwrap_or_default()
    }

    /// Whether it was stopped only because it had closed its stdout and did not exit. Its exit status then has no meaning.
    pub fn was_mute(&self) -> bool {
        self.driver.as_ref().is_some_and(ProcessDriver::was_mute)
    }

    /// Whether no process of it is left. Then dropping the handle starts no task.
    pub fn is_over(&self) -> bool {
        self.driver.as_ref().is_none_or(ProcessDriver::is_over)
    }

    /// The pid of the main process, which leads a process group of its own.
    pub fn pid(&self) -> u32 {
        self.driver.as_ref().map_or(0, ProcessDriver::pid)
    }

    /// The resident memory of all its processes in bytes, according to `/proc`.
    pub fn resident(&self) -> u64 {
        i32::try_from(self.keeper()).ok().and_then(Pid::from_raw).map_or(0, descendants::resident_bytes)
    }

    /// The pid of its keeper, for logs and tests.
    pub fn keeper(&self) -> u32 {
        self.driver.as_ref().map_or(0, ProcessDriver::keeper)
    }

    /// Stops the program: signal, grace period, SIGKILL. Returns when all its processes are dead.
    pub async fn stop(self) -> ProcessExit {
        self.finish(Duration::ZERO).await
    }

    /// As [`stop`](Self::stop), but passes on all remaining output, including what the program prints while it stops.
    pub async fn stop_hearing(mut self, mut output: impl FnMut(&[u8]) + Send) -> ProcessExit {
        let exit = self.driver().end(Duration::ZERO, &mut output).await;
        self.driver().drain(&mut output).await;
        exit
    }

    /// As [`stop`](Self::stop), but keeps the handle for questions such as [`stderr_tail`](Self::stderr_tail). Cancel safe:
    /// another call continues.
    pub async fn end(&mut self) -> ProcessExit {
        self.driver().end(Duration::ZERO, &mut |_| ()).await
    }

    /// Waits up to `linger` for the program to end by itself, then stops it. Its output is discarded. Returns when all its
    /// processes are dead, so that none of them writes to its files any more.
    ///
    /// If the future is dropped, the program is stopped at once in the background, as when the handle is dropped.
    pub async fn finish(mut self, linger: Duration) -> ProcessExit {
        self.driver().end(linger, &mut |_| ()).await
    }

    fn driver(&mut self) -> &mut ProcessDriver {
        self.driver.as_mut().expect("taken only when the handle is consumed or dropped")
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if let Some(mut driver) = self.driver.take()
            && !driver.is_over()
        {
            driver.set_stopping();
            let janitor = Arc::clone(driver.janitor());
            janitor.spawn(async move { driver.end(Duration::ZERO, &mut |_| ()).await });
        }
    }
}
