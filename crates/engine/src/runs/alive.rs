//! Which gateways of one state folder live: each holds a lock on a file there. A process id says that too, but only in its
//! own namespace, and a container that is started again is in another.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::runs::gateway_process::GatewayProcess;

/// This gateway's own lock, held as long as this value.
pub(crate) struct Alive {
    path: PathBuf,
    lock: Option<File>,
}

impl Alive {
    /// Without it, others of this namespace can tell all the same.
    pub(crate) fn new(state: &Path, mark: &str) -> Self {
        let path = path(state, mark);
        let lock = lock(&path).inspect_err(|error| {
            tracing::debug!(%error, "gateways in other containers cannot tell whether this one lives");
        });
        Self { path, lock: lock.ok() }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _it_is_gone_anyway = fs::remove_file(&self.path);
        }
    }
}

fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        // The name is ours: others have it only for as long as they look whether we live.
        file.lock()?;
        // Whoever sweeps may have taken it for one that was let go.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Whether the gateway of this mark is no more. Its process says so where that can be seen, else its lock.
pub(crate) fn is_dead(state: &Path, mark: &str) -> bool {
    is_dead_by(mark, &path(state, mark))
}

fn is_dead_by(mark: &str, path: &Path) -> bool {
    GatewayProcess::of_our_namespace(mark).map_or_else(|| is_let_go(path), |owner| !owner.lives())
}

fn is_let_go(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Locks of gateways that died and did not remove them.
pub(crate) fn dead(state: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder(state)).into_iter().flatten().flatten();
    files.filter(|file| is_dead_by(&file.file_name().to_string_lossy(), &file.path())).map(|file| file.path()).collect()
}

/// Removes locks of the dead, once everything of theirs has been taken care of.
pub(crate) fn forget(dead: &[PathBuf]) {
    for path in dead {
        // Not unlocked before it is gone.
        let locked = File::open(path).ok().filter(|file| file.try_lock().is_ok());
        let is_dead = || path.file_name().is_some_and(|mark| GatewayProcess::is_dead(&mark.to_string_lossy()));
        if locked.is_some() || is_dead() {
            let _another_was_first = fs::remove_file(path);
        }
    }
}

fn folder(state: &Path) -> PathBuf {
    state.join("alive")
}

/// A mark is made of letters that a file's name may have; one from elsewhere might not be.
fn path(state: &Path, mark: &str) -> PathBuf {
    folder(state).join(mark.replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a namespace that is not ours.
    const MARK: &str = "pid:[1]:1-1";

    #[test]
    fn a_recycled_process_id_does_not_keep_a_dead_gateway_alive() {
        let (state, us) = (tempfile::tempdir().unwrap(), GatewayProcess::this_process());
        let before_us = GatewayProcess { started: us.started - 1, ..us }.mark();
        let _ours = Alive::new(state.path(), &us.mark());
        // Held by a copy of the file that the dead process left to a child.
        let _held = lock(&path(state.path(), &before_us)).unwrap();
        assert_eq!(dead(state.path()), [path(state.path(), &before_us)]);
        forget(&dead(state.path()));
        assert_eq!(fs::read_dir(folder(state.path())).unwrap().count(), 1, "ours");
    }

    #[test]
    fn a_gateway_is_alive_before_it_holds_its_lock() {
        let (state, mark) = (tempfile::tempdir().unwrap(), GatewayProcess::this_process().mark());
        fs::create_dir(folder(state.path())).unwrap();
        fs::write(path(state.path(), &mark), "").unwrap();
        assert_eq!(dead(state.path()), [] as [PathBuf; 0]);
        assert!(!is_dead(state.path(), &mark));
    }

    #[test]
    fn who_holds_its_lock_lives_in_whatever_container() {
        let state = tempfile::tempdir().unwrap();
        assert!(!is_dead(state.path(), MARK), "nothing is known of it");
        drop(Alive::new(state.path(), MARK));
        assert!(!is_dead(state.path(), MARK), "it has left nothing");
        let held = lock(&path(state.path(), MARK)).unwrap();
        assert_eq!(dead(state.path()), [] as [PathBuf; 0]);
        forget(&[path(state.path(), MARK)]);
        assert!(!is_dead(state.path(), MARK));
        drop(held);
        assert!(is_dead(state.path(), MARK), "killed");
        forget(&dead(state.path()));
        assert_eq!(fs::read_dir(folder(state.path())).unwrap().count(), 0);
    }
}
