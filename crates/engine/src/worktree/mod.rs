//! A git worktree for one run: made from HEAD, and afterwards either removed as it was, or kept as a branch.
//!
//! The user's checkout, index and branches are never touched: the worktree is detached, and what the agent did is
//! committed to `trunkline/<run>`. `git worktree add` and `remove` race with each other in one repository, so both
//! happen under a lock: a mutex in this process and a file lock for other gateways.
//!
//! Writing many files takes long, and so does removing them. Neither is on a turn's path if that can be: the next worktree of
//! a repository is made before it is asked for (`spare`), and what a run leaves is moved aside and removed after its answer
//! (`discarding`).

mod beside;
mod branch;
mod discarding;
mod folder;
pub(crate) mod git;
mod ground;
mod ignored;
mod ledger;
mod look;
mod patch;
mod repository_state;
mod room;
mod saving;
mod shelf;
mod spare;
mod spares;
mod survey;
mod tending;

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
use crate::session::Place;
use crate::worktree::git::{Call, Git, Tree};
pub(crate) use discarding::Gone;
pub(crate) use folder::Worktree;
use ledger::{Entry, Ledger, Standing};
pub(crate) use saving::{After, Finished};
use spares::Spares;

/// Makes worktrees and takes them down.
pub(crate) struct Worktrees {
    git: Git,
    base: PathBuf,
    /// The same as it was when it was first used, without links: agents can write the folder that it is in.
    pinned_base: OnceLock<PathBuf>,
    /// Private git directories.
    rooms: PathBuf,
    ledger: Ledger,
    lock_files: PathBuf,
    locks: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
    /// Held while leftovers are swept: a session's folder may be one of them.
    sweeping: tokio::sync::Mutex<()>,
    spares: Spares,
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

/// The folder of rooms in the state folder.
const ROOMS: &str = "git";

/// With less room than this, a worktree that cannot be made lacks room.
const LITTLE_ROOM: u64 = 16 << 20;

impl Worktrees {
    pub(crate) fn new(git: Git, base: PathBuf, state: &Path, tracker: TaskTracker) -> Self {
        let ledger = Ledger::new(state.join("worktrees"));
        let (locks, sweeping, spares) = (Mutex::default(), tokio::sync::Mutex::default(), Spares::new(tracker));
        let (rooms, lock_files, pinned_base) = (state.join(ROOMS), state.join("locks"), OnceLock::new());
        Self { git, base, pinned_base, rooms, ledger, lock_files, locks, sweeping, spares }
    }

