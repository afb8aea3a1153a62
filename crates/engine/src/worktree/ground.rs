//! What a worktree is made of: the commit, and all that decides how git writes its files.

use std::fs;
use std::path::{Path, PathBuf};

use trunkline_core::failure::Failure;

use super::Worktrees;

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

impl Worktrees {
    pub(super) async fn ground(&self, repo: &Path) -> Result<Ground, Failure> {
        let places = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--show-prefix"];
        let all = [&places[..], &["HEAD^{commit}"]].concat();
        let told = match self.git.line(repo, &all).await {
            Ok(told) => told,
            Err(failure) => {
                // It is no repository, which git says best, or has nothing to begin with.
                self.git.line(repo, &places).await?;
                let message = format!("{}: a worktree needs a first commit", repo.display());
                return Err(Failure { message, ..failure });
            }
        };
        let mut lines = told.split('\n');
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (common, own) = (next().into(), next().into());
        Ok(Ground { common, own, prefix: next(), head: next() })
    }

    /// Git's settings here, as one text: those of the system, the user and the repository, and what they include.
    pub(super) async fn settings(&self, repo: &Path) -> Result<Vec<u8>, Failure> {
        self.git.run(repo, &["config", "--list", "-z"]).await
    }

    /// The rules that these settings and the files beside them come to.
    pub(super) fn rules(&self, ground: &Ground, settings: &[u8]) -> Rules {
        let home = self.git.variable("HOME").map(PathBuf::from).unwrap_or_default();
        let xdg = self.git.variable("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let named =
            settings.split(|byte| *byte == 0).rev().find_map(|entry| entry.strip_prefix(b"core.attributesfile\n"));
        let attributes = match named.map(String::from_utf8_lossy) {
            Some(path) => path.strip_prefix("~/").map_or_else(|| PathBuf::from(&*path), |rest| home.join(rest)),
            None => xdg.join("git/attributes"),
        };
        let files = [
            ground.own.join("info/sparse-checkout"),
            ground.common.join("info/attributes"),
            attributes,
            "/etc/gitattributes".into(),
        ];
        let mut hasher = blake3::Hasher::new();
        for text in files.iter().map(|file| fs::read(file).unwrap_or_default()).chain([settings.to_owned()]) {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(&text);
        }
        hasher.finalize()
    }

    /// Whether going from one commit to the other changes how files are written that are in both.
    pub(super) async fn attributes_differ(&self, repo: &Path, from: &str, to: &str) -> Result<bool, Failure> {
        let of_any_folder = [":(glob)**/.gitattributes"];
        let diff = ["diff-tree", "-r", "--name-only", "-z", from, to, "--"];
        let changed = self.git.run(repo, &[&diff[..], &of_any_folder].concat()).await?;
        Ok(!changed.is_empty())
    }
}
