//! Marks runs whose gateway died as interrupted, in the database and in the log, and records the work they left behind.

use trunkline_core::event::Receipt;
use trunkline_store::RunEnded;

use super::follow::interrupted;
use super::{alive, of_attempt};
use crate::shared::Shared;

/// Saves and removes the worktrees of dead gateways, and records where their sessions continue. Returns the receipts by
/// attempt id.
pub(crate) async fn sweep_worktrees(shared: &Shared) -> Vec<(String, Receipt)> {
    let mut receipts = Vec::new();
    for swept in shared.worktrees.sweep().await {
        if let Some((session, place)) = &swept.place {
            shared.sessions.places.remember(session, place);
        }
        // Also for a run that has ended: its work may have been saved only now.
        shared.store_writer.note_workspace(of_attempt(&swept.run), &swept.receipt);
        receipts.push((swept.run, swept.receipt));
    }
    receipts
}

/// Ends the open runs of dead gateways. `receipts` are those of their worktrees, by attempt id. Returns whether every
/// such run could be ended.
pub(crate) async fn end_interrupted(shared: &Shared, receipts: &[(String, Receipt)]) -> bool {
    let Some(store) = shared.store_writer.store() else { return false };
    let open = match store.open_runs().await {
        Ok(open) => open,
        Err(error) => {
            tracing::warn!(%error, "cannot read the open runs of dead gateways");
            return false;
        }
    };
    let mut all_ended = true;
    let dead = |mark: &str| alive::is_dead(&shared.settings.state, mark);
    for run in open.into_iter().filter(|run| run.gateway.as_deref().is_some_and(dead)) {
        // The receipt of the last attempt.
        let receipt =
            receipts.iter().filter(|(attempt, _)| attempt.starts_with(&run.id)).max_by_key(|(attempt, _)| attempt);
        let ended = RunEnded::interrupted(&interrupted(), run.begun);
        match store.interrupt_run(&run.id, &ended, receipt.map(|(_, receipt)| receipt)).await {
            Ok(true) => {
                shared.store_writer.note_interrupted(&run.id, ended);
                tracing::info!(run = run.id, "marked as interrupted: its gateway has died");
            }
            // Another process has already marked the run.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(run = run.id, %error, "cannot mark a run as interrupted");
                all_ended = false;
            }
        }
    }
    all_ended
}
