//! Coming to Discord, staying there, and coming back.

use serde_json::json;
use trunkline_discord::BridgeError;

use crate::fake::{CHANNEL, GUILD, TOKEN, mention};
use crate::world::World;

#[test]
fn it_identifies_with_its_token_and_intents_and_keeps_the_connection_alive() {
    let world = World::new().start();
    let identified = world.discord.look().identified[0].clone();
    assert_eq!(identified["token"], json!(format!("Bot {TOKEN}")));
    // Guilds, their messages, direct messages, and what messages say.
    assert_eq!(identified["intents"], json!(1 | 1 << 9 | 1 << 12 | 1 << 15));
    world.discord.until("there were heartbeats", |state| (state.heartbeats >= 3).then_some(()));
    assert_eq!(world.discord.look().identified.len(), 1);
}

#[test]
fn it_tells_its_guild_the_commands() {
    let world = World::new().start();
    let commands = world.discord.until("commands are there", |state| state.commands.get(&GUILD).cloned());
    let names: Vec<&str> = commands.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["new", "stop", "status", "model"]);
}

#[test]
fn after_a_cut_it_goes_on_and_nothing_is_lost_or_doubled() {
    let world = World::new().start();
    let before = world.discord.say(CHANNEL, &mention("one"));
    world.discord.answered(before, "re: one");
    world.discord.cut();
    let meanwhile = world.discord.say(CHANNEL, &mention("two"));
    world.discord.answered(meanwhile, "re: two");
    let after = world.discord.say(CHANNEL, &mention("three"));
    world.discord.answered(after, "re: three");
    assert_eq!(world.puppet.prompts(), ["one", "two", "three"]);
    let state = world.discord.look();
    assert_eq!((state.identified.len(), state.resumed.len()), (1, 1));
    assert_eq!(state.said_by_bot(CHANNEL), ["re: one", "re: two", "re: three"]);
}

#[test]
fn a_session_that_discord_forgot_is_begun_anew_and_what_was_missed_is_read() {
    let world = World::new().start();
    let before = world.discord.say(CHANNEL, &mention("one"));
    world.discord.answered(before, "re: one");
    {
        let mut state = world.discord.look();
        state.forgets_sessions = true;
        state.session.cut();
        // Nobody is told of these.
        state.said(CHANNEL, 40, &mention("two"), json!({}));
        state.said(CHANNEL, 40, "not for us", json!({}));
        state.said(CHANNEL, 40, &mention("three"), json!({}));
    }
    world.discord.until("both are answered", |state| {
        (state.said_by_bot(CHANNEL) == ["re: one", "re: two", "re: three"]).then_some(())
    });
    let state = world.discord.look();
    assert_eq!((state.identified.len(), state.resumed.len()), (2, 1));
    assert_eq!(world.puppet.prompts(), ["one", "two", "three"]);
}

#[test]
fn a_refused_token_or_intent_is_the_end() {
    for (code, token) in [(4004, true), (4014, false)] {
        let mut world = World::new();
        world.discord.look().closes_with = Some(code);
        world.launch();
        match world.ended() {
            Err(BridgeError::Token) => assert!(token),
            Err(BridgeError::Intents) => assert!(!token),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn case_31_with_nobody_allowed_it_does_not_begin() {
    let mut world = World::new().allowing(trunkline_discord::Allow::default());
    world.launch();
    assert!(matches!(world.ended(), Err(BridgeError::NobodyAllowed)));
    assert!(world.discord.look().identified.is_empty());
}
