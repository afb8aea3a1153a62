//! The script that is played now: one that stays, or a file that is read again when it has changed.
//!
//! The file is looked at on every request rather than watched: who saves it and asks is answered from what was saved.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::script::{Script, ScriptError};

#[derive(Debug)]
pub struct Playing {
    file: Option<PathBuf>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    script: Arc<Script>,
    /// The version of the file that was read last, good or bad.
    version: Option<Version>,
}

/// What tells one version of a file from another: device and inode, size, and the time of the last change.
type Version = (u64, u64, u64, i64, i64);

/// Why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error("cannot read the script: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Wrong(#[from] ScriptError),
}

impl From<Script> for Playing {
    fn from(script: Script) -> Self {
        Self { file: None, current: Mutex::new(Current { script: Arc::new(script), version: None }) }
    }
}

impl Playing {
    /// Plays a file, from now on as it changes.
    pub fn file(path: &Path) -> Result<Self, PlayError> {
        let version = version(path)?;
        let script = Arc::new(Script::parse(&fs::read_to_string(path)?)?);
        let current = Mutex::new(Current { script, version: Some(version) });
        Ok(Self { file: Some(path.to_owned()), current })
    }

    /// The script to answer the next request from. A file that has gone bad is said to be, and changes nothing.
    #[must_use]
    pub fn now(&self) -> Arc<Script> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.file {
            // A file that is gone for a moment is one that an editor replaces.
            let changed = version(path).ok().filter(|version| current.version != Some(*version));
            if changed.is_some() {
                current.version = changed;
                match read(path) {
                    Ok(script) => current.script = Arc::new(script),
                    Err(error) => {
                        tracing::error!("{}: {error}; the last good script stays", path.display());
                    }
                }
            }
        }
        Arc::clone(&current.script)
    }
}

fn read(path: &Path) -> Result<Script, PlayError> {
    Ok(Script::parse(&fs::read_to_string(path)?)?)
}

fn version(path: &Path) -> io::Result<Version> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Outcome;

    fn says(playing: &Playing) -> Option<String> {
        match playing.now().step("anything", 0).outcome {
            Outcome::Response(response) => response.content,
            Outcome::Error(_) => None,
        }
    }

    fn script(content: &str) -> String {
        format!(r#"{{"scenarios": [], "default_response": {{"content": "{content}"}}}}"#)
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenarios.json");
        fs::write(&path, script("one")).unwrap();
        let playing = Playing::file(&path).unwrap();
        for (written, expected) in [
            (None, "one"),
            (Some(script("twice two")), "twice two"),
            (Some("{".to_owned()), "twice two"),
            (Some(script("three")), "three"),
        ] {
            if let Some(text) = written {
                fs::write(&path, text).unwrap();
            }
            assert_eq!(says(&playing).as_deref(), Some(expected));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(says(&playing).as_deref(), Some("three"));
    }

    #[test]
    fn a_file_must_be_good_to_begin_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenarios.json");
        assert!(matches!(Playing::file(&path), Err(PlayError::Unreadable(_))));
        fs::write(&path, "{}").unwrap();
        assert!(matches!(Playing::file(&path), Err(PlayError::Wrong(_))));
    }
}
