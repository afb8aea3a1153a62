//! Private files of one run: system prompts and pictures that a CLI takes by name. Gone when the run is.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};

#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    made: bool,
}

impl Scratch {
    /// A folder for the run, made when the first file is.
    pub(crate) fn new(state: &Path, run: &str) -> Self {
        Self { folder: state.join("runs").join(run), made: false }
    }

    /// Writes a file that only we can read, and returns its path.
    pub(crate) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<String, Failure> {
        let path = self.folder.join(name);
        self.write_file(&path, bytes).map_err(|error| {
            Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn write_file(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if !self.made {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            self.made = true;
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
    }
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
    fn private_while_it_lasts_and_gone_after() {
        let state = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::new(state.path(), "r1");
        let path = scratch.write("system.txt", b"rule").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rule");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(state.path().join("runs/r1")).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!state.path().join("runs/r1").exists());
    }
}
