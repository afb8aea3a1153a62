//! The inbox: messages are recorded before they are processed, checked against the present allow lists, and deleted after the
//! answer.

use trunkline_core::secret::Secrets;
use trunkline_discord::{Allow, Snowflake};

use crate::bridge_test::{BridgeTest, DatabaseLock};
use crate::fake::{CHANNEL, GUILD, USER, mention};

const OTHER_CHANNEL: u64 = 21;

#[test]
fn message_is_not_answered_after_a_restart_when_its_author_is_no_longer_allowed() {
    let mut test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("hold a"));
    let waiting = test.discord.say_as(CHANNEL, USER + 1, &mention("me too"), serde_json::json!({}));
    test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
    test.discord.until("the other message is recorded", |_| test.inbox_entry(waiting));
    test.kill();
    test.backend.release("a");
    test.settings.allow = Allow { users: vec![Snowflake(USER + 1)], ..Allow::default() };
    test.restart();
    test.discord.answered(waiting, "re: me too");
    assert_eq!(test.discord.look().replies(asked).len(), 0);
    assert_eq!(test.backend.prompts(), ["hold a", "me too"]);
    let (state, payload, detail) = test.inbox_entry(asked).unwrap();
    assert_eq!((state, payload.as_str()), ("failed", "{}"), "the text is deleted");
    assert!(detail.contains("no longer allowed"), "{detail}");
}

#[test]
fn roles_are_checked_again_after_a_restart() {
    for (roles, answered) in [(vec![30], true), (vec![31], false)] {
        let mut test = BridgeTest::new();
        test.discord.look().roles.insert(USER, vec![30]);
        test.settings.allow = Allow { roles: vec![Snowflake(30)], ..Allow::default() };
        let mut test = test.start();
        let asked = test.discord.say(CHANNEL, &mention("hold a"));
        test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
        test.kill();
        test.backend.release("a");
        test.discord.look().roles.insert(USER, roles);
        test.restart();
        if answered {
            test.discord.answered(asked, "re: hold a");
        } else {
            test.discord
                .until("the message is refused", |_| test.inbox_entry(asked).filter(|record| record.0 == "failed"));
            assert_eq!(test.discord.look().replies(asked).len(), 0);
        }
    }
}

#[test]
fn message_is_not_started_before_it_is_recorded_and_other_channels_continue() {
    let mut test = BridgeTest::new().start();
    test.discord.look().guilds.insert(OTHER_CHANNEL, GUILD);
    let running = test.discord.say(OTHER_CHANNEL, &mention("hold a|text in progress|hold b"));
    test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
    let locked = DatabaseLock::new(&test);
    let asked = test.discord.say(CHANNEL, &mention("hi"));
    // Running answers and read-only commands continue.
    test.backend.release("a");
    test.discord.answered(running, "in progress");
    let status = test.discord.command(CHANNEL, USER, "status", None);
    assert!(status.ends_with("idle, 0 waiting"), "{status}");
    assert_eq!(test.backend.prompts().len(), 1);
    assert_eq!(test.inbox_entry(asked), None);
    test.kill();
    drop(locked);
    test.backend.release("b");
    test.restart();
    test.discord.answered(running, "re: hold a");
    // The message was not recorded. The channel had no cursor, so that its history is not read either.
    let known = test.discord.say(CHANNEL, &mention("later"));
    test.discord.answered(known, "re: later");
    test.stop().unwrap();
    let prompts = test.backend.prompts();
    assert_eq!(prompts.iter().filter(|prompt| *prompt == "hi").count(), 0, "the channel had no conversation");
}

#[test]
fn messages_are_answered_once_and_in_order_when_the_database_was_locked() {
    for killed in [false, true] {
        let mut test = BridgeTest::new().start();
        let first = test.discord.say(CHANNEL, &mention("first"));
        test.discord.answered(first, "re: first");
        test.discord
            .until("the answer is recorded", |_| test.inbox_entry(first).filter(|record| record.0 == "answered"));
        let locked = DatabaseLock::new(&test);
        let asked: Vec<u64> = (0..5).map(|n| test.discord.say(CHANNEL, &mention(&format!("m{n}")))).collect();
        // A later command of the same channel is answered, so that the messages have arrived.
        test.discord.command(CHANNEL, USER, "status", None);
        if killed {
            test.kill();
        }
        drop(locked);
        if killed {
            test.restart();
        }
        test.discord.answered(asked[4], "re: m4");
        let expected = ["first", "m0", "m1", "m2", "m3", "m4"];
        assert_eq!(test.backend.prompts(), expected, "killed: {killed}");
        let answers: Vec<String> = expected.iter().map(|prompt| format!("re: {prompt}")).collect();
        assert_eq!(test.discord.look().said_by_bot(CHANNEL), answers, "killed: {killed}");
    }
}

#[test]
fn backend_runs_once_when_the_answer_cannot_be_recorded_at_first() {
    let mut test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("text draft|hold a"));
    let draft = test.discord.answered(asked, "draft");
    let locked = DatabaseLock::new(&test);
    test.backend.release("a");
    let command = test.discord.command(CHANNEL, USER, "status", None);
    assert!(command.contains("answering"), "the answer waits until it can be recorded: {command}");
    drop(locked);
    let answer = test.discord.answered(asked, "re: text draft");
    assert_eq!((answer.id, test.backend.prompts().len()), (draft.id, 1));
    test.discord.until("the answer is recorded", |_| test.inbox_entry(asked).filter(|record| record.0 == "answered"));
    test.kill();
    test.restart();
    let next = test.discord.say(CHANNEL, &mention("next"));
    test.discord.answered(next, "re: next");
    assert_eq!(test.backend.prompts().len(), 2);
}

#[test]
fn recorded_command_is_executed_after_a_restart() {
    let mut test = BridgeTest::new().start();
    let first = test.discord.say(CHANNEL, &mention("first"));
    test.discord.answered(first, "re: first");
    test.stop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let command = test.discord.say(CHANNEL, &mention("/new"));
    runtime.block_on(async {
        let store = crate::bridge_test::open(test.folder.path()).await;
        let payload = serde_json::json!({"id": command.to_string(), "channel": CHANNEL.to_string(),
            "guild": GUILD.to_string(), "author": USER.to_string(), "text": "/new"});
        let (place, database) = (format!("discord:{CHANNEL}"), store.bridge().await.unwrap());
        database.inbox_add(&place, &command.to_string(), &payload).await.unwrap();
    });
    test.restart();
    test.discord.answered(command, "A new conversation starts here.");
    assert_eq!(test.backend.prompts(), ["first"]);
}

#[test]
fn secrets_are_deleted_after_the_answer() {
    let mut test = BridgeTest::new();
    test.settings.secrets = Secrets::new(["hunter2hunter2".to_owned()]);
    let mut test = test.start();
    let asked = test.discord.say(CHANNEL, &mention("hold a|the key is hunter2hunter2"));
    test.discord
        .until("the message is recorded", |_| test.inbox_entry(asked).filter(|record| record.1.contains("hunter2")));
    test.backend.release("a");
    test.discord.answered(asked, "re: hold a|the key is hunter2hunter2");
    test.discord.until("the answer is recorded", |_| test.inbox_entry(asked).filter(|record| record.0 == "answered"));
    test.stop().unwrap();
    for file in std::fs::read_dir(test.folder.path()).unwrap().map(|file| file.unwrap().path()) {
        if let Ok(bytes) = std::fs::read(&file) {
            let found = bytes.windows(7).any(|part| part == b"hunter2");
            assert!(!found, "{}", file.display());
        }
    }
}
