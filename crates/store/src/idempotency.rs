//! Idempotency keys: a request that a client repeats with the same key is the same run.

use sqlx::Row;

use crate::error::StoreError;
use crate::session_state::ClientId;
use crate::store::Store;
use crate::time::Time;
use crate::transaction::Transaction;

/// A request with an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct IdempotencyClaim<'a> {
    pub owner: &'a ClientId,
    /// Digest of the key. Only digests are stored.
    pub key: &'a [u8; 32],
    /// Digest of the request.
    pub request: &'a [u8; 32],
    /// The run to start if the key is new.
    pub run: &'a str,
    /// Mark of the process that makes the claim.
    pub gateway: &'a str,
    /// Keys that are older have expired.
    pub since: Time,
}

/// Result of [`Store::claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimResult {
    /// The key is new.
    New,
    /// The request was made before, and is this run. The process with this mark claimed the key; none if that is not known,
    /// because the index was rebuilt.
    Known { run: String, gateway: Option<String> },
    /// The key was used for another request.
    Other,
}

impl Store {
    /// Claims a key for a run. Of several concurrent claims, one gets [`ClaimResult::New`].
    pub async fn claim(&self, claim: &IdempotencyClaim<'_>) -> Result<ClaimResult, StoreError> {
        loop {
            self.indexed().await;
            let connections = self.connections();
            let claimed = claim_in(connections.transaction().await?, claim).await?;
            self.follow_file().await;
            // A claim in a file that has been deleted meanwhile does not count.
            if self.connections().is_same_file(&connections) {
                return Ok(claimed);
            }
        }
    }

    /// Releases the key of a run: the next claim gets [`ClaimResult::New`].
    pub async fn unclaim(&self, run: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM repeats WHERE run = ?1").bind(run).execute(&self.writing()).await?;
        Ok(())
    }
}

async fn claim_in(mut transaction: Transaction, claim: &IdempotencyClaim<'_>) -> Result<ClaimResult, StoreError> {
    let (owner, key) = (claim.owner.as_str(), claim.key.as_slice());
    let expired = sqlx::query("DELETE FROM repeats WHERE created < ?1").bind(claim.since.millis());
    expired.execute(&mut *transaction).await?;
    let found = sqlx::query("SELECT request, run, gateway FROM repeats WHERE owner = ?1 AND key = ?2")
        .bind(owner)
        .bind(key)
        .fetch_optional(&mut *transaction)
        .await?;
    let claimed = match found {
        Some(row) if row.try_get::<&[u8], _>("request")? == claim.request => {
            ClaimResult::Known { run: row.try_get("run")?, gateway: row.try_get("gateway")? }
        }
        Some(_) => ClaimResult::Other,
        None => {
            let insert = sqlx::query(
                "INSERT INTO repeats (owner, key, request, run, created, gateway) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            );
            let insert = insert.bind(owner).bind(key).bind(claim.request.as_slice()).bind(claim.run);
            insert.bind(Time::now().millis()).bind(claim.gateway).execute(&mut *transaction).await?;
            ClaimResult::New
        }
    };
    transaction.commit().await?;
    Ok(claimed)
}
