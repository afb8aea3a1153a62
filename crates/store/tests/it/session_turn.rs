//! What turns make of their sessions, on its way through the queue.

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use trunkline_core::event::SessionId;
use trunkline_store::{FILE, Leads, Owner, Record, SessionKey, SessionTurn, Store, Time, TurnEnded};

use crate::world::{Archive, begun, ended, owner};

fn turn(id: &str, time: i64, hashes: &[u8]) -> SessionTurn {
    SessionTurn {
        id: SessionKey(id.into()),
        owner: Owner::local(),
        model: "m".into(),
        provider: "codex".into(),
        repo: "/repo".into(),
        begins: "Hi\nthere".into(),
        native: Some(SessionId(format!("native at {time}"))),
        succeeded: true,
        asked: "m".into(),
        chains: hashes.iter().map(|hash| ([*hash; 32], 2)).collect(),
        time: Time::from_millis(time),
    }
}

async fn found(store: &Store, hash: u8) -> Option<String> {
    store.chain_find(&Owner::local(), "m", &[[hash; 32]]).await.unwrap().map(|(_, id)| id.0)
}

/// How many turns a session has, and its name with the provider.
async fn standing(store: &Store, id: &str) -> Option<(u64, String)> {
    let row = store.session(&SessionKey(id.into()), &Owner::local()).await.unwrap()?;
    Some((row.turns, row.native?.0))
}

async fn keep(archive: &Archive, turns: impl IntoIterator<Item = SessionTurn>) {
    let mut all = Vec::new();
    for turn in turns {
        all.push(archive.writer.send_session(turn, Leads::default()).await);
    }
    for sent in all {
        sent.kept().await.unwrap();
    }
}

#[tokio::test]
async fn a_session_is_found_by_what_was_said_last_and_by_nothing_before() {
    let store = Store::in_memory().await.unwrap();
    let archive = Archive::new(&store);
    let (id, local) = (SessionKey("s".into()), Owner::local());
    keep(&archive, [turn("s", 1, &[1, 2])]).await;
    assert_eq!((found(&store, 1).await.as_deref(), found(&store, 2).await.as_deref()), (Some("s"), Some("s")));

    // All in one transaction, and each after the one before.
    let nameless = SessionTurn { native: None, ..turn("s", 2, &[3]) };
    keep(&archive, [nameless.clone(), turn("other", 2, &[4]), SessionTurn { chains: Vec::new(), ..nameless }]).await;
    let hashes = [found(&store, 1).await, found(&store, 2).await, found(&store, 3).await, found(&store, 4).await];
    assert_eq!(hashes, [None, None, None, Some("other".to_owned())]);
    let row = store.session(&id, &local).await.unwrap().unwrap();
    assert_eq!((row.native.unwrap().0.as_str(), row.turns, row.title.as_str()), ("native at 1", 3, "Hi"));
    keep(&archive, [SessionTurn { succeeded: false, ..turn("s", 3, &[]) }]).await;
    assert_eq!(standing(&store, "s").await, Some((3, "native at 3".to_owned())), "one that failed is not counted");

    keep(&archive, [turn("s", 4, &[1, 2]), turn("twin", 4, &[1])]).await;
    assert_eq!(found(&store, 1).await, None, "the same words in two sessions");
    store.chains_forget(&SessionKey("twin".into())).await.unwrap();
    let take = async |hash: u8| store.chain_take(&local, "m", &[hash; 32], &id).await.unwrap();
    assert_eq!((take(9).await, found(&store, 1).await.is_some()), (false, true), "it does not lead there");
    assert_eq!((take(1).await, take(1).await, found(&store, 2).await), (true, false, None), "one takes all of it");

    keep(&archive, [turn("s", 5, &[5]), SessionTurn { owner: owner("thief"), ..turn("s", 6, &[6]) }]).await;
    assert_eq!(standing(&store, "s").await, Some((5, "native at 5".to_owned())));
    assert_eq!((found(&store, 5).await.as_deref(), found(&store, 6).await), (Some("s"), None));
    archive.end().await;
}

#[tokio::test]
async fn histories_lead_nowhere_if_somebody_says_so_in_time() {
    let store = Store::in_memory().await.unwrap();
    let archive = Archive::new(&store);
    for (hash, lead) in [(1, true), (2, false)] {
        let sent = archive.writer.send_session(turn("s", hash.into(), &[hash]), Leads::when(move || lead)).await;
        sent.kept().await.unwrap();
        assert_eq!(found(&store, hash).await.is_some(), lead);
        assert_eq!(found(&store, 1).await.is_some(), lead, "what led to it before does not, in any case");
    }
    archive.end().await;
}

