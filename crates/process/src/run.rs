//! One run: its pipes, its keeper and its deadlines, served together, until nothing is left of it.
//!
//! There are no tasks and no channels here: whoever polls drives everything, and a caller that stops polling slows the
//! program down through its pipe.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, timeout};

use trunkline_core::limits::{Limit, Limits};
use trunkline_core::phase::Phase;

use crate::clock::Clock;
use crate::janitor::Janitor;
use crate::link::Link;
use crate::message::Report;
use crate::pipes::{Pipes, Source, Stdout, Tail};
use crate::pool::Pool;
use crate::running::Step;
use crate::spec::{Exit, Spec, StopSignal};

const CHUNK: usize = 64 * 1024;
/// How long output is awaited after the main process's end, if something keeps the pipes open.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a program may go on after closing its stdout: it can say nothing any more.
const MUTE: Duration = Duration::from_secs(5);
/// How long a keeper may take beyond the grace before it counts as stuck itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// No timer is set for later: it would only have to be looked at again.
const FAR: Duration = Duration::from_secs(3600);

thread_local! {
    /// What is read goes through here. One for each thread, for nothing stays in it: made anew for every run, it would be
    /// most of what a run takes.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Who is told what a run prints while it is being ended.
pub(crate) type Hear<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// Everything about a program that was started and is not yet gone.
#[derive(Debug)]
pub(crate) struct Run {
    pool: Arc<Pool>,
    keeper: u32,
    /// Goes back to the pool as soon as nothing is left of the run.
    link: Option<Link>,
    /// The keeper is gone or talks nonsense; what is left is to see it buried.
    lost: bool,
    pid: u32,
    pipes: Pipes,
    tail: Tail,
    exit: Option<Exit>,
    /// When draining, or the patience with a program that closed its stdout, is over.
    due: Option<Duration>,
    /// It was asked to stop because it had closed its stdout and stayed.
    mute: bool,
    /// Processes of it will not die, and may print for ever.
    dirty: bool,
    stop: StopSignal,
    grace: Duration,
    clock: Clock,
    timer: Pin<Box<Sleep>>,
}

impl Run {
    pub(crate) fn new(pool: Arc<Pool>, link: Link, pid: u32, pipes: Pipes, spec: &Spec) -> Self {
        let clock = Clock::start(spec.limits, pool.pulse.watched());
        if let Some(spool) = pipes.stdout.as_ref().and_then(Stdout::as_spool) {
            spool.kept_by(link.wire());
        }
        Self {
            pool,
            keeper: link.pid(),
            link: Some(link),
            lost: false,
            pid,
            pipes,
            tail: Tail::default(),
            exit: None,
            due: None,
            mute: false,
            dirty: false,
            stop: spec.stop,
            grace: spec.grace,
            clock,
            timer: Box::pin(tokio::time::sleep(FAR)),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn keeper(&self) -> u32 {
        self.keeper
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.tail.text()
    }

    pub(crate) fn was_mute(&self) -> bool {
        self.mute
    }

    pub(crate) fn janitor(&self) -> &Arc<Janitor> {
        &self.pool.janitor
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.clock.enter(phase, self.watched());
    }

    fn watched(&self) -> Duration {
        self.pool.pulse.watched()
    }

    /// More for the program's stdin, if that is still open.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if let Some(feed) = &mut self.pipes.stdin {
            feed.add(bytes);
        }
    }

    /// Nothing more follows on its stdin.
    pub(crate) fn close_input(&mut self) {
        if let Some(feed) = &mut self.pipes.stdin {
            feed.close();
        }
    }

    /// From now on these limits hold, as if it had been started now.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.clock = Clock::start(limits, self.watched());
    }

    /// Not one process is left.
    pub(crate) fn is_over(&self) -> bool {
        self.link.is_none()
    }

    /// Marks that the run is being ended, so that a shutdown leaves it its grace.
    pub(crate) fn leave(&self) {
        if let Some(link) = &self.link {
            link.set_leaving(true);
        }
    }

    /// The next step.
    ///
    /// A program that prints without pause would have us read for ever: what must not wait for that comes first.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        self.poll_keeper(cx);
        // What it has printed before its end is not dropped because its reader takes time.
        if self.exit.is_some()
            && !self.dirty
            && let Poll::Ready(bytes) = self.poll_stdout(cx, <[u8]>::to_vec)
        {
            return Poll::Ready(Step::Stdout(bytes));
        }
        if let Some(step) = self.overdue(self.watched()) {
            return Poll::Ready(step);
        }
        self.poll_input(cx);
        self.poll_stderr(cx);
        if let Poll::Ready(bytes) = self.poll_stdout(cx, <[u8]>::to_vec) {
            return Poll::Ready(Step::Stdout(bytes));
        }
        match self.exit {
            Some(exit) if self.pipes.stdout.is_none() && self.pipes.stderr.is_none() => Poll::Ready(Step::Exited(exit)),
            _ => self.poll_deadlines(cx),
        }
    }

    /// Drives the run until nothing is left of it.
    fn poll_over(&mut self, cx: &mut Context<'_>, hear: Hear<'_>) -> Poll<Exit> {
        self.poll_keeper(cx);
        if self.is_over() {
            return Poll::Ready(self.exit.unwrap_or(Exit::KILLED));
        }
        self.poll_input(cx);
        self.poll_stderr(cx);
        let _ = self.poll_rest(cx, hear);
        Poll::Pending
    }

    /// All of stdout that is there. Ready at its end.
    fn poll_rest(&mut self, cx: &mut Context<'_>, hear: Hear<'_>) -> Poll<()> {
        while self.poll_stdout(cx, &mut *hear).is_ready() {}
        if self.pipes.stdout.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The ladder: waits, asks, and has it killed. A shutdown cuts the waiting short.
    pub(crate) async fn end(&mut self, linger: Duration, hear: Hear<'_>) -> Exit {
        self.leave();
        self.close_input();
        let closing = self.janitor().closing().clone();
        let by_itself = timeout(linger, poll_fn(|cx| self.poll_over(cx, hear)));
        if let Some(Ok(exit)) = closing.run_until_cancelled(by_itself).await {
            return exit;
        }
        self.ask_to_stop();
        if let Ok(exit) = timeout(self.grace.saturating_add(PATIENCE), poll_fn(|cx| self.poll_over(cx, hear))).await {
            return exit;
        }
        tracing::warn!(keeper = self.keeper, pid = self.pid, "a keeper does not answer: killing it and its run");
        if let Some(link) = &self.link {
            link.kill();
        }
        poll_fn(|cx| self.poll_over(cx, hear)).await
    }

    /// What its pipe still holds of a run that is over.
    pub(crate) async fn rest(&mut self, hear: Hear<'_>) {
        // Only a process that got away could hold it open.
        let _ = timeout(DRAIN, poll_fn(|cx| self.poll_rest(cx, hear))).await;
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

    /// Ready with what was made of the bytes that came; pending also at the end of the stream, which is closed then.
    fn poll_stdout<T>(&mut self, cx: &mut Context<'_>, take: impl FnOnce(&[u8]) -> T) -> Poll<T> {
        match poll_read(&mut self.pipes.stdout, cx, take) {
            Poll::Ready(Some(taken)) => {
                self.clock.spoke(self.watched());
                Poll::Ready(taken)
            }
            Poll::Ready(None) => {
                if self.exit.is_none() && self.due.is_none() {
                    self.due = Some(self.watched() + MUTE);
                }
                Poll::Pending
            }
            Poll::Pending => {
                // No process is left that could write to the file.
                if self.is_over() && self.pipes.stdout.as_ref().is_some_and(|stdout| stdout.as_spool().is_some()) {
                    self.pipes.stdout = None;
                }
                Poll::Pending
            }
        }
    }

    /// Reads a little of stderr, and comes back for more: a flood there must not hold up the rest.
    fn poll_stderr(&mut self, cx: &mut Context<'_>) {
        for _ in 0..4 {
            let Poll::Ready(Some(())) = poll_read(&mut self.pipes.stderr, cx, |bytes| self.tail.push(bytes)) else {
                return;
            };
            self.clock.stirred(self.watched());
        }
        cx.waker().wake_by_ref();
    }

    fn poll_keeper(&mut self, cx: &mut Context<'_>) {
        while let Some(link) = &mut self.link {
            if self.lost {
                if link.poll_buried(cx).is_pending() {
                    return;
                }
                self.link = None;
                self.exited(Exit::KILLED);
                return;
            }
            match link.poll_report(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(Report::Exited(status))) => self.exited(Exit::from_raw(status)),
                Poll::Ready(Ok(Report::Clean)) => {
                    if let Some(spool) = self.pipes.stdout.as_ref().and_then(Stdout::as_spool) {
                        spool.let_go();
                    }
                    if let Some(link) = self.link.take() {
                        self.pool.put(link);
                    }
                }
                Poll::Ready(Ok(Report::Dirty)) => {
                    tracing::warn!(keeper = self.keeper, pid = self.pid, "processes of a run will not die");
                    self.dirty = true;
                    self.link = None;
                }
                Poll::Ready(Ok(Report::Started(_) | Report::Failed(..)) | Err(_)) => {
                    link.hang_up();
                    self.lost = true;
                }
            }
        }
    }

    fn exited(&mut self, exit: Exit) {
        if self.exit.is_none() {
            self.exit = Some(exit);
            self.due = Some(self.watched() + DRAIN);
            self.pipes.stdin = None;
        }
    }

    /// What is due now, even if there is more to read.
    fn overdue(&mut self, now: Duration) -> Option<Step> {
        match self.exit {
            Some(exit) if self.due.is_some_and(|due| due <= now) => {
                (self.pipes.stdout, self.pipes.stderr) = (None, None);
                Some(Step::Exited(exit))
            }
            None if self.clock.total_is_over(now) => Some(Step::Limit(self.clock.passed(Limit::Total))),
            _ => None,
        }
    }

    /// Sees to whatever has its time next. The timer is only moved when it has to be: not for every chunk.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            let limit = if self.exit.is_none() { self.clock.next() } else { None };
            let Some(next) = [self.due, limit.map(|(at, _)| at)].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            let at = Instant::now() + next.saturating_sub(self.watched()).min(FAR);
            if at < self.timer.deadline() {
                self.timer.as_mut().reset(at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = self.watched();
            if now < next {
                // It was moved since, or time has passed that nobody watched.
                self.timer.as_mut().reset(Instant::now() + (next - now).min(FAR));
            } else if let Some(step) = self.overdue(now) {
                return Poll::Ready(step);
            } else if let Some((_, kind)) = limit.filter(|(at, _)| *at <= now) {
                return Poll::Ready(Step::Limit(self.clock.passed(kind)));
            } else {
                // The program closed its stdout some time ago, and is still there.
                self.due = None;
                self.mute = true;
                self.ask_to_stop();
            }
        }
    }
}

/// Has what is there taken. `None` at the end, when the pipe is closed; pending also when it was closed before.
fn poll_read<T>(
    pipe: &mut Option<impl Source>,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<Option<T>> {
    let Some(source) = pipe else { return Poll::Pending };
    let mut buffer = BUFFER.take();
    buffer.resize(CHUNK, 0);
    let mut read = ReadBuf::new(&mut buffer);
    let polled = source.poll_source(cx, &mut read);
    let taken = match polled {
        Poll::Ready(Ok(())) if !read.filled().is_empty() => Poll::Ready(Some(take(read.filled()))),
        Poll::Ready(_) => {
            *pipe = None;
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    };
    BUFFER.set(buffer);
    taken
}
