//! Who is answered where, in which order, and what can be told to the bridge itself.

use std::sync::atomic::Ordering;

use serde_json::json;
use trunkline_discord::{Allow, Snowflake};

use crate::fake::{CHANNEL, GUILD, USER, mention};
use crate::world::World;

const DIRECT: u64 = 90;

#[test]
fn only_what_is_meant_for_it_is_answered() {
    let world = World::new().allowing(Allow {
        guilds: vec![Snowflake(GUILD)],
        listen: vec![Snowflake(21)],
        users: vec![Snowflake(USER)],
        ..Allow::default()
    });
    {
        let mut state = world.discord.look();
        state.guilds.extend([(21, GUILD), (22, 11)]);
    }
    let world = world.start();
    world.discord.say(CHANNEL, "no mention");
    world.discord.say_as(CHANNEL, 41, &mention("a stranger"), json!({}));
    world.discord.say_as(CHANNEL, USER, &mention("a webhook"), json!({"webhook_id": "5"}));
    world.discord.say_as(CHANNEL, USER, &mention("a bot"), json!({"author": {"id": "40", "bot": true}}));
    world.discord.say(22, &mention("another guild"));
    world.discord.say_as(DIRECT, 41, "a stranger, directly", json!({}));
    let listened = world.discord.say(21, "listened to");
    let direct = world.discord.say(DIRECT, "directly");
    let last = world.discord.say(CHANNEL, &mention("mentioned"));
    for (id, text) in [(listened, "re: listened to"), (direct, "re: directly"), (last, "re: mentioned")] {
        world.discord.answered(id, text);
    }
    let mut prompts = world.puppet.prompts();
    prompts.sort();
    assert_eq!(prompts, ["directly", "listened to", "mentioned"]);
}

#[test]
fn a_thread_of_a_listed_channel_is_a_conversation_of_its_own() {
    let world = World::new().allowing(Allow { listen: vec![Snowflake(CHANNEL)], ..Allow::default() });
    world.discord.look().guilds.insert(77, GUILD);
    let world = world.start();
    world.discord.look().session.dispatch(
        "THREAD_CREATE",
        json!({"id": "77", "guild_id": GUILD.to_string(), "parent_id": CHANNEL.to_string(), "type": 11}),
    );
    let first = world.discord.say(77, "in the thread");
    world.discord.answered(first, "re: in the thread");
    let second = world.discord.say(CHANNEL, "in the channel");
    world.discord.answered(second, "re: in the channel");
    let sessions: Vec<_> = world.puppet.asked.lock().unwrap().iter().map(|asked| asked.session.clone()).collect();
    assert_eq!(sessions, [None, None]);
}

#[test]
fn twenty_channels_at_once_and_each_in_its_order() {
    let world = World::new();
    let channels: Vec<u64> = (100..120).collect();
    world.discord.look().guilds.extend(channels.iter().map(|channel| (*channel, GUILD)));
    let world = world.start();
    // The first of every channel holds: all of them are under way at the same time.
    for turn in 0..5 {
        for channel in &channels {
            let hold = if turn == 0 { "hold all|" } else { "" };
            world.discord.say(*channel, &mention(&format!("{hold}{channel} {turn}")));
        }
    }
    world.discord.until("every channel has begun", |_| (world.puppet.prompts().len() >= 20).then_some(()));
    // All of it was heard before a command is; that it is written down may take a moment.
    for channel in &channels {
        let status = || world.discord.command(*channel, USER, "status", None);
        assert!((0..1000).any(|_| status().ends_with(", 4 waiting")), "{}", status());
    }
    assert_eq!(world.puppet.prompts().len(), 20);
    world.puppet.release("all");
    for channel in &channels {
        let expected: Vec<String> =
            (0..5).map(|turn| format!("re: {}{channel} {turn}", if turn == 0 { "hold all|" } else { "" })).collect();
        world
            .discord
            .until("all are answered in order", |state| (state.said_by_bot(*channel) == expected).then_some(()));
    }
}

