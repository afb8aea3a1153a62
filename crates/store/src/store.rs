//! The index of the log, with the state of bridges next to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use sqlx::Connection;
use sqlx::sqlite::SqlitePool;
use tokio::sync::{OnceCell, watch};

use crate::connections::Connections;
use crate::error::StoreError;
use crate::index::IndexFeed;
use crate::log::{LogFolder, LogWriter};
use crate::schema::Schema;
use crate::transaction::Transaction;

/// Name of the database file in the state folder.
pub const DATABASE_FILE: &str = "trunkline.db";

/// Progress of [`Store::catch_up`].
#[derive(Debug, Default)]
pub(crate) struct Indexing {
    /// Whether everything that the log had when the database was opened is indexed.
    pub(crate) ready: watch::Sender<bool>,
    /// Held while the log is being indexed.
    pub(crate) running: tokio::sync::Mutex<()>,
    /// Whether the file was replaced, and the new one does not have everything yet.
    pub(crate) refilling: AtomicBool,
    /// Whether the new file could not be used. The failure is in the log.
    pub(crate) reopening_failed: AtomicBool,
}

/// The database. Cheap to clone: clones share their connections.
#[derive(Debug, Clone)]
pub struct Store {
    /// Replaced together with the file.
    connections: Arc<RwLock<Connections>>,
    /// None for a database in memory.
    log: Option<LogFolder>,
    /// The writer of this process.
    own_log: Arc<OnceLock<Arc<LogWriter>>>,
    /// Rows of this process that the database does not have yet.
    feed: IndexFeed,
    indexing: Arc<Indexing>,
    /// The file with the state of bridges, once it is used.
    bridge: Arc<OnceCell<Connections>>,
}

impl Store {
    /// Opens the database, or creates it, and indexes what the log has and the database has not. A damaged database, or
    /// one of a newer version, is refused and left unchanged.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self::open_unindexed(path).await?;
        store.catch_up(None).await?;
        Ok(store)
    }

    /// Opens the database like [`open`](Self::open), but does not index anything yet. Queries wait until
    /// [`catch_up`](Self::catch_up) has done so.
    pub async fn open_unindexed(path: &Path) -> Result<Self, StoreError> {
        let connections = Connections::open(path, Schema::Index).await?;
        Ok(Self::new(connections, path.parent().map(LogFolder::of_state)))
    }

    fn new(connections: Connections, log: Option<LogFolder>) -> Self {
        Self {
            connections: Arc::new(RwLock::new(connections)),
            log,
            own_log: Arc::default(),
            feed: IndexFeed::default(),
            indexing: Arc::default(),
            bridge: Arc::default(),
        }
    }

    /// Creates a database in memory that ends with its last clone.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn in_memory() -> Result<Self, StoreError> {
        let store = Self::new(Connections::in_memory(Schema::Index).await?, None);
        store.indexing.ready.send_replace(true);
        Ok(store)
    }

    /// Creates a database in memory, and indexes the log of a state folder in it, as [`open`](Self::open) does.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn in_memory_with_log(state: &Path) -> Result<Self, StoreError> {
        let store = Self { log: Some(LogFolder::of_state(state)), ..Self::in_memory().await? };
        store.catch_up(None).await?;
        Ok(store)
    }

    /// Waits for pending operations and closes the files. Optional: without it, no completed operation is lost.
    pub async fn close(&self) {
        self.connections().close().await;
        if let Some(bridge) = self.bridge.get() {
            bridge.close().await;
        }
    }

    pub(crate) fn connections(&self) -> Connections {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_connections(&self, connections: Connections) {
        *self.connections.write().unwrap_or_else(PoisonError::into_inner) = connections;
    }

    pub(crate) fn bridge_connections(&self) -> &OnceCell<Connections> {
        &self.bridge
    }

    pub(crate) fn log(&self) -> Option<&LogFolder> {
        self.log.as_ref()
    }

    /// The folder of the database. None for a database in memory.
    pub(crate) fn state_folder(&self) -> Option<PathBuf> {
        self.connections().path()?.parent().map(Path::to_owned)
    }

    pub(crate) fn own_log(&self) -> &OnceLock<Arc<LogWriter>> {
        &self.own_log
    }

    pub(crate) fn feed(&self) -> &IndexFeed {
        &self.feed
    }

    /// The connections for queries of the index, once it has everything that the log had when the database was opened.
    pub(crate) async fn indexed(&self) -> SqlitePool {
        self.follow_file().await;
        if !*self.indexing.ready.borrow() {
            let mut ready = self.indexing.ready.subscribe();
            // `self` holds the sender, so this never fails.
            let _ = ready.wait_for(|ready| *ready).await;
        }
        self.reading()
    }

    pub(crate) fn indexing(&self) -> &Indexing {
        &self.indexing
    }

    /// The connections for queries of anything else.
    pub(crate) fn reading(&self) -> SqlitePool {
        self.connections().reading().clone()
    }

    /// The connection for single statements that write.
    pub(crate) fn writing(&self) -> SqlitePool {
        self.connections().writing().clone()
    }

    /// Begins a transaction, for several statements that write.
    pub(crate) async fn transaction(&self) -> Result<Transaction, StoreError> {
        self.connections().transaction().await
    }

    /// Frees caches.
    pub async fn shrink(&self) -> Result<(), StoreError> {
        let mut connection = self.writing().acquire().await?;
        connection.clear_cached_statements().await?;
        sqlx::raw_sql("PRAGMA shrink_memory").execute(&mut *connection).await?;
        Ok(())
    }
}
