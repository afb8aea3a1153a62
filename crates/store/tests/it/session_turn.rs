//! Tests the effects of turns on their sessions, sent through the queue.

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use trunkline_core::event::SessionId;
use trunkline_store::{
    ArchiveRecord, ChainCondition, ClientId, DATABASE_FILE, SessionKey, SessionTurn, Store, Time, TurnEnded,
};

use crate::fixture::{TestArchive, begun, ended, owner};

fn turn(id: &str, time: i64, hashes: &[u8]) -> SessionTurn {
    SessionTurn {
        id: SessionKey(id.into()),
        owner: ClientId::local(),
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
    store.chain_find(&ClientId::local(), "m", &[[hash; 32]]).await.unwrap().map(|(_, id)| id.0)
}

/// Returns the number of turns of a session, and the provider's id.
async fn turns_and_native(store: &Store, id: &str) -> Option<(u64, String)> {
    let row = store.session(&SessionKey(id.into()), &ClientId::local()).await.unwrap()?;
    Some((row.turns, row.native?.0))
}

async fn write(archive: &TestArchive, turns: impl IntoIterator<Item = SessionTurn>) {
    let mut all = Vec::new();
    for turn in turns {
        all.push(archive.writer.send_session(turn, ChainCondition::default()).await);
    }
    for sent in all {
        sent.kept().await.unwrap();
    }
}

#[tokio::test]
async fn session_is_found_by_its_latest_history_only() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    let (id, local) = (SessionKey("s".into()), ClientId::local());
    write(&archive, [turn("s", 1, &[1, 2])]).await;
    assert_eq!((found(&store, 1).await.as_deref(), found(&store, 2).await.as_deref()), (Some("s"), Some("s")));

    // All in one transaction, applied in order.
    let nameless = SessionTurn { native: None, ..turn("s", 2, &[3]) };
    write(&archive, [nameless.clone(), turn("other", 2, &[4]), SessionTurn { chains: Vec::new(), ..nameless }]).await;
    let hashes = [found(&store, 1).await, found(&store, 2).await, found(&store, 3).await, found(&store, 4).await];
    assert_eq!(hashes, [None, None, None, Some("other".to_owned())]);
    let row = store.session(&id, &local).await.unwrap().unwrap();
    assert_eq!((row.native.unwrap().0.as_str(), row.turns, row.title.as_str()), ("native at 1", 3, "Hi"));
    write(&archive, [SessionTurn { succeeded: false, ..turn("s", 3, &[]) }]).await;
    assert_eq!(
        turns_and_native(&store, "s").await,
        Some((3, "native at 3".to_owned())),
        "a failed turn is not counted"
    );

    write(&archive, [turn("s", 4, &[1, 2]), turn("twin", 4, &[1])]).await;
    assert_eq!(found(&store, 1).await, None, "the same history leads to two sessions");
    store.chains_forget(&SessionKey("twin".into())).await.unwrap();
    let take = async |hash: u8| store.chain_take(&local, "m", &[hash; 32], &id).await.unwrap();
    assert_eq!((take(9).await, found(&store, 1).await.is_some()), (false, true), "the hash does not lead there");
    assert_eq!(
        (take(1).await, take(1).await, found(&store, 2).await),
        (true, false, None),
        "the first caller takes all chains"
    );

    write(&archive, [turn("s", 5, &[5]), SessionTurn { owner: owner("thief"), ..turn("s", 6, &[6]) }]).await;
    assert_eq!(turns_and_native(&store, "s").await, Some((5, "native at 5".to_owned())));
    assert_eq!((found(&store, 5).await.as_deref(), found(&store, 6).await), (Some("s"), None));
    archive.end().await;
}

#[tokio::test]
async fn chains_are_not_stored_when_their_condition_is_false() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    for (hash, valid) in [(1, true), (2, false)] {
        let sent =
            archive.writer.send_session(turn("s", hash.into(), &[hash]), ChainCondition::when(move || valid)).await;
        sent.kept().await.unwrap();
        assert_eq!(found(&store, hash).await.is_some(), valid);
        assert_eq!(found(&store, 1).await.is_some(), valid, "earlier chains are removed in any case");
    }
    archive.end().await;
}

