//! One run: its pipes, its keeper and its deadlines, served together, until nothing is left of it.
//!
//! There are no tasks and no channels here: whoever calls [`Running::next`] drives everything, and a caller that stops
//! calling slows the program down through its pipe. Ending a run needs time that its caller may not have; then the
//! janitor drives it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, Sleep, timeout};

use crate::clock::Clock;
use crate::link::Link;
use crate::message::Report;
use crate::pipes::{Feed, Tail};
use crate::pool::Pool;
use crate::spec::{Exit, LimitKind, Spec, StopSignal};

const CHUNK: usize = 64 * 1024;
/// How long output is awaited after the main process's end, if something keeps the pipes open.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a program may go on after closing its stdout: it can say nothing any more.
const MUTE: Duration = Duration::from_secs(5);
/// How long a keeper may take beyond the grace before it counts as stuck itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that was started. Dropping it stops the program in the background: signal, grace, kill.
#[derive(Debug)]
pub struct Running {
    run: Option<Run>,
}

/// What happens next in a run.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Some bytes of stdout, as they came.
    Stdout(Vec<u8>),
    /// The main process ended and its output is complete. Said again if asked again.
    Exited(Exit),
    /// The run took too long. Said once; it goes on until it is stopped.
    Limit(LimitKind),
}

impl Running {
    pub(crate) fn new(pool: Arc<Pool>, link: Link, pid: u32, pipes: Pipes, spec: &Spec) -> Self {
        let now = Instant::now();
        let run = Run {
            pool,
            keeper: link.pid(),
            link: Some(link),
            pid,
            pipes,
            tail: Tail::default(),
            buffer: vec![0; CHUNK].into_boxed_slice(),
            exit: None,
            due: None,
            lost: false,
            stop: spec.stop,
            grace: spec.grace,
            clock: Clock::start(spec.limits, now),
            timer: Box::pin(tokio::time::sleep_until(now + Duration::from_secs(3600))),
        };
        Self { run: Some(run) }
    }

    /// The next step. Cancel safe.
    pub async fn next(&mut self) -> Step {
        let run = self.run();
        poll_fn(|cx| run.poll_next(cx)).await
    }

    /// Tells that the program is waiting for a tool, which may be silent: the idle limit is suspended meanwhile.
    pub fn tool_running(&mut self, running: bool) {
        self.run().clock.tool_running(running, Instant::now());
    }

    /// The last 64 KiB of stderr, as far as it was read.
    pub fn stderr_tail(&self) -> String {
        self.run.as_ref().map(|run| run.tail.text()).unwrap_or_default()
    }

    /// The main process, which leads its own process group.
    pub fn pid(&self) -> u32 {
        self.run.as_ref().map_or(0, |run| run.pid)
    }

    /// Its keeper, for logs and tests.
    pub fn keeper(&self) -> u32 {
        self.run.as_ref().map_or(0, |run| run.keeper)
    }

    /// Stops the program: signal, grace, kill. Returns when every process of the run is dead.
    pub async fn stop(self) -> Exit {
        self.finish(Duration::ZERO).await
    }

    /// Lets the program end by itself within `linger`, and stops it after that; its output is thrown away. Returns when
    /// every process of the run is dead, so that nobody writes to its files any more.
    ///
    /// Dropping the future goes on with it in the background, as dropping the run does.
    pub async fn finish(mut self, linger: Duration) -> Exit {
        self.run().end(linger).await
    }

    /// As [`finish`](Self::finish), in the background.
    pub fn release(mut self, linger: Duration) {
        self.hand_over(linger);
    }

    fn run(&mut self) -> &mut Run {
        self.run.as_mut().expect("a run is handed over only by what consumes or drops this")
    }

    fn hand_over(&mut self, linger: Duration) {
        if let Some(mut run) = self.run.take()
            && let Some(link) = &run.link
        {
            link.set_leaving(true);
            let janitor = Arc::clone(&run.pool.janitor);
            janitor.spawn(async move { run.end(linger).await });
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hand_over(Duration::ZERO);
    }
}

/// Our ends of a run's pipes; `None` when done with.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<Feed>,
    pub(crate) stdout: Option<Receiver>,
    pub(crate) stderr: Option<Receiver>,
}

