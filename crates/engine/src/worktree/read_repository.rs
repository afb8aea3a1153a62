//! Reads the state of a repository: its HEAD, and everything that decides how git writes files.

use std::path::{Path, PathBuf};

use trunkline_core::failure::Failure;

use super::Worktrees;
use super::repository_state::{CheckoutRules, RepositoryState};
use crate::sandbox::untrusted;
use crate::worktree::git::{Repository, confirm};

/// Maximum size that is read of an attributes or sparse-checkout file.
const MAX_RULES_BYTES: u64 = 16 << 20;

impl Worktrees {
    /// Reads the git directories, HEAD and prefix of a checkout.
    pub(super) async fn repository_state(&self, repo: &Path) -> Result<RepositoryState, Failure> {
        let places = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--show-prefix"];
        let all = [&places[..], &["HEAD^{commit}"]].concat();
        let output = match self.git.at(repo).line(&all).await {
            Ok(output) => output,
            Err(failure) => {
                // Either it is not a repository, which git reports best itself, or it has no commit.
                self.git.at(repo).line(&places).await?;
                let message = format!("{}: a worktree needs a first commit", repo.display());
                let hint = "commit something there, or remove \"worktree\": true from the model";
                return Err(Failure { message, ..failure }.hint(hint));
            }
        };
        let mut lines = output.split('\n');
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (common, own, prefix, head) = (next(), next(), next(), next());
        let Repository { common, own } = confirm(&self.git, repo, common.as_ref(), own.as_ref()).await?;
        Ok(RepositoryState { common, own, prefix, head })
    }

    /// Git's configuration for a checkout: system, user and repository, with the files that they include.
    pub(super) async fn git_config(&self, repo: &Path) -> Result<Vec<u8>, Failure> {
        self.git.at(repo).run(&["config", "--list", "-z"]).await
    }

    /// Returns the hash of the configuration and of the attributes and sparse-checkout files.
    pub(super) fn checkout_rules(&self, repository: &RepositoryState, settings: &[u8]) -> CheckoutRules {
        let home = self.git.variable("HOME").map(PathBuf::from).unwrap_or_default();
        let xdg = self.git.variable("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let named =
            settings.split(|byte| *byte == 0).rev().find_map(|entry| entry.strip_prefix(b"core.attributesfile\n"));
        let attributes = match named.map(String::from_utf8_lossy) {
            Some(path) => path.strip_prefix("~/").map_or_else(|| PathBuf::from(&*path), |rest| home.join(rest)),
            None => xdg.join("git/attributes"),
        };
        let files = [
            repository.own.join("info/sparse-checkout"),
            repository.common.join("info/attributes"),
            attributes,
            "/etc/gitattributes".into(),
        ];
        let mut hasher = blake3::Hasher::new();
        let texts = files.iter().map(|file| untrusted::read(file, MAX_RULES_BYTES).unwrap_or_default());
        for text in texts.chain([settings.to_owned()]) {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(&text);
        }
        hasher.finalize()
    }

    /// Whether the attributes of two commits differ, so that files that are in both may be written differently.
    pub(super) async fn attributes_differ(&self, repo: &Path, from: &str, to: &str) -> Result<bool, Failure> {
        let attribute_files = [":(glob)**/.gitattributes"];
        let diff = ["diff-tree", "-r", "--name-only", "-z", from, to, "--"];
        let changed = self.git.at(repo).run(&[&diff[..], &attribute_files].concat()).await?;
        Ok(!changed.is_empty())
    }
}
