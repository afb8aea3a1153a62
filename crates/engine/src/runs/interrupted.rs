//! Runs whose gateway ended before they did: said so in their rows and logs, with what they left behind.

use trunkline_core::event::{Event, Receipt};

use super::alive;
use super::follow::interrupted;
use super::log::add_last;
use super::{entry, of_attempt};
use crate::shared::Shared;

/// Puts the worktrees of dead gateways in order: a conversation goes on with what was done in its own. What they held,
/// by attempt.
pub(crate) async fn sweep_worktrees(shared: &Shared) -> Vec<(String, Receipt)> {
    let mut left = Vec::new();
    for swept in shared.worktrees.sweep().await {
        if let Some((session, place)) = &swept.place {
            shared.sessions.places.remember(session, place);
        }
        // Also of a run that is over: its work may have been saved only now.
        shared.store_writer.note_workspace(of_attempt(&swept.run), &swept.receipt).await;
        left.push((swept.run, swept.receipt));
    }
    left
}

/// `left` is what was found in the worktrees of dead gateways, by attempt. Says whether none of theirs is left open.
pub(crate) async fn end_interrupted(shared: &Shared, left: &[(String, Receipt)]) -> bool {
    let Some(store) = shared.store_writer.store() else { return false };
    let open = match store.open_runs().await {
        Ok(open) => open,
        Err(error) => {
            tracing::warn!(%error, "runs of dead gateways are not known");
            return false;
        }
    };
    let mut all = true;
    let dead = |mark: &str| alive::is_dead(&shared.settings.state, mark);
    for run in open.into_iter().filter(|run| run.gateway.as_deref().is_some_and(dead)) {
        // Of several attempts the last.
        let receipt =
            left.iter().filter(|(attempt, _)| attempt.starts_with(&run.id)).max_by_key(|(attempt, _)| attempt);
        let why = interrupted();
        match store.interrupt_run(&run.id, &why, receipt.map(|(_, receipt)| receipt)).await {
            Ok(true) => tracing::info!(run = run.id, "interrupted: its gateway is no more"),
            // Somebody else was first.
            Ok(false) => continue,
            Err(error) => {
                tracing::warn!(run = run.id, %error, "an interrupted run cannot be marked");
                all = false;
                continue;
            }
        }
        if let Some(path) = entry::path(&shared.settings.state, &run.id)
            && let Err(error) = add_last(&path, &Event::Failed(why))
        {
            tracing::warn!(run = run.id, %error, "the log of an interrupted run has no end");
        }
    }
    all
}
