//! Access control, order of answers, and commands.

use std::sync::atomic::Ordering;

use serde_json::json;
use trunkline_discord::{Allow, Snowflake};

use crate::bridge_test::BridgeTest;
use crate::fake::{CHANNEL, GUILD, USER, mention};

const DIRECT: u64 = 90;

#[test]
fn answers_only_allowed_messages_that_address_the_bot() {
    let test = BridgeTest::new().allowing(Allow {
        guilds: vec![Snowflake(GUILD)],
        listen: vec![Snowflake(21)],
        users: vec![Snowflake(USER)],
        ..Allow::default()
    });
    {
        let mut state = test.discord.look();
        state.guilds.extend([(21, GUILD), (22, 11)]);
    }
    let test = test.start();
    test.discord.say(CHANNEL, "no mention");
    test.discord.say_as(CHANNEL, 41, &mention("a stranger"), json!({}));
    test.discord.say_as(CHANNEL, USER, &mention("a webhook"), json!({"webhook_id": "5"}));
    test.discord.say_as(CHANNEL, USER, &mention("a bot"), json!({"author": {"id": "40", "bot": true}}));
    test.discord.say(22, &mention("another guild"));
    test.discord.say_as(DIRECT, 41, "a stranger, directly", json!({}));
    let listened = test.discord.say(21, "listened to");
    let direct = test.discord.say(DIRECT, "directly");
    let last = test.discord.say(CHANNEL, &mention("mentioned"));
    for (id, text) in [(listened, "re: listened to"), (direct, "re: directly"), (last, "re: mentioned")] {
        test.discord.answered(id, text);
    }
    let mut prompts = test.backend.prompts();
    prompts.sort();
    assert_eq!(prompts, ["directly", "listened to", "mentioned"]);
}

#[test]
fn thread_of_a_listed_channel_has_its_own_conversation() {
    let test = BridgeTest::new().allowing(Allow { listen: vec![Snowflake(CHANNEL)], ..Allow::default() });
    test.discord.look().guilds.insert(77, GUILD);
    let test = test.start();
    test.discord.look().session.dispatch(
        "THREAD_CREATE",
        json!({"id": "77", "guild_id": GUILD.to_string(), "parent_id": CHANNEL.to_string(), "type": 11}),
    );
    let first = test.discord.say(77, "in the thread");
    test.discord.answered(first, "re: in the thread");
    let second = test.discord.say(CHANNEL, "in the channel");
    test.discord.answered(second, "re: in the channel");
    let sessions: Vec<_> = test.backend.requests.lock().unwrap().iter().map(|asked| asked.session.clone()).collect();
    assert_eq!(sessions, [None, None]);
}

#[test]
fn twenty_channels_are_answered_concurrently_and_each_in_order() {
    let test = BridgeTest::new();
    let channels: Vec<u64> = (100..120).collect();
    test.discord.look().guilds.extend(channels.iter().map(|channel| (*channel, GUILD)));
    let test = test.start();
    // The first message of every channel waits, so that all run at the same time.
    for turn in 0..5 {
        for channel in &channels {
            let hold = if turn == 0 { "hold all|" } else { "" };
            test.discord.say(*channel, &mention(&format!("{hold}{channel} {turn}")));
        }
    }
    test.discord.until("every channel has started", |_| (test.backend.prompts().len() >= 20).then_some(()));
    // The messages arrive before the command, but recording them may take a moment.
    for channel in &channels {
        let status = || test.discord.command(*channel, USER, "status", None);
        assert!((0..1000).any(|_| status().ends_with(", 4 waiting")), "{}", status());
    }
    assert_eq!(test.backend.prompts().len(), 20);
    test.backend.release("all");
    for channel in &channels {
        let expected: Vec<String> =
            (0..5).map(|turn| format!("re: {}{channel} {turn}", if turn == 0 { "hold all|" } else { "" })).collect();
        test.discord
            .until("all are answered in order", |state| (state.said_by_bot(*channel) == expected).then_some(()));
    }
}

