//! Places of sessions in worktrees: the next turn of a session runs in a folder of the same name, on top of the session's
//! own commits.
//!
//! The folder itself is deleted between two turns. A place records the folder's name, under which some CLIs store their
//! sessions, and the commit that the last turn ended with.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

/// Age after which the place of an unused session is deleted.
const MAX_PLACE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Files with the places of sessions, one for each session.
pub(crate) struct SessionPlaces {
    folder: PathBuf,
}

/// Worktree and commit from which a session continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionPlace {
    /// The repository's common git folder. The place is not used if the session is requested in another repository.
    pub(crate) common: PathBuf,
    /// Folder name of the worktree.
    pub(crate) name: String,
    /// Name under which git has registered the worktree, if it differs from `name`.
    #[serde(default)]
    pub(crate) registration: Option<String>,
    /// Commit that the next turn starts from.
    pub(crate) tip: String,
}

impl SessionPlaces {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn of(&self, session: &SessionId) -> Option<SessionPlace> {
        serde_json::from_slice(&fs::read(self.file(session)?).ok()?).ok()
    }

    /// Saves the place for the next turn. A failure is logged: the next turn loses its place, but this turn still succeeds.
    pub(crate) fn remember(&self, session: &SessionId, place: &SessionPlace) {
        let Some(path) = self.file(session) else { return };
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| fs::write(&path, serde_json::to_vec(place).expect("a place always serializes")));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot save the place of a session");
        }
    }

    /// Deletes the places of sessions that have not been used for [`MAX_PLACE_AGE`].
    pub(crate) fn sweep(&self) {
        self.forget(MAX_PLACE_AGE);
    }

    /// Deletes the places of sessions that have not been used for `age`.
    pub(crate) fn forget(&self, age: Duration) {
        let Some(oldest) = SystemTime::now().checked_sub(age) else { return };
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| time <= oldest) {
                // Another process may have deleted it already.
                let _ = fs::remove_file(file.path());
            }
        }
    }

    /// Ids come from CLIs and clients: only a plain word is used as a file name.
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
    fn remembers_place_only_when_id_is_a_plain_word() {
        let folder = tempfile::tempdir().unwrap();
        let places = SessionPlaces::new(folder.path().join("sessions"));
        let place =
            SessionPlace { common: "/repo/.git".into(), name: "r1".into(), registration: None, tip: "abc".into() };
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
