//! Git worktrees: each run gets one, created from HEAD. Afterwards its changes are saved on a branch, and it is
//! removed.
//!
//! The user's checkout, index and branches are never touched: the worktree has a detached HEAD, and the agent's changes
//! are committed to `trunkline/<run>`. `git worktree add` and `remove` race with each other in one repository, so both
//! happen under a lock: a mutex in this process and a file lock for other gateways.
//!
//! Writing and deleting many files is slow, so a turn waits for neither if possible: spare worktrees are created ahead
//! of their turn (`spare`), and the files of a finished run are moved aside and deleted after its answer
//! (`discarding`).
//!
//! ```text
//! folder, repository_state          data: a worktree, the state of a repository
//! ledger                            records on disk, so that a later gateway can clean up
//! saving, discarding                the end of a worktree
//! branch, extra_refs, ignored       parts of a save
//! private_git_dir, survey, patch    reading files that an agent has written
//! spare, spare_pool, spare_inventory, spare_tasks, fingerprint     spare worktrees
//! read_repository                   the state of a repository, read with git
//! git                               git processes
//! ```

mod branch;
mod discarding;
mod extra_refs;
mod fingerprint;
mod folder;
pub(crate) mod git;
mod ignored;
mod ledger;
mod patch;
mod private_git_dir;
mod read_repository;
mod repository_state;
mod saving;
mod spare;
mod spare_inventory;
mod spare_pool;
mod spare_tasks;
mod survey;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::FlockOperation;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};

use crate::sandbox::untrusted;
use crate::session::SessionPlace;
use crate::worktree::git::{Git, GitCall, GitPaths};
pub(crate) use discarding::LeftoverFiles;
pub(crate) use folder::Worktree;
use ledger::{WorktreeLedger, WorktreeRecord, WorktreeState};
pub(crate) use saving::{SavedWorktree, WorktreePolicy};
use spare_pool::SparePool;

/// Creates, saves and removes worktrees.
pub(crate) struct Worktrees {
    git: Git,
    base: PathBuf,
    /// Canonical path of `base` when it was first used: agents can write its parent folder and replace it.
    pinned_base: OnceLock<PathBuf>,
    /// Private git directories.
    private_git_dirs: PathBuf,
    ledger: WorktreeLedger,
    lock_files: PathBuf,
    locks: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
    /// Held during a sweep, which may be saving a folder that a session continues in.
    sweeping: tokio::sync::Mutex<()>,
    spares: SparePool,
}

/// Request for a worktree.
pub(crate) struct WorktreeRequest {
    pub(crate) repo: PathBuf,
    /// Id of the attempt.
    pub(crate) run: String,
    pub(crate) session: Option<SessionId>,
    /// Point at which the session continues.
    pub(crate) place: Option<SessionPlace>,
    /// Whether an earlier attempt of the same turn has run. Its work is on another branch.
    pub(crate) again: bool,
    /// Whether a spare worktree may be used, and prepared for the next turn.
    pub(crate) spare: bool,
}

/// Folder of private git directories in the state folder.
const PRIVATE_GIT_DIRS: &str = "git";

/// Free space below which a failure to create a worktree is attributed to a full disk.
const LOW_DISK_BYTES: u64 = 16 << 20;

impl Worktrees {
    pub(crate) fn new(git: Git, base: PathBuf, state: &Path, tracker: TaskTracker) -> Self {
        let ledger = WorktreeLedger::new(state.join("worktrees"));
        let (locks, sweeping, spares) = (Mutex::default(), tokio::sync::Mutex::default(), SparePool::new(tracker));
        let (private_git_dirs, lock_files, pinned_base) =
            (state.join(PRIVATE_GIT_DIRS), state.join("locks"), OnceLock::new());
        Self { git, base, pinned_base, private_git_dirs, ledger, lock_files, locks, sweeping, spares }
    }

