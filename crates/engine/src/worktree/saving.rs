//! The end of a run's worktree: the agent's work becomes a commit on a branch of its own.
//!
//! ```text
//! InUse ──save──▶ Saved ──▶ moved aside, deleted after the answer
//!   │
//!   └─ failed, cut off, or more than a branch can hold ──▶ the folder stays, and the receipt says where and why
//! ```
//!
//! A save uses a git directory of its own (`room.rs`), so that nothing the agent wrote into the worktree's own decides what
//! is seen as changed. It is bounded in time, and cut short when the run is cancelled or the gateway stops. A ledger entry
//! says that it is due: if it does not come to its end, a later gateway does it again.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_core::event::Receipt;
use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::discarding::Gone;
use super::folder::Worktree;
use super::ledger::{Entry, Standing};
use super::room::Room;
use super::survey::{Survey, survey};
use crate::sandbox::untrusted::{self, MAX_GIT_FILE_BYTES};

/// Policy for a worktree after its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct After {
    /// The folder stays.
    pub(crate) keep: bool,
    /// The files that the run added are listed in [`HELPERS_LOG`].
    pub(crate) log_helpers: bool,
    /// Helper programs that the run added are named in the receipt.
    pub(crate) forbid_helpers: bool,
}

/// A worktree whose run is over: the receipt for it, and its files if they can be deleted.
pub(crate) struct Finished {
    pub(crate) receipt: Receipt,
    pub(crate) gone: Option<Gone>,
    /// Earlier runs whose work was still in the folder, and is saved with this one's.
    pub(crate) recovered: Vec<String>,
}

/// Pauses between attempts to save.
const SAVE_RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(700)];

/// Time that is left to a save when its run is cancelled, or the gateway stops.
const CANCELLED_SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most that is read of an index that an agent may have written.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// The most names that a reason lists.
const MAX_NAMED_PATHS: usize = 3;

/// Where a run's commit lists the files it added, for a repository whose policy asks for it.
const HELPERS_LOG: &str = ".trunkline/helpers.log";

impl Worktrees {
    /// Saves the work of a run and takes its folder down, unless it is to stay. `stopping` ends when there is no more
    /// reason to wait: the save has [`CANCELLED_SAVE_TIMEOUT`] from then on.
    pub(crate) async fn finish(
        &self,
        worktree: &Worktree,
        after: After,
        stopping: impl Future<Output = ()>,
    ) -> Finished {
        let timeout = self.git.timeout();
        let cut = |why: String| Err(Failure::new(Category::Timeout, why));
        let saved = tokio::select! {
            saved = self.save_or_retry(worktree, after) => saved,
            () = tokio::time::sleep(timeout) => cut(format!("saving took longer than {timeout:?} (--git-timeout)")),
            () = async { stopping.await; tokio::time::sleep(CANCELLED_SAVE_TIMEOUT).await } => {
                cut("saving was cut short, because the run was cancelled or the gateway stopped".to_owned())
            }
        };
        let receipt = match saved {
            Ok(receipt) => receipt,
            Err(failure) => {
                tracing::error!(run = worktree.run, path = %worktree.path.display(), %failure, "work is not saved; its worktree stays");
                self.ledger.note_failed_save(worktree);
                return Finished { receipt: worktree.left_behind(&failure), gone: None, recovered: Vec::new() };
            }
        };
        let recovered = self.ledger.earlier_runs(worktree);
        recovered.iter().for_each(|run| self.ledger.forget(run));
        if receipt.path.is_some() {
            self.ledger.forget(&worktree.run);
            return Finished { receipt, gone: None, recovered };
        }
        // From here on a missing file is not one that the agent has deleted. Without this note the work is saved twice.
        let _ = self.ledger.write(&Entry::of(worktree, Standing::Saved));
        Finished { receipt, gone: self.clear(worktree, Standing::Saved).await, recovered }
    }