#[tokio::test]
async fn turn_is_added_to_a_session_that_was_sent_before_it() {
    let store = Store::in_memory().await.unwrap();
    let archive = TestArchive::new(&store);
    archive.writer.send(begun("r", None)).await.unwrap();
    let sent = archive.writer.send_session(turn("s", 1, &[]), ChainCondition::default()).await;
    let ArchiveRecord::Ended(end) = ended("r") else { unreachable!() };
    let session = Some(SessionKey("s".into()));
    archive.writer.send(ArchiveRecord::Ended(TurnEnded { session, ..end })).await.unwrap();
    archive.writer.flush().await.unwrap();
    sent.kept().await.unwrap();
    assert_eq!(store.turns(&SessionKey("s".into())).await.unwrap().len(), 1);
    archive.end().await;
}

#[tokio::test]
async fn sessions_are_recovered_from_the_journal_unless_they_are_out_of_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let store = Store::open(&path).await.unwrap();
    let (writer, task) = store.writer();
    let (running, continued) = (SessionKey("running".into()), SessionKey("continued".into()));
    drop(writer.send_session(turn("running", 5, &[5]), ChainCondition::default()));
    drop(writer.send_session(turn("continued", 5, &[6]), ChainCondition::default()));
    drop(writer.send_session(turn("done", 5, &[7]), ChainCondition::default()));
    writer.send(begun("r1", Some(&running))).await.unwrap();
    writer.send(begun("r2", None)).await.unwrap();
    writer.send(ArchiveRecord::GoesOn { run: "r2".into(), session: continued, prompt: "p".into() }).await.unwrap();
    writer.send(begun("r3", Some(&SessionKey("done".into())))).await.unwrap();
    writer.send(ended("r3")).await.unwrap();
    for turn in [turn("new", 1, &[1]), turn("new", 2, &[2]), turn("used since", 3, &[3]), turn("written", 4, &[4])] {
        // In the journal even though the future is dropped.
        drop(writer.send_session(turn, ChainCondition::default()));
    }
    let archive = TestArchive::new(&store);
    write(&archive, [turn("written", 4, &[4]), turn("used since", 9, &[9])]).await;
    assert!(store.chain_take(&ClientId::local(), "m", &[4; 32], &SessionKey("written".into())).await.unwrap());
    archive.end().await;
    drop((writer, task, store));

    let store = Store::open(&path).await.unwrap();
    assert_eq!(turns_and_native(&store, "new").await, Some((2, "native at 2".to_owned())));
    assert_eq!((found(&store, 1).await, found(&store, 2).await.as_deref()), (None, Some("new")));
    assert_eq!(
        turns_and_native(&store, "used since").await,
        Some((1, "native at 9".to_owned())),
        "the later turn wins"
    );
    assert_eq!((found(&store, 3).await, found(&store, 9).await.as_deref()), (None, Some("used since")));
    assert_eq!(turns_and_native(&store, "written").await, Some((1, "native at 4".to_owned())), "the turn counts once");
    assert_eq!(found(&store, 4).await, None, "another turn has used the session since");
    assert_eq!((found(&store, 5).await, found(&store, 6).await), (None, None), "a turn was running in them");
    assert_eq!(
        turns_and_native(&store, "running").await,
        Some((1, "native at 5".to_owned())),
        "the session is still found by its id"
    );
    assert_eq!(found(&store, 7).await.as_deref(), Some("done"));
}

#[tokio::test]
async fn case_74_records_are_left_in_the_journal_when_database_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let store = Store::open(&path).await.unwrap();
    let archive = TestArchive::new(&store);
    let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    archive.writer.send(begun("r", None)).await.unwrap();
    let sent = archive.writer.send_session(turn("s", 1, &[1]), ChainCondition::default()).await;
    let ArchiveRecord::Ended(end) = ended("r") else { unreachable!() };
    let session = Some(SessionKey("s".into()));
    archive.writer.send(ArchiveRecord::Ended(TurnEnded { session, ..end })).await.unwrap();
    let totals = archive.end().await;
    assert_eq!((totals.rows, totals.lost), (0, 0), "neither written nor lost");
    assert!(sent.kept().await.is_err());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    store.close().await;

    let store = Store::open(&path).await.unwrap();
    assert_eq!(found(&store, 1).await.as_deref(), Some("s"));
    assert_eq!(store.turns(&SessionKey("s".into())).await.unwrap().len(), 1);
}