#[derive(Debug)]
struct Run {
    pool: Arc<Pool>,
    keeper: u32,
    /// Goes back to the pool as soon as nothing is left of the run.
    link: Option<Link>,
    /// The keeper is gone or talks nonsense; what is left is to see it buried.
    lost: bool,
    pid: u32,
    pipes: Pipes,
    tail: Tail,
    buffer: Box<[u8]>,
    exit: Option<Exit>,
    /// When draining, or the patience with a program that closed its stdout, is over.
    due: Option<Instant>,
    stop: StopSignal,
    grace: Duration,
    clock: Clock,
    timer: Pin<Box<Sleep>>,
}

impl Run {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        self.poll_input(cx);
        self.poll_stderr(cx);
        if let Poll::Ready(read) = self.poll_stdout(cx) {
            return Poll::Ready(Step::Stdout(self.buffer[..read].to_vec()));
        }
        self.poll_keeper(cx);
        if let Some(exit) = self.exit
            && self.pipes.stdout.is_none()
            && self.pipes.stderr.is_none()
        {
            return Poll::Ready(Step::Exited(exit));
        }
        self.poll_deadlines(cx)
    }

    /// Drives the run without anybody listening, until nothing is left of it.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Exit> {
        self.poll_input(cx);
        self.poll_stderr(cx);
        while self.poll_stdout(cx).is_ready() {}
        self.poll_keeper(cx);
        match self.link {
            None => Poll::Ready(self.exit.unwrap_or(Exit::KILLED)),
            Some(_) => Poll::Pending,
        }
    }

    /// The ladder: waits, asks, and has it killed.
    async fn end(&mut self, linger: Duration) -> Exit {
        if let Some(link) = &self.link {
            link.set_leaving(true);
        }
        if let Ok(exit) = timeout(linger, poll_fn(|cx| self.poll_over(cx))).await {
            return exit;
        }
        self.ask_to_stop();
        if let Ok(exit) = timeout(self.grace.saturating_add(PATIENCE), poll_fn(|cx| self.poll_over(cx))).await {
            return exit;
        }
        tracing::warn!(keeper = self.keeper, pid = self.pid, "a keeper does not answer: killing it and its run");
        if let Some(link) = &self.link {
            link.kill();
        }
        poll_fn(|cx| self.poll_over(cx)).await
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

    /// Ready with a number of bytes in the buffer; pending also at the end of the stream, which is closed then.
    fn poll_stdout(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        match poll_read(&mut self.pipes.stdout, &mut self.buffer, cx) {
            Poll::Ready(Some(read)) => {
                self.clock.spoke(Instant::now());
                Poll::Ready(read)
            }
            Poll::Ready(None) => {
                if self.exit.is_none() && self.due.is_none() {
                    self.due = Some(Instant::now() + MUTE);
                }
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_stderr(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(read)) = poll_read(&mut self.pipes.stderr, &mut self.buffer, cx) {
            self.tail.push(&self.buffer[..read]);
            self.clock.stirred(Instant::now());
        }
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
                    if let Some(link) = self.link.take() {
                        self.pool.put(link);
                    }
                }
                Poll::Ready(Ok(Report::Dirty)) => {
                    tracing::warn!(keeper = self.keeper, pid = self.pid, "processes of a run will not die");
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
            self.due = Some(Instant::now() + DRAIN);
            self.pipes.stdin = None;
        }
    }

    /// Sees to whatever has its time next. The timer is only moved when it has to be: not for every chunk.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            let limit = if self.exit.is_none() { self.clock.next() } else { None };
            let Some(next) = [self.due, limit.map(|(at, _)| at)].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            if next < self.timer.deadline() {
                self.timer.as_mut().reset(next);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if now < next {
                self.timer.as_mut().reset(next);
                continue;
            }
            if let Some((_, kind)) = limit.filter(|(at, _)| *at <= now) {
                self.clock.fired();
                return Poll::Ready(Step::Limit(kind));
            }
            self.due = None;
            match self.exit {
                Some(exit) => {
                    (self.pipes.stdout, self.pipes.stderr) = (None, None);
                    return Poll::Ready(Step::Exited(exit));
                }
                None => self.ask_to_stop(),
            }
        }
    }
}

/// Reads what is there. `None` at the end, when the pipe is closed; pending also when it was closed before.
fn poll_read(pipe: &mut Option<Receiver>, buffer: &mut [u8], cx: &mut Context<'_>) -> Poll<Option<usize>> {
    let Some(receiver) = pipe else { return Poll::Pending };
    let mut read = ReadBuf::new(buffer);
    match Pin::new(receiver).poll_read(cx, &mut read) {
        Poll::Ready(Ok(())) if !read.filled().is_empty() => Poll::Ready(Some(read.filled().len())),
        Poll::Ready(_) => {
            *pipe = None;
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    }
}
