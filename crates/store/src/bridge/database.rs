//! Queries and changes of the state of a bridge.

use serde_json::Value;
use sqlx::sqlite::SqlitePool;

use super::rows::{Binding, InboxRow, InboxState};
use crate::connections::Connections;
use crate::error::StoreError;
use crate::schema::{BRIDGE_FILE, Schema};
use crate::session_state::SessionKey;
use crate::store::Store;
use crate::time::Time;

/// Rows that one transaction deletes from a table. Keeps transactions short, so that other writers get their turn.
const BATCH_ROWS: i64 = 100;

/// State of bridges.
#[derive(Debug, Clone, Copy)]
pub struct BridgeDatabase<'a> {
    /// Has the sessions that bindings name.
    store: &'a Store,
    connections: &'a Connections,
}

impl Store {
    /// The state of bridges. The first call opens its file, or creates it. A damaged file, or one of a newer version, is
    /// refused and left unchanged.
    pub async fn bridge(&self) -> Result<BridgeDatabase<'_>, StoreError> {
        let connections = self.bridge_connections().get_or_try_init(|| self.open_bridge()).await?;
        Ok(BridgeDatabase { store: self, connections })
    }

    async fn open_bridge(&self) -> Result<Connections, StoreError> {
        if self.connections().is_closed() {
            return Err(StoreError::Closed);
        }
        match self.state_folder() {
            Some(state) => Connections::open(&state.join(BRIDGE_FILE), Schema::Bridge).await,
            #[cfg(any(test, feature = "test-util"))]
            None => Connections::in_memory(Schema::Bridge).await,
            #[cfg(not(any(test, feature = "test-util")))]
            None => Err(StoreError::Closed),
        }
    }

    /// Deletes handled messages of bridges, and bindings of unused channels, from before the given time. Returns how many.
    pub(crate) async fn prune_bridge(&self, before: Time) -> Result<(u64, u64), StoreError> {
        if let Some(connections) = self.bridge_connections().get() {
            return BridgeDatabase { store: self, connections }.prune(before).await;
        }
        // A process without a bridge does not keep the file open.
        let path = self.state_folder().map(|state| state.join(BRIDGE_FILE));
        let Some(path) = path.filter(|path| path.exists()) else { return Ok((0, 0)) };
        let connections = Connections::open(&path, Schema::Bridge).await?;
        let pruned = BridgeDatabase { store: self, connections: &connections }.prune(before).await;
        connections.close().await;
        pruned
    }
}

