//! Clients that wait for the answer of a run, and the fate of the run when the last one disconnects.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use trunkline_core::turn::{OnDisconnect, Patience};

use super::live::ActiveRun;

/// How much earlier than announced a client may give up: its clock starts before ours.
const EARLY_TOLERANCE: Duration = Duration::from_secs(1);

/// The time at which a client gives up waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PatienceDeadline {
    at: Instant,
    repeat_wait: Duration,
}

impl PatienceDeadline {
    /// The deadline of a request that arrives now.
    pub(crate) fn starting_now(patience: Patience) -> Self {
        let limit = patience.limit.saturating_sub(EARLY_TOLERANCE);
        Self { at: Instant::now() + limit, repeat_wait: patience.repeat_wait }
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.at
    }
}

/// A client that waits for the answer of a run. When the last one is dropped, a run that must not outlive its clients
/// is stopped: at once if the client cancelled, or after a while if its patience was over and it does not ask again.
pub(super) struct WaitingClient {
    run: Arc<ActiveRun>,
    deadline: Option<PatienceDeadline>,
}

impl WaitingClient {
    /// Registers a client.
    pub(super) fn new(run: &Arc<ActiveRun>, deadline: Option<PatienceDeadline>) -> Self {
        run.client_came();
        Self { run: Arc::clone(run), deadline }
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        if self.run.client_left() && self.run.on_disconnect() == Some(OnDisconnect::Cancel) {
            match self.deadline.filter(|deadline| deadline.is_over()) {
                Some(deadline) => stop_later(Arc::clone(&self.run), deadline),
                None => self.run.stop(),
            }
        }
    }
}

/// Makes a run independent of the client that pulled it, if that client gave up waiting or others have joined the run.
/// Returns whether the engine has to pull the run now.
pub(super) fn take_over(run: &Arc<ActiveRun>, deadline: Option<PatienceDeadline>) -> bool {
    let deadline = deadline.filter(|deadline| deadline.is_over());
    if deadline.is_none() && run.has_no_clients() {
        return false;
    }
    run.stop_without_clients();
    match deadline {
        Some(deadline) => stop_later(Arc::clone(run), deadline),
        // The other clients may have left just before.
        None if run.has_no_clients() => run.stop(),
        None => {}
    }
    true
}

/// Stops a run unless a client joins it in time. A client that joins and leaves again has a time of its own.
fn stop_later(run: Arc<ActiveRun>, deadline: PatienceDeadline) {
    let Ok(runtime) = Handle::try_current() else { return run.stop() };
    let seen = run.clients_seen();
    runtime.spawn(async move {
        tokio::select! {
            () = run.ended() => {}
            () = sleep(deadline.repeat_wait) => {
                if run.has_no_clients() && run.clients_seen() == seen {
                    run.stop();
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use trunkline_core::turn::ClientId;

    use super::*;
    use crate::runs::live::RunRegistry;

    #[tokio::test(start_paused = true)]
    async fn each_client_that_gave_up_waiting_has_a_time_of_its_own_to_ask_again() {
        let registry = Arc::new(RunRegistry::default());
        let run = registry.begin("r", &ClientId::default(), Some(OnDisconnect::Cancel));
        let wait = Duration::from_secs(30);
        let client = || {
            let patience = Patience { limit: Duration::ZERO, repeat_wait: wait };
            WaitingClient::new(&run, Some(PatienceDeadline::starting_now(patience)))
        };
        let is_stopped = || run.stopped().now_or_never().is_some();
        drop(client());
        tokio::time::sleep(wait - Duration::from_secs(5)).await;
        drop(client());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!is_stopped(), "the time of the first client is over, that of the second is not");
        tokio::time::sleep(wait).await;
        assert!(is_stopped());
    }
}
