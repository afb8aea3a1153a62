//! Follows the name of the database: when the file was deleted, or replaced by another one, the store opens the file that
//! has the name now, or creates it, and fills it from the log.
//!
//! Without that, this process would go on with a file that no other process sees: a key that is claimed in one would be
//! free in the other, and a new connection would read the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::catch_up::catch_up;
use crate::connections::Connections;
use crate::error::StoreError;
use crate::schema::Schema;
use crate::store::Store;

/// Time in which the other files of a deleted database are deleted, too. A new database must not be created meanwhile.
const DELETION_TIME: Duration = Duration::from_millis(100);

impl Store {
    /// Opens the database again if its file was deleted or replaced. If that fails, the former file stays in use until the
    /// next call. Cancel safe.
    pub(crate) async fn follow_file(&self) {
        if !self.is_outdated() {
            return;
        }
        let _running = self.indexing().running.lock().await;
        if !self.is_outdated() {
            return;
        }
        let reopened = self.reopen().await;
        let had_failed = self.indexing().reopening_failed.swap(reopened.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (reopened, had_failed) {
            tracing::error!("the database file was deleted or replaced, and the new one cannot be used: {error}");
        }
    }

    fn is_outdated(&self) -> bool {
        let connections = self.connections();
        let is_open = !connections.is_closed();
        is_open && (self.indexing().refilling.load(Ordering::Acquire) || connections.is_replaced())
    }

    async fn reopen(&self) -> Result<(), StoreError> {
        let connections = self.connections();
        if let (true, Some(path)) = (connections.is_replaced(), connections.path()) {
            sleep(DELETION_TIME).await;
            let opened = Connections::open(path, Schema::Index).await?;
            tracing::warn!("{} was deleted or replaced; filling it from the log", path.display());
            self.indexing().ready.send_replace(false);
            self.indexing().refilling.store(true, Ordering::Release);
            self.set_connections(opened);
        }
        let filled = self.fill().await;
        // A part of the log that cannot be read does not become readable by another try. After any other error the next
        // call tries again.
        if matches!(filled, Ok(()) | Err(StoreError::Log(_))) {
            self.indexing().refilling.store(false, Ordering::Release);
        }
        self.indexing().ready.send_replace(true);
        filled
    }

    async fn fill(&self) -> Result<(), StoreError> {
        let own = self.own_log().get();
        if let Some(log) = own {
            self.index_own(log).await?;
        }
        match self.log() {
            Some(folder) => catch_up(self, folder, own.map(|log| log.process())).await.map(drop),
            None => Ok(()),
        }
    }
}
