//! The git directory of a checkout, confirmed from both sides.
//!
//! A checkout says where its git directory is: `.git` is that directory, or a file or a link that names it. A run without
//! a worktree can change `.git`, and name a directory of another repository. The next run would then work there. So a git
//! directory that does not lie in the checkout must name the checkout in turn, which the run could not have written.

use std::path::{Path, PathBuf};

use trunkline_core::failure::{Category, Failure};

use super::Git;
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};

/// The directories that git keeps for a checkout, as canonical paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// Shared by all worktrees of the repository.
    pub(crate) common: PathBuf,
    /// Of this checkout alone: its HEAD and index.
    pub(crate) own: PathBuf,
}

/// Checks that the directories which git found for a checkout belong to it.
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
    let message = format!("the git directory {own} does not say that {top} belongs to it");
    let hint = format!("if it does, run `git --git-dir={own} config core.worktree {top}`");
    Err(Failure::new(Category::Configuration, message).hint(hint))
}

impl Repository {
    /// The ordinary case: `.git` is a folder of the checkout, or the checkout is a bare repository.
    fn lies_in(&self, checkout: &Path) -> bool {
        let is_own = |folder: &Path| folder == self.own || folder.join(".git") == self.own;
        self.own == self.common && checkout.ancestors().any(is_own)
    }

    /// A worktree that `git worktree add` made.
    fn names_as_worktree(&self, checkout: &Path) -> bool {
        let Some(top) = top_of(checkout) else { return false };
        let said = untrusted::read(&self.own.join("gitdir"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        self.own.parent() == Some(&self.common.join("worktrees"))
            && self.own.join(said.trim_end()).canonicalize().is_ok_and(|link| link == top.join(".git"))
    }

    /// A submodule, or a git directory that was made with `--separate-git-dir` and told where its files are.
    async fn names_in_configuration(&self, git: &Git, checkout: &Path) -> bool {
        let file = self.own.join("config");
        let args = ["config".as_ref(), "--file".as_ref(), file.as_os_str(), "--get".as_ref(), "core.worktree".as_ref()];
        let Ok(said) = git.at(Path::new("/")).line(&args).await else { return false };
        let Ok(named) = self.own.join(said).canonicalize() else { return false };
        checkout.starts_with(named)
    }
}

/// The nearest folder with a `.git`.
fn top_of(checkout: &Path) -> Option<&Path> {
    checkout.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())
}
