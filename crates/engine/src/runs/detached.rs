//! Runs that the engine drives instead of a client. Clients read their events from the log.

use std::sync::Arc;

use trunkline_core::event::Event;
use trunkline_core::failure::Category;
use trunkline_core::turn::{OnDisconnect, Turn};

use super::attached::Run;
use super::live::ActiveRun;
use super::start::AdmittedTurn;
use super::waiting_client::WaitingClient;
use crate::engine::Engine;
use crate::start_error::StartError;

impl Engine {
    /// Starts a run that the engine drives to its end. With [`OnDisconnect::Cancel`] it is stopped when its last client
    /// disconnects.
    pub(crate) fn drive(&self, admitted: AdmittedTurn, turn: Turn, on_disconnect: OnDisconnect) -> Arc<ActiveRun> {
        let keyed = admitted.has_key();
        let run = turn.run.clone().unwrap_or_else(super::new_id);
        let registration = self.shared.runs.registry.begin(&run, &turn.owner, Some(on_disconnect));
        let live: Arc<ActiveRun> = Arc::clone(&registration);
        let engine = self.clone();
        self.shared.tasks.tracker.spawn(async move {
            match engine.begin(admitted, turn, Arc::clone(&registration)).await {
                Ok(mut driver) => {
                    let mut last = None;
                    while let Some(event) = driver.next().await {
                        last = Some(event);
                    }
                    let cancelled =
                        matches!(last, Some(Event::Failed(failure)) if failure.category == Category::Cancelled);
                    if keyed && cancelled {
                        // There is no answer to replay, so a repeated request starts a new run.
                        engine.unclaim(&run).await;
                    }
                }
                Err(error) => {
                    if keyed {
                        engine.unclaim(&run).await;
                    }
                    registration.set_refused(error);
                }
            }
        });
        live
    }

    /// Starts a run that continues when its client disconnects, and attaches the client to it.
    pub(crate) async fn start_detached(&self, admitted: AdmittedTurn, turn: Turn) -> Result<Run, StartError> {
        let live = self.drive(admitted, turn, OnDisconnect::Detach);
        let client = WaitingClient::new(&live, None);
        Run::attached(live, client).await
    }

    /// Starts a run that no client waits for. Returns its id once queries can find it. On an error nothing has run, and
    /// no trace is left.
    pub async fn launch(&self, mut turn: Turn) -> Result<String, StartError> {
        let admitted = self.reserve(self.admit(&mut turn)?, &turn)?;
        let live = self.drive(admitted, turn, OnDisconnect::Detach);
        live.wait_until_recorded().await?;
        Ok(live.id.clone())
    }

    /// Waits until no run is left that the engine drives.
    pub async fn settled(&self) {
        self.shared.runs.registry.wait_for_driven().await;
    }
}
