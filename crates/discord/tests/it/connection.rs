//! Connecting to Discord, and reconnecting.

use serde_json::json;
use trunkline_discord::BridgeError;

use crate::bridge_test::BridgeTest;
use crate::fake::{CHANNEL, GUILD, TOKEN, mention};

#[test]
fn identifies_with_token_and_intents_and_sends_heartbeats() {
    let test = BridgeTest::new().start();
    let identified = test.discord.look().identified[0].clone();
    assert_eq!(identified["token"], json!(format!("Bot {TOKEN}")));
    // Guilds, guild messages, direct messages, and message content.
    assert_eq!(identified["intents"], json!(1 | 1 << 9 | 1 << 12 | 1 << 15));
    test.discord.until("there were heartbeats", |state| (state.heartbeats >= 3).then_some(()));
    assert_eq!(test.discord.look().identified.len(), 1);
}

#[test]
fn registers_commands_in_the_guild() {
    let test = BridgeTest::new().start();
    let commands = test.discord.until("commands are registered", |state| state.commands.get(&GUILD).cloned());
    let names: Vec<&str> = commands.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["new", "stop", "status", "model"]);
}

#[test]
fn no_message_is_lost_or_repeated_when_the_connection_is_cut() {
    let test = BridgeTest::new().start();
    let before = test.discord.say(CHANNEL, &mention("one"));
    test.discord.answered(before, "re: one");
    test.discord.cut();
    let meanwhile = test.discord.say(CHANNEL, &mention("two"));
    test.discord.answered(meanwhile, "re: two");
    let after = test.discord.say(CHANNEL, &mention("three"));
    test.discord.answered(after, "re: three");
    assert_eq!(test.backend.prompts(), ["one", "two", "three"]);
    let state = test.discord.look();
    assert_eq!((state.identified.len(), state.resumed.len()), (1, 1));
    assert_eq!(state.said_by_bot(CHANNEL), ["re: one", "re: two", "re: three"]);
}

#[test]
fn missed_messages_are_read_when_the_session_cannot_be_resumed() {
    let test = BridgeTest::new().start();
    let before = test.discord.say(CHANNEL, &mention("one"));
    test.discord.answered(before, "re: one");
    {
        let mut state = test.discord.look();
        state.forgets_sessions = true;
        state.session.cut();
        // No connection receives these.
        state.add_message(CHANNEL, 40, &mention("two"), json!({}));
        state.add_message(CHANNEL, 40, "not for us", json!({}));
        state.add_message(CHANNEL, 40, &mention("three"), json!({}));
    }
    test.discord.until("both are answered", |state| {
        (state.said_by_bot(CHANNEL) == ["re: one", "re: two", "re: three"]).then_some(())
    });
    let state = test.discord.look();
    assert_eq!((state.identified.len(), state.resumed.len()), (2, 1));
    assert_eq!(test.backend.prompts(), ["one", "two", "three"]);
}

#[test]
fn bridge_ends_when_token_or_intents_are_refused() {
    for (code, token) in [(4004, true), (4014, false)] {
        let mut test = BridgeTest::new();
        test.discord.look().closes_with = Some(code);
        test.launch();
        match test.ended() {
            Err(BridgeError::Token) => assert!(token),
            Err(BridgeError::Intents) => assert!(!token),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn case_31_bridge_does_not_start_when_allow_lists_are_empty() {
    let mut test = BridgeTest::new().allowing(trunkline_discord::Allow::default());
    test.launch();
    assert!(matches!(test.ended(), Err(BridgeError::NoUserAllowed)));
    assert!(test.discord.look().identified.is_empty());
}
