//! Retention: deletes old sessions with their turns, and all files that belong to them.

use std::io;
use std::path::Path;
use std::time::Duration;

use trunkline_agent::transcript_file::TranscriptFiles;
use trunkline_core::model::AGENT;
use trunkline_engine::{forget_logs, forget_sessions};
use trunkline_server::forget_chats;
use trunkline_store::{Pruned, Store, StoreError, Time};

/// Interval between two passes.
const PASS_INTERVAL: Duration = Duration::from_hours(6);

/// Folder of the chat page's conversations, in the state folder.
pub(super) const CHATS: &str = "chats";

/// Deletes what has not been used for `age`, now and every six hours. Never returns.
pub(super) async fn enforce(age: Duration, store: &Store, state: &Path) {
    loop {
        match delete_older(age, Some(store), state).await {
            Ok(Pruned { sessions: 0, turns: 0, messages: 0, channels: 0 }) => {}
            Ok(Pruned { sessions, turns, .. }) => tracing::info!(sessions, turns, "deleted after the retention time"),
            Err(error) => tracing::warn!(%error, "old sessions could not be deleted"),
        }
        tokio::time::sleep(PASS_INTERVAL).await;
    }
}

/// Deletes what has not been used for `age`. A file that cannot be removed is logged, and the others are still removed.
pub(super) async fn delete_older(age: Duration, store: Option<&Store>, state: &Path) -> Result<Pruned, StoreError> {
    let pruned = match store {
        Some(store) => store.prune(Time::ago(age)).await,
        None => Ok(Pruned::default()),
    };
    if let Some(store) = store
        && let Err(error) = forget_logs(state, store, age).await
    {
        tracing::warn!(%error, "logs of deleted runs could not be removed");
    }
    let state = state.to_owned();
    let files = tokio::task::spawn_blocking(move || {
        let log_error = |what: &str, removed: io::Result<()>| {
            if let Err(error) = removed {
                tracing::warn!(%error, "{what} could not be removed");
            }
        };
        log_error("old transcripts of the agent", TranscriptFiles::new(state.join(AGENT)).prune(age).map(drop));
        log_error("state of old sessions", forget_sessions(&state, age));
        log_error("old conversations of the chat page", forget_chats(&state.join(CHATS), age).map(drop));
        #[cfg(feature = "discord")]
        log_error("old files of the bridge", trunkline_discord::forget_files(&state, age));
    });
    // A panic in the task has been reported already.
    let _ = files.await;
    pruned
}