    /// Saves, and tries again: a process that was killed, or a lock that is held for a moment, is no reason to keep the
    /// folder.
    async fn save_or_retry(&self, worktree: &Worktree, after: After) -> Result<Receipt, Failure> {
        let mut saved = self.save(worktree, after).await;
        for pause in SAVE_RETRY_PAUSES {
            let Err(failure) = &saved else { break };
            tracing::debug!(run = worktree.run, %failure, ?pause, "a save is tried again");
            tokio::time::sleep(pause).await;
            saved = self.save(worktree, after).await;
        }
        saved
    }

    async fn save(&self, worktree: &Worktree, after: After) -> Result<Receipt, Failure> {
        let mut reasons = Vec::new();
        let room = self.room(worktree).await?;
        let head = self.head(&room, worktree).await;
        let commit = if untrusted::real(&worktree.path) {
            let survey = self.survey(worktree).await?;
            if worktree.point_back().is_err() {
                reasons.push("its .git is a folder of its own".to_owned());
            }
            reasons.extend(named("a repository of its own, which a branch cannot hold", &survey.repositories));
            reasons.extend(named("not seen by git", &survey.skipped));
            let tree = self.tree(&room, worktree, &head, &survey, after, &mut reasons).await?;
            self.commit(&room, worktree, &head, &tree).await?
        } else {
            reasons.push(
                "its folder was moved or removed during the run: uncommitted changes in it are not saved".to_owned(),
            );
            head
        };
        let mut receipt = Receipt { base: worktree.base.clone(), ..Receipt::unchanged() };
        receipt.refs = self.save_left_commits(&room, worktree, &commit).await?;
        if commit != worktree.base {
            receipt.branch = Some(self.put_on_branch(&room, worktree, &commit).await?);
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
            let stat = self.in_room(&room, worktree).line(&stat).await?;
            (receipt.files_changed, receipt.insertions, receipt.deletions) = counts(&stat);
            reasons.extend(named(
                "ignored by a rule that the run added",
                &self.newly_ignored(&room, worktree, &commit).await?,
            ));
            if after.forbid_helpers {
                let helpers = self.added_helpers(&room, worktree, &commit).await?;
                receipt.warnings.extend(named("added although the policy forbids helpers (createHelpers)", &helpers));
            }
            receipt.commit = Some(commit);
        }
        if (after.keep || !reasons.is_empty()) && worktree.path.symlink_metadata().is_ok() {
            receipt.path = Some(worktree.path.to_string_lossy().into_owned());
            self.ledger.keep_index(worktree, &room.index());
        }
        receipt.reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(receipt)
    }

    /// The commit that the worktree's HEAD names; the first one if it names none. An agent may have written anything there.
    async fn head(&self, room: &Room, worktree: &Worktree) -> String {
        let head = untrusted::read(&worktree.registration.join("HEAD"), MAX_GIT_FILE_BYTES).unwrap_or_default();
        let head = String::from_utf8_lossy(&head);
        let name = head.strip_prefix("ref:").unwrap_or(&head).trim();
        if name == worktree.base || !(name.starts_with("refs/") || name.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return worktree.base.clone();
        }
        let commit = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        self.in_room(room, worktree).line(&args).await.unwrap_or_else(|_| worktree.base.clone())
    }

    pub(super) async fn survey(&self, worktree: &Worktree) -> Result<Survey, Failure> {
        let path = worktree.path.clone();
        let found = tokio::task::spawn_blocking(move || survey(&path)).await;
        let found = found.map_err(std::io::Error::other).and_then(|found| found);
        found.map_err(|error| Failure::new(Category::Configuration, format!("{}: {error}", worktree.path.display())))
    }

    /// Records the files as they are, and returns the tree.
    async fn tree(
        &self,
        room: &Room,
        worktree: &Worktree,
        head: &str,
        survey: &Survey,
        after: After,
        reasons: &mut Vec<String>,
    ) -> Result<String, Failure> {
        let call = || self.in_room(room, worktree).writing(worktree.object_stores());
        if head != worktree.base {
            // Files that the agent committed although they are ignored are known from here on.
            let merged = call().run(&["read-tree", "-i", "-m", &worktree.base, head]).await;
            if merged.is_err() {
                call().run(&["read-tree", head]).await?;
            }
        }
        call().run(&survey.add_all()).await?;
        self.add_staged(room, worktree, survey).await?;
        if after.log_helpers {
            reasons.extend(self.log_helpers(room, worktree).await?);
        }
        call().line(&["write-tree"]).await
    }

