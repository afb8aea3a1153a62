//! Runs that no client pulls: the engine does, and whoever wants the answer reads the log.

use std::sync::Arc;

use trunkline_core::event::Event;
use trunkline_core::failure::Category;
use trunkline_core::turn::{OnDisconnect, Turn};

use super::attached::Run;
use super::live::ActiveRun;
use super::start::AdmittedTurn;
use crate::engine::Engine;
use crate::start_error::StartError;

/// Whether others may ask for the same run by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyed {
    Yes,
    No,
}

impl Engine {
    /// Starts a run that goes on by itself until its end, or until nobody is interested who must be.
    pub(crate) fn drive(
        &self,
        ready: AdmittedTurn,
        turn: Turn,
        on_disconnect: OnDisconnect,
        keyed: Keyed,
    ) -> Arc<ActiveRun> {
        let run = turn.run.clone().unwrap_or_else(super::name);
        let presence = self.shared.runs.registry.begin(&run, &turn.owner, Some(on_disconnect));
        let live: Arc<ActiveRun> = Arc::clone(&presence);
        let engine = self.clone();
        self.shared.tasks.tracker.spawn(async move {
            match engine.begin(ready, turn, Arc::clone(&presence)).await {
                Ok(mut course) => {
                    let mut last = None;
                    while let Some(event) = course.next().await {
                        last = Some(event);
                    }
                    let cancelled = matches!(last, Some(Event::Failed(why)) if why.category == Category::Cancelled);
                    if keyed == Keyed::Yes && cancelled {
                        // Nobody has an answer: whoever asks again gets one.
                        engine.unclaim(&run).await;
                    }
                }
                Err(error) => {
                    if keyed == Keyed::Yes {
                        engine.unclaim(&run).await;
                    }
                    presence.refused(error);
                }
            }
        });
        live
    }

    /// One whose client may go away.
    pub(crate) async fn start_detached(&self, ready: AdmittedTurn, turn: Turn) -> Result<Run, StartError> {
        let live = self.drive(ready, turn, OnDisconnect::Detach, Keyed::No);
        let interest = live.interest();
        Run::attached(&self.shared.settings.state, live, interest).await
    }

    /// Starts a run that no client waits for. Returns its name once it can be found by that; an error means that nothing
    /// ran and nothing is left of it.
    pub async fn launch(&self, turn: Turn) -> Result<String, StartError> {
        let ready = self.reserve(self.ready(&turn)?, &turn).await?;
        let live = self.drive(ready.durably(), turn, OnDisconnect::Detach, Keyed::No);
        live.known().await?;
        Ok(live.id.clone())
    }

    /// Returns when no run is left that goes on without a client.
    pub async fn settled(&self) {
        self.shared.runs.registry.settled().await;
    }
}
