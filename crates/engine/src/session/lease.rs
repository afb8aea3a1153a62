//! One process at a time in a session: several may share a state folder, a gateway and `trunkline run` for one.
//!
//! A file for each session that somebody speaks in, locked as long as they do. The kernel gives a lock back with the
//! process that had it, however that ended, so nobody waits for the dead. Who has it stands in the file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trunkline_core::event::SessionId;

use crate::runs::gateway_process::GatewayProcess;

/// Between two looks at a lock that another process has, at first and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

#[derive(Debug)]
pub(super) struct Leases {
    folder: PathBuf,
    /// That there are none here was said.
    told: AtomicBool,
}

/// Keeps other processes out until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    path: PathBuf,
    _locked: File,
}

impl Leases {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, told: AtomicBool::new(false) }
    }

    /// Waits until no other process has the session. None where files cannot be locked: nobody is kept out then. Cancel
    /// safe.
    pub(super) async fn wait(&self, session: &SessionId) -> Option<Lease> {
        let (mut look, most) = LOOK;
        let mut waiting = false;
        loop {
            match self.take(session) {
                Ok(Some(lease)) => return Some(lease),
                Ok(None) => {}
                Err(error) => {
                    if !self.told.swap(true, Ordering::Relaxed) {
                        let folder = self.folder.display();
                        tracing::warn!(%error, "cannot lock files in {folder}: other processes are not kept out of a session");
                    }
                    return None;
                }
            }
            if !std::mem::replace(&mut waiting, true) {
                let process = self.holder(session).unwrap_or_default();
                tracing::info!(%session, process, "another process speaks in the session; waiting for it");
            }
            tokio::time::sleep(look).await;
            look = (look * 2).min(most);
        }
    }

    /// The process that has it, or had it last.
    pub(super) fn holder(&self, session: &SessionId) -> Option<u32> {
        let noted = fs::read_to_string(self.file(session)).ok()?;
        GatewayProcess::from_name(noted.trim()).filter(|owner| owner.lives()).map(|owner| owner.pid)
    }

    /// None if another process has it.
    fn take(&self, session: &SessionId) -> io::Result<Option<Lease>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.file(session);
        loop {
            let mut file =
                OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Whoever had it may have removed it in between: a lock on what is gone keeps nobody out.
            let is_it = fs::metadata(&path).is_ok_and(|found| file.metadata().is_ok_and(|f| f.ino() == found.ino()));
            if !is_it {
                continue;
            }
            // Who it is, for whoever asks; the lock holds without.
            let _or_the_disk_is_full =
                file.set_len(0).and_then(|()| file.write_all(GatewayProcess::this_process().name().as_bytes()));
            return Ok(Some(Lease { path, _locked: file }));
        }
    }

    /// An id comes from a CLI, or from a client: it is no name for a file.
    fn file(&self, session: &SessionId) -> PathBuf {
        self.folder.join(&blake3::hash(session.0.as_bytes()).to_hex()[..32])
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // While it is locked: the next one makes another.
        let _it_stays = fs::remove_file(&self.path);
    }
}
