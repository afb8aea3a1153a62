//! Idempotency keys: a request that is repeated under the same key is one run, however often it is sent.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::{ClientId, Patience, Turn};
use trunkline_store::{ClaimResult, IdempotencyClaim, KeyClaim, RunState, Store, StoreError, Time};

use super::alive;
use super::attached::Run;
use super::follow::Follow;
use super::waiting_client::{PatienceDeadline, WaitingClient};
use crate::engine::Engine;
use crate::session::store_client_id;
use crate::start_error::StartError;

/// Lifetime of an idempotency key.
const KEY_LIFETIME: Duration = Duration::from_hours(24);

/// Time in which a process that has claimed a key records the run.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

const RECORD_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A turn with its idempotency key.
pub struct IdempotentTurn {
    pub turn: Turn,
    pub key: String,
    /// Digest of the request.
    pub request: [u8; 32],
}

/// A run that several requests with the same key share.
pub struct JoinedRun<R> {
    pub run: String,
    /// Whether an earlier request started the run.
    pub replayed: bool,
    pub start: Pin<Box<dyn Future<Output = Result<R, StartError>> + Send>>,
}

/// Reason why a request with an idempotency key was refused.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    #[error("the idempotency key was used for another request")]
    OtherRequest,
    #[error("{0}")]
    Start(#[from] StartError),
}

impl Engine {
    /// Returns the run of this request: a new one, an active one, or one that has ended.
    pub async fn once(&self, once: IdempotentTurn) -> Result<JoinedRun<Run>, IdempotencyError> {
        let engine = self.clone();
        // Spawned, because the client may disconnect between the claim of the key and the start of the run.
        let claimed = self.shared.tasks.tracker.spawn(async move { engine.claim(once).await });
        claimed
            .await
            .unwrap_or_else(|error| Err(StartError::from(Failure::new(Category::Server, error.to_string())).into()))
    }

    async fn claim(&self, once: IdempotentTurn) -> Result<JoinedRun<Run>, IdempotencyError> {
        let IdempotentTurn { mut turn, key, request } = once;
        let deadline = turn.patience.map(PatienceDeadline::starting_now);
        let admitted = self.admit(&mut turn)?;
        let claiming = self.shared.runs.claiming.lock().await;
        let run = turn.run.get_or_insert_with(super::new_id).clone();
        let (owner, key) = (store_client_id(&turn.owner), *blake3::hash(key.as_bytes()).as_bytes());
        if let Some(store) = self.shared.store_writer.store() {
            let claim = IdempotencyClaim {
                owner: &owner,
                key: &key,
                request: &request,
                run: &run,
                gateway: &self.shared.identity.mark,
                since: Time::ago(KEY_LIFETIME),
            };
            loop {
                match store.claim(&claim).await {
                    Ok(ClaimResult::New) => break,
                    Ok(ClaimResult::Other) => return Err(IdempotencyError::OtherRequest),
                    Ok(ClaimResult::Known { run, gateway }) => {
                        if let Some(joined) = self.join_claimed(store, &run, gateway.as_deref(), deadline).await {
                            return Ok(joined);
                        }
                        // The process that claimed the key has not recorded the run, and never will.
                        store.unclaim(&run).await.map_err(|error| self.shared.store_writer.unwritable(error))?;
                    }
                    // Without the claim, a repeated request would run again.
                    Err(error) => return Err(self.shared.store_writer.unwritable(error).into()),
                }
            }
        }
        let admitted = match self.reserve(admitted, &turn) {
            Ok(admitted) => admitted.with_key(KeyClaim { key, request }),
            Err(error) => {
                self.unclaim(&run).await;
                return Err(error.into());
            }
        };
        let on_disconnect = admitted.on_disconnect(&turn);
        let live = self.drive(admitted, turn, on_disconnect);
        let client = WaitingClient::new(&live, deadline);
        // From here on, a repeated request finds the run in the registry.
        drop(claiming);
        live.wait_until_recorded().await?;
        let start = Box::pin(async move { Run::attached(live, client).await });
        Ok(JoinedRun { run, replayed: false, start })
    }

    /// Finds the run of a key. Another process may have claimed the key just now, and be about to record the run.
    async fn join_claimed(
        &self,
        store: &Store,
        run: &str,
        gateway: Option<&str>,
        deadline: Option<PatienceDeadline>,
    ) -> Option<JoinedRun<Run>> {
        let (state, own) = (&self.shared.settings.state, &self.shared.identity.mark);
        let may_record = |mark: &str| mark != own && !alive::is_dead(state, mark);
        let record_deadline = Instant::now() + RECORD_TIMEOUT;
        loop {
            // Before the log is read: if the process is dead by then, the log is complete.
            let wait = gateway.is_some_and(may_record) && Instant::now() < record_deadline;
            if let Some(joined) = self.join(Some(store), run, deadline).await {
                return Some(joined);
            }
            // The run may be in the log, but not in the index yet. A failure is logged.
            let _ = self.shared.store_writer.catch_up().await;
            if let Some(joined) = self.join(Some(store), run, deadline).await {
                return Some(joined);
            }
            if !wait {
                return None;
            }
            tokio::time::sleep(RECORD_POLL_INTERVAL).await;
        }
    }

    /// Joins a run of the same client that an earlier request has started. None if there is no such run, or if it was
    /// cancelled: then there is no answer to wait for.
    pub async fn join_repeated(
        &self,
        owner: &ClientId,
        run: &str,
        patience: Option<Patience>,
    ) -> Option<JoinedRun<Run>> {
        let store = self.shared.store_writer.store();
        let may_join = match (self.shared.runs.registry.find(run), store) {
            (Some(live), _) => live.owner == *owner && !live.is_stopping(),
            (None, Some(store)) => {
                let row = store.run(run, Some(&store_client_id(owner))).await.ok().flatten();
                row.is_some_and(|row| row.state != RunState::Cancelled)
            }
            (None, None) => false,
        };
        if may_join { self.join(store, run, patience.map(PatienceDeadline::starting_now)).await } else { None }
    }

    async fn join(
        &self,
        store: Option<&Store>,
        run: &str,
        deadline: Option<PatienceDeadline>,
    ) -> Option<JoinedRun<Run>> {
        let start: Pin<Box<dyn Future<Output = _> + Send>> = match self.shared.runs.registry.find(run) {
            Some(live) => {
                let client = WaitingClient::new(&live, deadline);
                Box::pin(async move { Run::attached(live, client).await })
            }
            None => {
                let store = store?;
                let row = store.run(run, None).await.ok().flatten()?;
                let follow = Follow::kept(&self.shared.settings.state, store.clone(), &row, 0);
                let kept = Run::kept(run, row.provider.unwrap_or_default(), follow);
                Box::pin(async move { Ok(kept) })
            }
        };
        Some(JoinedRun { run: run.to_owned(), replayed: true, start })
    }

    /// Releases the key of a run: the next request with that key starts a new run.
    pub(super) async fn unclaim(&self, run: &str) {
        if let Some(store) = self.shared.store_writer.store() {
            let unclaimed: Result<(), StoreError> = store.unclaim(run).await;
            if let Err(error) = unclaimed {
                tracing::warn!(run, %error, "the idempotency key of a run that did not start could not be released");
            }
        }
    }
}
