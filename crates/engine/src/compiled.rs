//! What Node has compiled of a CLI, kept for the CLI's next start.
//!
//! A large program of JavaScript is compiled anew at each start, unless Node finds what it compiled before. That is code which
//! will be run: so it is made by a start of the program that does nothing (it says its version), under no agent's hand, in a
//! folder that a confined run can read and not write. A run that could write it is not told of it: every Node that its agent
//! starts would add to it. Another program or another Node has another folder. Who sets `NODE_COMPILE_CACHE` for themselves
//! has theirs.

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use tokio_util::sync::CancellationToken;

use crate::engine::Inner;
use crate::launch::Launch;
use crate::sandbox::Bounds;

pub(crate) const VARIABLE: &str = "NODE_COMPILE_CACHE";

/// A start that takes longer has not done what it was to do.
const LONGEST: Duration = Duration::from_secs(60);

/// What is compiled now, or was.
#[derive(Default)]
pub(crate) struct Compiling {
    begun: Mutex<BTreeSet<PathBuf>>,
    pub(crate) closing: CancellationToken,
}

impl Launch<'_> {
    /// Where the program's compiled code is, or would be; none for one that is not of this kind, or could change it.
    pub(crate) fn compiled(&self, program: &Path) -> Option<PathBuf> {
        let own = ["NODE_COMPILE_CACHE", "NODE_DISABLE_COMPILE_CACHE"];
        let own = own.iter().any(|name| self.model.env.contains_key(*name) || self.settings.variable(name).is_some());
        if !self.provider.node_compile_cache || own {
            return None;
        }
        let folders = std::env::split_paths(self.settings.variable("PATH")?);
        let node = folders.map(|folder| folder.join("node")).find(|node| node.is_file())?;
        let mut hasher = blake3::Hasher::new();
        for file in [program, &node] {
            let (path, found) = (file.canonicalize().ok()?, fs::metadata(file).ok()?);
            hasher.update(path.as_os_str().as_encoded_bytes());
            for number in [found.ino(), found.len(), found.mtime().cast_unsigned(), found.mtime_nsec().cast_unsigned()]
            {
                hasher.update(&number.to_le_bytes());
            }
        }
        let name = format!("{}-{}", self.provider.name, &hasher.finalize().to_hex()[..16]);
        let folder = self.settings.state.join("compiled").join(name);
        match self.bounds().ok()? {
            Bounds::Within(writable) if !writable.iter().any(|place| folder.starts_with(place)) => Some(folder),
            Bounds::Within(_) | Bounds::Free(_) => None,
        }
    }
}

impl Inner {
    /// Has a program compiled for its next start, where that was not done yet.
    pub(crate) fn compile_ahead(self: &Arc<Self>, launch: &Launch<'_>, program: &Path) {
        // Whoever wants nothing to be started but for a turn wants this neither.
        let Some(folder) = launch.compiled(program).filter(|folder| self.keeps_lines() && !folder.is_dir()) else {
            return;
        };
        if !self.compiling.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.clone()) {
            return;
        }
        let new = folder.with_extension(std::process::id().to_string());
        let mut spec = launch.question(program.to_owned(), &launch.provider.version, LONGEST);
        spec.env.push((VARIABLE.into(), new.clone().into()));
        let (engine, provider) = (Arc::clone(self), launch.provider.name.clone());
        self.tracker.spawn(async move {
            if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&new) {
                return tracing::info!(provider, %error, "nothing is compiled ahead");
            }
            let ran = engine.compiling.closing.run_until_cancelled(engine.keepers.output(spec)).await;
            let compiled = ran.is_some_and(|ran| ran.is_ok_and(|output| output.success()));
            if !compiled || settle(&new, &folder, &provider).is_err() {
                let _in_nobodys_way = fs::remove_dir_all(&new);
            }
            tracing::debug!(provider, compiled, "compiled ahead");
        });
    }
}

/// Puts the folder in its place, and removes those of earlier programs.
fn settle(new: &Path, folder: &Path, provider: &str) -> io::Result<()> {
    fs::rename(new, folder)?;
    let Some(parent) = folder.parent() else { return Ok(()) };
    for entry in fs::read_dir(parent)?.flatten() {
        let name = entry.file_name();
        let of_provider = name.to_string_lossy().rsplit_once('-').is_some_and(|(of, _)| of == provider);
        if of_provider && entry.path() != folder {
            let _still_used = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_ones_go() {
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
