use super::*;
use http::HeaderMap;
use std::os::unix::fs::PermissionsExt;
use trunkline_core::event::Event;
use trunkline_wire::page::PageEvent;

use super::super::cookie::Visitor;
use crate::config::ServerConfig;

fn new_visitor() -> ChatId {
    Visitor::of_browser(&HeaderMap::new()).chat(&ServerConfig::default(), &HeaderMap::new())
}

fn chats(folder: Option<&std::path::Path>) -> Arc<Chats> {
    Arc::new(Chats::new(folder.map(|folder| folder.join("chats"))))
}

/// Sends a message, drops the answer, and saves.
async fn talk(chats: &Arc<Chats>, id: &ChatId, text: &str) {
    drop(chats.open(id).await.ask(chats, "m", text).unwrap());
    chats.save().await;
}

async fn shown(chats: &Chats, id: &ChatId) -> String {
    serde_json::to_string(&chats.open(id).await.shown()).unwrap()
}

#[tokio::test]
async fn conversation_survives_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let (first, id) = (chats(Some(home.path())), new_visitor());
    talk(&first, &id, "hello").await;
    let path = disk::path(&home.path().join("chats"), &id);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let expected = r#","items":[{"type":"user","text":"hello","model":"m"},{"type":"interrupted"}],"running":false}"#;
    let kept = shown(&chats(Some(home.path())), &id).await;
    assert!(kept.ends_with(expected), "{kept}");
    assert_eq!(kept, shown(&first, &id).await, "and is the same one");
    assert_eq!(shown(&chats(Some(home.path())), &new_visitor()).await, r#"{"items":[],"running":false}"#);
    first.open(&id).await.clear(&first);
    first.save().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn cleared_conversation_gets_a_new_id() {
    let (chats, somebody) = (chats(None), new_visitor());
    let mut ids = std::collections::HashSet::new();
    for _ in 0..2 {
        for _ in 0..2 {
            talk(&chats, &somebody, "hello").await;
            let now: serde_json::Value = serde_json::from_str(&shown(&chats, &somebody).await).unwrap();
            ids.insert(now["id"].as_str().unwrap().to_owned());
        }
        chats.open(&somebody).await.clear(&chats);
    }
    assert_eq!(ids.len(), 2, "{ids:?}");
}

#[tokio::test]
async fn answer_is_interrupted_when_the_server_was_killed() {
    let home = tempfile::tempdir().unwrap();
    let (killed, id) = (chats(Some(home.path())), new_visitor());
    let (_turn, answering) = killed.open(&id).await.ask(&killed, "m", "hello").unwrap();
    killed.save().await;
    assert!(shown(&killed, &id).await.ends_with("\"running\":true}"));
    let next = shown(&chats(Some(home.path())), &id).await;
    assert!(next.ends_with(r#"{"type":"interrupted"}],"running":false}"#), "{next}");
    drop(answering);
}

#[tokio::test]
async fn growing_answer_is_saved_before_its_end() {
    let home = tempfile::tempdir().unwrap();
    let (chats, id, never) = (chats(Some(home.path())), new_visitor(), CancellationToken::new());
    let (_turn, answering) = chats.open(&id).await.ask(&chats, "m", "hello").unwrap();
    chats.wake.notified().await;
    chats.save().await;
    let path = disk::path(&home.path().join("chats"), &id);
    let saved = async {
        for piece in ["one ", "two"] {
            let event = Event::Text { delta: piece.into() };
            answering.hear(&event, &[PageEvent::Text(piece.into())]);
        }
        while !std::fs::read_to_string(&path).unwrap().contains("one two") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = chats.keep(&never) => unreachable!("it was not told to end"),
        saved = tokio::time::timeout(Duration::from_secs(20), saved) => saved.expect("saved within the delay"),
    }
}

#[tokio::test]
async fn unreadable_file_starts_a_new_conversation() {
    let home = tempfile::tempdir().unwrap();
    let id = new_visitor();
    let path = disk::path(&home.path().join("chats"), &id);
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    for bad in ["", "{", "[]", r#"{"items": 7}"#] {
        std::fs::write(&path, bad).unwrap();
        assert_eq!(shown(&chats(Some(home.path())), &id).await, r#"{"items":[],"running":false}"#, "{bad}");
    }
}

#[tokio::test]
async fn idle_conversations_are_evicted_without_loss() {
    let home = tempfile::tempdir().unwrap();
    for (folder, kept) in [(Some(home.path()), true), (None, false)] {
        let chats = chats(folder);
        let (oldest, busy) = (new_visitor(), new_visitor());
        let (_turn, _answering) = chats.open(&busy).await.ask(&chats, "m", "busy").unwrap();
        talk(&chats, &oldest, "oldest").await;
        for _ in 0..2 * MAX_IDLE_CHATS {
            talk(&chats, &new_visitor(), "another").await;
        }
        assert_eq!(lock(&chats.open).chats.len(), MAX_IDLE_CHATS);
        assert!(shown(&chats, &busy).await.ends_with("\"running\":true}"), "one that is used stays");
        assert_eq!(shown(&chats, &oldest).await.contains("oldest"), kept);
    }
}

#[tokio::test]
async fn oldest_files_are_removed_beyond_the_limit() {
    let home = tempfile::tempdir().unwrap();
    let chats = chats(Some(home.path()));
    let folder = home.path().join("chats");
    for number in 0..10 {
        let id = new_visitor();
        talk(&chats, &id, &format!("number {number}")).await;
        let file = std::fs::File::open(disk::path(&folder, &id)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(number)).unwrap();
    }
    std::fs::write(folder.join("half.new"), "").unwrap();
    disk::bound(&folder, 3).unwrap();
    let mut left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    left.sort();
    assert_eq!(left.len(), 3, "{left:?}");
    let texts: String = left.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!((7..10).all(|number| texts.contains(&format!("number {number}"))), "{texts}");
}

#[tokio::test]
async fn message_is_refused_when_the_conversation_is_too_long() {
    let chats = chats(None);
    let chat = chats.open(&new_visitor()).await;
    let long = "x".repeat(1024 * 1024);
    for _ in 0..2 {
        drop(Arc::clone(&chat).ask(&chats, "m", &long).unwrap());
    }
    let error = Arc::clone(&chat).ask(&chats, "m", "more").err().unwrap();
    assert_eq!((error.status, error.code), (400, "conversation_too_long"));
    chat.clear(&chats);
    assert!(chat.ask(&chats, "m", "more").is_ok());
}
