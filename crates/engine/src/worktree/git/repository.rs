//! The git directory of a checkout, confirmed from both sides.
//!
//! A checkout names its git directory: `.git` is that directory, or a file or a link that names it. A run without a
//! worktree can change `.git` to name the directory of another repository, and the next run would then work there. So a
//! git directory outside the checkout must also name the checkout, which the run cannot have written.

use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};

use super::Git;
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};

/// Git directories of a checkout, as canonical paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// Shared by all worktrees of the repository.
    pub(crate) common: PathBuf,
    /// Specific to this checkout: its HEAD and index.
    pub(crate) own: PathBuf,
}

/// Checks that the git directories that git found for a checkout belong to it.
pub(crate) async fn confirm(git: &Git, checkout: &Path, common: &Path, own: &Path) -> Result<Repository, Failure> {
    let canonical = |path: &Path| {
        path.canonicalize()
            .map_err(|error| Failure::new(Category::Configuration, format!("{}: {error}", path.display())))
    };
    let (checkout, common, own) = (canonical(checkout)?, canonical(common)?, canonical(own)?);
    let repository = Repository { common, own };
    if repository.lies_in(&checkout) || repository.names_as_worktree(&checkout) {
        return Ok(repository);
    }
    if repository.own == repository.common && repository.names_in_configuration(git, &checkout).await {
        return Ok(repository);
    }
    let (own, top) = (repository.own.display(), top_of(&checkout).unwrap_or(&checkout).display());
    let message = format!("the git directory {own} does not name {top} as its checkout");
    let hint = format!("if {top} belongs to it, run `git --git-dir={own} config core.worktree {top}`");
    Err(Failure::new(Category::Configuration, message).hint(hint))
}

impl Repository {
    /// Whether `.git` is a folder of the checkout, which is the ordinary case, or the checkout is a bare repository.
    fn lies_in(&self, checkout: &Path) -> bool {
        let is_own = |folder: &Path| folder == self.own || folder.join(".git") == self.own;
        self.own == self.common && checkout.ancestors().any(is_own)
    }

    /// Whether the checkout is a worktree that `git worktree add` created.
    fn names_as_worktree(&self, checkout: &Path) -> bool {
        let Some(top) = top_of(checkout) else { return false };
        let named = untrusted::read(&self.own.join("gitdir"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        let named = String::from_utf8_lossy(&named);
        self.own.parent() == Some(&self.common.join("worktrees"))
            && self.own.join(named.trim_end()).canonicalize().is_ok_and(|link| link == top.join(".git"))
    }

    /// Whether the configuration names the checkout: a submodule, or a git directory from `--separate-git-dir`.
    async fn names_in_configuration(&self, git: &Git, checkout: &Path) -> bool {
        let file = self.own.join("config");
        let args = ["config".as_ref(), "--file".as_ref(), file.as_os_str(), "--get".as_ref(), "core.worktree".as_ref()];
        let Ok(named) = git.at(Path::new("/")).line(&args).await else { return false };
        let Ok(named) = self.own.join(named).canonicalize() else { return false };
        checkout.starts_with(named)
    }
}

/// Returns the nearest folder with a `.git`.
fn top_of(checkout: &Path) -> Option<&Path> {
    checkout.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())
}