    /// A fresh worktree for the run: of the repository's HEAD, or of where its session left off. When it is cancelled, git is
    /// killed and nothing is left.
    pub(crate) async fn add(&self, wanted: Wanted, cancelled: &CancellationToken) -> Result<Worktree, Failure> {
        let Wanted { repo, run, session, place, again, spare } = wanted;
        let base_folder = self.check_base()?;
        let spare = spare && self.spares.is_open();
        let looked = async { tokio::join!(self.ground(&repo), self.settings(&repo)) };
        let (ground, settings) = cancelled.run_until_cancelled(looked).await.ok_or_else(given_up)?;
        let ground = ground?;
        let settings = settings.inspect(|settings| prepare_filters(&ground.common, settings)).ok().filter(|_| spare);
        let place = place.filter(|place| place.common == ground.common);
        let base = match &place {
            Some(place) if self.has_commit(&repo, &place.tip).await => place.tip.clone(),
            Some(_) | None => ground.head.clone(),
        };
        let path = base_folder.join(place.as_ref().map_or(&run, |place| &place.name));
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
            // Unless that work is still there because it could not be saved.
            if again && self.ledger.earlier_runs(&worktree).is_empty() {
                self.in_tree(&worktree).run(&["reset", "--hard", "--quiet", &worktree.base]).await?;
            }
            return Ok(worktree);
        }
        worktree.registration = usual;
        let rules = settings.map(|settings| self.rules(&ground, &settings));
        if rules.is_some() {
            self.spares.shelf().used(&ground, &worktree.repo, Instant::now());
        }
        let taken = match rules {
            Some(rules) => self.take(&mut worktree, &ground, &rules, cancelled).await,
            None => false,
        };
        let made = match taken {
            true => Ok(()),
            false => cancelled.run_until_cancelled(self.make(&worktree)).await.unwrap_or_else(|| Err(given_up())),
        };
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
        let named = format!("{commit}^{{commit}}");
        self.git.at(repo).run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &named]).await.is_ok()
    }

    async fn make(&self, worktree: &Worktree) -> Result<(), Failure> {
        self.ledger.write(&Entry::of(worktree, Standing::Unmade))?;
        self.register(worktree).await?;
        self.check_out(worktree).await?;
        self.ledger.keep_index(worktree, &worktree.registration.join("index"));
        Ok(())
    }

    /// Only the registration is locked; the files are filled in beside other runs.
    async fn register(&self, worktree: &Worktree) -> Result<(), Failure> {
        let _lock = self.lock(&worktree.common).await?;
        let (path, entries) = (worktree.path.to_string_lossy(), worktree.common.join("worktrees"));
        // Git may write inside these, and not make them. A bare repository has no logs yet; a worktree of it does.
        for folder in [&worktree.path, &entries, &worktree.common.join("logs")] {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    let message = format!("cannot make {}: {error}", folder.display());
                    return Err(Failure::new(Category::Configuration, message));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let call = self.git.at(&worktree.repo).writing([worktree.path.clone(), entries]);
        call.run(&["worktree", "add", "--detach", "--no-checkout", "--", &path, &worktree.base]).await?;
        Ok(())
    }

    /// Writes the files of a worktree that is registered.
    async fn check_out(&self, worktree: &Worktree) -> Result<(), Failure> {
        worktree.link_keys_into(&worktree.registration);
        self.in_tree(worktree).run(&["reset", "--hard", "--quiet"]).await.map(drop)
    }

    /// A call on a worktree that no agent works in, or has worked in.
    fn in_tree(&self, worktree: &Worktree) -> Call<'_> {
        let tree = Tree { files: &worktree.path, git_dir: &worktree.registration };
        let call = self.git.on(tree).writing([worktree.path.clone(), worktree.registration.clone()]);
        // A partial clone fetches the files that it lacks; git-lfs does so for large ones.
        let fetches = is_partial_clone(&worktree.common).then(|| worktree.common.join("objects"));
        call.writing(fetches.into_iter().chain([worktree.common.join("lfs")]))
    }

    async fn lock(&self, common: &Path) -> Result<Lock, Failure> {
        let mutex = {
            let mut locks = self.locks.lock().expect("no panic while holding the lock");
            Arc::clone(locks.entry(common.to_owned()).or_default())
        };
        let guard = mutex.lock_owned().await;
        // Not in the repository, where an agent could put a link or a pipe in its place.
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
            Ok(file) => Ok(Lock { _file: file, _guard: guard }),
            Err(error) => {
                Err(Failure::new(Category::Configuration, format!("cannot lock {}: {error}", common.display())))
            }
        }
    }

    /// The folder for worktrees, without links. It must be ours: another user's could be changed under us.
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

/// Makes the folder that git-lfs keeps large files in, where git-lfs is set up: git may not make it itself.
fn prepare_filters(common: &Path, settings: &[u8]) {
    let uses_lfs = settings.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"filter.lfs."));
    if uses_lfs && untrusted::real(common) {
        // Where it cannot be made, git-lfs says so.
        let _ = fs::create_dir(common.join("lfs"));
    }
}

/// Whether a repository fetches objects when they are needed.
fn is_partial_clone(common: &Path) -> bool {
    let config = untrusted::read(&common.join("config"), untrusted::MAX_GIT_FILE_BYTES).unwrap_or_default();
    String::from_utf8_lossy(&config).to_ascii_lowercase().contains("promisor")
}

fn given_up() -> Failure {
    Failure::new(Category::Cancelled, "cancelled while its worktree was made")
}

struct Lock {
    _file: File,
    _guard: OwnedMutexGuard<()>,
}
