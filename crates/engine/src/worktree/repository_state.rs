//! State of a repository that decides which files a new worktree gets.

use std::path::PathBuf;

/// State of a checkout and its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepositoryState {
    /// Git directory that all worktrees of the repository share.
    pub(super) common: PathBuf,
    /// Git directory of this checkout alone: its HEAD and sparse-checkout rules.
    pub(super) own: PathBuf,
    /// Path of the folder inside the repository.
    pub(super) prefix: String,
    pub(super) head: String,
}

/// Hash of the configuration and rules by which git writes files. With equal hashes, a commit has the same files.
pub(super) type CheckoutRules = blake3::Hash;
