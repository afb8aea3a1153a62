//! Answers on Discord, as drafts and when they are complete.

use serde_json::json;

use crate::bridge_test::BridgeTest;
use crate::fake::{CHANNEL, mention};

#[test]
fn case_31_answer_is_a_reply_that_notifies_no_user() {
    let test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("ping"));
    let answer = test.discord.answered(asked, "@everyone look");
    assert_eq!((answer.channel, answer.edits.len()), (CHANNEL, 0));
    for call in test.discord.look().calls.iter().filter(|call| call.path.contains("/messages")) {
        assert_eq!(call.body["allowed_mentions"]["parse"], json!([]), "{call:?}");
    }
}

#[test]
fn draft_shows_text_and_running_tool_in_one_message() {
    let test = BridgeTest::new().start();
    let asked = test
        .discord
        .say(CHANNEL, &mention("text Let me look.|hold a|tool Bash: cargo test|hold b|done|text It works.|hold c"));
    test.discord.answered(asked, "Let me look.");
    let typing = format!("channels/{CHANNEL}/typing");
    test.discord.until("the typing indicator is shown", |state| {
        state.calls.iter().any(|call| call.path == typing).then_some(())
    });
    test.backend.release("a");
    test.discord.answered(asked, "Let me look.\n-# ⏳ Bash: cargo test");
    test.backend.release("b");
    let draft = test.discord.answered(asked, "It works.");
    assert_eq!(draft.content, "It works.");
    test.backend.release("c");
    let answer = test.discord.answered(asked, "re: text");
    assert_eq!(test.discord.look().replies(asked).len(), 1);
    assert!(answer.edits.iter().any(|edit| edit.contains("⏳")) && !answer.content.contains('⏳'));
}

#[test]
fn long_answer_is_several_messages_in_order() {
    let test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("long 300"));
    test.discord.answered(asked, "this is line 0\n");
    let messages = test.discord.until("the whole answer is sent", |state| {
        let messages = state.said_by_bot(CHANNEL);
        messages.last().is_some_and(|last| last.contains("line 299")).then_some(messages)
    });
    assert!(messages.len() > 1 && messages.iter().all(|part| part.chars().count() <= 2000));
    let lines: Vec<String> = messages.iter().flat_map(|part| part.lines()).map(str::to_owned).collect();
    let expected: Vec<String> = (0..300).map(|line| format!("this is line {line}")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn very_long_answer_is_a_file() {
    let test = BridgeTest::new().start();
    test.discord.say(CHANNEL, &mention("long 3000"));
    let (name, text) =
        test.discord.until("a file is sent", |state| state.messages.values().find_map(|message| message.file.clone()));
    assert_eq!(name, "answer.md");
    assert!(text.starts_with("this is line 0\n") && text.ends_with("this is line 2999"));
}

#[test]
fn failure_is_answered_with_advice() {
    let test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("fail Query timed out"));
    let answer = test.discord.answered(asked, "failed");
    assert!(answer.content.contains("scripted failed: Query timed out") && answer.content.contains("/new"));
    let next = test.discord.say(CHANNEL, &mention("and now?"));
    test.discord.answered(next, "re: and now?");
}

#[test]
fn answer_is_posted_again_when_its_draft_was_deleted() {
    let test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("text soon|hold a"));
    let draft = test.discord.answered(asked, "soon");
    test.discord.look().messages.remove(&draft.id);
    test.backend.release("a");
    test.discord.answered(asked, "re: text soon");
}

#[test]
fn attachments_are_saved_and_pictures_are_sent_as_images() {
    let test = BridgeTest::new().start();
    {
        let mut state = test.discord.look();
        state.files.insert("notes".into(), b"remember the milk".to_vec());
        state.files.insert("picture".into(), b"\x89PNG\r\n\x1a\n...".to_vec());
    }
    let url = |name: &str| format!("{}/files/{name}", test.discord.api);
    let attachments = json!({"attachments": [
        {"id": "1", "filename": "../no tes.txt", "size": 17, "url": url("notes")},
        {"id": "2", "filename": "p.png", "size": 11, "url": url("picture")},
        {"id": "3", "filename": "huge.bin", "size": 500_000_000, "url": url("notes")},
        {"id": "4", "filename": "evil", "size": 1, "url": "http://127.0.0.1:1/evil"},
        {"id": "5", "filename": "gone", "size": 1, "url": url("gone")},
    ]});
    let asked = test.discord.say_as(CHANNEL, 40, &mention("look"), attachments);
    test.discord.answered(asked, "re: look");
    let seen = test.backend.requests.lock().unwrap()[0].clone();
    assert_eq!(seen.images, 1);
    let lines: Vec<&str> = seen.prompt.lines().collect();
    assert_eq!(lines[..3], ["look", "", "Attached files:"]);
    let path = lines[3].strip_prefix("- _no_tes.txt: ").unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "remember the milk");
    assert!(std::path::Path::new(path).starts_with(test.folder.path()));
    assert_eq!(lines[4], "- huge.bin: not fetched: larger than 25 MiB");
    assert_eq!(lines[5], "- evil: not fetched: not from Discord");
    assert!(lines[6].starts_with("- gone: not fetched: HTTP status client error (404"), "{}", lines[6]);
}
