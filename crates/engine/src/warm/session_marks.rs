//! Marks of sessions that a warm process holds, visible to other gateways.
//!
//! A turn in a session removes the mark of that session. A process whose mark is gone has missed a turn, so it is not
//! used again.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trunkline_core::event::SessionId;

/// Marks of sessions on this state folder, one file each.
#[derive(Debug)]
pub(super) struct SessionMarks {
    folder: PathBuf,
}

impl SessionMarks {
    pub(super) fn new(state: &Path) -> Self {
        Self { folder: state.join("held") }
    }

    pub(super) fn set(&self, provider: &str, session: &SessionId) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(self.file(provider, session))?;
        Ok(())
    }

    /// Removes a mark. Returns whether it existed: then no other turn has run in the session since it was set.
    pub(super) fn remove(&self, provider: &str, session: &SessionId) -> bool {
        fs::remove_file(self.file(provider, session)).is_ok()
    }

    /// Session ids come from a CLI and may not be valid file names, so they are hashed.
    fn file(&self, provider: &str, session: &SessionId) -> PathBuf {
        let digest = blake3::hash(format!("{provider}\n{session}").as_bytes());
        self.folder.join(&digest.to_hex()[..32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_can_be_removed_once() {
        let state = tempfile::tempdir().unwrap();
        let (own, other) = (SessionMarks::new(state.path()), SessionMarks::new(state.path()));
        let session = SessionId("../s".into());
        assert!(!own.remove("claude", &session));
        own.set("claude", &session).unwrap();
        assert!(!other.remove("codex", &session), "a session of another provider with the same id");
        assert!(other.remove("claude", &session));
        assert!(!own.remove("claude", &session), "another gateway has run a turn");
    }
}
