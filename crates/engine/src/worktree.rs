//! A git worktree for one run: made from HEAD, and afterwards either removed as it was, or kept as a branch.
//!
//! The user's checkout, index and branches are never touched: the worktree is detached, and what the agent did is
//! committed to `trunkline/<run>`. `git worktree add` and `remove` race with each other in one repository, so both
//! happen under a lock: a mutex in this process and a file lock for other gateways.

mod ledger;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::FlockOperation;
use tokio::sync::OwnedMutexGuard;
use trunkline_core::event::{Receipt, SessionId};
use trunkline_core::failure::{Category, Failure};

use crate::git::{Git, Tree};
use crate::sandbox;
use crate::session::Place;
use ledger::{Entry, Ledger, Standing};

/// Makes worktrees and takes them down.
pub(crate) struct Worktrees {
    git: Git,
    base: PathBuf,
    ledger: Ledger,
    locks: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
    /// Held while leftovers are swept: a session's folder may be one of them.
    sweeping: tokio::sync::Mutex<()>,
}

/// One run's own folder.
#[derive(Debug, Clone)]
pub(crate) struct Worktree {
    path: PathBuf,
    /// Where the run works: the same folder inside the repository as the model's.
    pub(crate) cwd: PathBuf,
    run: String,
    repo: PathBuf,
    common: PathBuf,
    base: String,
    /// The conversation that goes on there.
    session: Option<SessionId>,
}

/// A worktree of a dead gateway, and what it held.
pub(crate) struct Swept {
    /// The attempt.
    pub(crate) run: String,
    pub(crate) receipt: Receipt,
    /// Where the conversation it was part of goes on.
    pub(crate) place: Option<(SessionId, Place)>,
}

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

/// With less room than this, a worktree that cannot be made lacks room.
const LITTLE_ROOM: u64 = 16 << 20;

impl Worktrees {
    pub(crate) fn new(git: Git, base: PathBuf, state: &Path) -> Self {
        let ledger = Ledger::new(state.join("worktrees"));
        Self { git, base, ledger, locks: Mutex::default(), sweeping: tokio::sync::Mutex::default() }
    }

    /// A fresh worktree for the run: of the repository's HEAD, or of where its session left off.
    ///
    /// `again` says that another try of the same turn went before, whose work is on a branch of its own.
    pub(crate) async fn add(
        &self,
        repo: &Path,
        run: &str,
        session: Option<SessionId>,
        place: Option<Place>,
        again: bool,
    ) -> Result<Worktree, Failure> {
        self.check_base()?;
        let located =
            self.git.line(repo, &["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-prefix"]).await?;
        let (common, prefix) = located.split_once('\n').unwrap_or((&located, ""));
        let head =
            self.git.line(repo, &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).await.map_err(|failure| {
                Failure { message: format!("{}: a worktree needs a first commit", repo.display()), ..failure }
            })?;
        let (name, base) = match place.filter(|place| place.common == Path::new(common)) {
            Some(place) if self.has_commit(repo, &place.tip).await => (place.name, place.tip),
            Some(place) => (place.name, head),
            None => (run.to_owned(), head),
        };
        let path = self.base.join(name);
        let cwd = if prefix.is_empty() { path.clone() } else { path.join(prefix.trim_end_matches('/')) };
        let (run, repo, common) = (run.to_owned(), repo.to_owned(), common.into());
        let worktree = Worktree { path, cwd, run, repo, common, base, session };
        let kept = || worktree.path.join(".git").exists();
        let standing = if kept() { Standing::InUse } else { Standing::Unmade };
        self.ledger.write(&Entry::of(&worktree, standing))?;
        if worktree.path.exists() {
            drop(self.sweeping.lock().await);
        }
        if kept() {
            // The session's own folder, kept after an earlier turn.
            if again {
                self.in_tree(&worktree, &["reset", "--hard", "--quiet", &worktree.base]).await?;
            }
            return Ok(worktree);
        }
        self.ledger.write(&Entry::of(&worktree, Standing::Unmade))?;
        let made = match self.make(&worktree).await {
            Ok(()) => self.ledger.write(&Entry::of(&worktree, Standing::InUse)),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = made {
            let failure = self.with_room(failure);
            self.discard(&worktree, Standing::Unmade).await;
            return Err(failure);
        }
        Ok(worktree)
    }

    /// Says how little room there is, where that is likely to be the reason: git does not.
    fn with_room(&self, failure: Failure) -> Failure {
        match rustix::fs::statvfs(&self.base) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < LITTLE_ROOM => {
                let left = disk.f_bavail.saturating_mul(disk.f_frsize) / 1024;
                failure.hint(format!("the disk of {} has {left} KiB left: is it full?", self.base.display()))
            }
            Ok(_) | Err(_) => failure,
        }
    }

