//! Where a session works: a conversation that goes on in a worktree goes on in the same folder, on top of its own work.
//!
//! The folder itself is gone between two turns; what is remembered is its name, which some CLIs file their sessions
//! under, and the commit that the last turn ended with.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

/// Sessions that nobody went on with for this long are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) struct Places {
    folder: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The repository: the same session may be asked for in another one, where it has no place.
    pub(crate) common: PathBuf,
    /// The worktree's folder name.
    pub(crate) name: String,
    /// What the repository knows it by, if not by that.
    #[serde(default)]
    pub(crate) registration: Option<String>,
    /// What the next turn starts from.
    pub(crate) tip: String,
}

impl Places {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn of(&self, session: &SessionId) -> Option<Place> {
        serde_json::from_slice(&fs::read(self.file(session)?).ok()?).ok()
    }

    /// Remembers it for the next turn. That it could not be written costs the next turn its place, not this one its answer.
    pub(crate) fn remember(&self, session: &SessionId, place: &Place) {
        let Some(path) = self.file(session) else { return };
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| fs::write(&path, serde_json::to_vec(place).expect("a place is plain data")));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "a session's place is not remembered");
        }
    }

    /// Forgets the sessions that are over.
    pub(crate) fn sweep(&self) {
        self.forget(FORGOTTEN_AFTER);
    }

    /// Forgets the sessions that nobody went on with for so long.
    pub(crate) fn forget(&self, age: Duration) {
        let Some(oldest) = SystemTime::now().checked_sub(age) else { return };
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| time <= oldest) {
                let _gone_already = fs::remove_file(file.path());
            }
        }
    }

    /// An id comes from a CLI, or from a client: only a plain word becomes a file's name.
    fn file(&self, session: &SessionId) -> Option<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let id = &session.0;
        (!id.is_empty() && id.len() <= 128 && id.chars().all(plain)).then(|| self.folder.join(format!("{id}.json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_by_plain_ids_only() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(folder.path().join("sessions"));
        let place = Place { common: "/repo/.git".into(), name: "r1".into(), registration: None, tip: "abc".into() };
        let id = SessionId("ses_1-x".into());
        assert_eq!(places.of(&id), None);
        places.remember(&id, &place);
        places.sweep();
        assert_eq!(places.of(&id), Some(place.clone()));

        let outside = SessionId("../escape".into());
        places.remember(&outside, &place);
        assert_eq!(places.of(&outside), None);
        assert!(!folder.path().join("escape.json").exists());
    }
}
