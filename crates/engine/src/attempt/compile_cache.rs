//! Cache of JavaScript that Node has compiled for a CLI, so that the CLI's next start is faster.
//!
//! The cached code will be executed, so no agent may write it. The cache is filled by a start of the program that does nothing
//! (it prints its version), in a folder that a confined run can read but not write. A run that could write the folder does
//! not get its path: every Node process that its agent starts would add to the cache. `NODE_COMPILE_CACHE` set by the user
//! takes precedence.

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_process::{Keepers, Spec};

pub(crate) const VARIABLE: &str = "NODE_COMPILE_CACHE";

/// Time limit of the start that fills the cache.
pub(crate) const FILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts of CLIs that fill the compile cache, at most one per folder and process.
pub(crate) struct CompileCache {
    begun: Mutex<BTreeSet<PathBuf>>,
    closing: CancellationToken,
    keepers: Keepers,
    tracker: TaskTracker,
}

impl CompileCache {
    pub(crate) fn new(keepers: Keepers, tracker: TaskTracker) -> Self {
        Self { begun: Mutex::default(), closing: CancellationToken::new(), keepers, tracker }
    }

    /// Stops starts that are in progress.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Runs `question`, a start of the program that does nothing, to fill `folder`. Does nothing if that was tried before.
    pub(crate) fn fill(self: &Arc<Self>, folder: PathBuf, provider: String, mut question: Spec) {
        if !self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.clone()) {
            return;
        }
        let new = folder.with_extension(std::process::id().to_string());
        question.env.set(VARIABLE, &new);
        let cache = Arc::clone(self);
        self.tracker.spawn(async move {
            if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&new) {
                return tracing::info!(provider, %error, "the compile cache cannot be created");
            }
            let ran = cache.closing.run_until_cancelled(cache.keepers.output(question)).await;
            let compiled = ran.is_some_and(|ran| ran.is_ok_and(|output| output.success()));
            if !compiled || settle(&new, &folder, &provider).is_err() {
                // A leftover folder is never read: no run is given its name.
                let _ = fs::remove_dir_all(&new);
            }
            tracing::debug!(provider, compiled, "compiled ahead");
        });
    }
}

/// The name of the cache folder for a program on a version of Node: another program or another Node has another name.
pub(crate) fn folder_name(provider: &str, program: &Path, node: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    for file in [program, node] {
        let (path, found) = (file.canonicalize().ok()?, fs::metadata(file).ok()?);
        hasher.update(path.as_os_str().as_encoded_bytes());
        for number in [found.ino(), found.len(), found.mtime().cast_unsigned(), found.mtime_nsec().cast_unsigned()] {
            hasher.update(&number.to_le_bytes());
        }
    }
    Some(format!("{provider}-{}", &hasher.finalize().to_hex()[..16]))
}

/// Moves the filled folder into place, and removes folders of earlier versions.
fn settle(new: &Path, folder: &Path, provider: &str) -> io::Result<()> {
    fs::rename(new, folder)?;
    let Some(parent) = folder.parent() else { return Ok(()) };
    for entry in fs::read_dir(parent)?.flatten() {
        let name = entry.file_name();
        let of_provider = name.to_string_lossy().rsplit_once('-').is_some_and(|(of, _)| of == provider);
        if of_provider && entry.path() != folder {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_earlier_versions_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let place = |name: &str| state.path().join(name);
        for name in ["gemini-1", "gemini-2.77", "gemini-mine-1"] {
            fs::create_dir(place(name)).unwrap();
        }
        settle(&place("gemini-2.77"), &place("gemini-2"), "gemini").unwrap();
        assert!(place("gemini-2").exists() && place("gemini-mine-1").exists(), "its own, and another provider's");
        assert!(!place("gemini-1").exists() && !place("gemini-2.77").exists());
    }
}
