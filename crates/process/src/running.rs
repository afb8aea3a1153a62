//! A run in its caller's hands. What it is made of and how it moves is [`Run`]'s; here is who moves it: the caller, and
//! once the caller has lost interest, the janitor.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use trunkline_core::limits::{Limits, Overrun};
use trunkline_core::phase::Phase;

use crate::family;
use crate::link::Link;
use crate::pipes::Pipes;
use crate::pool::Pool;
use crate::run::Run;
use crate::spec::{Exit, Spec};

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
    Limit(Overrun),
}

impl Running {
    pub(crate) fn new(pool: Arc<Pool>, link: Link, pid: u32, pipes: Pipes, spec: &Spec) -> Self {
        Self { run: Some(Run::new(pool, link, pid, pipes, spec)) }
    }

    /// The next step. Cancel safe.
    ///
    /// Everything about the run happens in here, its limits included: a caller that does not call does not notice.
    pub async fn next(&mut self) -> Step {
        let run = self.run();
        poll_fn(|cx| run.poll_next(cx)).await
    }

    /// Writes to a program that was started with [`Keepers::spawn_open`](crate::Keepers::spawn_open): as much as its pipe
    /// takes goes out with the next call of [`next`](Self::next), the rest as it reads. To one that has closed its stdin
    /// nothing is written.
    pub fn write(&mut self, bytes: &[u8]) {
        self.run().write(bytes);
    }

    /// Limits the run anew, as if it had been started now: a program that waits for turns is limited in each of them.
    pub fn limit(&mut self, limits: Limits) {
        self.run().limit(limits);
    }

    /// Tells what the program is doing, as far as what it prints says so: how long it may be silent depends on it.
    pub fn enter(&mut self, phase: Phase) {
        self.run().enter(phase);
    }

    /// The last 64 KiB of stderr, as far as it was read.
    pub fn stderr_tail(&self) -> String {
        self.run.as_ref().map(|run| run.stderr_tail()).unwrap_or_default()
    }

    /// Whether it was stopped only because it had closed its stdout and stayed: how it then ended says nothing.
    pub fn was_mute(&self) -> bool {
        self.run.as_ref().is_some_and(Run::was_mute)
    }

    /// The main process, which leads its own process group.
    pub fn pid(&self) -> u32 {
        self.run.as_ref().map_or(0, Run::pid)
    }

    /// How much memory all its processes hold, in bytes, as `/proc` tells it.
    pub fn resident(&self) -> u64 {
        i32::try_from(self.keeper()).ok().and_then(Pid::from_raw).map_or(0, family::resident)
    }

    /// Its keeper, for logs and tests.
    pub fn keeper(&self) -> u32 {
        self.run.as_ref().map_or(0, Run::keeper)
    }

    /// Stops the program: signal, grace, kill. Returns when every process of the run is dead.
    pub async fn stop(self) -> Exit {
        self.finish(Duration::ZERO).await
    }

    /// As [`stop`](Self::stop), and hears all it prints to its end: what is in its pipe, and what it says on its way out.
    pub async fn stop_hearing(mut self, mut hear: impl FnMut(&[u8]) + Send) -> Exit {
        let exit = self.run().end(Duration::ZERO, &mut hear).await;
        self.run().rest(&mut hear).await;
        exit
    }

    /// As [`stop`](Self::stop), for one that is kept to be asked how it was. Cancel safe: whoever asks again goes on with it.
    pub async fn end(&mut self) -> Exit {
        self.run().end(Duration::ZERO, &mut |_| ()).await
    }

    /// Lets the program end by itself within `linger`, and stops it after that; its output is thrown away. Returns when
    /// every process of the run is dead, so that nobody writes to its files any more.
    ///
    /// Dropping the future goes on with it in the background, as dropping the run does.
    pub async fn finish(mut self, linger: Duration) -> Exit {
        self.run().end(linger, &mut |_| ()).await
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
            && !run.is_over()
        {
            run.leave();
            let janitor = Arc::clone(run.janitor());
            janitor.spawn(async move { run.end(linger, &mut |_| ()).await });
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hand_over(Duration::ZERO);
    }
}
