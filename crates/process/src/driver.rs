//! Drives one program: its streams, its keeper and its deadlines, until all its processes are gone.
//!
//! There are no tasks and no channels here: polling does all the work, and a caller that stops polling slows the program
//! down through its pipe.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, timeout};

use trunkline_core::limits::{LimitKind, RunLimits};
use trunkline_core::phase::Phase;

use crate::janitor::Janitor;
use crate::limit_clock::LimitClock;
use crate::link::KeeperLink;
use crate::message::KeeperReport;
use crate::pipes::{ChildStream, Pipes, StderrTail, Stdout};
use crate::pool::KeeperPool;
use crate::spec::{ProcessEvent, ProcessExit, Spec, StopSignal};

/// Limit of a single read.
const CHUNK_BYTES: usize = 64 * 1024;
/// Time that output is awaited after the end of the main process, if another process keeps the pipes open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Time that a program may run after closing its stdout: no more output can come.
const MUTE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time beyond the grace period after which a keeper counts as stuck.
const KEEPER_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest sleep of the timer. A deadline that is further away is checked again then.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

thread_local! {
    /// Read buffer. One per thread is enough because nothing stays in it between polls. One per program would be most of the
    /// memory that a program takes here.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Receives the output of a program while it is being ended.
pub(crate) type OutputSink<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// A program that was started and whose processes are not all gone yet.
#[derive(Debug)]
pub(crate) struct ProcessDriver {
    pool: Arc<KeeperPool>,
    keeper: u32,
    /// Returned to the pool as soon as no process is left.
    link: Option<KeeperLink>,
    /// Whether the keeper is gone or sent an invalid report. It only remains to wait until it is reaped.
    lost: bool,
    pid: u32,
    pipes: Pipes,
    stderr: StderrTail,
    exit: Option<ProcessExit>,
    /// End of [`DRAIN_TIMEOUT`] or [`MUTE_TIMEOUT`].
    due: Option<Duration>,
    /// Whether it was asked to stop because it had closed its stdout and did not exit.
    mute: bool,
    /// Whether processes of it do not die. They may print forever.
    dirty: bool,
    stop: StopSignal,
    grace: Duration,
    clock: LimitClock,
    timer: Pin<Box<Sleep>>,
}

impl ProcessDriver {
    pub(crate) fn new(pool: Arc<KeeperPool>, link: KeeperLink, pid: u32, pipes: Pipes, spec: &Spec) -> Self {
        let clock = LimitClock::start(spec.limits, pool.clock.elapsed());
        if let Some(spool) = pipes.stdout.as_ref().and_then(Stdout::as_spool) {
            spool.set_keeper(link.handle());
        }
        Self {
            pool,
            keeper: link.pid(),
            link: Some(link),
            lost: false,
            pid,
            pipes,
            stderr: StderrTail::default(),
            exit: None,
            due: None,
            mute: false,
            dirty: false,
            stop: spec.stop,
            grace: spec.grace,
            clock,
            timer: Box::pin(tokio::time::sleep(MAX_SLEEP)),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn keeper(&self) -> u32 {
        self.keeper
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    pub(crate) fn was_mute(&self) -> bool {
        self.mute
    }

    pub(crate) fn janitor(&self) -> &Arc<Janitor> {
        &self.pool.janitor
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.clock.enter(phase, self.now());
    }

    fn now(&self) -> Duration {
        self.pool.clock.elapsed()
    }

    /// Writes to the program's stdin, if that is still open.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if let Some(feed) = &mut self.pipes.stdin {
            feed.add(bytes);
        }
    }

    /// Closes the program's stdin once all data is written.
    pub(crate) fn close_input(&mut self) {
        if let Some(feed) = &mut self.pipes.stdin {
            feed.close();
        }
    }

    /// Replaces the limits and restarts them from now.
    pub(crate) fn set_limits(&mut self, limits: RunLimits) {
        self.clock = LimitClock::start(limits, self.now());
    }

    /// Whether no process is left.
    pub(crate) fn is_over(&self) -> bool {
        self.link.is_none()
    }

    /// Marks that the program is being ended, so that a shutdown leaves it its grace period.
    pub(crate) fn set_stopping(&self) {
        if let Some(link) = &self.link {
            link.set_stopping(true);
        }
    }

    /// Returns the next event.
    ///
    /// A program that prints without pause always has output to read. So what must not wait for it is checked first.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<ProcessEvent> {
        self.poll_keeper(cx);
        // Output printed before the end must not be dropped because the reader is slow.
        if self.exit.is_some()
            && !self.dirty
            && let Poll::Ready(bytes) = self.poll_stdout(cx, <[u8]>::to_vec)
        {
            return Poll::Ready(ProcessEvent::Stdout(bytes));
        }
        if let Some(event) = self.overdue(self.now()) {
            return Poll::Ready(event);
        }
        self.poll_input(cx);
        self.poll_stderr(cx);
        if let Poll::Ready(bytes) = self.poll_stdout(cx, <[u8]>::to_vec) {
            return Poll::Ready(ProcessEvent::Stdout(bytes));
        }
        match self.exit {
            Some(exit) if self.pipes.stdout.is_none() && self.pipes.stderr.is_none() => {
                Poll::Ready(ProcessEvent::Exited(exit))
            }
            _ => self.poll_deadlines(cx),
        }
    }

    /// Ready once no process is left.
    fn poll_over(&mut self, cx: &mut Context<'_>, output: OutputSink<'_>) -> Poll<ProcessExit> {
        self.poll_keeper(cx);
        if self.is_over() {
            return Poll::Ready(self.exit.unwrap_or(ProcessExit::KILLED));
        }
        self.poll_input(cx);
        self.poll_stderr(cx);
        let _ = self.poll_rest(cx, output);
        Poll::Pending
    }

    /// Reads all of stdout that is available. Ready at its end.
    fn poll_rest(&mut self, cx: &mut Context<'_>, output: OutputSink<'_>) -> Poll<()> {
        while self.poll_stdout(cx, &mut *output).is_ready() {}
        if self.pipes.stdout.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the program: waits for `linger`, asks it to stop, then has it killed. A shutdown cuts the wait short.
    pub(crate) async fn end(&mut self, linger: Duration, output: OutputSink<'_>) -> ProcessExit {
        self.set_stopping();
        self.close_input();
        let closing = self.janitor().closing().clone();
        let by_itself = timeout(linger, poll_fn(|cx| self.poll_over(cx, output)));
        if let Some(Ok(exit)) = closing.run_until_cancelled(by_itself).await {
            return exit;
        }
        self.ask_to_stop();
        if let Ok(exit) =
            timeout(self.grace.saturating_add(KEEPER_TIMEOUT), poll_fn(|cx| self.poll_over(cx, output))).await
        {
            return exit;
        }
        tracing::warn!(keeper = self.keeper, pid = self.pid, "keeper does not answer: killing it and its run");
        if let Some(link) = &self.link {
            link.kill();
        }
        poll_fn(|cx| self.poll_over(cx, output)).await
    }

    /// Reads the output that is left in the pipe after the end of the program.
    pub(crate) async fn drain(&mut self, output: OutputSink<'_>) {
        // The timeout only matters if a process survived and holds the pipe open.
        let _ = timeout(DRAIN_TIMEOUT, poll_fn(|cx| self.poll_rest(cx, output))).await;
    }

    fn ask_to_stop(&self) {
        if let Some(link) = &self.link {
            link.send_stop(self.stop, self.grace);
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) {
        if let Some(feed) = &mut self.pipes.stdin
            && feed.poll(cx).is_ready()
        {
            self.pipes.stdin = None;
        }
    }

    /// Ready with the result of `take` for the bytes that arrived. Pending also at the end of the stream, which is then
    /// closed.
    fn poll_stdout<T>(&mut self, cx: &mut Context<'_>, take: impl FnOnce(&[u8]) -> T) -> Poll<T> {
        match poll_read(&mut self.pipes.stdout, cx, take) {
            Poll::Ready(Some(taken)) => {
                self.clock.note_stdout(self.now());
                Poll::Ready(taken)
            }
            Poll::Ready(None) => {
                if self.exit.is_none() && self.due.is_none() {
                    self.due = Some(self.now() + MUTE_TIMEOUT);
                }
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads a bounded amount of stderr and schedules another poll: a flood there must not delay the rest.
    fn poll_stderr(&mut self, cx: &mut Context<'_>) {
        for _ in 0..4 {
            let Poll::Ready(Some(())) = poll_read(&mut self.pipes.stderr, cx, |bytes| self.stderr.push(bytes)) else {
                return;
            };
            self.clock.note_stderr(self.now());
        }
        cx.waker().wake_by_ref();
    }

    fn poll_keeper(&mut self, cx: &mut Context<'_>) {
        while let Some(link) = &mut self.link {
            if self.lost {
                if link.poll_reaped(cx).is_pending() {
                    return;
                }
                self.over();
                self.exited(ProcessExit::KILLED);
                return;
            }
            match link.poll_report(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(KeeperReport::Exited(status))) => self.exited(ProcessExit::from_raw(status)),
                Poll::Ready(Ok(KeeperReport::Clean)) => {
                    if let Some(link) = self.over() {
                        self.pool.put(link);
                    }
                }
                Poll::Ready(Ok(KeeperReport::Dirty)) => {
                    tracing::warn!(keeper = self.keeper, pid = self.pid, "processes of a run do not die");
                    self.dirty = true;
                    self.over();
                }
                Poll::Ready(Ok(KeeperReport::Started(_) | KeeperReport::Failed(..)) | Err(_)) => {
                    link.hang_up();
                    self.lost = true;
                }
            }
        }
    }

    /// Notes that no process is left, or that none can be waited for. Returns the keeper.
    fn over(&mut self) -> Option<KeeperLink> {
        if let Some(spool) = self.pipes.stdout.as_ref().and_then(Stdout::as_spool) {
            spool.set_over();
        }
        self.link.take()
    }

    fn exited(&mut self, exit: ProcessExit) {
        if self.exit.is_none() {
            self.exit = Some(exit);
            self.due = Some(self.now() + DRAIN_TIMEOUT);
            self.pipes.stdin = None;
        }
    }

    /// Returns the event that is due now, even if there is more to read.
    fn overdue(&mut self, now: Duration) -> Option<ProcessEvent> {
        match self.exit {
            Some(exit) if self.due.is_some_and(|due| due <= now) => {
                (self.pipes.stdout, self.pipes.stderr) = (None, None);
                Some(ProcessEvent::Exited(exit))
            }
            None if self.clock.is_total_exceeded(now) => Some(ProcessEvent::Limit(self.clock.exceed(LimitKind::Total))),
            _ => None,
        }
    }

    /// Waits for the next deadline and handles it. The timer is reset only when necessary, not for every chunk of output.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<ProcessEvent> {
        loop {
            let limit = if self.exit.is_none() { self.clock.next() } else { None };
            let Some(next) = [self.due, limit.map(|(at, _)| at)].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            let at = Instant::now() + next.saturating_sub(self.now()).min(MAX_SLEEP);
            if at < self.timer.deadline() {
                self.timer.as_mut().reset(at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = self.now();
            if now < next {
                // The deadline was moved since the timer was set, or this process was stopped meanwhile.
                self.timer.as_mut().reset(Instant::now() + (next - now).min(MAX_SLEEP));
            } else if let Some(event) = self.overdue(now) {
                return Poll::Ready(event);
            } else if let Some((_, kind)) = limit.filter(|(at, _)| *at <= now) {
                return Poll::Ready(ProcessEvent::Limit(self.clock.exceed(kind)));
            } else {
                // The program closed its stdout, and MUTE_TIMEOUT is over.
                self.due = None;
                self.mute = true;
                self.ask_to_stop();
            }
        }
    }
}

/// Reads what is available and passes it to `take`. `None` at the end, when the stream is closed. Pending also if it was
/// closed before.
fn poll_read<T>(
    stream: &mut Option<impl ChildStream>,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<Option<T>> {
    let Some(open) = stream else { return Poll::Pending };
    let mut buffer = BUFFER.take();
    buffer.resize(CHUNK_BYTES, 0);
    let mut read = ReadBuf::new(&mut buffer);
    let polled = open.poll_stream(cx, &mut read);
    let taken = match polled {
        Poll::Ready(Ok(())) if !read.filled().is_empty() => Poll::Ready(Some(take(read.filled()))),
        Poll::Ready(_) => {
            *stream = None;
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    };
    BUFFER.set(buffer);
    taken
}
