//! Retention: deletes old sessions with their turns, and all files that belong to them.

use std::io;
use std::path::Path;
use std::time::Duration;

use trunkline_agent::transcript_file::TranscriptFiles;
use trunkline_core::model::AGENT;
use trunkline_engine::forget_sessions;
use trunkline_server::forget_chats;
use trunkline_store::{LogLimits, Pruned, Store, StoreError, Time};

/// Interval between two passes.
const PASS_INTERVAL: Duration = Duration::from_hours(6);

/// Folder of the chat page's conversations, in the state folder.
pub(super) const CHATS: &str = "chats";

/// Age of segments of the run log that are compressed.
const COMPRESS_AGE: Duration = Duration::from_hours(24);

/// Limits of what a gateway keeps.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// Age of sessions since their last use.
    pub(super) age: Option<Duration>,
    pub(super) limits: LogLimits,
}

impl Retention {
    /// Deletes what exceeds the limits, and compresses old parts of the run log, now and every six hours. Never returns.
    pub(super) async fn enforce(&self, store: &Store, state: &Path) {
        loop {
            self.pass(store, state).await;
            tokio::time::sleep(PASS_INTERVAL).await;
        }
    }

    async fn pass(&self, store: &Store, state: &Path) {
        if let Some(age) = self.age {
            match delete_older(age, Some(store), state).await {
                Ok(Pruned { sessions: 0, turns: 0, messages: 0, channels: 0 }) => {}
                Ok(Pruned { sessions, turns, .. }) => {
                    tracing::info!(sessions, turns, "deleted after the retention time");
                }
                Err(error) => tracing::warn!(%error, "old sessions could not be deleted"),
            }
        }
        match store.delete_excess(self.limits).await {
            Ok(0) => {}
            Ok(runs) => tracing::info!(runs, "deleted the oldest runs, to keep the limits of the run log"),
            Err(error) => tracing::warn!(%error, "the oldest runs could not be deleted"),
        }
        match store.compress_log(COMPRESS_AGE).await {
            Ok(0) => {}
            Ok(bytes) => tracing::info!(bytes, "saved disk space by compressing old parts of the run log"),
            Err(error) => tracing::warn!(%error, "old parts of the run log could not be compressed"),
        }
    }
}

/// Deletes what has not been used for `age`. A file that cannot be removed is logged, and the others are still removed.
pub(super) async fn delete_older(age: Duration, store: Option<&Store>, state: &Path) -> Result<Pruned, StoreError> {
    let pruned = match store {
        Some(store) => store.prune(Time::ago(age)).await,
        None => Ok(Pruned::default()),
    };
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
