//! A worktree: its folder, and its registration in the repository.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::failure::{Category, Failure};

use crate::sandbox;
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};
use crate::session::SessionPlace;

/// Maximum length of the reason in a receipt.
const MAX_REASON_CHARS: usize = 500;

/// Worktree of one run.
#[derive(Debug, Clone)]
pub(crate) struct Worktree {
    pub(super) path: PathBuf,
    /// Working directory of the run: the same folder inside the repository as the model's.
    pub(crate) cwd: PathBuf,
    pub(super) run: String,
    pub(super) repo: PathBuf,
    pub(super) common: PathBuf,
    /// Folder that git keeps for the worktree in the repository.
    pub(super) registration: PathBuf,
    pub(super) base: String,
    /// The session that the run belongs to.
    pub(super) session: Option<SessionId>,
}

impl Worktree {
    /// Paths that a run in the worktree may write.
    pub(crate) fn writable_paths(&self) -> Vec<PathBuf> {
        let mut parts = vec![self.path.clone()];
        parts.extend(sandbox::of_worktree(&self.registration));
        parts
    }

    /// Links the keys of git-crypt, which it expects in the git directory in use and not in the repository.
    pub(super) fn link_git_crypt_keys(&self, git_dir: &Path) {
        let keys = self.common.join("git-crypt");
        if untrusted::real(&keys) {
            // Without the link, git-crypt fails with a clear message.
            let _ = std::os::unix::fs::symlink(keys, git_dir.join("git-crypt"));
        }
    }

    /// Paths where git stores objects of the repository. Some may not exist.
    pub(super) fn object_stores(&self) -> Vec<PathBuf> {
        ["objects", "lfs"].map(|part| self.common.join(part)).into()
    }

    /// Paths where git stores references of the repository. Some may not exist.
    pub(super) fn reference_stores(&self) -> Vec<PathBuf> {
        ["refs", "logs", "reftable"].map(|part| self.common.join(part)).into()
    }

    /// Returns the receipt for a worktree whose work could not be saved. Only its path and the reason are known.
    pub(crate) fn unsaved_receipt(&self, failure: &Failure) -> Receipt {
        let path = self.path.symlink_metadata().is_ok().then(|| self.path.to_string_lossy().into_owned());
        let reason = match &failure.hint {
            Some(hint) => format!("{}; {hint}", failure.message.trim()),
            None => failure.message.trim().to_owned(),
        };
        let reason = Some(reason.chars().take(MAX_REASON_CHARS).collect());
        Receipt { base: self.base.clone(), path, reason, ..Receipt::default() }
    }

    /// Returns where the session continues after a run with this receipt.
    pub(crate) fn place(&self, receipt: &Receipt) -> SessionPlace {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tip = receipt.commit.clone().unwrap_or_else(|| self.base.clone());
        let registration = self.registration.file_name().map(|name| name.to_string_lossy().into_owned());
        SessionPlace { common: self.common.clone(), name, registration, tip }
    }

    /// Path to which the folder is moved before it is deleted.
    pub(super) fn aside_path(&self) -> PathBuf {
        self.path.with_file_name(format!(".gone-{}", self.run))
    }

    /// Registration that git creates for a worktree at `path`.
    pub(super) fn default_registration(common: &Path, path: &Path) -> PathBuf {
        common.join("worktrees").join(path.file_name().unwrap_or_default())
    }

    /// Writes the present path of the worktree to its registration.
    pub(super) fn update_registration(&self) -> Result<(), Failure> {
        let gitdir = self.registration.join("gitdir");
        let text = format!("{}\n", self.path.join(".git").display());
        let written = if untrusted::real(&self.registration) {
            untrusted::replace(&gitdir, text.as_bytes())
        } else {
            Err(io::Error::other("it was replaced by a symbolic link"))
        };
        written.map_err(|error| Failure::new(Category::Configuration, format!("{}: {error}", gitdir.display())))
    }

    /// Restores the `.git` file, whatever an agent wrote there: without it, git does not remove the worktree. Fails if
    /// `.git` has become a folder.
    pub(super) fn restore_git_file(&self) -> io::Result<()> {
        if self.has_git_file() {
            return Ok(());
        }
        let link = self.path.join(".git");
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new().create_new(true).write(true).open(&link)?.write_all(self.git_file_text().as_bytes())
    }

    /// Whether the `.git` file of the folder names this worktree.
    pub(super) fn has_git_file(&self) -> bool {
        let link = self.path.join(".git");
        fs::symlink_metadata(&link).is_ok_and(|found| found.is_file())
            && untrusted::read(&link, MAX_GIT_FILE_BYTES).is_ok_and(|text| text == self.git_file_text().as_bytes())
    }

    fn git_file_text(&self) -> String {
        format!("gitdir: {}\n", self.registration.display())
    }

    pub(super) fn remove_registration(&self) {
        let folder = &self.registration;
        let own = self.path.join(".git");
        // Git creates the folder before it writes `gitdir`, so that file may be empty.
        let named = untrusted::read(&folder.join("gitdir"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        let named = String::from_utf8_lossy(&named);
        if untrusted::real(folder) && (named.is_empty() || Path::new(named.trim_end()) == own) {
            // Git prunes a registration that could not be removed.
            let _ = fs::remove_dir_all(folder);
        }
    }
}
