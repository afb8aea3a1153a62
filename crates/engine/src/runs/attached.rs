//! A run, as whoever asked for it has it: he pulls it himself, or he reads what is written down of it.

use std::mem;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use trunkline_core::event::{Event, Resumption};
use trunkline_core::phase::{Phase, Phases};

use super::driver::RunDriver;
use super::entry::By;
use super::follow::Follow;
use super::live::{ActiveRun, Drain, End, Interest};
use crate::start_error::{StartError, cancelled};

/// A turn on its way. Dropping it stops whatever runs for it, unless that goes on without its client.
pub struct Run {
    id: String,
    way: Way,
}

enum Way {
    /// Nothing happens unless somebody asks for the next event.
    Pulled(Box<Pulled>),
    Attached(Box<Attached>),
}

struct Pulled {
    course: Arc<Pull>,
    by: By,
    /// The last event was handed out.
    over: bool,
}

impl Pulled {
    async fn next(&mut self) -> Option<Event> {
        let mut course = self.course.0.lock().await;
        let Some(course) = &mut *course else {
            return (!mem::replace(&mut self.over, true)).then(|| Event::Failed(cancelled()));
        };
        let event = course.next().await;
        self.over |= event.as_ref().is_some_and(Event::is_end);
        if *course.by() != self.by {
            self.by.clone_from(course.by());
        }
        event
    }
}

struct Attached {
    follow: Follow,
    by: By,
    phases: Phases,
    phase: (Phase, Instant),
    _interest: Option<Interest>,
}

/// The driver of a run that its client pulls. Empty once the run was taken from a client that did not read.
struct Pull(Mutex<Option<RunDriver>>);

impl Drain for Pull {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Some(mut driver) = self.0.lock().await.take() {
                while driver.next().await.is_some() {}
            }
        })
    }
}

impl Attached {
    fn new(follow: Follow, by: By, interest: Option<Interest>) -> Self {
        let phase = (Phase::default(), Instant::now());
        Self { follow, by, phases: Phases::default(), phase, _interest: interest }
    }

    async fn next(&mut self) -> Option<Event> {
        let entry = self.follow.next().await?;
        if let Some(by) = entry.by {
            self.by = by;
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
    pub(crate) fn pulled(course: RunDriver) -> Self {
        let (id, by, live) = (course.id().to_owned(), course.by().clone(), course.live());
        let course = Arc::new(Pull(Mutex::new(Some(course))));
        let pull: Weak<dyn Drain> = Arc::<Pull>::downgrade(&course);
        live.pulled_by(pull);
        Self { id, way: Way::Pulled(Box::new(Pulled { course, by, over: false })) }
    }

    /// Waits until a run that the engine drives has begun; whoever gives up before that is not interested any more.
    pub(super) async fn attached(state: &Path, live: Arc<ActiveRun>, interest: Interest) -> Result<Self, StartError> {
        let mut progress = live.progress();
        loop {
            let seen = progress.borrow_and_update().clone();
            if let Some(End::Refused(error)) = seen.end {
                return Err(error);
            }
            if let Some(by) = seen.by {
                let follow = Follow::live(state, &live, 0);
                let attached = Attached::new(follow, by, Some(interest));
                return Ok(Self { id: live.id.clone(), way: Way::Attached(attached.into()) });
            }
            let _it_is_held_by_us = progress.changed().await;
        }
    }

    /// One that is over, or that another process runs.
    pub(super) fn kept(run: &str, provider: String, follow: Follow) -> Self {
        let by = By { provider, ..By::default() };
        Self { id: run.to_owned(), way: Way::Attached(Attached::new(follow, by, None).into()) }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The provider of the present attempt.
    pub fn provider(&self) -> &str {
        &self.by().provider
    }

    /// How many attempts there were, with the present one.
    pub fn attempts(&self) -> usize {
        self.by().attempts
    }

    /// How the turn came to its session, if it has one.
    pub fn resumption(&self) -> Option<&Resumption> {
        self.by().session.as_ref()
    }

    /// What it is doing, and for how long by now.
    pub fn phase(&self) -> (Phase, Duration) {
        match &self.way {
            Way::Pulled(pulled) => {
                let course = pulled.course.0.try_lock();
                let phase = course.ok().and_then(|course| course.as_ref().map(RunDriver::phase));
                phase.unwrap_or((Phase::Ended, Duration::ZERO))
            }
            Way::Attached(attached) => (attached.phase.0.clone(), attached.phase.1.elapsed()),
        }
    }

    fn by(&self) -> &By {
        match &self.way {
            Way::Pulled(pulled) => &pulled.by,
            Way::Attached(attached) => &attached.by,
        }
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        match &mut self.way {
            Way::Pulled(pulled) => pulled.next().await,
            Way::Attached(attached) => attached.next().await,
        }
    }
}
