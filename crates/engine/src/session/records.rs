//! What is remembered of a session between two turns, and across a restart: where it works, and what it has cost.
//!
//! A conversation that goes on in a worktree goes on in the same folder, on top of its own work. The folder itself is
//! gone between two turns; its name is kept, which some CLIs file their sessions under, and the commit the last turn
//! ended with. And a CLI that counts tokens for the whole session needs the count before to tell a turn's own.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trunkline_core::event::{SessionId, Usage};

/// Sessions that nobody went on with for this long are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) struct Records {
    folder: PathBuf,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    place: Option<Place>,
    total: Option<Usage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The repository: the same session may be asked for in another one, where it has no place.
    pub(crate) common: PathBuf,
    /// The worktree's folder name.
    pub(crate) name: String,
    /// What the next turn starts from.
    pub(crate) tip: String,
}

impl Records {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn place(&self, session: &SessionId) -> Option<Place> {
        self.read(&self.file(session)?).place
    }

    pub(crate) fn total(&self, session: &SessionId) -> Option<Usage> {
        self.read(&self.file(session)?).total
    }

    pub(crate) fn remember_place(&self, session: &SessionId, place: Place) {
        self.change(session, |record| record.place = Some(place));
    }

    pub(crate) fn remember_total(&self, session: &SessionId, total: Usage) {
        self.change(session, |record| record.total = Some(total));
    }

    /// Forgets the sessions that are over.
    pub(crate) fn sweep(&self) {
        let Some(oldest) = SystemTime::now().checked_sub(FORGOTTEN_AFTER) else { return };
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|time| time < oldest) {
                let _gone_already = fs::remove_file(file.path());
            }
        }
    }

    fn read(&self, path: &Path) -> Record {
        fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// What cannot be written costs the next turn something, not this one its answer.
    fn change(&self, session: &SessionId, change: impl FnOnce(&mut Record)) {
        let Some(path) = self.file(session) else { return };
        let mut record = self.read(&path);
        change(&mut record);
        if let Err(error) = self.write(&path, &record) {
            tracing::warn!(path = %path.display(), %error, "a session is not remembered");
        }
    }

    fn write(&self, path: &Path, record: &Record) -> io::Result<()> {
        let bytes = serde_json::to_vec(record).expect("a record is plain data");
        fs::write(path, &bytes).or_else(|_no_folder_yet| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            fs::write(path, &bytes)
        })
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
        let records = Records::new(folder.path().join("sessions"));
        let place = Place { common: "/repo/.git".into(), name: "r1".into(), tip: "abc".into() };
        let total = Usage { input_tokens: 7, ..Usage::default() };
        let id = SessionId("ses_1-x".into());
        assert_eq!((records.place(&id), records.total(&id)), (None, None));
        records.remember_place(&id, place.clone());
        records.remember_total(&id, total);
        let later = Records::new(folder.path().join("sessions"));
        later.sweep();
        assert_eq!((later.place(&id), later.total(&id)), (Some(place.clone()), Some(total)));

        let outside = SessionId("../escape".into());
        records.remember_place(&outside, place);
        assert_eq!(records.place(&outside), None);
        assert!(!folder.path().join("escape.json").exists());
    }
}
