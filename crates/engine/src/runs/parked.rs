//! Attempts whose run has ended with calls of the client's tools. The process waits for the results, which the client's next
//! request brings: the run of that request continues the attempt.
//!
//! ```text
//! run 1 ── calls ──▶ answer            request with results ──▶ run 2 ── … ──▶ answer
//!            │                                                   ▲
//!            └──▶ parked ── results ───────────────────────────────┘
//!                    └── no results in time, process gone, cancelled, shutdown ──▶ the process ends
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::{SessionId, ToolCall};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::Model;
use trunkline_core::turn::{ClientId, Turn};

use super::parked_calls::{ParkedRuns, Taker};
use crate::attempt::events::Attempt;
use crate::router::Pass;
use crate::session::SessionThread;
use crate::shared::Shared;

/// An attempt that waits for results.
pub(crate) struct ParkedAttempt {
    pub(crate) attempt: Attempt,
    pub(crate) pass: Pass,
    pub(crate) model: Arc<Model>,
    pub(crate) began: Instant,
    pub(crate) thread: Option<SessionThread>,
    /// The run that ended with the calls.
    pub(crate) run: String,
}

/// A parked attempt that was taken, and the results for it.
pub(crate) struct TakenAttempt {
    pub(crate) parked: ParkedAttempt,
    pub(crate) results: HashMap<String, String>,
}

impl TakenAttempt {
    /// Takes the attempt that waits for the results of this request, for the run `by`.
    pub(crate) async fn take(parked: &ParkedRuns, turn: &Turn, by: &str) -> Option<Self> {
        let (parked, results) = parked.take(turn, by).await?;
        Some(Self { parked: *parked.downcast().ok()?, results })
    }
}

impl ParkedAttempt {
    /// Session of the attempt.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.thread.as_ref().filter(|thread| thread.is_resumable()).map(|thread| thread.id().clone())
    }

    /// Keeps the attempt until its results come. Fails, and ends the process, if too many attempts wait already.
    pub(crate) fn park(mut self, shared: &Arc<Shared>, owner: &ClientId, calls: &[ToolCall]) -> Result<(), Failure> {
        let (ask, asked) = oneshot::channel();
        let limit = shared.settings.caps.parked;
        if let Err(failure) = shared.runs.parked.add(&self.run, owner, calls, ask, limit) {
            self.end(shared, &failure.message);
            return Err(failure);
        }
        self.attempt.park();
        let shared = Arc::clone(shared);
        let tracker = shared.tasks.tracker.clone();
        tracker.spawn(async move { self.wait(&shared, asked).await });
        Ok(())
    }

    /// Waits for the results, and hands the attempt to the run that brings them.
    async fn wait(mut self, shared: &Arc<Shared>, asked: oneshot::Receiver<Taker>) {
        let limit = self.wait_limit();
        let ended = tokio::select! {
            biased;
            asked = asked => match asked {
                Ok(taker) => {
                    let Err(unused) = taker.send(Box::new(self)) else { return };
                    let Ok(unused) = unused.downcast::<Self>() else { return };
                    self = *unused;
                    "the request with the results was cancelled".to_owned()
                }
                Err(_) => "the run was cancelled".to_owned(),
            },
            () = self.attempt.parked_process_ended() => "the process ended while it waited for results".to_owned(),
            () = tokio::time::sleep(limit) => format!("no results of the client's tools came within {limit:?}"),
            () = shared.tasks.stopping.cancelled() => "the gateway stopped".to_owned(),
        };
        shared.runs.parked.remove(&self.run);
        tracing::info!(run = self.run, "parked run ended: {ended}");
        let failure = Failure::new(Category::Timeout, ended.clone());
        shared.store_writer.end_parked(&self.run, &failure).await;
        self.end(shared, &ended);
    }

    /// Time for which the process may wait: no longer than its CLI does.
    fn wait_limit(&self) -> Duration {
        let recipe = self.model.backend.program().and_then(|provider| provider.live.as_ref()?.tools.as_ref());
        let of_cli = recipe.and_then(|recipe| recipe.max_wait_secs).map(Duration::from_secs);
        of_cli.map_or(self.model.park_timeout, |of_cli| of_cli.min(self.model.park_timeout))
    }

    /// Tells the CLI that no results will come, and ends it.
    pub(crate) fn end(mut self, shared: &Arc<Shared>, why: &str) {
        self.attempt.refuse_results(why);
        if let Some(thread) = self.thread.take() {
            shared.store_writer.leave_session(&self.run, thread.failed());
        }
    }
}
