//! The end of a run's worktree: what was done in it becomes a commit on a branch of its own.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};

use super::ledger::{Entry, Standing};
use super::{Gone, Worktree, Worktrees};

/// What happens to a worktree after its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct After {
    /// The folder stays.
    pub(crate) keep: bool,
    /// The files that the run added are listed in [`HELPERS_LOG`].
    pub(crate) log_helpers: bool,
}

/// Between the tries to put a worktree in order.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(700)];

/// Where a run's commit lists the files it added, for a repository whose policy asks for it.
const HELPERS_LOG: &str = ".trunkline/helpers.log";

impl Worktrees {
    /// After the run: what it did is committed to a branch, and the folder goes unless it is kept. Its files are still to be
    /// deleted.
    ///
    /// On an error the folder stays where it is: nothing an agent did is thrown away. But not on the first one: a git that
    /// was killed, or a lock that somebody holds for a moment, is no reason to leave it lying about.
    pub(crate) async fn finish(&self, worktree: &Worktree, after: After) -> Result<(Receipt, Option<Gone>), Failure> {
        let mut saved = self.save(worktree, after).await;
        for pause in PAUSES {
            let Err(failure) = &saved else { break };
            tracing::debug!(run = worktree.run, %failure, ?pause, "a worktree is tried again");
            tokio::time::sleep(pause).await;
            saved = self.save(worktree, after).await;
        }
        let receipt = saved?;
        if receipt.path.is_some() {
            self.ledger.forget(&worktree.run);
            return Ok((receipt, None));
        }
        // From here on a file that is missing is not one that the agent has deleted.
        let _then_it_is_committed_once_more = self.ledger.write(&Entry::of(worktree, Standing::Saved));
        Ok((receipt, self.clear(worktree, Standing::Saved).await))
    }

    /// Commits what is there. Whatever of it was done by an earlier try is not done again.
    async fn save(&self, worktree: &Worktree, after: After) -> Result<Receipt, Failure> {
        let mut receipt = Receipt { base: worktree.base.clone(), ..Receipt::default() };
        // Nobody of the run lives any more: a lock that one of its gits held is nobody's.
        worktree.remove_stale_lock();
        let status = self.status(worktree).await?;
        let nested = worktree.point_back().is_err() || status.nested;
        let mut head = status.head;
        if status.changed {
            self.in_tree(worktree, &["add", "--all"]).await?;
            if after.log_helpers {
                self.log_helpers(worktree).await?;
            }
            // The agent may have checked out a branch of the user's: our commit must not move it.
            if status.on_branch {
                self.in_tree(worktree, &["update-ref", "--no-deref", "HEAD", &head]).await?;
            }
            let message = format!("Work of run {}", worktree.run);
            self.in_tree(worktree, &["commit", "--quiet", "--no-verify", "--allow-empty", "-m", &message]).await?;
            head = self.line_in_tree(worktree, &["rev-parse", "HEAD"]).await?;
        }
        if head != worktree.base {
            let branch = format!("trunkline/{}", worktree.run);
            self.git.run(&worktree.repo, &["update-ref", &format!("refs/heads/{branch}"), &head]).await?;
            let stat = self.in_tree(worktree, &["diff", "--numstat", "-z", &worktree.base, &head]).await?;
            (receipt.files_changed, receipt.insertions, receipt.deletions) = count(&stat);
            (receipt.branch, receipt.commit) = (Some(branch), Some(head));
        }
        if after.keep || nested {
            receipt.path = Some(worktree.path.to_string_lossy().into_owned());
        }
        Ok(receipt)
    }

    async fn status(&self, worktree: &Worktree) -> Result<Status, Failure> {
        let status = ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames"];
        let told = self.in_tree(worktree, &status).await?;
        let mut status = Status::of(&told);
        if status.head.is_empty() {
            // On a branch without a commit: git says what is wrong with that.
            status.head = self.line_in_tree(worktree, &["rev-parse", "--verify", "HEAD"]).await?;
        }
        Ok(status)
    }

    /// Adds a line for each file that the run added.
    async fn log_helpers(&self, worktree: &Worktree) -> Result<(), Failure> {
        let added = self.in_tree(worktree, &["diff", "--cached", "--name-only", "--diff-filter=A", "-z"]).await?;
        let added = String::from_utf8_lossy(&added);
        let lines: String = added
            .split('\0')
            .filter(|path| !path.is_empty() && *path != HELPERS_LOG)
            .map(|path| format!("{} {path}\n", worktree.run))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let path = worktree.path.join(HELPERS_LOG);
        let written = fs::create_dir_all(worktree.path.join(".trunkline"))
            .and_then(|()| OpenOptions::new().create(true).append(true).open(&path))
            .and_then(|mut file| file.write_all(lines.as_bytes()));
        written.map_err(|error| Failure::new(Category::Configuration, format!("{}: {error}", path.display())))?;
        self.in_tree(worktree, &["add", "--force", HELPERS_LOG]).await?;
        Ok(())
    }
}

/// What git says of a worktree.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    /// Empty if there is no commit.
    head: String,
    on_branch: bool,
    changed: bool,
    /// A repository inside the worktree would be committed as a bare reference to it, and lost with the folder.
    nested: bool,
}

impl Status {
    /// Reads a `--porcelain=v2 --branch -z`.
    fn of(told: &[u8]) -> Self {
        let mut status = Self { on_branch: true, ..Self::default() };
        for line in told.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            match line.strip_prefix(b"# ") {
                Some(b"branch.head (detached)") => status.on_branch = false,
                Some(said) => {
                    let commit = said.strip_prefix(b"branch.oid ").filter(|id| *id != b"(initial)");
                    status.head.extend(commit.map(|id| String::from_utf8_lossy(id)));
                }
                None => {
                    status.changed = true;
                    status.nested |= line.starts_with(b"? ") && line.ends_with(b"/");
                }
            }
        }
        status
    }
}

/// Files, insertions and deletions of a `--numstat -z`. Binary files count as changed, without lines.
fn count(numstat: &[u8]) -> (u64, u64, u64) {
    let (mut files, mut insertions, mut deletions) = (0, 0, 0);
    for entry in String::from_utf8_lossy(numstat).split('\0') {
        let mut fields = entry.splitn(3, '\t');
        let (Some(added), Some(removed), Some(_)) = (fields.next(), fields.next(), fields.next()) else { continue };
        files += 1;
        insertions += added.parse().unwrap_or(0);
        deletions += removed.parse().unwrap_or(0);
    }
    (files, insertions, deletions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says() {
        let clean = Status { head: "abc".into(), ..Status::default() };
        assert_eq!(Status::of(b"# branch.oid abc\0# branch.head (detached)\0"), clean);
        let told = b"# branch.oid abc\0# branch.head main\0# branch.upstream o/m\0# branch.ab +0 -0\x001 .M N... a\0? b\0? c/\0";
        assert_eq!(Status::of(told), Status { on_branch: true, changed: true, nested: true, ..clean });
        assert_eq!(Status::of(b"# branch.oid (initial)\0# branch.head new\0").head, "");
    }

    #[test]
    fn counting_lines() {
        assert_eq!(count(b""), (0, 0, 0));
        assert_eq!(count(b"1\t2\ta b.txt\0-\t-\timage.png\0"), (2, 1, 2));
        assert_eq!(count(b"3\t0\t\0old\0new\0"), (1, 3, 0));
    }
}
