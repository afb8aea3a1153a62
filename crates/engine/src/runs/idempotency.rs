//! A request that its client may repeat: under the same key the same request is one run, however often it is sent.

use std::pin::Pin;
use std::time::Duration;

use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::Turn;
use trunkline_store::{Claim, Claimed, Store, StoreError, Time};

use super::attached::Run;
use super::detached::Keyed;
use super::follow::Follow;
use crate::engine::Engine;
use crate::session::whose;
use crate::start_error::StartError;

/// How long a key means the same request.
const KEPT: Duration = Duration::from_hours(24);

/// A turn and what makes it the same as another.
pub struct Once {
    pub turn: Turn,
    pub key: String,
    /// Digest of what was asked.
    pub request: [u8; 32],
}

/// A run that may be somebody else's, too.
pub struct Joined<R> {
    pub run: String,
    /// Another request has begun it.
    pub replayed: bool,
    pub start: Pin<Box<dyn Future<Output = Result<R, StartError>> + Send>>,
}

#[derive(Debug, thiserror::Error)]
pub enum NotOnce {
    #[error("the key was used for another request")]
    OtherRequest,
    #[error("{0}")]
    Start(#[from] StartError),
}

impl Engine {
    /// The run of this request: a new one, the one that goes on, or the one that was.
    pub async fn once(&self, once: Once) -> Result<Joined<Run>, NotOnce> {
        let engine = self.clone();
        // Not in the client's own future: he may go away between the claim and the run.
        let claimed = self.shared.tasks.tracker.spawn(async move { engine.claim(once).await });
        claimed
            .await
            .unwrap_or_else(|error| Err(StartError::from(Failure::new(Category::Server, error.to_string())).into()))
    }

    async fn claim(&self, once: Once) -> Result<Joined<Run>, NotOnce> {
        let Once { mut turn, key, request } = once;
        let ready = self.ready(&turn)?;
        let one_at_a_time = self.shared.runs.claiming.lock().await;
        let run = turn.run.get_or_insert_with(super::name).clone();
        let (owner, key) = (whose(&turn.owner), *blake3::hash(key.as_bytes()).as_bytes());
        if let Some(store) = self.shared.store_writer.store() {
            let claim = Claim { owner: &owner, key: &key, request: &request, run: &run, since: Time::ago(KEPT) };
            loop {
                match store.claim(&claim).await {
                    Ok(Claimed::New) => break,
                    Ok(Claimed::Other) => return Err(NotOnce::OtherRequest),
                    Ok(Claimed::Known(run)) => {
                        if let Some(joined) = self.join(store, &run).await {
                            return Ok(joined);
                        }
                        // It never came to be.
                        store.unclaim(&run).await.map_err(|error| self.shared.store_writer.unwritable(error))?;
                    }
                    // Without the claim a repetition would run once more.
                    Err(error) => return Err(self.shared.store_writer.unwritable(error).into()),
                }
            }
        }
        let ready = match self.reserve(ready, &turn).await {
            Ok(ready) => ready.durably(),
            Err(error) => {
                self.unclaim(&run).await;
                return Err(error.into());
            }
        };
        let on_disconnect = ready.on_disconnect(&turn);
        let live = self.drive(ready, turn, on_disconnect, Keyed::Yes);
        let interest = live.interest();
        // From here on a repetition finds the run itself.
        drop(one_at_a_time);
        live.known().await?;
        let state = self.shared.settings.state.clone();
        let start = Box::pin(async move { Run::attached(&state, live, interest).await });
        Ok(Joined { run, replayed: false, start })
    }

    async fn join(&self, store: &Store, run: &str) -> Option<Joined<Run>> {
        let state = self.shared.settings.state.clone();
        let start: Pin<Box<dyn Future<Output = _> + Send>> = match self.shared.runs.registry.find(run) {
            Some(live) => {
                let interest = live.interest();
                Box::pin(async move { Run::attached(&state, live, interest).await })
            }
            None => {
                self.shared.store_writer.flush().await;
                let row = store.run(run, None).await.ok().flatten()?;
                let follow = Follow::kept(&state, store.clone(), run, 0);
                let kept = Run::kept(run, row.provider.unwrap_or_default(), follow);
                Box::pin(async move { Ok(kept) })
            }
        };
        Some(Joined { run: run.to_owned(), replayed: true, start })
    }

    /// The next to use the key of this run begins another.
    pub(super) async fn unclaim(&self, run: &str) {
        if let Some(store) = self.shared.store_writer.store() {
            let unclaimed: Result<(), StoreError> = store.unclaim(run).await;
            if let Err(error) = unclaimed {
                tracing::warn!(run, %error, "the key of a run that never was is kept");
            }
        }
    }
}
