//! Saving of a worktree: the agent's work becomes a commit on a new branch.
//!
//! ```text
//! InUse ──save──▶ Saved ──▶ moved aside, deleted after the answer
//!   │
//!   └─ failed, cut short, or more than a branch can hold ──▶ folder is kept, receipt has path and reason
//! ```
//!
//! A save uses a private git directory (`private_git_dir.rs`), so that nothing the agent wrote to the worktree's
//! registration can hide a change. It is bounded in time, and cut short when the run is cancelled or the gateway stops.
//! If it does not complete, the record in the ledger makes a later gateway save the worktree again.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::discarding::LeftoverFiles;
use super::folder::Worktree;
use super::ledger::{WorktreeRecord, WorktreeState};
use super::private_git_dir::PrivateGitDir;
use super::survey::{Survey, survey};
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};

/// Policy for a worktree after its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WorktreePolicy {
    /// Whether the folder is kept.
    pub(crate) keep: bool,
    /// Whether the files that the run added are listed in [`HELPERS_LOG`].
    pub(crate) log_helpers: bool,
    /// Whether the receipt warns about helper programs that the run added.
    pub(crate) forbid_helpers: bool,
}

/// A worktree after its run: its receipt, and its files if they can be deleted.
pub(crate) struct SavedWorktree {
    pub(crate) receipt: Receipt,
    pub(crate) leftovers: Option<LeftoverFiles>,
    /// Earlier runs whose unsaved work was in the same folder, and is saved together with this run's.
    pub(crate) recovered: Vec<String>,
}

/// Pauses between attempts to save.
const SAVE_RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(700)];

/// Time that a save has left when its run is cancelled or the gateway stops.
const CANCELLED_SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size that is read of an index that an agent may have written.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// Maximum number of paths that a reason lists.
const MAX_NAMED_PATHS: usize = 3;

/// File in which a run's commit lists the files that it added, if the policy of the repository asks for that.
const HELPERS_LOG: &str = ".trunkline/helpers.log";

impl Worktrees {
    /// Saves the work of a run and removes its folder, unless it is to be kept. After `stopping` has resolved, the save
    /// has [`CANCELLED_SAVE_TIMEOUT`] left.
    pub(crate) async fn finish(
        &self,
        worktree: &Worktree,
        policy: WorktreePolicy,
        stopping: impl Future<Output = ()>,
    ) -> SavedWorktree {
        let timeout = self.git.timeout();
        let cut = |why: String| Err(Failure::new(Category::Timeout, why));
        let saved = tokio::select! {
            saved = self.save_or_retry(worktree, policy) => saved,
            () = tokio::time::sleep(timeout) => cut(format!("saving took longer than {timeout:?} (--git-timeout)")),
            () = async { stopping.await; tokio::time::sleep(CANCELLED_SAVE_TIMEOUT).await } => {
                cut("saving was cut short, because the run was cancelled or the gateway stopped".to_owned())
            }
        };
        let receipt = match saved {
            Ok(receipt) => receipt,
            Err(failure) => {
                let (run, path) = (&worktree.run, worktree.path.display());
                tracing::error!(run, %path, %failure, "cannot save the work of a run; its worktree is kept");
                self.ledger.note_failed_save(worktree);
                return SavedWorktree {
                    receipt: worktree.unsaved_receipt(&failure),
                    leftovers: None,
                    recovered: Vec::new(),
                };
            }
        };
        let recovered = self.ledger.earlier_runs(worktree);
        recovered.iter().for_each(|run| self.ledger.forget(run));
        if receipt.path.is_some() {
            self.ledger.forget(&worktree.run);
            return SavedWorktree { receipt, leftovers: None, recovered };
        }
        // From here on, a missing file was not deleted by the agent. Without this record, the work would only be saved
        // twice.
        let _ = self.ledger.write(&WorktreeRecord::of(worktree, WorktreeState::Saved));
        SavedWorktree { receipt, leftovers: self.clear(worktree, WorktreeState::Saved).await, recovered }
    }

    /// Saves with retries, because a killed process or a lock that is held briefly is no reason to keep the folder.
    async fn save_or_retry(&self, worktree: &Worktree, policy: WorktreePolicy) -> Result<Receipt, Failure> {
        let mut saved = self.save(worktree, policy).await;
        for pause in SAVE_RETRY_PAUSES {
            let Err(failure) = &saved else { break };
            tracing::debug!(run = worktree.run, %failure, ?pause, "retrying a save");
            tokio::time::sleep(pause).await;
            saved = self.save(worktree, policy).await;
        }
        saved
    }

