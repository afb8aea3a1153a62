//! What one turn makes of its session, in one transaction.

use trunkline_core::event::SessionId;

use crate::chain::Hash;
use crate::error::StoreError;
use crate::session::{NewSession, SessionKey, first_words, path_text};
use crate::store::Store;
use crate::time::Time;

/// How many histories one statement takes; a turn has one or two.
const CHAINS: usize = 4;

/// A turn that is over.
#[derive(Debug, Clone, Copy)]
pub struct SessionTurn<'a> {
    pub id: &'a SessionKey,
    /// What the session is, if this was its first turn.
    pub new: NewSession<'a>,
    /// What to resume by from now on; none leaves it as it was.
    pub native: Option<&'a SessionId>,
    pub succeeded: bool,
    /// The name the model was asked for by.
    pub asked: &'a str,
    /// The histories that lead to the session now, and how many messages each has. No other does any longer.
    pub chains: &'a [(Hash, usize)],
}

impl Store {
    /// Notes what a turn has made of a session, which is made if there is none of that name.
    pub async fn session_turn(&self, turn: &SessionTurn<'_>) -> Result<(), StoreError> {
        self.session_turn_while(turn, || true).await
    }

    /// The same, and the histories lead to it only if `they_lead` says so once nobody else can write: to get there may
    /// have taken long, and somebody may be speaking in the session by now.
    pub async fn session_turn_while(
        &self,
        turn: &SessionTurn<'_>,
        they_lead: impl Fn() -> bool + Send,
    ) -> Result<(), StoreError> {
        let (now, owner) = (Time::now().millis(), turn.new.owner.as_str());
        let mut transaction = self.transaction().await?;
        let noted = sqlx::query(
            "INSERT INTO sessions (id, owner, model, provider, repo, title, parent, created, used, native, turns)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT id FROM sessions WHERE id = ?7), ?8, ?8, ?9, ?10)
             ON CONFLICT (id) DO UPDATE SET used = max(used, ?8), native = coalesce(?9, native), turns = turns + ?10
             WHERE owner = ?2",
        )
        .bind(&turn.id.0)
        .bind(owner)
        .bind(turn.new.model)
        .bind(turn.new.provider)
        .bind(path_text(turn.new.repo))
        .bind(first_words(turn.new.begins))
        .bind(turn.new.parent.map(|parent| parent.0.as_str()))
        .bind(now)
        .bind(turn.native.map(|native| native.0.as_str()))
        .bind(i64::from(turn.succeeded))
        .execute(&mut *transaction)
        .await?;
        if noted.rows_affected() == 0 {
            return Err(StoreError::NoSuchSession);
        }
        sqlx::query("DELETE FROM chains WHERE session = ?1").bind(&turn.id.0).execute(&mut *transaction).await?;
        let chains = if they_lead() { turn.chains } else { &[] };
        for several in chains.chunks(CHAINS) {
            let mut query =
                sqlx::QueryBuilder::new("INSERT INTO chains (owner, model, hash, messages, created, session) ");
            query.push_values(several, |mut row, (hash, messages)| {
                let messages = i64::try_from(*messages).unwrap_or(i64::MAX);
                row.push_bind(owner).push_bind(turn.asked).push_bind(hash.as_slice()).push_bind(messages);
                row.push_bind(now).push_bind(&turn.id.0);
            });
            query.push(
                " ON CONFLICT (owner, model, hash, session) DO UPDATE
                 SET messages = excluded.messages, created = excluded.created",
            );
            query.build().execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Owner;

    #[tokio::test]
    async fn a_session_is_found_by_what_was_said_last_and_by_nothing_before() {
        let store = Store::in_memory().await.unwrap();
        let (owner, other) = (Owner::local(), Owner::new("other"));
        let known = SessionKey("s".into());
        let id = known.clone();
        let new = NewSession {
            owner: &owner,
            model: "m",
            provider: "codex",
            repo: "/repo".as_ref(),
            begins: "Hi",
            parent: None,
        };
        let native = SessionId("n".into());
        let (first, second) = ([([1; 32], 2), ([2; 32], 2)], [([3; 32], 4)]);
        let turn = SessionTurn { id: &id, new, native: Some(&native), succeeded: true, asked: "m", chains: &first };
        store.session_turn(&turn).await.unwrap();
        let found = async |hash: u8| store.chain_find(&owner, "m", &[[hash; 32]]).await.unwrap().map(|(_, id)| id);
        assert_eq!((found(1).await, found(2).await), (Some(known.clone()), Some(known.clone())));

        let later = SessionTurn { native: None, chains: &second, ..turn };
        store.session_turn(&later).await.unwrap();
        assert_eq!((found(1).await, found(2).await, found(3).await), (None, None, Some(known)));
        store.session_turn(&SessionTurn { succeeded: false, chains: &[], ..later }).await.unwrap();
        assert_eq!(found(3).await, None);
        let row = store.session(&id, &owner).await.unwrap().unwrap();
        assert_eq!((row.native.as_ref(), row.turns, row.title.as_str()), (Some(&native), 2, "Hi"));

        store.session_turn(&turn).await.unwrap();
        let twin = SessionKey("twin".into());
        store.session_turn(&SessionTurn { id: &twin, ..turn }).await.unwrap();
        assert_eq!(found(1).await, None, "the same words in two sessions");
        store.chains_forget(&twin).await.unwrap();
        let take = async |hash: u8| store.chain_take(&owner, "m", &[hash; 32], &id).await.unwrap();
        assert_eq!((take(9).await, found(1).await.is_some()), (false, true), "it does not lead there");
        assert_eq!((take(1).await, take(1).await, found(2).await), (true, false, None), "one takes all of it");

        let stolen = SessionTurn { new: NewSession { owner: &other, ..new }, ..turn };
        assert!(matches!(store.session_turn(&stolen).await, Err(StoreError::NoSuchSession)));
    }
}
