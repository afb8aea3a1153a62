//! A git worktree for one run: made from HEAD, and afterwards either removed as it was, or kept as a branch.
//!
//! The user's checkout, index and branches are never touched: the worktree is detached, and what the agent did is
//! committed to `trunkline/<run>`. `git worktree add` and `remove` race with each other in one repository, so both
//! happen under a lock: a mutex in this process and a file lock for other gateways.
//!
//! Writing many files takes long, and so does removing them. Neither is on a turn's path if that can be: the next worktree of
//! a repository is made before it is asked for (`spare`), and what a run leaves is moved aside and removed after its answer
//! (`discarding`).

mod discarding;
mod folder;
mod ground;
mod ledger;
mod look;
mod patch;
mod saving;
mod shelf;
mod spare;
mod tending;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};

use crate::git::{Git, Tree};
use crate::session::Place;
pub(crate) use discarding::Gone;
use ledger::{Entry, Ledger, Standing};
pub(crate) use saving::After;
use spare::Spares;

/// Makes worktrees and takes them down.
pub(crate) struct Worktrees {
    git: Git,
    base: PathBuf,
    ledger: Ledger,
    locks: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
    /// Held while leftovers are swept: a session's folder may be one of them.
    sweeping: tokio::sync::Mutex<()>,
    spares: Spares,
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
    /// The entry that git keeps for it in the repository.
    registration: PathBuf,
    base: String,
    /// The conversation that goes on there.
    session: Option<SessionId>,
}

/// A worktree as it is asked for.
pub(crate) struct Wanted {
    pub(crate) repo: PathBuf,
    /// The attempt: its name.
    pub(crate) run: String,
    pub(crate) session: Option<SessionId>,
    /// Where the session left off.
    pub(crate) place: Option<Place>,
    /// Another try of the same turn went before, whose work is on a branch of its own.
    pub(crate) again: bool,
    /// One that is ready will do, and is to be ready the next time.
    pub(crate) spare: bool,
}

/// With less room than this, a worktree that cannot be made lacks room.
const LITTLE_ROOM: u64 = 16 << 20;

impl Worktrees {
    pub(crate) fn new(git: Git, base: PathBuf, state: &Path) -> Self {
        let ledger = Ledger::new(state.join("worktrees"));
        let (locks, sweeping, spares) = (Mutex::default(), tokio::sync::Mutex::default(), Spares::default());
        Self { git, base, ledger, locks, sweeping, spares }
    }

    /// A fresh worktree for the run: of the repository's HEAD, or of where its session left off.
    pub(crate) async fn add(&self, wanted: Wanted) -> Result<Worktree, Failure> {
        let Wanted { repo, run, session, place, again, spare } = wanted;
        self.check_base()?;
        let spare = spare && self.spares.is_open();
        let settings = async { if spare { self.settings(&repo).await.ok() } else { None } };
        let (ground, settings) = tokio::join!(self.ground(&repo), settings);
        let ground = ground?;
        let place = place.filter(|place| place.common == ground.common);
        let base = match &place {
            Some(place) if self.has_commit(&repo, &place.tip).await => place.tip.clone(),
            Some(_) | None => ground.head.clone(),
        };
        let path = self.base.join(place.as_ref().map_or(&run, |place| &place.name));
        let cwd = match ground.prefix.trim_end_matches('/') {
            "" => path.clone(),
            prefix => path.join(prefix),
        };
        let usual = Worktree::usual_registration(&ground.common, &path);
        let kept = || path.join(".git").exists();
        let registration = match place.and_then(|place| place.registration).filter(|_| kept()) {
            Some(name) => ground.common.join("worktrees").join(name),
            None => usual.clone(),
        };
        let common = ground.common.clone();
        let mut worktree = Worktree { path: path.clone(), cwd, run, repo, common, registration, base, session };
        let standing = if kept() { Standing::InUse } else { Standing::Unmade };
        self.ledger.write(&Entry::of(&worktree, standing))?;
        if path.exists() {
            drop(self.sweeping.lock().await);
        }
        if kept() {
            // The session's own folder, kept after an earlier turn.
            if again {
                self.in_tree(&worktree, &["reset", "--hard", "--quiet", &worktree.base]).await?;
            }
            return Ok(worktree);
        }
        worktree.registration = usual;
        let rules = settings.map(|settings| self.rules(&ground, &settings));
        if rules.is_some() {
            self.spares.shelf().used(&ground, &worktree.repo, Instant::now());
        }
        let taken = match rules {
            Some(rules) => self.take(&mut worktree, &ground, &rules).await,
            None => false,
        };
        let made = if taken { Ok(()) } else { self.make(&worktree).await };
        let made = made.and_then(|()| self.ledger.write(&Entry::of(&worktree, Standing::InUse)));
        if let Err(failure) = made {
            let failure = self.with_room(failure);
            self.discard(&worktree, Standing::Unmade).await;
            return Err(failure);
        }
        tracing::debug!(run = worktree.run, spare = taken, "a worktree");
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

    async fn make(&self, worktree: &Worktree) -> Result<(), Failure> {
        self.ledger.write(&Entry::of(worktree, Standing::Unmade))?;
        self.register(worktree).await?;
        self.in_tree(worktree, &["reset", "--hard", "--quiet"]).await?;
        Ok(())
    }

    /// Only the registration is locked; the files are filled in beside other runs.
    async fn register(&self, worktree: &Worktree) -> Result<(), Failure> {
        let _lock = self.lock(&worktree.common).await?;
        let path = worktree.path.to_string_lossy();
        self.git.run(&worktree.repo, &["worktree", "add", "--detach", "--no-checkout", &path, &worktree.base]).await?;
        Ok(())
    }

    async fn in_tree(&self, worktree: &Worktree, args: &[&str]) -> Result<Vec<u8>, Failure> {
        let tree = Tree { path: &worktree.path, registration: &worktree.registration };
        self.git.run_in(&tree, args).await
    }

    async fn line_in_tree(&self, worktree: &Worktree, args: &[&str]) -> Result<String, Failure> {
        let tree = Tree { path: &worktree.path, registration: &worktree.registration };
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
