//! Deletion of a run by its client. A mark remains, so that the client can be told that the run existed.

use std::fs;
use std::path::PathBuf;

use trunkline_core::turn::ClientId;

use super::queries::{CancelOutcome, RunQueryError};
use crate::engine::Engine;

/// Folder of the marks, below the state folder: a file for each deleted run, with its client.
const MARKS_FOLDER: &str = "deleted";

/// Outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    /// Another process drives the run.
    Elsewhere,
}

impl Engine {
    /// Deletes a run with everything in the log about it. A run in progress is cancelled first.
    pub async fn delete(&self, owner: &ClientId, id: &str) -> Result<DeleteOutcome, RunQueryError> {
        match self.cancel(owner, id).await? {
            CancelOutcome::Stopped(_) | CancelOutcome::WasOver(_) => {}
            CancelOutcome::Elsewhere(_) => return Ok(DeleteOutcome::Elsewhere),
        }
        let store = self.settled_store().await?;
        // A row that is not in the index yet would be added after the deletion.
        self.shared.store_writer.flush().await;
        let mark = self.mark_of_deleted(id);
        let marked = mark.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&mark, owner.as_str()));
        if let Err(error) = marked {
            tracing::warn!(run = id, %error, "the deletion of a run could not be marked");
        }
        store.delete_run(id).await?;
        Ok(DeleteOutcome::Deleted)
    }

    /// Whether a client has deleted a run with this id.
    #[must_use]
    pub fn was_deleted(&self, owner: &ClientId, id: &str) -> bool {
        fs::read_to_string(self.mark_of_deleted(id)).is_ok_and(|client| client == owner.as_str())
    }

    fn mark_of_deleted(&self, id: &str) -> PathBuf {
        self.shared.settings.state.join(MARKS_FOLDER).join(id)
    }
}