impl BridgeDatabase<'_> {
    /// Returns the last message of a place that was read.
    pub async fn cursor(&self, place: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar("SELECT message FROM cursors WHERE place = ?1").bind(place);
        self.noted(query.fetch_optional(self.reading()).await)
    }

    /// Sets the last message of a place that was read. May move it back.
    pub async fn set_cursor(&self, place: &str, message: &str) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO cursors (place, message, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (place) DO UPDATE SET message = excluded.message, changed = excluded.changed",
        );
        let query = query.bind(place).bind(message).bind(Time::now().millis());
        self.noted(query.execute(self.writing()).await).map(drop)
    }

    /// Stores a message and advances the cursor of its place, both or neither. False if the message was stored before. Ids
    /// are numbers, as Discord's are: a longer one is later.
    pub async fn inbox_add(&self, place: &str, message: &str, payload: &Value) -> Result<bool, StoreError> {
        self.noted(self.add(place, message, payload).await)
    }

    async fn add(&self, place: &str, message: &str, payload: &Value) -> Result<bool, StoreError> {
        let now = Time::now().millis();
        let mut transaction = self.connections.transaction().await?;
        let added = sqlx::query(
            "INSERT INTO inbox (message, place, payload, received, changed) VALUES (?1, ?2, ?3, ?4, ?4)
             ON CONFLICT (message) DO NOTHING",
        );
        let added = added.bind(message).bind(place).bind(payload.to_string()).bind(now);
        let added = added.execute(&mut *transaction).await?.rows_affected() > 0;
        let cursor = sqlx::query(
            "INSERT INTO cursors (place, message, changed) VALUES (?1, ?2, ?3)
             ON CONFLICT (place) DO UPDATE SET message = excluded.message, changed = excluded.changed
             WHERE (length(excluded.message), excluded.message) > (length(cursors.message), cursors.message)",
        );
        cursor.bind(place).bind(message).bind(now).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(added)
    }

    /// Lists the messages that are neither answered nor failed, in order of their ids: of one place, or of all.
    pub async fn inbox_pending(&self, place: Option<&str>) -> Result<Vec<InboxRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT * FROM inbox WHERE state IN ('received', 'answering') AND (?1 IS NULL OR place = ?1)
             ORDER BY length(message), message",
        );
        self.noted(query.bind(place).fetch_all(self.reading()).await)
    }

    /// Moves a message to a later state. False if it does not exist or its state is later already. An answered or failed
    /// message stays so, and its payload is deleted.
    pub async fn inbox_state(
        &self,
        message: &str,
        state: InboxState,
        detail: Option<&Value>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "UPDATE inbox SET state = ?2, detail = coalesce(?3, detail), changed = ?4,
                 payload = CASE WHEN ?2 IN ('answered', 'failed') THEN '{}' ELSE payload END WHERE message = ?1
             AND (state = 'received' OR (state = 'answering' AND ?2 <> 'received'))",
        );
        let query = query.bind(message).bind(state.name()).bind(detail.map(Value::to_string));
        let updated = query.bind(Time::now().millis()).execute(self.writing()).await;
        Ok(self.noted(updated)?.rows_affected() > 0)
    }

    /// Returns a received message.
    #[cfg(any(test, feature = "test-util"))]
    pub async fn inbox_message(&self, message: &str) -> Result<Option<InboxRow>, StoreError> {
        let query = sqlx::query_as("SELECT * FROM inbox WHERE message = ?1").bind(message);
        self.noted(query.fetch_optional(self.reading()).await)
    }

    /// Returns the binding of a place. It has no session if the index does not have that.
    pub async fn binding(&self, place: &str) -> Result<Option<Binding>, StoreError> {
        let query = sqlx::query_as("SELECT session, model, more FROM bindings WHERE place = ?1").bind(place);
        let found: Option<Binding> = self.noted(query.fetch_optional(self.reading()).await)?;
        let Some(mut binding) = found else { return Ok(None) };
        if let Some(SessionKey(session)) = binding.session.take() {
            let query = sqlx::query_scalar("SELECT id FROM sessions WHERE id = ?1").bind(session);
            binding.session = query.fetch_optional(&self.store.indexed().await).await?.map(SessionKey);
        }
        Ok(Some(binding))
    }

    /// Sets the binding of a place.
    pub async fn set_binding(&self, place: &str, binding: &Binding) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO bindings (place, session, model, more, changed) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (place) DO UPDATE SET session = excluded.session, model = excluded.model,
                 more = excluded.more, changed = excluded.changed",
        )
        .bind(place)
        .bind(binding.session.as_ref().map(|session| session.0.as_str()))
        .bind(&binding.model)
        .bind(binding.more.to_string())
        .bind(Time::now().millis());
        self.noted(query.execute(self.writing()).await).map(drop)
    }

    /// Lists the places with a binding whose names start with `prefix`.
    pub async fn bound_places(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let query =
            sqlx::query_scalar("SELECT place FROM bindings WHERE substr(place, 1, length(?1)) = ?1 ORDER BY place");
        self.noted(query.bind(prefix).fetch_all(self.reading()).await)
    }

    /// The cursor of a channel is kept, so that no message is answered again.
    async fn prune(&self, before: Time) -> Result<(u64, u64), StoreError> {
        let messages = self.delete_in_batches(
            "DELETE FROM inbox WHERE message IN (SELECT message FROM inbox WHERE changed < ?1
             AND state IN ('answered', 'failed') LIMIT ?2)",
            before,
        );
        let messages = messages.await?;
        let channels = self.delete_in_batches(
            "DELETE FROM bindings WHERE place IN (SELECT place FROM bindings WHERE changed < ?1 LIMIT ?2)",
            before,
        );
        let channels = channels.await?;
        self.connections.free_disk_space().await?;
        Ok((messages, channels))
    }

    async fn delete_in_batches(&self, delete: &'static str, before: Time) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let query = sqlx::query(delete).bind(before.millis()).bind(BATCH_ROWS);
            let batch = self.noted(query.execute(self.writing()).await)?.rows_affected();
            deleted += batch;
            if batch == 0 {
                return Ok(deleted);
            }
        }
    }

    fn reading(&self) -> &SqlitePool {
        self.connections.reading()
    }

    fn writing(&self) -> &SqlitePool {
        self.connections.writing()
    }

    /// Has the file checked by the next process to open it, if the error says that it is damaged.
    fn noted<T>(&self, result: Result<T, impl Into<StoreError>>) -> Result<T, StoreError> {
        result.map_err(Into::into).inspect_err(|error| {
            if matches!(error, StoreError::Broken(_)) {
                self.connections.mark_suspect();
            }
        })
    }
}
