//! Which sessions a process of ours holds, where other gateways see it: whoever speaks in a session lifts its mark, and
//! a process whose mark is gone does not know all that was said.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trunkline_core::event::SessionId;

#[derive(Debug)]
pub(super) struct Marks {
    folder: PathBuf,
}

impl Marks {
    pub(super) fn new(state: &Path) -> Self {
        Self { folder: state.join("held") }
    }

    pub(super) fn set(&self, provider: &str, session: &SessionId) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(self.file(provider, session))?;
        Ok(())
    }

    /// Whether it was there: then nobody has spoken in the session since it was set.
    pub(super) fn lift(&self, provider: &str, session: &SessionId) -> bool {
        fs::remove_file(self.file(provider, session)).is_ok()
    }

    /// An id comes from a CLI: it is no name for a file.
    fn file(&self, provider: &str, session: &SessionId) -> PathBuf {
        let digest = blake3::hash(format!("{provider}\n{session}").as_bytes());
        self.folder.join(&digest.to_hex()[..32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_lifted_once() {
        let state = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Marks::new(state.path()), Marks::new(state.path()));
        let session = SessionId("../s".to_owned());
        assert!(!ours.lift("claude", &session));
        ours.set("claude", &session).unwrap();
        assert!(!theirs.lift("codex", &session), "another provider's session of the same name");
        assert!(theirs.lift("claude", &session));
        assert!(!ours.lift("claude", &session), "somebody else has spoken");
    }
}
