//! Leases that admit one process at a time to a session. Several processes may share a state folder, for example a gateway
//! and `trunkline run`.
//!
//! Each session with a running turn has a file that stays locked for the duration of the turn. The kernel releases the
//! lock when the process ends for any reason, so that no process waits for a dead one. The file contains the name of the
//! holder.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trunkline_core::event::SessionId;

use crate::runs::gateway_process::GatewayProcess;

/// First interval between attempts to take a lock that another process holds. It doubles after each attempt.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest interval between attempts to take a lock.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Leases {
    folder: PathBuf,
    /// Whether the log contains the warning that files cannot be locked here.
    warned: AtomicBool,
}

/// Keeps other processes out of a session until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    path: PathBuf,
    /// Whether a process that has died held the session before.
    pub(super) taken_over: bool,
    _locked: File,
}

impl Leases {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, warned: AtomicBool::new(false) }
    }

    /// Waits until no other process holds the session. `None` if files cannot be locked here, in which case other
    /// processes are not kept out. Cancel safe.
    pub(super) async fn wait(&self, session: &SessionId) -> Option<Lease> {
        let mut interval = MIN_POLL_INTERVAL;
        let mut waiting = false;
        loop {
            match self.take(session) {
                Ok(Some(lease)) => return Some(lease),
                Ok(None) => {}
                Err(error) => {
                    if !self.warned.swap(true, Ordering::Relaxed) {
                        let folder = self.folder.display();
                        tracing::warn!(%error, "cannot lock files in {folder}: other processes are not kept out of a session");
                    }
                    return None;
                }
            }
            if !std::mem::replace(&mut waiting, true) {
                let process = self.holder(session).unwrap_or_default();
                tracing::info!(%session, process, "another process uses the session; waiting for it");
            }
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Process id of the live process that holds the session, or held it last.
    pub(super) fn holder(&self, session: &SessionId) -> Option<u32> {
        let name = fs::read_to_string(self.file(session)).ok()?;
        GatewayProcess::from_name(name.trim()).filter(|holder| holder.is_alive()).map(|holder| holder.pid)
    }

    /// `None` if another process holds the session.
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
            // The former holder may have removed the file between open and lock: a lock on a removed file has no effect.
            let is_current =
                fs::metadata(&path).is_ok_and(|found| file.metadata().is_ok_and(|f| f.ino() == found.ino()));
            if !is_current {
                continue;
            }
            // A holder removes the file when it releases the session.
            let taken_over = file.metadata()?.len() > 0;
            // The name is informational: the lock holds even if a full disk prevents the write.
            let _ = file.set_len(0).and_then(|()| file.write_all(GatewayProcess::this_process().name().as_bytes()));
            return Ok(Some(Lease { path, taken_over, _locked: file }));
        }
    }

    /// Ids come from CLIs and clients and may contain anything, so that the file is named after a hash.
    fn file(&self, session: &SessionId) -> PathBuf {
        self.folder.join(&blake3::hash(session.0.as_bytes()).to_hex()[..32])
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Removed while it is locked: the next holder creates another file. A file that stays is harmless.
        let _ = fs::remove_file(&self.path);
    }
}
