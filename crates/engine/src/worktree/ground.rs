//! What a worktree is made of: the commit, and all that decides how git writes its files.

use std::path::{Path, PathBuf};

use trunkline_core::failure::Failure;

use super::Worktrees;
use super::repository_state::{Ground, Rules};
use crate::sandbox::untrusted;
use crate::worktree::git::{Repository, confirm};

/// The most that is read of a file of attributes or of a sparse checkout.
const MAX_RULES_BYTES: u64 = 16 << 20;

impl Worktrees {
    pub(super) async fn ground(&self, repo: &Path) -> Result<Ground, Failure> {
        let places = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--show-prefix"];
        let all = [&places[..], &["HEAD^{commit}"]].concat();
        let told = match self.git.at(repo).line(&all).await {
            Ok(told) => told,
            Err(failure) => {
                // It is no repository, which git says best, or has nothing to begin with.
                self.git.at(repo).line(&places).await?;
                let message = format!("{}: a worktree needs a first commit", repo.display());
                let hint = "commit something there, or remove \"worktree\": true from the model";
                return Err(Failure { message, ..failure }.hint(hint));
            }
        };
        let mut lines = told.split('\n');
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (common, own, prefix, head) = (next(), next(), next(), next());
        let Repository { common, own } = confirm(&self.git, repo, common.as_ref(), own.as_ref()).await?;
        Ok(Ground { common, own, prefix, head })
    }

    /// Git's settings here, as one text: those of the system, the user and the repository, and the files they include.
    pub(super) async fn settings(&self, repo: &Path) -> Result<Vec<u8>, Failure> {
        self.git.at(repo).run(&["config", "--list", "-z"]).await
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
        let texts = files.iter().map(|file| untrusted::read(file, MAX_RULES_BYTES).unwrap_or_default());
        for text in texts.chain([settings.to_owned()]) {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(&text);
        }
        hasher.finalize()
    }

    /// Whether going from one commit to the other changes how files are written that are in both.
    pub(super) async fn attributes_differ(&self, repo: &Path, from: &str, to: &str) -> Result<bool, Failure> {
        let of_any_folder = [":(glob)**/.gitattributes"];
        let diff = ["diff-tree", "-r", "--name-only", "-z", from, to, "--"];
        let changed = self.git.at(repo).run(&[&diff[..], &of_any_folder].concat()).await?;
        Ok(!changed.is_empty())
    }
}