#[test]
fn message_is_refused_when_the_queue_is_full() {
    let mut test = BridgeTest::new();
    test.settings.queue = 2;
    let test = test.start();
    for word in ["hold a", "two", "three"] {
        test.discord.say(CHANNEL, &mention(word));
    }
    let fourth = test.discord.say(CHANNEL, &mention("four"));
    test.discord.answered(fourth, "2 messages are waiting here already");
    test.backend.release("a");
    test.discord.until("the others are answered", |state| {
        state.said_by_bot(CHANNEL).contains(&"re: three".to_owned()).then_some(())
    });
    assert_eq!(test.backend.prompts(), ["hold a", "two", "three"]);
}

#[test]
fn stop_ends_the_answer_and_keeps_its_text() {
    let test = BridgeTest::new().start();
    assert_eq!(test.discord.command(CHANNEL, USER, "stop", None), "Nothing is being answered here.");
    let asked = test.discord.say(CHANNEL, &mention("text half of it|hold forever"));
    test.discord.answered(asked, "half of it");
    let waiting = test.discord.say(CHANNEL, &mention("next"));
    assert_eq!(test.discord.command(CHANNEL, USER, "stop", None), "Stopping.");
    let stopped = test.discord.answered(asked, "Stopped.");
    assert!(stopped.content.starts_with("half of it\n"), "{stopped:?}");
    assert_eq!(test.backend.dropped.load(Ordering::SeqCst), 1);
    test.discord.answered(waiting, "re: next");
}

#[test]
fn commands_can_be_sent_as_messages() {
    let test = BridgeTest::new().direct().start();
    let first = test.discord.say(DIRECT, "hold a");
    test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
    let status = test.discord.say(DIRECT, "/status");
    test.discord.answered(status, "answering for 0 s, 0 waiting");
    let stop = test.discord.say(DIRECT, "/stop");
    test.discord.answered(stop, "Stopping.");
    test.discord.answered(first, "Stopped.");
    let models = test.discord.say(DIRECT, "/model");
    test.discord.answered(models, "Models: scripted, other");
    let unknown = test.discord.say(DIRECT, "/model unknown");
    test.discord.answered(unknown, "no model of that name");
    let other = test.discord.say(DIRECT, "/model other");
    test.discord.answered(other, "other answers here from now on");
    let asked = test.discord.say(DIRECT, "hello");
    test.discord.answered(asked, "other: hello");
}

#[test]
fn case_31_commands_are_refused_when_user_is_not_allowed() {
    let test = BridgeTest::new().direct().start();
    assert_eq!(test.discord.command(CHANNEL, 41, "new", None), "You may not use this here.");
    assert_eq!(test.discord.command(DIRECT, USER, "new", None), "A new conversation starts here.");
}

#[test]
fn session_continues_until_a_new_conversation_starts() {
    let test = BridgeTest::new().start();
    let ask = |text: &str| {
        let id = test.discord.say(CHANNEL, &mention(text));
        test.discord.answered(id, &format!("re: {text}"));
        let asked = test.backend.requests.lock().unwrap().last().unwrap().clone();
        (asked.session, asked.history, asked.system)
    };
    let brief = "be brief".to_owned();
    assert_eq!(ask("one"), (None, 0, brief.clone()));
    assert_eq!(ask("two"), (Some("session".to_owned()), 2, brief.clone()));
    test.discord.command(CHANNEL, USER, "new", None);
    assert_eq!(ask("three"), (None, 0, brief.clone()));
    let status = test.discord.command(CHANNEL, USER, "status", None);
    assert!(
        status.starts_with("Model: scripted\nSession: `session`\nNow: ") && status.ends_with(", 0 waiting"),
        "{status}"
    );
}

#[test]
fn answer_to_an_old_conversation_does_not_change_the_new_one() {
    let test = BridgeTest::new().start();
    let old = test.discord.say(CHANNEL, &mention("hold a"));
    test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
    test.discord.command(CHANNEL, USER, "new", None);
    test.backend.release("a");
    test.discord.answered(old, "re: hold a");
    let new = test.discord.say(CHANNEL, &mention("begin"));
    test.discord.answered(new, "re: begin");
    let asked = test.backend.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!((asked.session, asked.history), (None, 0));
}
