//! What an answer looks like on Discord, while it grows and when it is there.

use serde_json::json;

use crate::fake::{CHANNEL, mention};
use crate::world::World;

#[test]
fn case_31_an_answer_is_a_reply_that_pings_nobody() {
    let world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("ping"));
    let answer = world.discord.answered(asked, "@everyone look");
    assert_eq!((answer.channel, answer.edits.len()), (CHANNEL, 0));
    for call in world.discord.look().calls.iter().filter(|call| call.path.contains("/messages")) {
        assert_eq!(call.body["allowed_mentions"]["parse"], json!([]), "{call:?}");
    }
}

#[test]
fn it_grows_in_one_message_and_tells_what_goes_on() {
    let world = World::new().start();
    let asked = world
        .discord
        .say(CHANNEL, &mention("text Let me look.|hold a|tool Bash: cargo test|hold b|done|text It works.|hold c"));
    world.discord.answered(asked, "Let me look.");
    let typing = format!("channels/{CHANNEL}/typing");
    world.discord.until("we type", |state| state.calls.iter().any(|call| call.path == typing).then_some(()));
    world.puppet.release("a");
    world.discord.answered(asked, "Let me look.\n-# ⏳ Bash: cargo test");
    world.puppet.release("b");
    let grown = world.discord.answered(asked, "It works.");
    assert_eq!(grown.content, "It works.");
    world.puppet.release("c");
    let answer = world.discord.answered(asked, "re: text");
    assert_eq!(world.discord.look().replies(asked).len(), 1);
    assert!(answer.edits.iter().any(|edit| edit.contains("⏳")) && !answer.content.contains('⏳'));
}

#[test]
fn a_long_answer_is_several_messages_in_order() {
    let world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("long 300"));
    world.discord.answered(asked, "this is line 0\n");
    let said = world.discord.until("all of it is there", |state| {
        let said = state.said_by_bot(CHANNEL);
        said.last().is_some_and(|last| last.contains("line 299")).then_some(said)
    });
    assert!(said.len() > 1 && said.iter().all(|part| part.chars().count() <= 2000));
    let lines: Vec<String> = said.iter().flat_map(|part| part.lines()).map(str::to_owned).collect();
    let expected: Vec<String> = (0..300).map(|line| format!("this is line {line}")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_very_long_one_is_a_file() {
    let world = World::new().start();
    world.discord.say(CHANNEL, &mention("long 3000"));
    let (name, text) = world
        .discord
        .until("a file is there", |state| state.messages.values().find_map(|message| message.file.clone()));
    assert_eq!(name, "answer.md");
    assert!(text.starts_with("this is line 0\n") && text.ends_with("this is line 2999"));
}

#[test]
fn a_failure_is_told_with_what_to_do() {
    let world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("fail Query timed out"));
    let answer = world.discord.answered(asked, "failed");
    assert!(answer.content.contains("puppet failed: Query timed out") && answer.content.contains("/new"));
    let next = world.discord.say(CHANNEL, &mention("and now?"));
    world.discord.answered(next, "re: and now?");
}

#[test]
fn an_answer_whose_draft_was_removed_is_posted_anew() {
    let world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("text soon|hold a"));
    let draft = world.discord.answered(asked, "soon");
    world.discord.look().messages.remove(&draft.id);
    world.puppet.release("a");
    world.discord.answered(asked, "re: text soon");
}

#[test]
fn files_are_kept_and_pictures_are_shown() {
    let world = World::new().start();
    {
        let mut state = world.discord.look();
        state.files.insert("notes".into(), b"remember the milk".to_vec());
        state.files.insert("picture".into(), b"\x89PNG\r\n\x1a\n...".to_vec());
    }
    let url = |name: &str| format!("{}/files/{name}", world.discord.api);
    let attachments = json!({"attachments": [
        {"id": "1", "filename": "../no tes.txt", "size": 17, "url": url("notes")},
        {"id": "2", "filename": "p.png", "size": 11, "url": url("picture")},
        {"id": "3", "filename": "huge.bin", "size": 500_000_000, "url": url("notes")},
        {"id": "4", "filename": "evil", "size": 1, "url": "http://127.0.0.1:1/evil"},
        {"id": "5", "filename": "gone", "size": 1, "url": url("gone")},
    ]});
    let asked = world.discord.say_as(CHANNEL, 40, &mention("look"), attachments);
    world.discord.answered(asked, "re: look");
    let seen = world.puppet.asked.lock().unwrap()[0].clone();
    assert_eq!(seen.images, 1);
    let lines: Vec<&str> = seen.prompt.lines().collect();
    assert_eq!(lines[..3], ["look", "", "Attached files:"]);
    let path = lines[3].strip_prefix("- _no_tes.txt: ").unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "remember the milk");
    assert!(std::path::Path::new(path).starts_with(world.folder.path()));
    assert_eq!(lines[4], "- huge.bin: not fetched: larger than 25 MiB");
    assert_eq!(lines[5], "- evil: not fetched: not from Discord");
    assert!(lines[6].starts_with("- gone: not fetched: HTTP status client error (404"), "{}", lines[6]);
}
