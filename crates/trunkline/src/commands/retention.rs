//! What is old is forgotten, where that is asked for: sessions and their turns, and every file that was kept because of them.

use std::io;
use std::path::Path;
use std::time::Duration;

use trunkline_agent::record::Records;
use trunkline_core::model::AGENT;
use trunkline_engine::{forget_logs, forget_sessions};
use trunkline_server::forget_chats;
use trunkline_store::{Pruned, Store, StoreError, Time};

/// How often it is looked for.
const EVERY: Duration = Duration::from_hours(6);

/// Where the chat page's conversations are, below the state folder.
pub(super) const CHATS: &str = "chats";

/// Forgets what was not used for `age`, now and from time to time. Never returns.
pub(super) async fn keep_to(age: Duration, store: &Store, state: &Path) {
    loop {
        match forget(age, Some(store), state).await {
            Ok(Pruned { sessions: 0, turns: 0, messages: 0, channels: 0 }) => {}
            Ok(Pruned { sessions, turns, .. }) => tracing::info!(sessions, turns, "forgotten, being old"),
            Err(error) => tracing::warn!(%error, "what is old could not be forgotten"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Forgets what was not used for `age`. A file that cannot be removed is said, and the rest goes all the same.
pub(super) async fn forget(age: Duration, store: Option<&Store>, state: &Path) -> Result<Pruned, StoreError> {
    let pruned = match store {
        Some(store) => store.prune(Time::ago(age)).await,
        None => Ok(Pruned::default()),
    };
    if let Some(store) = store
        && let Err(error) = forget_logs(state, store, age).await
    {
        tracing::warn!(%error, "logs of forgotten runs could not be removed");
    }
    let state = state.to_owned();
    let files = tokio::task::spawn_blocking(move || {
        let told = |what: &str, forgotten: io::Result<()>| {
            if let Err(error) = forgotten {
                tracing::warn!(%error, "{what} could not be removed");
            }
        };
        told("old records of the agent", Records::new(state.join(AGENT)).prune(age).map(drop));
        told("where old sessions left off", forget_sessions(&state, age));
        told("old conversations of the chat page", forget_chats(&state.join(CHATS), age).map(drop));
        #[cfg(feature = "discord")]
        told("old files of the bridge", trunkline_discord::forget_files(&state, age));
    });
    let _or_a_bug_said_so = files.await;
    pruned
}
