//! A run as its client holds it: the client either pulls the driver, or reads the log of a run that the engine drives.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use trunkline_core::event::{Event, Resumption};
use trunkline_core::phase::{Phase, Phases};
use trunkline_store::CurrentAttempt;

use super::driver::RunDriver;
use super::follow::Follow;
use super::live::{ActiveRun, Drain, RunEnding};
use super::waiting_client::{PatienceDeadline, WaitingClient, take_over};
use crate::start_error::{StartError, cancelled};

/// A run in progress. Dropping it stops the run, unless the run continues without its client.
pub struct Run {
    id: String,
    access: RunAccess,
}

enum RunAccess {
    /// The run makes progress only while its client waits for the next event.
    Pulled(Box<PulledRun>),
    /// The engine drives the run, and the client reads its log.
    Attached(Box<AttachedRun>),
}

struct PulledRun {
    driver: Arc<PulledDriver>,
    live: Arc<ActiveRun>,
    current: CurrentAttempt,
    /// Whether the last event has been returned.
    over: bool,
    deadline: Option<PatienceDeadline>,
    tasks: TaskTracker,
}

impl Drop for PulledRun {
    /// The engine pulls the run of a client that gave up waiting, so that the client can join it when it asks again.
    fn drop(&mut self) {
        if !self.over && take_over(&self.live, self.deadline) {
            let driver = Arc::clone(&self.driver);
            self.tasks.spawn(async move { driver.drain().await });
        }
    }
}

impl PulledRun {
    async fn next(&mut self) -> Option<Event> {
        let mut driver = self.driver.0.lock().await;
        let Some(driver) = &mut *driver else {
            return (!mem::replace(&mut self.over, true)).then(|| Event::Failed(cancelled()));
        };
        let event = driver.next().await;
        self.over |= event.as_ref().is_some_and(Event::is_end);
        if *driver.current() != self.current {
            self.current.clone_from(driver.current());
        }
        event
    }
}

struct AttachedRun {
    follow: Follow,
    current: CurrentAttempt,
    phases: Phases,
    phase: (Phase, Instant),
    _client: Option<WaitingClient>,
}

/// Driver of a run that its client pulls. Empty once the engine has taken the run over from a client that does not
/// read.
struct PulledDriver(Mutex<Option<RunDriver>>);

impl Drain for PulledDriver {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Some(mut driver) = self.0.lock().await.take() {
                while driver.next().await.is_some() {}
            }
        })
    }
}

impl AttachedRun {
    fn new(follow: Follow, current: CurrentAttempt, client: Option<WaitingClient>) -> Self {
        let phase = (Phase::default(), Instant::now());
        Self { follow, current, phases: Phases::default(), phase, _client: client }
    }

    async fn next(&mut self) -> Option<Event> {
        let entry = self.follow.next().await?;
        if let Some(current) = entry.by {
            self.current = current;
        }
        self.phases.hear(&entry.event);
        let phase = self.phases.now();
        if phase != self.phase.0 {
            self.phase = (phase, Instant::now());
        }
        Some(entry.event)
    }
}

impl Run {
    /// A run that its client pulls. `tasks` are those of the engine.
    pub(crate) fn pulled(driver: RunDriver, deadline: Option<PatienceDeadline>, tasks: TaskTracker) -> Self {
        let (id, current, live) = (driver.id().to_owned(), driver.current().clone(), driver.live());
        let driver = Arc::new(PulledDriver(Mutex::new(Some(driver))));
        let pull: Weak<dyn Drain> = Arc::<PulledDriver>::downgrade(&driver);
        live.pulled_by(pull);
        let pulled = PulledRun { driver, live, current, over: false, deadline, tasks };
        Self { id, access: RunAccess::Pulled(Box::new(pulled)) }
    }

    /// Waits until a run that the engine drives has begun. Dropping the future drops `client`.
    pub(super) async fn attached(live: Arc<ActiveRun>, client: WaitingClient) -> Result<Self, StartError> {
        let mut progress = live.progress();
        loop {
            let seen = progress.borrow_and_update().clone();
            if let Some(RunEnding::Refused(error)) = seen.end {
                return Err(error);
            }
            if let Some(current) = seen.current {
                let follow = Follow::live(&live, 0);
                let attached = AttachedRun::new(follow, current, Some(client));
                return Ok(Self { id: live.id.clone(), access: RunAccess::Attached(attached.into()) });
            }
            // `live` holds the sender, so this never fails.
            let _ = progress.changed().await;
        }
    }

    /// A run that has ended or that another process drives.
    pub(super) fn kept(run: &str, provider: String, follow: Follow) -> Self {
        let current = CurrentAttempt { provider, ..CurrentAttempt::default() };
        Self { id: run.to_owned(), access: RunAccess::Attached(AttachedRun::new(follow, current, None).into()) }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Provider of the current attempt.
    pub fn provider(&self) -> &str {
        &self.current().provider
    }

    /// Number of attempts so far, including the current one.
    pub fn attempts(&self) -> usize {
        self.current().attempts
    }

    /// The session of the turn, and whether it was resumed. `None` if the turn has no session.
    pub fn resumption(&self) -> Option<&Resumption> {
        self.current().session.as_ref()
    }

    /// Returns the phase and the time since it began.
    pub fn phase(&self) -> (Phase, Duration) {
        match &self.access {
            RunAccess::Pulled(pulled) => {
                let driver = pulled.driver.0.try_lock();
                let phase = driver.ok().and_then(|driver| driver.as_ref().map(RunDriver::phase));
                phase.unwrap_or((Phase::Ended, Duration::ZERO))
            }
            RunAccess::Attached(attached) => (attached.phase.0.clone(), attached.phase.1.elapsed()),
        }
    }

    fn current(&self) -> &CurrentAttempt {
        match &self.access {
            RunAccess::Pulled(pulled) => &pulled.current,
            RunAccess::Attached(attached) => &attached.current,
        }
    }

    /// Returns the next event. The last one is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        match &mut self.access {
            RunAccess::Pulled(pulled) => pulled.next().await,
            RunAccess::Attached(attached) => attached.next().await,
        }
    }
}
