//! Every message is answered, and answered once, whatever ends the bridge in between.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fake::{CHANNEL, What, mention};
use crate::world::World;

#[test]
fn what_was_said_while_it_was_away_is_answered_in_order() {
    let mut world = World::new().start();
    let first = world.discord.say(CHANNEL, &mention("first"));
    world.discord.answered(first, "re: first");
    world.stop().unwrap();
    let missed: Vec<u64> = (0..250)
        .map(|n| {
            let text = if n % 50 == 0 { mention(&format!("missed {n}")) } else { format!("chatter {n}") };
            world.discord.say(CHANNEL, &text)
        })
        .collect();
    world.restart();
    world.discord.answered(missed[200], "re: missed 200");
    let expected = ["first", "missed 0", "missed 50", "missed 100", "missed 150", "missed 200"];
    assert_eq!(world.puppet.prompts(), expected);
    let said: Vec<String> = expected.iter().map(|prompt| format!("re: {prompt}")).collect();
    assert_eq!(world.discord.look().said_by_bot(CHANNEL), said);
    // Once more, with nothing to do.
    world.stop().unwrap();
    world.restart();
    let last = world.discord.say(CHANNEL, &mention("last"));
    world.discord.answered(last, "re: last");
    assert_eq!(world.puppet.prompts().len(), 7);
}

#[test]
fn killed_before_the_answer_it_is_given_after_the_restart() {
    let mut world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("hold a"));
    let waiting = world.discord.say(CHANNEL, &mention("waiting"));
    world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
    world.kill();
    world.puppet.release("a");
    world.restart();
    world.discord.answered(asked, "re: hold a");
    world.discord.answered(waiting, "re: waiting");
    assert_eq!(world.discord.look().said_by_bot(CHANNEL), ["re: hold a", "re: waiting"]);
    assert_eq!(world.puppet.prompts(), ["hold a", "hold a", "waiting"]);
}

#[test]
fn killed_while_it_grows_the_same_message_is_used_again() {
    let mut world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("text growing|hold a"));
    let draft = world.discord.answered(asked, "growing");
    world.kill();
    world.puppet.release("a");
    world.restart();
    let answer = world.discord.answered(asked, "re: text growing");
    assert_eq!(answer.id, draft.id);
    assert_eq!(world.discord.look().replies(asked).len(), 1);
}

#[test]
fn killed_after_the_answer_was_sent_and_before_that_was_noted_it_is_not_sent_again() {
    let mut world = World::new().start();
    // Discord takes the message; that it did is never heard.
    world.discord.fault("POST", "/messages", What::Silence);
    let asked = world.discord.say(CHANNEL, &mention("hi"));
    world.discord.answered(asked, "re: hi");
    world.kill();
    world.restart();
    let next = world.discord.say(CHANNEL, &mention("next"));
    world.discord.answered(next, "re: next");
    assert_eq!(world.discord.look().said_by_bot(CHANNEL), ["re: hi", "re: next"]);
    assert_eq!(world.puppet.prompts(), ["hi", "next"]);
}

#[test]
fn killed_between_two_parts_only_the_missing_ones_are_sent() {
    let mut world = World::new().start();
    // The second part is taken, and nobody hears of it; the third is never sent.
    world.discord.fault_of("POST", "/messages", "line 150", What::Silence);
    world.discord.say(CHANNEL, &mention("long 300"));
    world.discord.until("the second part is there", |state| (state.said_by_bot(CHANNEL).len() == 2).then_some(()));
    world.kill();
    world.restart();
    let next = world.discord.say(CHANNEL, &mention("next"));
    world.discord.answered(next, "re: next");
    let said = world.discord.look().said_by_bot(CHANNEL);
    let lines: Vec<&str> = said.iter().flat_map(|part| part.lines()).collect();
    let expected: Vec<String> = (0..300).map(|line| format!("this is line {line}")).collect();
    assert_eq!((&lines[..300], lines[300]), (&expected.iter().map(String::as_str).collect::<Vec<_>>()[..], "re: next"));
    assert_eq!((lines.len(), world.puppet.prompts().len()), (301, 2));
}

#[test]
fn a_message_that_ends_the_bridge_again_and_again_is_left() {
    let mut world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("hold forever"));
    for times in 1..=3 {
        world.discord.until("it is asked", |_| (world.puppet.prompts().len() == times).then_some(()));
        world.kill();
        world.restart();
    }
    world.discord.answered(asked, "never came to an end");
    assert_eq!(world.puppet.prompts().len(), 3);
}

#[test]
fn asked_to_stop_it_lets_an_answer_come_to_its_end() {
    let mut world = World::new().start();
    let asked = world.discord.say(CHANNEL, &mention("text almost|hold a"));
    world.discord.answered(asked, "almost");
    world.stop_gently();
    let late = world.discord.say(CHANNEL, &mention("too late"));
    world.puppet.release("a");
    world.ended().unwrap();
    assert!(world.discord.look().replies(asked)[0].content.starts_with("re: text almost"));
    assert_eq!(world.puppet.dropped.load(Ordering::SeqCst), 0);
    world.restart();
    world.discord.answered(late, "re: too late");
}

#[test]
fn told_to_stop_now_it_takes_the_message_up_again_at_the_next_start() {
    let mut world = World::new();
    world.settings.drain = Duration::from_secs(3600);
    let mut world = world.start();
    let asked = world.discord.say(CHANNEL, &mention("hold a"));
    world.discord.until("it is asked", |_| (world.puppet.prompts().len() == 1).then_some(()));
    world.stop_now().unwrap();
    assert_eq!(world.puppet.dropped.load(Ordering::SeqCst), 1);
    world.puppet.release("a");
    world.restart();
    world.discord.answered(asked, "re: hold a");
}

#[test]
fn what_was_said_in_a_listed_channel_before_anybody_talked_there_is_answered_too() {
    let listen = trunkline_discord::Snowflake(CHANNEL);
    let world = World::new();
    world.discord.say(CHANNEL, "said before it was ever here");
    let mut world = world.allowing(trunkline_discord::Allow { listen: vec![listen], ..Default::default() }).start();
    // Its place in the channel is known once its history was looked at.
    world.discord.until("it has looked", |state| {
        state.calls.iter().any(|call| call.path.ends_with("messages?limit=1")).then_some(())
    });
    world.stop().unwrap();
    let missed = world.discord.say(CHANNEL, "said while it was away");
    world.restart();
    world.discord.answered(missed, "re: said while it was away");
    assert_eq!(world.puppet.prompts(), ["said while it was away"]);
}

#[test]
fn what_is_said_while_history_is_read_comes_after_it() {
    let mut world = World::new().start();
    let first = world.discord.say(CHANNEL, &mention("first"));
    world.discord.answered(first, "re: first");
    world.stop().unwrap();
    world.discord.say(CHANNEL, &mention("missed"));
    // Reading takes a second try, and meanwhile more is said.
    let what = What::Answer { status: 502, headers: Vec::new(), body: serde_json::Value::Null };
    world.discord.fault("GET", "messages?after", what);
    world.restart();
    world.discord.until("the first try was made", |state| state.faults.is_empty().then_some(()));
    let live = world.discord.say(CHANNEL, &mention("live"));
    world.discord.answered(live, "re: live");
    assert_eq!(world.puppet.prompts(), ["first", "missed", "live"]);
    assert_eq!(world.discord.look().said_by_bot(CHANNEL), ["re: first", "re: missed", "re: live"]);
}
