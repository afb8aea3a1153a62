//! Source of the current script: a fixed one, or a file that is reloaded when it has changed.
//!
//! The file is checked on every request instead of being watched, so a request after a save always uses the saved
//! version.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::script::{MockScript, ScriptError};

#[derive(Debug)]
pub struct ScriptSource {
    file: Option<PathBuf>,
    current: Mutex<LoadedScript>,
}

#[derive(Debug)]
struct LoadedScript {
    script: Arc<MockScript>,
    /// Version of the file that was read last, even if it was invalid.
    version: Option<FileVersion>,
}

/// Identifies a version of a file: device, inode, size, and modification time in seconds and nanoseconds.
type FileVersion = (u64, u64, u64, i64, i64);

/// Error while loading a script from a file.
#[derive(Debug, thiserror::Error)]
pub enum ScriptSourceError {
    #[error("cannot read the script: {0}")]
    Unreadable(#[from] io::Error),
    #[error(transparent)]
    Invalid(#[from] ScriptError),
}

impl From<MockScript> for ScriptSource {
    fn from(script: MockScript) -> Self {
        Self { file: None, current: Mutex::new(LoadedScript { script: Arc::new(script), version: None }) }
    }
}

impl ScriptSource {
    /// Loads a script from a file and follows its changes.
    pub fn file(path: &Path) -> Result<Self, ScriptSourceError> {
        let version = version(path)?;
        let script = Arc::new(MockScript::parse(&fs::read_to_string(path)?)?);
        let current = Mutex::new(LoadedScript { script, version: Some(version) });
        Ok(Self { file: Some(path.to_owned()), current })
    }

    /// Returns the script for the next request. If the file has become invalid, logs the error and keeps the last valid
    /// script.
    #[must_use]
    pub fn current(&self) -> Arc<MockScript> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.file {
            // A file that cannot be read is ignored: an editor may be replacing it.
            let changed = version(path).ok().filter(|version| current.version != Some(*version));
            if changed.is_some() {
                current.version = changed;
                match read(path) {
                    Ok(script) => current.script = Arc::new(script),
                    Err(error) => {
                        tracing::error!("{}: {error}; keeping the last valid script", path.display());
                    }
                }
            }
        }
        Arc::clone(&current.script)
    }
}

fn read(path: &Path) -> Result<MockScript, ScriptSourceError> {
    Ok(MockScript::parse(&fs::read_to_string(path)?)?)
}

fn version(path: &Path) -> io::Result<FileVersion> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::StepOutcome;

    fn answer_of(source: &ScriptSource) -> Option<String> {
        match source.current().step("anything", 0).outcome {
            StepOutcome::Response(response) => response.content,
            StepOutcome::Error(_) => None,
        }
    }

    fn script(content: &str) -> String {
        format!(r#"{{"scenarios": [], "default_response": {{"content": "{content}"}}}}"#)
    }

    #[test]
    fn reloads_a_changed_file_and_keeps_the_last_script_when_it_is_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenarios.json");
        fs::write(&path, script("one")).unwrap();
        let source = ScriptSource::file(&path).unwrap();
        for (written, expected) in [
            (None, "one"),
            (Some(script("twice two")), "twice two"),
            (Some("{".to_owned()), "twice two"),
            (Some(script("three")), "three"),
        ] {
            if let Some(text) = written {
                fs::write(&path, text).unwrap();
            }
            assert_eq!(answer_of(&source).as_deref(), Some(expected));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(answer_of(&source).as_deref(), Some("three"));
    }

    #[test]
    fn loading_fails_when_file_is_missing_or_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenarios.json");
        assert!(matches!(ScriptSource::file(&path), Err(ScriptSourceError::Unreadable(_))));
        fs::write(&path, "{}").unwrap();
        assert!(matches!(ScriptSource::file(&path), Err(ScriptSourceError::Invalid(_))));
    }
}
