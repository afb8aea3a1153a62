//! Requests that may be repeated: under the same key of the same owner the same request is the same run.

use sqlx::Row;

use crate::error::StoreError;
use crate::session::Owner;
use crate::store::Store;
use crate::time::Time;

/// A request under a key.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    pub owner: &'a Owner,
    /// Digests: what a client sent is nothing to keep.
    pub key: &'a [u8; 32],
    pub request: &'a [u8; 32],
    /// The run it is to be, if it is the first.
    pub run: &'a str,
    /// One that is older is forgotten.
    pub since: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// Nobody has asked before.
    New,
    /// It is this run.
    Known(String),
    /// The key belongs to another request.
    Other,
}

impl Store {
    /// Of several who ask at once, one is the first.
    pub async fn claim(&self, claim: &Claim<'_>) -> Result<Claimed, StoreError> {
        let mut transaction = self.transaction().await?;
        let (owner, key) = (claim.owner.as_str(), claim.key.as_slice());
        let forgotten = sqlx::query("DELETE FROM repeats WHERE created < ?1").bind(claim.since.millis());
        forgotten.execute(&mut *transaction).await?;
        let found = sqlx::query("SELECT request, run FROM repeats WHERE owner = ?1 AND key = ?2")
            .bind(owner)
            .bind(key)
            .fetch_optional(&mut *transaction)
            .await?;
        let claimed = match found {
            Some(row) if row.try_get::<&[u8], _>("request")? == claim.request => Claimed::Known(row.try_get("run")?),
            Some(_) => Claimed::Other,
            None => {
                sqlx::query("INSERT INTO repeats (owner, key, request, run, created) VALUES (?1, ?2, ?3, ?4, ?5)")
                    .bind(owner)
                    .bind(key)
                    .bind(claim.request.as_slice())
                    .bind(claim.run)
                    .bind(Time::now().millis())
                    .execute(&mut *transaction)
                    .await?;
                Claimed::New
            }
        };
        transaction.commit().await?;
        Ok(claimed)
    }

    /// The next to ask is the first again.
    pub async fn unclaim(&self, run: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM repeats WHERE run = ?1").bind(run).execute(self.writing()).await?;
        Ok(())
    }
}
