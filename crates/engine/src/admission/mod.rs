//! How many runs at once, how many may wait for one, and how many may be asked for in a minute: in all, of each model and of
//! each key. Who is whose turn is decided in [`desk`]; this waits for it.

mod caps;
mod queue;
mod rate;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::turn::Owner;

pub use caps::{Caps, KeyCaps};
pub use rate::Allowance;

use crate::start_error::StartError;
use queue::{Full, SlotQueue, Ticket};
use rate::Bucket;

/// How many models are kept count of before those whose count says nothing are let go.
const MANY: usize = 1024;

/// How long a run is taken to hold its slot until some have shown it.
const USUAL: Duration = Duration::from_secs(5);

/// No client is told to come back later than that.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

pub(crate) struct Admission {
    shared: Arc<Shared>,
}

struct Shared {
    caps: Caps,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    desk: SlotQueue,
    /// Those in line, to be told.
    grants: HashMap<Ticket, oneshot::Sender<Permit>>,
    /// How long a slot is held, on the average of late.
    held: Option<Duration>,
    all: Option<Bucket>,
    models: HashMap<String, Bucket>,
    owners: HashMap<Owner, Bucket>,
}

/// The right to run; given back when dropped.
pub(crate) struct Permit {
    shared: Arc<Shared>,
    owner: Owner,
    model: String,
    since: Instant,
    /// How long it was waited for, and how many were ahead then.
    pub(crate) waited: Option<(Duration, usize)>,
}

impl Admission {
    pub(crate) fn new(caps: Caps) -> Self {
        Self { shared: Arc::new(Shared { caps, state: Mutex::default() }) }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.state().desk.waiting()
    }

    /// How much an owner may still ask for in this minute; none where that is not limited.
    pub(crate) fn allowance(&self, owner: &Owner) -> Option<Allowance> {
        let per_minute = self.shared.caps.of_owner(owner).per_minute?;
        let now = Instant::now();
        let mut state = self.shared.state();
        let bucket = state.owners.entry(owner.clone()).or_insert_with(|| Bucket::new(per_minute, now));
        Some(bucket.allowance(now))
    }

    /// Counts a request, unless there were too many in the last minute.
    pub(crate) fn admit(&self, owner: &Owner, model: &str) -> Result<(), StartError> {
        let (caps, now) = (&self.shared.caps, Instant::now());
        let mut state = self.shared.state();
        let State { all, models, owners, .. } = &mut *state;
        if models.len() >= MANY {
            // A client may make names up, one for each request.
            models.retain(|_, bucket| !bucket.is_full(now));
        }
        let all = caps.per_minute.map(|rate| (all.get_or_insert_with(|| Bucket::new(rate, now)), rate));
        let bucket = |rate| Bucket::new(rate, now);
        let model = caps
            .model_per_minute
            .map(|rate| (models.entry(model.to_owned()).or_insert_with(|| bucket(rate)), rate, model));
        let own = caps.of_owner(owner).per_minute;
        let mut own = own.map(|rate| (owners.entry(owner.clone()).or_insert_with(|| bucket(rate)), rate));
        if let Some((bucket, rate)) = &mut own
            && let Some(wait) = bucket.wait(now)
        {
            let message = format!("this key may ask for {rate} requests a minute");
            return Err(StartError::Limited { message, retry_after: wait });
        }
        let mut taken = Vec::new();
        for (bucket, message) in [
            model.map(|(bucket, rate, name)| (bucket, format!("{name} takes {rate} requests a minute"))),
            all.map(|(bucket, rate)| (bucket, format!("the gateway takes {rate} requests a minute"))),
        ]
        .into_iter()
        .flatten()
        {
            if let Some(retry_after) = bucket.wait(now) {
                return Err(StartError::Busy { message, retry_after });
            }
            taken.push(bucket);
        }
        taken.into_iter().chain(own.map(|(bucket, _)| bucket)).for_each(|bucket| bucket.take(now));
        Ok(())
    }

    /// Takes a free slot, or a place in the queue for one: a run that has either may be promised.
    pub(crate) fn reserve(&self, owner: &Owner, model: &str) -> Result<Reserved, StartError> {
        let shared = &self.shared;
        if shared.state().desk.enter(&shared.caps, owner, model) {
            return Ok(Reserved::Slot(Permit::new(shared, owner, model)));
        }
        Waiting::join(shared, owner).map(Reserved::Place)
    }

    /// Exchanges a slot for a place in the queue, so that others can use it while its holder waits for something else.
    /// Keeps the slot if there is no place.
    pub(crate) fn place_for(&self, owner: &Owner, reserved: Option<Reserved>) -> Result<Reserved, StartError> {
        match reserved {
            Some(Reserved::Place(place)) => Ok(Reserved::Place(place)),
            Some(Reserved::Slot(permit)) => {
                Ok(Waiting::join(&self.shared, owner).map_or(Reserved::Slot(permit), Reserved::Place))
            }
            None => Waiting::join(&self.shared, owner).map(Reserved::Place),
        }
    }