#[tokio::test]
async fn a_turn_belongs_to_the_session_that_was_sent_before_it() {
    let store = Store::in_memory().await.unwrap();
    let archive = Archive::new(&store);
    archive.writer.send(begun("r", None)).await.unwrap();
    let sent = archive.writer.send_session(turn("s", 1, &[]), Leads::default()).await;
    let Record::Ended(of_it) = ended("r") else { unreachable!() };
    let session = Some(SessionKey("s".into()));
    archive.writer.send(Record::Ended(TurnEnded { session, ..of_it })).await.unwrap();
    archive.writer.flush().await.unwrap();
    sent.kept().await.unwrap();
    assert_eq!(store.turns(&SessionKey("s".into())).await.unwrap().len(), 1);
    archive.end().await;
}

#[tokio::test]
async fn whoever_is_killed_leaves_sessions_to_the_next_who_is_not_misled_by_what_is_past() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let store = Store::open(&path).await.unwrap();
    let (writer, keeping) = store.writer();
    let (spoken, going) = (SessionKey("spoken in".into()), SessionKey("going on".into()));
    drop(writer.send_session(turn("spoken in", 5, &[5]), Leads::default()));
    drop(writer.send_session(turn("going on", 5, &[6]), Leads::default()));
    drop(writer.send_session(turn("done", 5, &[7]), Leads::default()));
    writer.send(begun("r1", Some(&spoken))).await.unwrap();
    writer.send(begun("r2", None)).await.unwrap();
    writer.send(Record::GoesOn { run: "r2".into(), session: going, prompt: "p".into() }).await.unwrap();
    writer.send(begun("r3", Some(&SessionKey("done".into())))).await.unwrap();
    writer.send(ended("r3")).await.unwrap();
    for turn in [turn("new", 1, &[1]), turn("new", 2, &[2]), turn("gone on with", 3, &[3]), turn("written", 4, &[4])] {
        // On disk before anybody waits for anything.
        drop(writer.send_session(turn, Leads::default()));
    }
    let archive = Archive::new(&store);
    keep(&archive, [turn("written", 4, &[4]), turn("gone on with", 9, &[9])]).await;
    assert!(store.chain_take(&Owner::local(), "m", &[4; 32], &SessionKey("written".into())).await.unwrap());
    archive.end().await;
    drop((writer, keeping, store));

    let store = Store::open(&path).await.unwrap();
    assert_eq!(standing(&store, "new").await, Some((2, "native at 2".to_owned())));
    assert_eq!((found(&store, 1).await, found(&store, 2).await.as_deref()), (None, Some("new")));
    assert_eq!(standing(&store, "gone on with").await, Some((1, "native at 9".to_owned())), "that was later");
    assert_eq!((found(&store, 3).await, found(&store, 9).await.as_deref()), (None, Some("gone on with")));
    assert_eq!(standing(&store, "written").await, Some((1, "native at 4".to_owned())), "it counts once");
    assert_eq!(found(&store, 4).await, None, "somebody has spoken in it since");
    assert_eq!((found(&store, 5).await, found(&store, 6).await), (None, None), "somebody was speaking in them");
    assert_eq!(standing(&store, "spoken in").await, Some((1, "native at 5".to_owned())), "by its name it is found");
    assert_eq!(found(&store, 7).await.as_deref(), Some("done"));
}

#[tokio::test]
async fn case_74_what_a_locked_database_does_not_take_is_left_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let store = Store::open(&path).await.unwrap();
    let archive = Archive::new(&store);
    let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    archive.writer.send(begun("r", None)).await.unwrap();
    let sent = archive.writer.send_session(turn("s", 1, &[1]), Leads::default()).await;
    let Record::Ended(of_it) = ended("r") else { unreachable!() };
    let session = Some(SessionKey("s".into()));
    archive.writer.send(Record::Ended(TurnEnded { session, ..of_it })).await.unwrap();
    let kept = archive.end().await;
    assert_eq!((kept.rows, kept.lost), (0, 0), "neither here nor gone");
    assert!(sent.kept().await.is_err());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    store.close().await;

    let store = Store::open(&path).await.unwrap();
    assert_eq!(found(&store, 1).await.as_deref(), Some("s"));
    assert_eq!(store.turns(&SessionKey("s".into())).await.unwrap().len(), 1);
}