    /// Adds files that the agent has staged although they are ignored.
    async fn add_staged(&self, room: &Room, worktree: &Worktree, survey: &Survey) -> Result<(), Failure> {
        let staged = untrusted::read(&worktree.registration.join("index"), MAX_INDEX_BYTES).unwrap_or_default();
        if staged.is_empty() || self.ledger.index_is(worktree, &staged) {
            return Ok(());
        }
        let copy = room.path.join("staged");
        let unwritable = |error: std::io::Error| Failure::new(Category::Server, error.to_string());
        fs::write(&copy, staged).map_err(unwritable)?;
        let call = || self.in_room(room, worktree).writing(worktree.object_stores());
        let tree = call().line(&["write-tree"]).await?;
        let list = ["diff-index", "--cached", "--name-only", "--diff-filter=A", "-z", &tree];
        // An index that cannot be read holds nothing that the files do not.
        let Ok(added) = call().with("GIT_INDEX_FILE", copy).run(&list).await else { return Ok(()) };
        let there = |path: &[u8]| {
            let path = Path::new(OsStr::from_bytes(path));
            let found = worktree.path.join(path).symlink_metadata();
            found.is_ok_and(|found| !found.is_dir()) && !survey.repositories.iter().any(|inner| path.starts_with(inner))
        };
        let added: Vec<&[u8]> = added.split(|byte| *byte == 0).filter(|path| !path.is_empty() && there(path)).collect();
        if added.is_empty() {
            return Ok(());
        }
        let add = ["add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul"];
        call().with("GIT_LITERAL_PATHSPECS", "1").stdin(added.join(&0)).run(&add).await?;
        Ok(())
    }

    /// Adds a line for each file that the run added. Returns the reason if that cannot be done.
    async fn log_helpers(&self, room: &Room, worktree: &Worktree) -> Result<Option<String>, Failure> {
        let call = || self.in_room(room, worktree).writing(worktree.object_stores());
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

    /// Programs that the run added: files that can be executed.
    async fn added_helpers(&self, room: &Room, worktree: &Worktree, commit: &str) -> Result<Vec<PathBuf>, Failure> {
        let list = ["diff-tree", "-r", "-z", "--diff-filter=A", &worktree.base, commit, "--"];
        let added = self.in_room(room, worktree).run(&list).await?;
        let mut fields = added.split(|byte| *byte == 0);
        let mut helpers = Vec::new();
        while let (Some(modes), Some(path)) = (fields.next(), fields.next()) {
            if modes.starts_with(b":000000 100755 ") {
                helpers.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        Ok(helpers)
    }

    /// A commit of the tree on top of `head`; `head` itself if that has the same tree.
    async fn commit(&self, room: &Room, worktree: &Worktree, head: &str, tree: &str) -> Result<String, Failure> {
        let of_head = self.in_room(room, worktree).line(&["rev-parse", &format!("{head}^{{tree}}")]).await?;
        if of_head == tree {
            return Ok(head.to_owned());
        }
        let message = format!("Work of run {}", worktree.run);
        let call = self.in_room(room, worktree).writing(worktree.object_stores());
        call.line(&["commit-tree", "-p", head, "-m", &message, tree]).await
    }
}

/// A reason that names some of the paths it is about; none if there are none.
fn named(what: &str, paths: &[PathBuf]) -> Option<String> {
    let shown: Vec<String> = paths.iter().take(MAX_NAMED_PATHS).map(|path| path.display().to_string()).collect();
    let more = match paths.len().saturating_sub(MAX_NAMED_PATHS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!shown.is_empty()).then(|| format!("{}{more}: {what}", shown.join(", ")))
}

/// Files, insertions and deletions of a `--shortstat`.
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
    fn counts_of_a_shortstat() {
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