    /// Whether a commit is still there: a branch may have been deleted since.
    async fn has_commit(&self, repo: &Path, commit: &str) -> bool {
        self.git.run(repo, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).await.is_ok()
    }

    /// Only the registration is locked; the files are filled in beside other runs.
    async fn make(&self, worktree: &Worktree) -> Result<(), Failure> {
        let lock = self.lock(&worktree.common).await?;
        let path = worktree.path.to_string_lossy();
        self.git.run(&worktree.repo, &["worktree", "add", "--detach", "--no-checkout", &path, &worktree.base]).await?;
        drop(lock);
        self.in_tree(worktree, &["reset", "--hard", "--quiet"]).await?;
        Ok(())
    }

    /// After the run: what it did is committed to a branch, and the folder goes unless it is kept.
    ///
    /// On an error the folder stays where it is: nothing an agent did is thrown away. But not on the first one: a git that
    /// was killed, or a lock that somebody holds for a moment, is no reason to leave it lying about.
    pub(crate) async fn finish(&self, worktree: &Worktree, after: After) -> Result<Receipt, Failure> {
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
        } else {
            // From here on a file that is missing is not one that the agent has deleted.
            let _then_it_is_committed_once_more = self.ledger.write(&Entry::of(worktree, Standing::Saved));
            self.discard(worktree, Standing::Saved).await;
        }
        Ok(receipt)
    }

    /// Commits what is there. Whatever of it was done by an earlier try is not done again.
    async fn save(&self, worktree: &Worktree, after: After) -> Result<Receipt, Failure> {
        let mut receipt = Receipt { base: worktree.base.clone(), ..Receipt::default() };
        // Nobody of the run lives any more: a lock that one of its gits held is nobody's.
        worktree.remove_stale_lock();
        let status = self.in_tree(worktree, &["status", "--porcelain", "-z", "--untracked-files=all"]).await?;
        // A repository inside the worktree would be committed as a bare reference to it, and lost with the folder.
        let nested = status.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"?? ") && entry.ends_with(b"/"));
        let nested = worktree.point_back().is_err() || nested;
        if !status.is_empty() {
            self.in_tree(worktree, &["add", "--all"]).await?;
            if after.log_helpers {
                self.log_helpers(worktree).await?;
            }
            // The agent may have checked out a branch of the user's: our commit must not move it.
            let head = self.line_in_tree(worktree, &["rev-parse", "HEAD"]).await?;
            self.in_tree(worktree, &["update-ref", "--no-deref", "HEAD", &head]).await?;
            let message = format!("Work of run {}", worktree.run);
            self.in_tree(worktree, &["commit", "--quiet", "--no-verify", "--allow-empty", "-m", &message]).await?;
        }
        let head = self.line_in_tree(worktree, &["rev-parse", "HEAD"]).await?;
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

    async fn in_tree(&self, worktree: &Worktree, args: &[&str]) -> Result<Vec<u8>, Failure> {
        let tree = Tree { path: &worktree.path, registration: &worktree.registration() };
        self.git.run_in(&tree, args).await
    }

    async fn line_in_tree(&self, worktree: &Worktree, args: &[&str]) -> Result<String, Failure> {
        let tree = Tree { path: &worktree.path, registration: &worktree.registration() };
        self.git.line_in(&tree, args).await
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

    async fn remove(&self, worktree: &Worktree) -> Result<(), Failure> {
        let lock = self.lock(&worktree.common).await?;
        let path = worktree.path.to_string_lossy();
        self.git.run(&worktree.repo, &["worktree", "remove", "--force", &path]).await?;
        drop(lock);
        self.ledger.forget(&worktree.run);
        Ok(())
    }

    /// Takes down a worktree that holds nobody's work. Git itself does not remove one that it had not finished making, or
    /// had begun to remove.
    async fn discard(&self, worktree: &Worktree, standing: Standing) {
        if worktree.path.exists() && self.remove(worktree).await.is_ok() {
            return;
        }
        // What was there before the worktree came to be, and is not marked as one, is somebody's.
        let all = standing == Standing::Saved || worktree.is_marked();
        let removed = if all { fs::remove_dir_all(&worktree.path) } else { fs::remove_dir(&worktree.path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(run = worktree.run, path = %worktree.path.display(), %error, "it cannot be removed");
            }
            Ok(()) | Err(_) => {
                worktree.remove_registration();
                self.ledger.forget(&worktree.run);
            }
        }
    }

    /// Takes care of what gateways that died left behind: commits it, removes it. Touches nothing it did not make.
    pub(crate) async fn sweep(&self) -> Vec<Swept> {
        let _sweeping = self.sweeping.lock().await;
        let mut swept = Vec::new();
        for entry in self.ledger.abandoned() {
            let standing = entry.standing();
            let worktree = entry.worktree();
            tracing::info!(run = worktree.run, path = %worktree.path.display(), "a worktree of a dead gateway");
            // One that was never filled in, or is half gone, looks as if its files had been deleted.
            if standing != Standing::InUse || !worktree.path.exists() {
                self.discard(&worktree, standing).await;
                continue;
            }
            match self.finish(&worktree, After::default()).await {
                Ok(receipt) => {
                    match &receipt.branch {
                        Some(branch) => tracing::info!(run = worktree.run, branch, "its work is kept"),
                        None => tracing::info!(run = worktree.run, "nothing had changed; it is removed"),
                    }
                    let place = worktree.session.clone().map(|session| (session, worktree.place(&receipt)));
                    swept.push(Swept { run: worktree.run, receipt, place });
                }
                Err(failure) => tracing::warn!(run = worktree.run, %failure, "it stays where it is"),
            }
        }
        swept
    }

    /// The patch from one commit to another.
    pub(crate) async fn diff_of(&self, repo: &Path, base: &str, commit: &str) -> Result<Vec<u8>, Failure> {
        self.git.run(repo, &["diff", "--no-ext-diff", "--no-textconv", "--binary", base, commit, "--"]).await
    }

    /// The patch of what is in a worktree now, new files too. Its index is the agent's: what is needed for this is kept
    /// elsewhere, and goes with it.
    pub(crate) async fn diff(&self, worktree: &Worktree) -> Result<Vec<u8>, Failure> {
        let refuse = |error: io::Error| Failure::new(Category::Server, format!("no room for a diff: {error}"));
        let folder = self.base.join(format!(".diff-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(folder.join("objects")).map_err(refuse)?;
        let index = folder.join("index");
        // What git has seen of the files spares it reading them again.
        let _read_anew = fs::copy(worktree.registration().join("index"), &index);
        let env = [
            ("GIT_INDEX_FILE", index.into_os_string()),
            ("GIT_OBJECT_DIRECTORY", folder.join("objects").into_os_string()),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", worktree.common.join("objects").into_os_string()),
        ];
        let git = self.git.with_env(env);
        let tree = Tree { path: &worktree.path, registration: &worktree.registration() };
        let patch = async {
            git.run_in(&tree, &["add", "--all"]).await?;
            let diff = ["diff", "--cached", "--no-ext-diff", "--no-textconv", "--binary", &worktree.base, "--"];
            git.run_in(&tree, &diff).await
        };
        let patch = patch.await;
        let _in_the_way_of_nobody = fs::remove_dir_all(&folder);
        patch
    }

    async fn lock(&self, common: &Path) -> Result<Lock, Failure> {
        let mutex = {
            let mut locks = self.locks.lock().expect("no panic while holding the lock");
            Arc::clone(locks.entry(common.to_owned()).or_default())
        };
        let guard = mutex.lock_owned().await;
        let path = common.join("trunkline.lock");
        let locked = tokio::task::spawn_blocking(move || -> io::Result<File> {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        let file = locked.await.map_err(io::Error::other).and_then(|file| file);
        match file {
            Ok(file) => Ok(Lock { _file: file, _guard: guard }),
            Err(error) => {
                Err(Failure::new(Category::Configuration, format!("cannot lock {}: {error}", common.display())))
            }
        }
    }

    /// The folder for worktrees must be ours: another user's could be changed under us.
    fn check_base(&self) -> Result<(), Failure> {
        let refuse = |why: String| {
            Failure::new(Category::Configuration, format!("worktree folder {}: {why}", self.base.display()))
                .hint("choose another with --worktrees")
        };
        fs::create_dir_all(&self.base).map_err(|error| refuse(error.to_string()))?;
        let metadata = fs::symlink_metadata(&self.base).map_err(|error| refuse(error.to_string()))?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
            return Err(refuse("it belongs to somebody else".to_owned()));
        }
        Ok(())
    }
}

impl Worktree {
    /// What a run in it may write.
    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        let mut parts = vec![self.path.clone()];
        parts.extend(sandbox::of_worktree(&self.registration()));
        parts
    }

    /// What is said of a worktree that could not be put in order.
    pub(crate) fn left_behind(&self) -> Receipt {
        let path = Some(self.path.to_string_lossy().into_owned());
        Receipt { base: self.base.clone(), path, ..Receipt::default() }
    }

    /// Where its session goes on after a run that left this receipt.
    pub(crate) fn place(&self, receipt: &Receipt) -> Place {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tip = receipt.commit.clone().unwrap_or_else(|| self.base.clone());
        Place { common: self.common.clone(), name, tip }
    }

    /// The entry that git keeps for it in the repository.
    fn registration(&self) -> PathBuf {
        self.common.join("worktrees").join(self.path.file_name().unwrap_or_default())
    }

    /// Makes the folder say again whose it is, whatever an agent wrote there: git removes no other. Not if that has become
    /// a repository of its own.
    fn point_back(&self) -> io::Result<()> {
        if self.is_marked() {
            return Ok(());
        }
        let link = self.path.join(".git");
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new().create_new(true).write(true).open(&link)?.write_all(self.mark().as_bytes())
    }

    /// Whether the folder says whose it is.
    fn is_marked(&self) -> bool {
        let link = self.path.join(".git");
        fs::symlink_metadata(&link).is_ok_and(|found| found.is_file())
            && fs::read_to_string(&link).is_ok_and(|text| text == self.mark())
    }

    fn mark(&self) -> String {
        format!("gitdir: {}\n", self.registration().display())
    }

    fn remove_registration(&self) {
        let folder = self.registration();
        let own = self.path.join(".git");
        // Git writes down whose it is after it has made the folder.
        let said = fs::read_to_string(folder.join("gitdir")).unwrap_or_default();
        if said.is_empty() || Path::new(said.trim_end()) == own {
            let _gone_or_git_prunes_it = fs::remove_dir_all(folder);
        }
    }

    /// A lock that a git of the dead run held.
    fn remove_stale_lock(&self) {
        let _there_is_none = fs::remove_file(self.registration().join("index.lock"));
    }
}

struct Lock {
    _file: File,
    _guard: OwnedMutexGuard<()>,
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
    fn counting_lines() {
        assert_eq!(count(b""), (0, 0, 0));
        assert_eq!(count(b"1\t2\ta b.txt\0-\t-\timage.png\0"), (2, 1, 2));
        assert_eq!(count(b"3\t0\t\0old\0new\0"), (1, 3, 0));
    }
}
