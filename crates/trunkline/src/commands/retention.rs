//! What is old is forgotten, where that is asked for: sessions, their turns, and the agent's own records of them.

use std::path::Path;
use std::time::Duration;

use trunkline_agent::record::Records;
use trunkline_core::model::AGENT;
use trunkline_store::{Pruned, Store, Time};

/// How often it is looked for.
const EVERY: Duration = Duration::from_hours(6);

/// Forgets what was not used for `age`, now and from time to time. Never returns.
pub(super) async fn keep_to(age: Duration, store: &Store, state: &Path) {
    loop {
        match store.prune(Time::ago(age)).await {
            Ok(Pruned { sessions: 0, turns: 0, messages: 0 }) => {}
            Ok(Pruned { sessions, turns, .. }) => tracing::info!(sessions, turns, "forgotten, being old"),
            Err(error) => tracing::warn!(%error, "what is old could not be forgotten"),
        }
        let records = Records::new(state.join(AGENT));
        let pruned = tokio::task::spawn_blocking(move || records.prune(age)).await;
        if let Ok(Err(error)) = pruned {
            tracing::warn!(%error, "old records of the agent could not be removed");
        }
        tokio::time::sleep(EVERY).await;
    }
}
