//! Property test: any sequence of operations on sessions and chains, compared with a simple model.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use trunkline_core::event::SessionId;
use trunkline_store::{ClientId, SessionFilter, SessionKey, Store, StoreError};

use crate::fixture::new;

const OWNERS: [&str; 3] = ["a", "b", "local"];
const MODELS: [&str; 2] = ["m", "n"];

#[derive(Debug, Clone)]
enum StoreStep {
    Begin { owner: usize, model: usize },
    Succeed { session: usize, native: Option<u8> },
    Delete { session: usize, owner: usize },
    Remember { owner: usize, model: usize, hash: u8, session: usize },
    Find { owner: usize, model: usize, hashes: Vec<u8> },
    Get { session: usize, owner: usize },
    Native { native: u8, owner: usize },
    List { owner: usize, model: usize },
}

fn step() -> impl Strategy<Value = StoreStep> {
    let (owner, model, session) = (0..OWNERS.len(), 0..MODELS.len(), 0..8_usize);
    prop_oneof![
        (owner.clone(), model.clone()).prop_map(|(owner, model)| StoreStep::Begin { owner, model }),
        (session.clone(), proptest::option::of(0..3_u8))
            .prop_map(|(session, native)| StoreStep::Succeed { session, native }),
        (session.clone(), owner.clone()).prop_map(|(session, owner)| StoreStep::Delete { session, owner }),
        (owner.clone(), model.clone(), 0..5_u8, session.clone())
            .prop_map(|(owner, model, hash, session)| StoreStep::Remember { owner, model, hash, session }),
        (owner.clone(), model.clone(), proptest::collection::vec(0..5_u8, 0..5))
            .prop_map(|(owner, model, hashes)| StoreStep::Find { owner, model, hashes }),
        (session, owner.clone()).prop_map(|(session, owner)| StoreStep::Get { session, owner }),
        (0..3_u8, owner.clone()).prop_map(|(native, owner)| StoreStep::Native { native, owner }),
        (owner, model).prop_map(|(owner, model)| StoreStep::List { owner, model }),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct KnownSession {
    owner: usize,
    model: usize,
    native: Option<u8>,
    turns: u64,
}

/// The expected content of the store.
#[derive(Default)]
struct StoreModel {
    /// Sessions in the order of their creation. A deleted one stays in the list, because a client may still name it.
    names: Vec<SessionKey>,
    sessions: BTreeMap<SessionKey, KnownSession>,
    chains: HashMap<(usize, usize, u8), BTreeSet<SessionKey>>,
}

impl StoreModel {
    fn named(&self, at: usize) -> SessionKey {
        self.names.get(at).cloned().unwrap_or_else(|| SessionKey(format!("none-{at}")))
    }

    fn of(&self, session: &SessionKey, owner: usize) -> Option<&KnownSession> {
        self.sessions.get(session).filter(|known| known.owner == owner)
    }
}

fn owner(at: usize) -> ClientId {
    ClientId::new(OWNERS[at])
}

fn native(number: u8) -> SessionId {
    SessionId(format!("native-{number}").into())
}

async fn apply(store: &Store, model: &mut StoreModel, step: StoreStep) -> Result<(), StoreError> {
    match step {
        StoreStep::Begin { owner: at, model: which } => {
            let row = store.session_begin(&new(&owner(at), MODELS[which])).await?;
            model.names.push(row.id.clone());
            model.sessions.insert(row.id, KnownSession { owner: at, model: which, native: None, turns: 0 });
        }
        StoreStep::Succeed { session, native: named } => {
            let key = model.named(session);
            let done = store.session_succeeded(&key, named.map(native).as_ref()).await?;
            assert_eq!(done, model.sessions.contains_key(&key));
            if let Some(known) = model.sessions.get_mut(&key) {
                known.turns += 1;
                known.native = named.or(known.native);
            }
        }
        StoreStep::Delete { session, owner: at } => {
            let key = model.named(session);
            let deleted = store.session_delete(&key, &owner(at)).await?;
            assert_eq!(deleted, model.of(&key, at).is_some());
            if deleted {
                model.sessions.remove(&key);
                model.chains.values_mut().for_each(|sessions| {
                    sessions.remove(&key);
                });
            }
        }
        StoreStep::Remember { owner: at, model: which, hash, session } => {
            let key = model.named(session);
            let done = store.chain_remember(&owner(at), MODELS[which], &[hash; 32], 1, &key).await?;
            assert_eq!(done, model.of(&key, at).is_some());
            if done {
                model.chains.entry((at, which, hash)).or_default().insert(key);
            }
        }
        StoreStep::Find { owner: at, model: which, hashes } => {
            let given: Vec<_> = hashes.iter().map(|&hash| [hash; 32]).collect();
            let found = store.chain_find(&owner(at), MODELS[which], &given).await?;
            // A hash that leads to several sessions leads to none.
            let known = |hash: &u8| {
                let sessions = model.chains.get(&(at, which, *hash)).filter(|sessions| sessions.len() == 1)?;
                sessions.first().cloned()
            };
            let expected = hashes.iter().enumerate().find_map(|(index, hash)| Some((index, known(hash)?)));
            assert_eq!(found, expected, "{hashes:?}");
        }
        StoreStep::Get { session, owner: at } => {
            let key = model.named(session);
            let found = store.session(&key, &owner(at)).await?.map(|row| (row.id, row.model, row.native, row.turns));
            let expected = model
                .of(&key, at)
                .map(|known| (key.clone(), MODELS[known.model].to_owned(), known.native.map(native), known.turns));
            assert_eq!(found, expected);
        }
        StoreStep::Native { native: number, owner: at } => {
            let found = store.session_by_native("codex", &native(number), &owner(at)).await?;
            let is = |known: &KnownSession| known.owner == at && known.native == Some(number);
            match found {
                Some(row) => assert!(model.sessions.get(&row.id).is_some_and(is), "{row:?}"),
                None => assert!(!model.sessions.values().any(is)),
            }
        }
        StoreStep::List { owner: at, model: which } => {
            let filter = SessionFilter {
                owner: Some(owner(at)),
                model: Some(MODELS[which].to_owned()),
                ..SessionFilter::default()
            };
            let mut listed: Vec<_> = store.sessions(&filter).await?.into_iter().map(|row| row.id).collect();
            listed.sort();
            let ours = model.sessions.iter().filter(|(_, known)| known.owner == at && known.model == which);
            assert_eq!(listed, ours.map(|(key, _)| key.clone()).collect::<Vec<_>>());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn sessions_and_chains_match_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::in_memory().await.unwrap();
            let mut model = StoreModel::default();
            for step in steps {
                apply(&store, &mut model, step).await.unwrap();
            }
            assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
        });
    }
}
