//! Admission control: limits of concurrent runs, of waiting requests and of requests per minute, in total, for each model and for
//! each key. [`queue`] selects the next request; this module waits for its slot.

mod caps;
mod queue;
mod rate;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::turn::ClientId;

pub use caps::{Caps, KeyCaps};
pub use rate::Allowance;

use crate::start_error::StartError;
use queue::{Full, SlotQueue, Ticket};
use rate::Bucket;

/// Models whose request rate is tracked before entries with a full bucket are dropped.
const MAX_TRACKED_MODELS: usize = 1024;

/// Assumed duration of a run until runs have ended.
const DEFAULT_RUN_DURATION: Duration = Duration::from_secs(5);

/// Upper bound of `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

pub(crate) struct Admission {
    shared: Arc<AdmissionShared>,
}

struct AdmissionShared {
    caps: Caps,
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    queue: SlotQueue,
    /// Waiting requests, and how to notify them.
    grants: HashMap<Ticket, oneshot::Sender<Permit>>,
    /// Moving average of the time that a slot is held.
    held: Option<Duration>,
    all: Option<Bucket>,
    models: HashMap<String, Bucket>,
    owners: HashMap<ClientId, Bucket>,
}

/// A slot. Released when dropped.
pub(crate) struct Permit {
    shared: Arc<AdmissionShared>,
    owner: ClientId,
    model: String,
    since: Instant,
    /// Time spent waiting for the slot, and the number of requests that were ahead.
    pub(crate) waited: Option<(Duration, usize)>,
}

impl Admission {
    pub(crate) fn new(caps: Caps) -> Self {
        Self { shared: Arc::new(AdmissionShared { caps, state: Mutex::default() }) }
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.state().queue.waiting()
    }

    /// Requests that a client may still make in this minute; `None` if that is not limited.
    pub(crate) fn allowance(&self, owner: &ClientId) -> Option<Allowance> {
        let per_minute = self.shared.caps.of_owner(owner).per_minute?;
        let now = Instant::now();
        let mut state = self.shared.state();
        let bucket = state.owners.entry(owner.clone()).or_insert_with(|| Bucket::new(per_minute, now));
        Some(bucket.allowance(now))
    }

    /// Counts a request against the rate limits, and refuses it if one is exceeded.
    pub(crate) fn admit(&self, owner: &ClientId, model: &str) -> Result<(), StartError> {
        let (caps, now) = (&self.shared.caps, Instant::now());
        let mut state = self.shared.state();
        let AdmissionState { all, models, owners, .. } = &mut *state;
        if models.len() >= MAX_TRACKED_MODELS {
            // A client may invent a model name for each request, so the number of entries is bounded.
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

    /// Takes a free slot or a place in the queue. With either, the client can be told that the run will happen.
    pub(crate) fn reserve(&self, owner: &ClientId, model: &str) -> Result<Reserved, StartError> {
        let shared = &self.shared;
        if shared.state().queue.enter(&shared.caps, owner, model) {
            return Ok(Reserved::Slot(Permit::new(shared, owner, model)));
        }
        QueuePlace::join(shared, owner).map(Reserved::Place)
    }

    /// Exchanges a slot for a place in the queue, so that others can use the slot while its holder waits for something else. Keeps
    /// the slot if the queue is full.
    pub(crate) fn place_for(&self, owner: &ClientId, reserved: Option<Reserved>) -> Result<Reserved, StartError> {
        match reserved {
            Some(Reserved::Place(place)) => Ok(Reserved::Place(place)),
            Some(Reserved::Slot(permit)) => {
                Ok(QueuePlace::join(&self.shared, owner).map_or(Reserved::Slot(permit), Reserved::Place))
            }
            None => QueuePlace::join(&self.shared, owner).map(Reserved::Place),
        }
    }

    /// Waits for a slot. Dropping the future leaves the queue.
    pub(crate) async fn enter(
        &self,
        owner: &ClientId,
        model: &str,
        reserved: Option<Reserved>,
    ) -> Result<Permit, StartError> {
        let shared = &self.shared;
        let place = match reserved {
            Some(Reserved::Slot(permit)) if permit.model == model => return Ok(permit),
            // The slot is for another model, which is not tried after all.
            Some(slot @ Reserved::Slot(_)) => self.place_for(owner, Some(slot)).ok().filter(Reserved::is_place),
            Some(Reserved::Place(_)) | None => reserved,
        };
        if shared.state().queue.enter(&shared.caps, owner, model) {
            return Ok(Permit::new(shared, owner, model));
        }
        let _place = self.place_for(owner, place)?;
        let began = Instant::now();
        let wait = async {
            let mut line = WaitingRequest::up(shared, owner, model);
            let granted = (&mut line.granted).await.expect("a waiting request is notified unless it leaves first");
            (granted, line.ahead)
        };
        let (mut permit, ahead) = self.in_queue(owner, wait, "no free slot").await?;
        permit.waited = Some((began.elapsed(), ahead));
        Ok(permit)
    }

    /// Waits for `ready`, at most as long as a request may wait in the queue. The caller holds a place in the queue.
    pub(crate) async fn in_queue<T>(
        &self,
        owner: &ClientId,
        wait: impl Future<Output = T>,
        missing: &str,
    ) -> Result<T, StartError> {
        let limit = self.shared.caps.queue_timeout;
        tokio::time::timeout(limit, wait).await.map_err(|_elapsed| {
            let state = self.shared.state();
            let own = state.queue.running_of(owner) >= self.shared.caps.of_owner(owner).runs && !owner.is_local();
            let (message, retry_after) =
                (format!("{missing} within {} s", limit.as_secs()), state.estimate(&self.shared.caps, owner, own));
            if own { StartError::Limited { message, retry_after } } else { StartError::Busy { message, retry_after } }
        })
    }
}

impl Permit {
    fn new(shared: &Arc<AdmissionShared>, owner: &ClientId, model: &str) -> Self {
        let (owner, model) = (owner.clone(), model.to_owned());
        Self { shared: Arc::clone(shared), owner, model, since: Instant::now(), waited: None }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let held = self.since.elapsed();
        state.held = Some(state.held.map_or(held, |usual| (usual * 4 + held) / 5));
        state.queue.release(&self.owner, &self.model);
        drop(state);
        self.shared.serve();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("model", &self.model).finish_non_exhaustive()
    }
}

impl AdmissionShared {
    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants free slots to waiting requests. Sends outside the lock: a request that has left drops the permit, which locks again.
    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some((ticket, owner, model)) = state.queue.serve(&self.caps) else { return };
            let grant = state.grants.remove(&ticket);
            drop(state);
            let permit = Permit::new(self, &owner, &model);
            if let Some(grant) = grant {
                // If the receiver is gone, the permit is dropped and the slot is released.
                let _ = grant.send(permit);
            }
        }
    }
}

