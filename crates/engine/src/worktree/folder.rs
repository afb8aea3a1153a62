//! A worktree's folder, and the entry that its repository keeps for it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};

use super::Worktree;
use crate::sandbox;
use crate::session::Place;

impl Worktree {
    /// What a run in it may write.
    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        let mut parts = vec![self.path.clone()];
        parts.extend(sandbox::of_worktree(&self.registration));
        parts
    }

    /// What is said of a worktree that could not be put in order.
    pub(crate) fn left_behind(&self) -> Receipt {
        let path = Some(self.path.to_string_lossy().into_owned());
        Receipt { base: self.base.clone(), path, ..Receipt::default() }
    }

    /// Where its session goes on after a run that left this receipt.
    pub(crate) fn place(&self, receipt: &Receipt) -> Place {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tip = receipt.commit.clone().unwrap_or_else(|| self.base.clone());
        let registration = self.registration.file_name().map(|name| name.to_string_lossy().into_owned());
        Place { common: self.common.clone(), name, registration, tip }
    }

    /// Where it is put to be out of the way.
    pub(super) fn aside(&self) -> PathBuf {
        self.path.with_file_name(format!(".gone-{}", self.run))
    }

    /// The entry that git makes in the repository for a worktree there.
    pub(super) fn usual_registration(common: &Path, path: &Path) -> PathBuf {
        common.join("worktrees").join(path.file_name().unwrap_or_default())
    }

    /// Has the repository know where the worktree is by now.
    pub(super) fn sign_registration(&self) -> Result<(), Failure> {
        let (signed, new) = (self.registration.join("gitdir"), self.registration.join("gitdir.new"));
        let place = format!("{}\n", self.path.join(".git").display());
        let written = fs::write(&new, place).and_then(|()| fs::rename(&new, &signed));
        written.map_err(|error| Failure::new(Category::Configuration, format!("{}: {error}", signed.display())))
    }

    /// Makes the folder say again whose it is, whatever an agent wrote there: git removes no other. Not if that has become
    /// a repository of its own.
    pub(super) fn point_back(&self) -> io::Result<()> {
        if self.is_marked() {
            return Ok(());
        }
        let link = self.path.join(".git");
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new().create_new(true).write(true).open(&link)?.write_all(self.mark().as_bytes())
    }

    /// Whether the folder says whose it is.
    pub(super) fn is_marked(&self) -> bool {
        let link = self.path.join(".git");
        fs::symlink_metadata(&link).is_ok_and(|found| found.is_file())
            && fs::read_to_string(&link).is_ok_and(|text| text == self.mark())
    }

    fn mark(&self) -> String {
        format!("gitdir: {}\n", self.registration.display())
    }

    pub(super) fn remove_registration(&self) {
        let folder = &self.registration;
        let own = self.path.join(".git");
        // Git writes down whose it is after it has made the folder.
        let said = fs::read_to_string(folder.join("gitdir")).unwrap_or_default();
        if said.is_empty() || Path::new(said.trim_end()) == own {
            let _gone_or_git_prunes_it = fs::remove_dir_all(folder);
        }
    }

    /// A lock that a git of the dead run held.
    pub(super) fn remove_stale_lock(&self) {
        let _there_is_none = fs::remove_file(self.registration.join("index.lock"));
    }
}
