//! A worktree's folder, and the entry that its repository keeps for it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::failure::{Category, Failure};

use crate::sandbox;
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};
use crate::session::Place;

/// The longest reason of a receipt.
const MAX_REASON_CHARS: usize = 500;

/// One run's own folder.
#[derive(Debug, Clone)]
pub(crate) struct Worktree {
    pub(super) path: PathBuf,
    /// Where the run works: the same folder inside the repository as the model's.
    pub(crate) cwd: PathBuf,
    pub(super) run: String,
    pub(super) repo: PathBuf,
    pub(super) common: PathBuf,
    /// The entry that git keeps for it in the repository.
    pub(super) registration: PathBuf,
    pub(super) base: String,
    /// The conversation that goes on there.
    pub(super) session: Option<SessionId>,
}

impl Worktree {
    /// What a run in it may write.
    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        let mut parts = vec![self.path.clone()];
        parts.extend(sandbox::of_worktree(&self.registration));
        parts
    }

    /// Lets git-crypt find its keys, which it looks for in the git directory that is used and not in the repository.
    pub(super) fn link_keys_into(&self, git_dir: &Path) {
        let keys = self.common.join("git-crypt");
        if untrusted::real(&keys) {
            // Without the link git-crypt fails, and says why.
            let _ = std::os::unix::fs::symlink(keys, git_dir.join("git-crypt"));
        }
    }

    /// Where git keeps objects and references of the repository. Paths that are not there count for nothing.
    pub(super) fn object_stores(&self) -> Vec<PathBuf> {
        ["objects", "lfs"].map(|part| self.common.join(part)).into()
    }

    pub(super) fn reference_stores(&self) -> Vec<PathBuf> {
        ["refs", "logs", "reftable"].map(|part| self.common.join(part)).into()
    }

    /// The receipt for a worktree whose work could not be saved: nothing is known of it but where it is.
    pub(crate) fn left_behind(&self, failure: &Failure) -> Receipt {
        let path = self.path.symlink_metadata().is_ok().then(|| self.path.to_string_lossy().into_owned());
        let reason = match &failure.hint {
            Some(hint) => format!("{}; {hint}", failure.message.trim()),
            None => failure.message.trim().to_owned(),
        };
        let reason = Some(reason.chars().take(MAX_REASON_CHARS).collect());
        Receipt { base: self.base.clone(), path, reason, ..Receipt::default() }
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
        let signed = self.registration.join("gitdir");
        let place = format!("{}\n", self.path.join(".git").display());
        let written = if untrusted::real(&self.registration) {
            untrusted::replace(&signed, place.as_bytes())
        } else {
            Err(io::Error::other("a symbolic link is in its place"))
        };
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
            && untrusted::read(&link, MAX_GIT_FILE_BYTES).is_ok_and(|text| text == self.mark().as_bytes())
    }

    fn mark(&self) -> String {
        format!("gitdir: {}\n", self.registration.display())
    }

    pub(super) fn remove_registration(&self) {
        let folder = &self.registration;
        let own = self.path.join(".git");
        // Git writes down whose it is after it has made the folder.
        let said = untrusted::read(&folder.join("gitdir"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        if untrusted::real(folder) && (said.is_empty() || Path::new(said.trim_end()) == own) {
            // One that stays is pruned by git.
            let _ = fs::remove_dir_all(folder);
        }
    }
}
