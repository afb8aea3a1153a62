//! What is on record: before anything is begun, no longer than it is needed, and no more than today's lists allow.

use trunkline_core::secret::Secrets;
use trunkline_discord::{Allow, Snowflake};

use crate::fake::{CHANNEL, GUILD, USER, mention};
use crate::world::{Locked, World};

const OTHER: u64 = 21;

#[test]
fn who_is_no_longer_allowed_is_not_answered_after_a_restart() {
    let mut world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("hold a"));
    let waiting = world.discord.say_as(CHANNEL, USER + 1, &mention("me too"), serde_json::json!({}));
    world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
    world.discord.until("the other is on record", |_| world.on_record(waiting));
    world.kill();
    world.puppet.release("a");
    world.settings.allow = Allow { users: vec![Snowflake(USER + 1)], ..Allow::default() };
    world.restart();
    world.discord.answered(waiting, "re: me too");
    assert_eq!(world.discord.look().replies(asked).len(), 0);
    assert_eq!(world.puppet.prompts(), ["hold a", "me too"]);
    let (state, words, why) = world.on_record(asked).unwrap();
    assert_eq!((state, words.as_str()), ("failed", "{}"), "it is done with");
    assert!(why.contains("no longer allowed"), "{why}");
}

#[test]
fn a_role_and_a_thread_are_looked_at_anew() {
    for (roles, answered) in [(vec![30], true), (vec![31], false)] {
        let mut world = World::new();
        world.discord.look().roles.insert(USER, vec![30]);
        world.settings.allow = Allow { roles: vec![Snowflake(30)], ..Allow::default() };
        let mut world = world.start();
        let asked = world.discord.say(CHANNEL, &mention("hold a"));
        world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
        world.kill();
        world.puppet.release("a");
        world.discord.look().roles.insert(USER, roles);
        world.restart();
        if answered {
            world.discord.answered(asked, "re: hold a");
        } else {
            world.discord.until("it is refused", |_| world.on_record(asked).filter(|record| record.0 == "failed"));
            assert_eq!(world.discord.look().replies(asked).len(), 0);
        }
    }
}

#[test]
fn a_message_is_not_begun_before_it_is_on_record_and_nobody_else_waits_for_it() {
    let mut world = World::new().start();
    world.discord.look().guilds.insert(OTHER, GUILD);
    let running = world.discord.say(OTHER, &mention("hold a|text on its way|hold b"));
    world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
    let locked = Locked::new(&world);
    let asked = world.discord.say(CHANNEL, &mention("hi"));
    // What runs goes on, and so does whatever needs nothing written.
    world.puppet.release("a");
    world.discord.answered(running, "on its way");
    let status = world.discord.command(CHANNEL, USER, "status", None);
    assert!(status.ends_with("idle, 0 waiting"), "{status}");
    assert_eq!(world.puppet.prompts().len(), 1);
    assert_eq!(world.on_record(asked), None);
    world.kill();
    drop(locked);
    world.puppet.release("b");
    world.restart();
    world.discord.answered(running, "re: hold a");
    // It was not on record, but neither was it taken for read.
    let known = world.discord.say(CHANNEL, &mention("later"));
    world.discord.answered(known, "re: later");
    world.stop().unwrap();
    let prompts = world.puppet.prompts();
    assert_eq!(prompts.iter().filter(|prompt| *prompt == "hi").count(), 0, "nobody had talked there before");
}

#[test]
fn what_was_heard_while_nothing_could_be_written_is_answered_once_in_order() {
    for killed in [false, true] {
        let mut world = World::new().start();
        let first = world.discord.say(CHANNEL, &mention("first"));
        world.discord.answered(first, "re: first");
        world.discord.until("it is noted", |_| world.on_record(first).filter(|record| record.0 == "answered"));
        let locked = Locked::new(&world);
        let asked: Vec<u64> = (0..5).map(|n| world.discord.say(CHANNEL, &mention(&format!("m{n}")))).collect();
        // It has heard them: a command of the same channel that came after them is answered.
        world.discord.command(CHANNEL, USER, "status", None);
        if killed {
            world.kill();
        }
        drop(locked);
        if killed {
            world.restart();
        }
        world.discord.answered(asked[4], "re: m4");
        let expected = ["first", "m0", "m1", "m2", "m3", "m4"];
        assert_eq!(world.puppet.prompts(), expected, "killed: {killed}");
        let said: Vec<String> = expected.iter().map(|prompt| format!("re: {prompt}")).collect();
        assert_eq!(world.discord.look().said_by_bot(CHANNEL), said, "killed: {killed}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_down_is_not_asked_for_again() {
    let mut world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("text draft|hold a"));
    let draft = world.discord.answered(asked, "draft");
    let locked = Locked::new(&world);
    world.puppet.release("a");
    let command = world.discord.command(CHANNEL, USER, "status", None);
    assert!(command.contains("answering"), "it waits until it can be written: {command}");
    drop(locked);
    let answer = world.discord.answered(asked, "re: text draft");
    assert_eq!((answer.id, world.puppet.prompts().len()), (draft.id, 1));
    world.discord.until("it is noted", |_| world.on_record(asked).filter(|record| record.0 == "answered"));
    world.kill();
    world.restart();
    let next = world.discord.say(CHANNEL, &mention("next"));
    world.discord.answered(next, "re: next");
    assert_eq!(world.puppet.prompts().len(), 2);
}

#[test]
fn a_command_that_was_heard_and_not_obeyed_is_obeyed_after_a_restart() {
    let mut world = World::new().start();
    let first = world.discord.say(CHANNEL, &mention("first"));
    world.discord.answered(first, "re: first");
    world.stop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let command = world.discord.say(CHANNEL, &mention("/new"));
    runtime.block_on(async {
        let store = crate::world::open(world.folder.path()).await;
        let payload = serde_json::json!({"id": command.to_string(), "channel": CHANNEL.to_string(),
            "guild": GUILD.to_string(), "author": USER.to_string(), "text": "/new"});
        store.inbox_add(&format!("discord:{CHANNEL}"), &command.to_string(), &payload).await.unwrap();
    });
    world.restart();
    world.discord.answered(command, "A new conversation begins here.");
    assert_eq!(world.puppet.prompts(), ["first"]);
}

#[test]
fn secrets_are_kept_no_longer_than_they_are_needed() {
    let mut world = World::new();
    world.settings.secrets = Secrets::new(["hunter2hunter2".to_owned()]);
    let mut world = world.start();
    let asked = world.discord.say(CHANNEL, &mention("hold a|the key is hunter2hunter2"));
    world.discord.until("it is on record", |_| world.on_record(asked).filter(|record| record.1.contains("hunter2")));
    world.puppet.release("a");
    world.discord.answered(asked, "re: hold a|the key is hunter2hunter2");
    world.discord.until("it is noted", |_| world.on_record(asked).filter(|record| record.0 == "answered"));
    world.stop().unwrap();
    for file in std::fs::read_dir(world.folder.path()).unwrap().map(|file| file.unwrap().path()) {
        if let Ok(bytes) = std::fs::read(&file) {
            let found = bytes.windows(7).any(|part| part == b"hunter2");
            assert!(!found, "{}", file.display());
        }
    }
}