    /// Creates a worktree for a run: from the repository's HEAD, or from where its session continues. On cancellation
    /// git is killed and nothing is left behind.
    pub(crate) async fn add(
        &self,
        request: WorktreeRequest,
        cancelled: &CancellationToken,
    ) -> Result<Worktree, Failure> {
        let WorktreeRequest { repo, run, session, place, again, spare } = request;
        let base_folder = self.check_base()?;
        let spare = spare && self.spares.is_open();
        let reading = async { tokio::join!(self.repository_state(&repo), self.git_config(&repo)) };
        let (repository, settings) = cancelled.run_until_cancelled(reading).await.ok_or_else(cancelled_failure)?;
        let repository = repository?;
        let settings =
            settings.inspect(|settings| create_lfs_folder(&repository.common, settings)).ok().filter(|_| spare);
        let place = place.filter(|place| place.common == repository.common);
        let base = match &place {
            Some(place) if self.has_commit(&repo, &place.tip).await => place.tip.clone(),
            Some(_) | None => repository.head.clone(),
        };
        let path = base_folder.join(place.as_ref().map_or(&run, |place| &place.name));
        let cwd = match repository.prefix.trim_end_matches('/') {
            "" => path.clone(),
            prefix => path.join(prefix),
        };
        let default = Worktree::default_registration(&repository.common, &path);
        let kept = || path.join(".git").exists();
        let registration = match place.and_then(|place| place.registration).filter(|_| kept()) {
            Some(name) => repository.common.join("worktrees").join(name),
            None => default.clone(),
        };
        let common = repository.common.clone();
        let mut worktree = Worktree { path: path.clone(), cwd, run, repo, common, registration, base, session };
        let state = if kept() { WorktreeState::InUse } else { WorktreeState::Incomplete };
        self.ledger.write(&WorktreeRecord::of(&worktree, state))?;
        if path.exists() {
            drop(self.sweeping.lock().await);
        }
        if kept() {
            // The session's folder was kept after an earlier turn. It is reset for another attempt, unless it holds
            // work that could not be saved.
            if again && self.ledger.earlier_runs(&worktree).is_empty() {
                self.git_in(&worktree).run(&["reset", "--hard", "--quiet", &worktree.base]).await?;
            }
            return Ok(worktree);
        }
        worktree.registration = default;
        let rules = settings.map(|settings| self.checkout_rules(&repository, &settings));
        if rules.is_some() {
            self.spares.inventory().used(&repository, &worktree.repo, Instant::now());
        }
        let taken = match rules {
            Some(rules) => self.take(&mut worktree, &repository, &rules, cancelled).await,
            None => false,
        };
        let created = match taken {
            true => Ok(()),
            false => {
                cancelled.run_until_cancelled(self.create(&worktree)).await.unwrap_or_else(|| Err(cancelled_failure()))
            }
        };
        let created = created.and_then(|()| self.ledger.write(&WorktreeRecord::of(&worktree, WorktreeState::InUse)));
        if let Err(failure) = created {
            let failure = self.with_disk_hint(failure);
            self.discard(&worktree, WorktreeState::Incomplete).await;
            return Err(failure);
        }
        tracing::debug!(run = worktree.run, spare = taken, "created a worktree");
        Ok(worktree)
    }