    /// Waits for a slot, when it is the owner's turn. Dropping the future leaves the queue.
    pub(crate) async fn enter(
        &self,
        owner: &Owner,
        model: &str,
        reserved: Option<Reserved>,
    ) -> Result<Permit, StartError> {
        let shared = &self.shared;
        let place = match reserved {
            Some(Reserved::Slot(permit)) if permit.model == model => return Ok(permit),
            // Of another model, which is not tried after all.
            Some(slot @ Reserved::Slot(_)) => self.place_for(owner, Some(slot)).ok().filter(Reserved::is_place),
            Some(Reserved::Place(_)) | None => reserved,
        };
        if shared.state().desk.enter(&shared.caps, owner, model) {
            return Ok(Permit::new(shared, owner, model));
        }
        let _place = self.place_for(owner, place)?;
        let began = Instant::now();
        let wait = async {
            let mut line = Line::up(shared, owner, model);
            let granted = (&mut line.granted).await.expect("whoever waits is told, or leaves first");
            (granted, line.ahead)
        };
        let (mut permit, ahead) = self.in_queue(owner, wait, "no free slot").await?;
        permit.waited = Some((began.elapsed(), ahead));
        Ok(permit)
    }

    /// Waits for what a run needs, no longer than one may wait in the queue. The caller has a place in it.
    pub(crate) async fn in_queue<T>(
        &self,
        owner: &Owner,
        wait: impl Future<Output = T>,
        missing: &str,
    ) -> Result<T, StartError> {
        let limit = self.shared.caps.queue_timeout;
        tokio::time::timeout(limit, wait).await.map_err(|_elapsed| {
            let state = self.shared.state();
            let own = state.desk.running_of(owner) >= self.shared.caps.of_owner(owner).runs && !owner.is_local();
            let (message, retry_after) =
                (format!("{missing} within {} s", limit.as_secs()), state.estimate(&self.shared.caps, owner, own));
            if own { StartError::Limited { message, retry_after } } else { StartError::Busy { message, retry_after } }
        })
    }
}

impl Permit {
    fn new(shared: &Arc<Shared>, owner: &Owner, model: &str) -> Self {
        let (owner, model) = (owner.clone(), model.to_owned());
        Self { shared: Arc::clone(shared), owner, model, since: Instant::now(), waited: None }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let held = self.since.elapsed();
        state.held = Some(state.held.map_or(held, |usual| (usual * 4 + held) / 5));
        state.desk.release(&self.owner, &self.model);
        drop(state);
        self.shared.serve();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those whose turn it is. Not under the lock: who has gone away gives the slot back by not taking it.
    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some((ticket, owner, model)) = state.desk.serve(&self.caps) else { return };
            let grant = state.grants.remove(&ticket);
            drop(state);
            let permit = Permit::new(self, &owner, &model);
            if let Some(grant) = grant {
                let _gone_and_given_back = grant.send(permit);
            }
        }
    }
}

impl State {
    /// How long it will take until there is a place, if runs go on as of late.
    fn estimate(&self, caps: &Caps, owner: &Owner, own: bool) -> Duration {
        let (before, slots) = match own {
            true => (self.desk.waiting_of(owner), caps.of_owner(owner).runs),
            false => (self.desk.waiting(), caps.runs),
        };
        let rounds = u32::try_from(before / slots.max(1) + 1).unwrap_or(u32::MAX);
        let wait = self.held.unwrap_or(USUAL).saturating_mul(rounds);
        wait.clamp(Duration::from_secs(1), LONGEST_WAIT)
    }
}

/// What a run has before it begins.
pub(crate) enum Reserved {
    Slot(Permit),
    Place(Waiting),
}

impl Reserved {
    fn is_place(&self) -> bool {
        matches!(self, Self::Place(_))
    }
}

/// A place in the queue; given back when dropped.
pub(crate) struct Waiting {
    shared: Arc<Shared>,
    owner: Owner,
}

impl Waiting {
    fn join(shared: &Arc<Shared>, owner: &Owner) -> Result<Self, StartError> {
        let mut state = shared.state();
        let caps = &shared.caps;
        match state.desk.join(caps, owner) {
            Ok(()) => Ok(Self { shared: Arc::clone(shared), owner: owner.clone() }),
            Err(Full::Queue) => Err(StartError::Busy {
                message: format!("all {} slots are busy and {} requests wait already", caps.runs, caps.queue),
                retry_after: state.estimate(caps, owner, false),
            }),
            Err(Full::Own) => Err(StartError::Limited {
                message: format!("{} requests of this key wait already", caps.of_owner(owner).queue),
                retry_after: state.estimate(caps, owner, true),
            }),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.state().desk.leave(&self.owner);
    }
}

/// A place in line for a slot.
struct Line<'a> {
    shared: &'a Arc<Shared>,
    owner: &'a Owner,
    ticket: Ticket,
    granted: oneshot::Receiver<Permit>,
    /// How many were before it when it came.
    ahead: usize,
}

impl<'a> Line<'a> {
    fn up(shared: &'a Arc<Shared>, owner: &'a Owner, model: &str) -> Self {
        let (grant, granted) = oneshot::channel();
        let mut state = shared.state();
        let ticket = state.desk.line_up(owner, model);
        let ahead = state.desk.ahead(owner, ticket);
        state.grants.insert(ticket, grant);
        drop(state);
        // A slot may have come free since it was looked for.
        shared.serve();
        Self { shared, owner, ticket, granted, ahead }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.desk.give_up(self.owner, self.ticket);
        state.grants.remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests;