    async fn save(&self, worktree: &Worktree, policy: WorktreePolicy) -> Result<Receipt, Failure> {
        let mut reasons = Vec::new();
        let git_dir = self.private_git_dir(worktree).await?;
        let head = self.head(&git_dir, worktree).await;
        let commit = if untrusted::real(&worktree.path) {
            let survey = self.survey(worktree).await?;
            if worktree.restore_git_file().is_err() {
                reasons.push("its .git is a folder".to_owned());
            }
            reasons.extend(named("a repository of its own, which a branch cannot hold", &survey.repositories));
            reasons.extend(named("not seen by git", &survey.skipped));
            let tree = self.tree(&git_dir, worktree, &head, &survey, policy, &mut reasons).await?;
            self.commit(&git_dir, worktree, &head, &tree).await?
        } else {
            reasons
                .push("its folder was moved or removed during the run: uncommitted changes are not saved".to_owned());
            head
        };
        let mut receipt = Receipt { base: worktree.base.clone(), ..Receipt::unchanged() };
        receipt.refs = self.save_unreferenced_commits(&git_dir, worktree, &commit).await?;
        if commit != worktree.base {
            receipt.branch = Some(self.put_on_branch(&git_dir, worktree, &commit).await?);
            let stat = [
                "diff",
                "--shortstat",
                "--ignore-submodules=none",
                "--no-ext-diff",
                "--no-textconv",
                &worktree.base,
                &commit,
                "--",
            ];
            let stat = self.private_git(&git_dir, worktree).line(&stat).await?;
            (receipt.files_changed, receipt.insertions, receipt.deletions) = counts(&stat);
            reasons.extend(named(
                "ignored by a rule that the run added",
                &self.newly_ignored(&git_dir, worktree, &commit).await?,
            ));
            if policy.forbid_helpers {
                let helpers = self.added_helpers(&git_dir, worktree, &commit).await?;
                receipt.warnings.extend(named("added although the policy forbids helpers (createHelpers)", &helpers));
            }
            receipt.commit = Some(commit);
        }
        if (policy.keep || !reasons.is_empty()) && worktree.path.symlink_metadata().is_ok() {
            receipt.path = Some(worktree.path.to_string_lossy().into_owned());
            self.ledger.keep_index(worktree, &git_dir.index());
        }
        receipt.reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(receipt)
    }

