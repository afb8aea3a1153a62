//! The state of a repository that decides which files a new worktree gets.

use std::path::PathBuf;

/// Where a repository stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ground {
    /// The repository itself, which all its worktrees share.
    pub(super) common: PathBuf,
    /// What git keeps of this checkout: its HEAD, and which part of the files it wants.
    pub(super) own: PathBuf,
    /// The folder inside the repository.
    pub(super) prefix: String,
    pub(super) head: String,
}

/// Settings and rules by which git writes files. Of equal ones the same commit has the same files.
pub(super) type Rules = blake3::Hash;
