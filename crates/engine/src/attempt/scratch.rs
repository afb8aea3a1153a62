//! Private files of one run: system prompts and images that a CLI takes by path, and its own folder for temporary files. Removed
//! with the run.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};

use crate::runs::gateway_process::GatewayProcess;

#[derive(Debug)]
pub(crate) struct Scratch {
    /// The state folder, or the folder of the run once that was made. Most runs need no file.
    folder: PathBuf,
    run: String,
    made: bool,
}

impl Scratch {
    /// A folder for the run. It is created with its first file.
    pub(crate) fn new(state: &Path, run: &str) -> Self {
        Self { folder: state.to_owned(), run: run.to_owned(), made: false }
    }

    /// Removes the files of gateways that died.
    pub(crate) fn sweep(state: &Path) {
        let folders = fs::read_dir(state.join("runs")).into_iter().flatten().flatten();
        let dead = |name: &str| GatewayProcess::from_name(name).is_some_and(|owner| !owner.is_alive());
        for folder in folders.filter(|folder| folder.file_name().to_str().is_some_and(dead)) {
            if let Err(error) = fs::remove_dir_all(folder.path()) {
                tracing::warn!(folder = %folder.path().display(), %error, "cannot remove a dead gateway's private files");
            }
        }
    }

    /// Writes a file that only we can read, and returns its path.
    pub(crate) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<String, Failure> {
        let made = self.make();
        let path = self.folder.join(name);
        made.and_then(|()| write_file(&path, bytes)).map_err(|error| {
            Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Creates a folder inside, and returns its path.
    pub(crate) fn folder(&mut self, name: &str) -> Result<String, Failure> {
        let made = self.make();
        let path = self.folder.join(name);
        made.and_then(|()| fs::create_dir(&path)).map_err(|error| {
            Failure::new(Category::Configuration, format!("cannot make {}: {error}", path.display()))
        })?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn make(&mut self) -> io::Result<()> {
        if !self.made {
            let folder = self.folder.join("runs").join(GatewayProcess::this_process().name()).join(&self.run);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            (self.folder, self.made) = (folder, true);
        }
        Ok(())
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.made
            && let Err(error) = fs::remove_dir_all(&self.folder)
        {
            tracing::warn!(folder = %self.folder.display(), %error, "cannot remove a run's private files");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_private_and_removed_when_dropped() {
        let state = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::new(state.path(), "r1");
        let path = scratch.write("system.txt", b"rule").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rule");
        fs::write(Path::new(&scratch.folder("tmp").unwrap()).join("litter"), "x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let folder = Path::new(&path).parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        Scratch::sweep(state.path());
        assert!(folder.exists(), "its gateway lives");
        drop(scratch);
        assert!(!folder.exists());
    }

    #[test]
    fn files_of_a_dead_gateway_are_swept() {
        let state = tempfile::tempdir().unwrap();
        for name in ["runs/4294967295-1/r1", "runs/not-ours"] {
            fs::create_dir_all(state.path().join(name)).unwrap();
        }
        Scratch::sweep(state.path());
        assert!(!state.path().join("runs/4294967295-1").exists());
        assert!(state.path().join("runs/not-ours").exists());
    }
}