#[test]
fn too_many_waiting_is_said() {
    let mut world = World::new();
    world.settings.queue = 2;
    let world = world.start();
    for word in ["hold a", "two", "three"] {
        world.discord.say(CHANNEL, &mention(word));
    }
    let fourth = world.discord.say(CHANNEL, &mention("four"));
    world.discord.answered(fourth, "2 messages are waiting here already");
    world.puppet.release("a");
    world.discord.until("the others are answered", |state| {
        state.said_by_bot(CHANNEL).contains(&"re: three".to_owned()).then_some(())
    });
    assert_eq!(world.puppet.prompts(), ["hold a", "two", "three"]);
}

#[test]
fn stop_ends_the_answer_and_keeps_what_there_is() {
    let world = World::new().start();
    assert_eq!(world.discord.command(CHANNEL, USER, "stop", None), "Nothing is being answered here.");
    let asked = world.discord.say(CHANNEL, &mention("text half of it|hold forever"));
    world.discord.answered(asked, "half of it");
    let waiting = world.discord.say(CHANNEL, &mention("next"));
    assert_eq!(world.discord.command(CHANNEL, USER, "stop", None), "Stopping.");
    let stopped = world.discord.answered(asked, "Stopped.");
    assert!(stopped.content.starts_with("half of it\n"), "{stopped:?}");
    assert_eq!(world.puppet.dropped.load(Ordering::SeqCst), 1);
    world.discord.answered(waiting, "re: next");
}

#[test]
fn commands_work_as_messages_too() {
    let world = World::new().direct().start();
    let first = world.discord.say(DIRECT, "hold a");
    world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
    let status = world.discord.say(DIRECT, "/status");
    world.discord.answered(status, "answering for 0 s, 0 waiting");
    let stop = world.discord.say(DIRECT, "/stop");
    world.discord.answered(stop, "Stopping.");
    world.discord.answered(first, "Stopped.");
    let models = world.discord.say(DIRECT, "/model");
    world.discord.answered(models, "Models: puppet, other");
    let unknown = world.discord.say(DIRECT, "/model nobody");
    world.discord.answered(unknown, "no model of that name");
    let other = world.discord.say(DIRECT, "/model other");
    world.discord.answered(other, "other answers here from now on");
    let asked = world.discord.say(DIRECT, "hello");
    world.discord.answered(asked, "other: hello");
}

#[test]
fn case_31_who_is_not_allowed_cannot_command() {
    let world = World::new().direct().start();
    assert_eq!(world.discord.command(CHANNEL, 41, "new", None), "You may not use this here.");
    assert_eq!(world.discord.command(DIRECT, USER, "new", None), "A new conversation begins here.");
}

#[test]
fn a_conversation_goes_on_until_a_new_one_begins() {
    let world = World::new().start();
    let ask = |text: &str| {
        let id = world.discord.say(CHANNEL, &mention(text));
        world.discord.answered(id, &format!("re: {text}"));
        let asked = world.puppet.asked.lock().unwrap().last().unwrap().clone();
        (asked.session, asked.history, asked.system)
    };
    let brief = "be brief".to_owned();
    assert_eq!(ask("one"), (None, 0, brief.clone()));
    assert_eq!(ask("two"), (Some("session".to_owned()), 2, brief.clone()));
    world.discord.command(CHANNEL, USER, "new", None);
    assert_eq!(ask("three"), (None, 0, brief.clone()));
    let status = world.discord.command(CHANNEL, USER, "status", None);
    assert!(
        status.starts_with("Model: puppet\nSession: `session`\nNow: ") && status.ends_with(", 0 waiting"),
        "{status}"
    );
}

#[test]
fn an_answer_to_the_old_conversation_leaves_the_new_one_alone() {
    let world = World::new().start();
    let old = world.discord.say(CHANNEL, &mention("hold a"));
    world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
    world.discord.command(CHANNEL, USER, "new", None);
    world.puppet.release("a");
    world.discord.answered(old, "re: hold a");
    let new = world.discord.say(CHANNEL, &mention("begin"));
    world.discord.answered(new, "re: begin");
    let asked = world.puppet.asked.lock().unwrap().last().unwrap().clone();
    assert_eq!((asked.session, asked.history), (None, 0));
}
