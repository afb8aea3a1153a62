//! Liveness of the gateways on one state folder: each holds a lock on a file there.
//!
//! A process id is meaningful only in its own PID namespace, and a restarted container is in another one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::runs::gateway_process::GatewayProcess;

/// Liveness lock of this gateway. Released when dropped.
pub(crate) struct LivenessLock {
    path: PathBuf,
    lock: Option<File>,
}

impl LivenessLock {
    /// Takes the lock. Without it, only gateways of the same PID namespace can tell that this one is alive.
    pub(crate) fn new(state: &Path, mark: &str) -> Self {
        let path = path(state, mark);
        let lock = lock(&path).inspect_err(|error| {
            tracing::debug!(%error, "no liveness lock: other containers cannot tell that this gateway is alive");
        });
        Self { path, lock: lock.ok() }
    }
}

impl Drop for LivenessLock {
    fn drop(&mut self) {
        if self.lock.is_some() {
            // A leftover lock is removed by the next sweep.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        // Only this gateway uses the name. Others hold the lock just long enough to check whether it is free.
        file.lock()?;
        // A sweep may have removed the file before it was locked.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Whether the gateway with this mark has died: by its process if that is visible here, otherwise by its lock.
pub(crate) fn is_dead(state: &Path, mark: &str) -> bool {
    is_dead_by(mark, &path(state, mark))
}

fn is_dead_by(mark: &str, path: &Path) -> bool {
    GatewayProcess::in_this_namespace(mark).map_or_else(|| is_unlocked(path), |gateway| !gateway.is_alive())
}

fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Returns the locks that dead gateways left behind.
pub(crate) fn dead(state: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder(state)).into_iter().flatten().flatten();
    files.filter(|file| is_dead_by(&file.file_name().to_string_lossy(), &file.path())).map(|file| file.path()).collect()
}

/// Removes locks of dead gateways, after everything of theirs has been cleaned up.
pub(crate) fn remove_locks(dead: &[PathBuf]) {
    for path in dead {
        // The lock is held until the file is removed.
        let locked = File::open(path).ok().filter(|file| file.try_lock().is_ok());
        let is_dead = || path.file_name().is_some_and(|mark| GatewayProcess::is_dead(&mark.to_string_lossy()));
        if locked.is_some() || is_dead() {
            // Another process may have removed it first.
            let _ = fs::remove_file(path);
        }
    }
}

fn folder(state: &Path) -> PathBuf {
    state.join("alive")
}

/// Marks are valid file names, but a mark read from the store may contain anything.
fn path(state: &Path, mark: &str) -> PathBuf {
    folder(state).join(mark.replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mark of another PID namespace.
    const MARK: &str = "pid:[1]:1-1";

    #[test]
    fn dead_gateway_is_dead_when_its_pid_is_reused() {
        let (state, us) = (tempfile::tempdir().unwrap(), GatewayProcess::this_process());
        let before_us = GatewayProcess { started: us.started - 1, ..us }.mark();
        let _own_lock = LivenessLock::new(state.path(), &us.mark());
        // A child of the dead process still holds the lock.
        let _held = lock(&path(state.path(), &before_us)).unwrap();
        assert_eq!(dead(state.path()), [path(state.path(), &before_us)]);
        remove_locks(&dead(state.path()));
        assert_eq!(fs::read_dir(folder(state.path())).unwrap().count(), 1, "own lock");
    }

    #[test]
    fn gateway_is_alive_before_it_has_locked_its_file() {
        let (state, mark) = (tempfile::tempdir().unwrap(), GatewayProcess::this_process().mark());
        fs::create_dir(folder(state.path())).unwrap();
        fs::write(path(state.path(), &mark), "").unwrap();
        assert_eq!(dead(state.path()), [] as [PathBuf; 0]);
        assert!(!is_dead(state.path(), &mark));
    }

    #[test]
    fn gateway_of_another_namespace_is_alive_while_its_lock_is_held() {
        let state = tempfile::tempdir().unwrap();
        assert!(!is_dead(state.path(), MARK), "unknown gateway");
        drop(LivenessLock::new(state.path(), MARK));
        assert!(!is_dead(state.path(), MARK), "clean exit");
        let held = lock(&path(state.path(), MARK)).unwrap();
        assert_eq!(dead(state.path()), [] as [PathBuf; 0]);
        remove_locks(&[path(state.path(), MARK)]);
        assert!(!is_dead(state.path(), MARK));
        drop(held);
        assert!(is_dead(state.path(), MARK), "killed");
        remove_locks(&dead(state.path()));
        assert_eq!(fs::read_dir(folder(state.path())).unwrap().count(), 0);
    }
}
