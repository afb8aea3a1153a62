//! A git worktree for one run: made from HEAD, and afterwards either removed as it was, or kept as a branch.
//!
//! The user's checkout, index and branches are never touched: the worktree is detached, and what the agent did is
//! committed to `trunkline/<run>`. `git worktree add` and `remove` race with each other in one repository, so both
//! happen under a lock: a mutex in this process and a file lock for other gateways.

mod discarding;
mod folder;
mod ledger;
mod patch;
mod saving;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use tokio::sync::OwnedMutexGuard;
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};

use crate::git::{Git, Tree};
use crate::session::Place;
use ledger::{Entry, Ledger, Standing};
pub(crate) use saving::After;

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

    async fn in_tree(&self, worktree: &Worktree, args: &[&str]) -> Result<Vec<u8>, Failure> {
        let tree = Tree { path: &worktree.path, registration: &worktree.registration() };
        self.git.run_in(&tree, args).await
    }

    async fn line_in_tree(&self, worktree: &Worktree, args: &[&str]) -> Result<String, Failure> {
        let tree = Tree { path: &worktree.path, registration: &worktree.registration() };
        self.git.line_in(&tree, args).await
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

struct Lock {
    _file: File,
    _guard: OwnedMutexGuard<()>,
}