    /// Adds the free space if a full disk is the likely reason, which git does not report.
    fn with_disk_hint(&self, failure: Failure) -> Failure {
        match rustix::fs::statvfs(&self.base) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < LOW_DISK_BYTES => {
                let left = disk.f_bavail.saturating_mul(disk.f_frsize) / 1024;
                failure.hint(format!("the disk of {} has {left} KiB left: is it full?", self.base.display()))
            }
            Ok(_) | Err(_) => failure,
        }
    }

    /// Whether a commit still exists: its branch may have been deleted.
    async fn has_commit(&self, repo: &Path, commit: &str) -> bool {
        let resolve = format!("{commit}^{{commit}}");
        self.git.at(repo).run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &resolve]).await.is_ok()
    }

    async fn create(&self, worktree: &Worktree) -> Result<(), Failure> {
        self.ledger.write(&WorktreeRecord::of(worktree, WorktreeState::Incomplete))?;
        self.register(worktree).await?;
        self.check_out(worktree).await?;
        self.ledger.keep_index(worktree, &worktree.registration.join("index"));
        Ok(())
    }

    /// Registers a worktree under the lock of its repository. Its files are written later, without the lock.
    async fn register(&self, worktree: &Worktree) -> Result<(), Failure> {
        let _lock = self.lock(&worktree.common).await?;
        let (path, entries) = (worktree.path.to_string_lossy(), worktree.common.join("worktrees"));
        // Git may write inside these folders, but may not create them. A bare repository has no `logs`; its worktrees
        // need it.
        for folder in [&worktree.path, &entries, &worktree.common.join("logs")] {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    let message = format!("cannot create {}: {error}", folder.display());
                    return Err(Failure::new(Category::Configuration, message));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let call = self.git.at(&worktree.repo).writing([worktree.path.clone(), entries]);
        call.run(&["worktree", "add", "--detach", "--no-checkout", "--", &path, &worktree.base]).await?;
        Ok(())
    }

    /// Writes the files of a registered worktree.
    async fn check_out(&self, worktree: &Worktree) -> Result<(), Failure> {
        worktree.link_git_crypt_keys(&worktree.registration);
        self.git_in(worktree).run(&["reset", "--hard", "--quiet"]).await.map(drop)
    }

    /// Git call on a worktree in which no agent has worked yet.
    fn git_in(&self, worktree: &Worktree) -> GitCall<'_> {
        let tree = GitPaths { files: &worktree.path, git_dir: &worktree.registration };
        let call = self.git.on(tree).writing([worktree.path.clone(), worktree.registration.clone()]);
        // A partial clone fetches missing files, and git-lfs fetches large ones.
        let fetches = is_partial_clone(&worktree.common).then(|| worktree.common.join("objects"));
        call.writing(fetches.into_iter().chain([worktree.common.join("lfs")]))
    }

    async fn lock(&self, common: &Path) -> Result<RepositoryLock, Failure> {
        let mutex = {
            let mut locks = self.locks.lock().expect("no panic while holding the lock");
            Arc::clone(locks.entry(common.to_owned()).or_default())
        };
        let guard = mutex.lock_owned().await;
        // Not in the repository, where an agent could replace the file by a link or a pipe.
        let name = blake3::hash(common.as_os_str().as_encoded_bytes()).to_hex();
        let (folder, path) = (self.lock_files.clone(), self.lock_files.join(&name[..32]));
        let locked = tokio::task::spawn_blocking(move || -> io::Result<File> {
            fs::create_dir_all(folder)?;
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        let file = locked.await.map_err(io::Error::other).and_then(|file| file);
        match file {
            Ok(file) => Ok(RepositoryLock { _file: file, _guard: guard }),
            Err(error) => {
                Err(Failure::new(Category::Configuration, format!("cannot lock {}: {error}", common.display())))
            }
        }
    }

    /// Returns the canonical folder for worktrees. It must belong to this user: another user could replace it.
    fn check_base(&self) -> Result<PathBuf, Failure> {
        let refuse = |why: String| {
            Failure::new(Category::Configuration, format!("worktree folder {}: {why}", self.base.display()))
                .hint("choose another with --worktrees")
        };
        let failed = |error: io::Error| refuse(error.to_string());
        fs::create_dir_all(&self.base).map_err(failed)?;
        let metadata = fs::symlink_metadata(&self.base).map_err(failed)?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
            return Err(refuse("it belongs to another user, or is a symbolic link".to_owned()));
        }
        let pinned = match self.pinned_base.get() {
            Some(pinned) => pinned.clone(),
            None => {
                let canonical = self.base.canonicalize().map_err(failed)?;
                self.pinned_base.get_or_init(|| canonical).clone()
            }
        };
        if untrusted::real(&pinned) { Ok(pinned) } else { Err(refuse("it was replaced by a symbolic link".to_owned())) }
    }
}

/// Creates the folder for large files if git-lfs is configured: confined git cannot create it.
fn create_lfs_folder(common: &Path, settings: &[u8]) {
    let uses_lfs = settings.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"filter.lfs."));
    if uses_lfs && untrusted::real(common) {
        // If it cannot be created, git-lfs reports that.
        let _ = fs::create_dir(common.join("lfs"));
    }
}

/// Whether a repository fetches objects on demand.
fn is_partial_clone(common: &Path) -> bool {
    let config = untrusted::read(&common.join("config"), untrusted::MAX_GIT_FILE_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&config).to_ascii_lowercase().contains("promisor")
}

fn cancelled_failure() -> Failure {
    Failure::new(Category::Cancelled, "cancelled while its worktree was being created")
}

/// Lock of a repository, within this process and against other gateways.
struct RepositoryLock {
    _file: File,
    _guard: OwnedMutexGuard<()>,
}