impl AdmissionState {
    /// Estimated time until a place is free, from the average duration of recent runs.
    fn estimate(&self, caps: &Caps, owner: &ClientId, own: bool) -> Duration {
        let (before, slots) = match own {
            true => (self.queue.waiting_of(owner), caps.of_owner(owner).runs),
            false => (self.queue.waiting(), caps.runs),
        };
        let rounds = u32::try_from(before / slots.max(1) + 1).unwrap_or(u32::MAX);
        let wait = self.held.unwrap_or(DEFAULT_RUN_DURATION).saturating_mul(rounds);
        wait.clamp(Duration::from_secs(1), MAX_RETRY_AFTER)
    }
}

/// A slot, or a place in the queue.
pub(crate) enum Reserved {
    Slot(Permit),
    Place(QueuePlace),
}

impl Reserved {
    fn is_place(&self) -> bool {
        matches!(self, Self::Place(_))
    }
}

/// A place in the queue. Released when dropped.
pub(crate) struct QueuePlace {
    shared: Arc<AdmissionShared>,
    owner: ClientId,
}

impl QueuePlace {
    fn join(shared: &Arc<AdmissionShared>, owner: &ClientId) -> Result<Self, StartError> {
        let mut state = shared.state();
        let caps = &shared.caps;
        match state.queue.join(caps, owner) {
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

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.shared.state().queue.leave(&self.owner);
    }
}

/// A request that waits for a slot.
struct WaitingRequest<'a> {
    shared: &'a Arc<AdmissionShared>,
    owner: &'a ClientId,
    ticket: Ticket,
    granted: oneshot::Receiver<Permit>,
    /// Requests that were ahead when this one joined.
    ahead: usize,
}

impl<'a> WaitingRequest<'a> {
    fn up(shared: &'a Arc<AdmissionShared>, owner: &'a ClientId, model: &str) -> Self {
        let (grant, granted) = oneshot::channel();
        let mut state = shared.state();
        let ticket = state.queue.queue_up(owner, model);
        let ahead = state.queue.ahead(owner, ticket);
        state.grants.insert(ticket, grant);
        drop(state);
        // A slot may have become free since the last check.
        shared.serve();
        Self { shared, owner, ticket, granted, ahead }
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.queue.cancel(self.owner, self.ticket);
        state.grants.remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests;