    /// Returns the commit that the worktree's HEAD names, or the base if it names none. An agent may have written
    /// anything there.
    async fn head(&self, git_dir: &PrivateGitDir, worktree: &Worktree) -> String {
        let head = untrusted::read(&worktree.registration.join("HEAD"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        let head = String::from_utf8_lossy(&head);
        let name = head.strip_prefix("ref:").unwrap_or(&head).trim();
        if name == worktree.base || !(name.starts_with("refs/") || name.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return worktree.base.clone();
        }
        let commit = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        self.private_git(git_dir, worktree).line(&args).await.unwrap_or_else(|_| worktree.base.clone())
    }

    pub(super) async fn survey(&self, worktree: &Worktree) -> Result<Survey, Failure> {
        let path = worktree.path.clone();
        let found = tokio::task::spawn_blocking(move || survey(&path)).await;
        let found = found.map_err(std::io::Error::other).and_then(|found| found);
        found.map_err(|error| Failure::new(Category::Configuration, format!("{}: {error}", worktree.path.display())))
    }

    /// Writes the present files to a tree object and returns its name.
    async fn tree(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        head: &str,
        survey: &Survey,
        policy: WorktreePolicy,
        reasons: &mut Vec<String>,
    ) -> Result<String, Failure> {
        let call = || self.private_git(git_dir, worktree).writing(worktree.object_stores());
        if head != worktree.base {
            // Adds files to the index that the agent committed although they are ignored.
            let merged = call().run(&["read-tree", "-i", "-m", &worktree.base, head]).await;
            if merged.is_err() {
                call().run(&["read-tree", head]).await?;
            }
        }
        call().run(&survey.add_all()).await?;
        self.add_staged(git_dir, worktree, survey).await?;
        if policy.log_helpers {
            reasons.extend(self.log_helpers(git_dir, worktree).await?);
        }
        call().line(&["write-tree"]).await
    }

    /// Adds files that the agent has staged although they are ignored.
    async fn add_staged(&self, git_dir: &PrivateGitDir, worktree: &Worktree, survey: &Survey) -> Result<(), Failure> {
        let staged = untrusted::read(&worktree.registration.join("index"), MAX_INDEX_BYTES).unwrap_or_default();
        if staged.is_empty() || self.ledger.index_is(worktree, &staged) {
            return Ok(());
        }
        let copy = git_dir.path.join("staged");
        let unwritable = |error: std::io::Error| Failure::new(Category::Server, error.to_string());
        fs::write(&copy, staged).map_err(unwritable)?;
        let call = || self.private_git(git_dir, worktree).writing(worktree.object_stores());
        let tree = call().line(&["write-tree"]).await?;
        let list = ["diff-index", "--cached", "--name-only", "--diff-filter=A", "-z", &tree];
        // An index that git cannot read contains nothing that the files do not.
        let Ok(added) = call().with("GIT_INDEX_FILE", copy).run(&list).await else { return Ok(()) };
        let exists = |path: &[u8]| {
            let path = Path::new(OsStr::from_bytes(path));
            let found = worktree.path.join(path).symlink_metadata();
            found.is_ok_and(|found| !found.is_dir()) && !survey.repositories.iter().any(|inner| path.starts_with(inner))
        };
        let added: Vec<&[u8]> =
            added.split(|byte| *byte == 0).filter(|path| !path.is_empty() && exists(path)).collect();
        if added.is_empty() {
            return Ok(());
        }
        let add = ["add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"];
        call().with("GIT_LITERAL_PATHSPECS", "1").stdin(added.join(&0)).run(&add).await?;
        Ok(())
    }

    /// Appends a line to [`HELPERS_LOG`] for each file that the run added. Returns the reason if that fails.
    async fn log_helpers(&self, git_dir: &PrivateGitDir, worktree: &Worktree) -> Result<Option<String>, Failure> {
        let call = || self.private_git(git_dir, worktree).writing(worktree.object_stores());
        let list = ["diff-index", "--cached", "--name-only", "--diff-filter=A", "-z", &worktree.base];
        let added = call().run(&list).await?;
        let added = String::from_utf8_lossy(&added);
        let lines: String = added
            .split('\0')
            .filter(|path| !path.is_empty() && *path != HELPERS_LOG)
            .map(|path| format!("{} {}\n", worktree.run, path.escape_debug()))
            .collect();
        if lines.is_empty() {
            return Ok(None);
        }
        match untrusted::append(&worktree.path, Path::new(HELPERS_LOG), lines.as_bytes()) {
            Ok(()) => {
                call().run(&["add", "--force", "--sparse", "--", HELPERS_LOG]).await?;
                Ok(None)
            }
            Err(error) => Ok(Some(format!("{HELPERS_LOG} could not be written: {error}"))),
        }
    }

    /// Returns the executable files that the run added.
    async fn added_helpers(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        commit: &str,
    ) -> Result<Vec<PathBuf>, Failure> {
        let list = ["diff-tree", "-r", "-z", "--diff-filter=A", &worktree.base, commit, "--"];
        let added = self.private_git(git_dir, worktree).run(&list).await?;
        let mut fields = added.split(|byte| *byte == 0);
        let mut helpers = Vec::new();
        while let (Some(modes), Some(path)) = (fields.next(), fields.next()) {
            if modes.starts_with(b":000000 100755 ") {
                helpers.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        Ok(helpers)
    }

    /// Commits the tree on top of `head`. Returns `head` if it has the same tree.
    async fn commit(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        head: &str,
        tree: &str,
    ) -> Result<String, Failure> {
        let head_tree = self.private_git(git_dir, worktree).line(&["rev-parse", &format!("{head}^{{tree}}")]).await?;
        if head_tree == tree {
            return Ok(head.to_owned());
        }
        let message = format!("Work of run {}", worktree.run);
        let call = self.private_git(git_dir, worktree).writing(worktree.object_stores());
        call.line(&["commit-tree", "-p", head, "-m", &message, tree]).await
    }
}

/// Formats a reason with its first paths. `None` if there are none.
fn named(what: &str, paths: &[PathBuf]) -> Option<String> {
    let shown: Vec<String> = paths.iter().take(MAX_NAMED_PATHS).map(|path| path.display().to_string()).collect();
    let more = match paths.len().saturating_sub(MAX_NAMED_PATHS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!shown.is_empty()).then(|| format!("{}{more}: {what}", shown.join(", ")))
}

/// Parses files, insertions and deletions from `--shortstat`.
fn counts(stat: &str) -> (Option<u64>, Option<u64>, Option<u64>) {
    let number = |word: &str| {
        let part = stat.split(',').find(|part| part.contains(word));
        Some(part.and_then(|part| part.split_whitespace().next()?.parse().ok()).unwrap_or(0))
    };
    (number("file"), number("insertion"), number("deletion"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_counts_of_a_shortstat() {
        let some = |a, b, c| (Some(a), Some(b), Some(c));
        assert_eq!(counts(""), some(0, 0, 0));
        assert_eq!(counts(" 1 file changed, 1 insertion(+)"), some(1, 1, 0));
        assert_eq!(counts(" 12 files changed, 30 insertions(+), 4 deletions(-)"), some(12, 30, 4));
        assert_eq!(counts(" 1 file changed, 0 insertions(+), 0 deletions(-)"), some(1, 0, 0));
    }

    #[test]
    fn reason_names_three_paths_and_counts_the_rest() {
        let paths = |number: usize| (0..number).map(|n| PathBuf::from(format!("p{n}"))).collect::<Vec<_>>();
        assert_eq!(named("x", &paths(0)), None);
        assert_eq!(named("x", &paths(1)).unwrap(), "p0: x");
        assert_eq!(named("x", &paths(5)).unwrap(), "p0, p1, p2 and 2 more: x");
    }
}
