//! Each message is answered exactly once, even if the bridge is killed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::bridge_test::BridgeTest;
use crate::fake::{CHANNEL, FaultAction, mention};

#[test]
fn missed_messages_are_answered_in_order_after_a_restart() {
    let mut test = BridgeTest::new().start();
    let first = test.discord.say(CHANNEL, &mention("first"));
    test.discord.answered(first, "re: first");
    test.stop().unwrap();
    let missed: Vec<u64> = (0..250)
        .map(|n| {
            let text = if n % 50 == 0 { mention(&format!("missed {n}")) } else { format!("chatter {n}") };
            test.discord.say(CHANNEL, &text)
        })
        .collect();
    test.restart();
    test.discord.answered(missed[200], "re: missed 200");
    let expected = ["first", "missed 0", "missed 50", "missed 100", "missed 150", "missed 200"];
    assert_eq!(test.backend.prompts(), expected);
    let answers: Vec<String> = expected.iter().map(|prompt| format!("re: {prompt}")).collect();
    assert_eq!(test.discord.look().said_by_bot(CHANNEL), answers);
    // A second restart has nothing to do.
    test.stop().unwrap();
    test.restart();
    let last = test.discord.say(CHANNEL, &mention("last"));
    test.discord.answered(last, "re: last");
    assert_eq!(test.backend.prompts().len(), 7);
}

#[test]
fn message_is_answered_after_a_restart_when_killed_before_the_answer() {
    let mut test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("hold a"));
    let waiting = test.discord.say(CHANNEL, &mention("waiting"));
    test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
    test.kill();
    test.backend.release("a");
    test.restart();
    test.discord.answered(asked, "re: hold a");
    test.discord.answered(waiting, "re: waiting");
    assert_eq!(test.discord.look().said_by_bot(CHANNEL), ["re: hold a", "re: waiting"]);
    assert_eq!(test.backend.prompts(), ["hold a", "hold a", "waiting"]);
}

#[test]
fn draft_is_reused_when_killed_while_it_is_shown() {
    let mut test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("text growing|hold a"));
    let draft = test.discord.answered(asked, "growing");
    test.kill();
    test.backend.release("a");
    test.restart();
    let answer = test.discord.answered(asked, "re: text growing");
    assert_eq!(answer.id, draft.id);
    assert_eq!(test.discord.look().replies(asked).len(), 1);
}

#[test]
fn answer_is_not_sent_again_when_killed_before_sending_is_recorded() {
    let mut test = BridgeTest::new().start();
    // Discord posts the message but does not respond.
    test.discord.fault("POST", "/messages", FaultAction::NoResponse);
    let asked = test.discord.say(CHANNEL, &mention("hi"));
    test.discord.answered(asked, "re: hi");
    test.kill();
    test.restart();
    let next = test.discord.say(CHANNEL, &mention("next"));
    test.discord.answered(next, "re: next");
    assert_eq!(test.discord.look().said_by_bot(CHANNEL), ["re: hi", "re: next"]);
    assert_eq!(test.backend.prompts(), ["hi", "next"]);
}

#[test]
fn only_missing_parts_are_sent_when_killed_between_parts() {
    let mut test = BridgeTest::new().start();
    // The second part is posted without a response; the third is never sent.
    test.discord.fault_of("POST", "/messages", "line 150", FaultAction::NoResponse);
    test.discord.say(CHANNEL, &mention("long 300"));
    test.discord.until("the second part is posted", |state| (state.said_by_bot(CHANNEL).len() == 2).then_some(()));
    test.kill();
    test.restart();
    let next = test.discord.say(CHANNEL, &mention("next"));
    test.discord.answered(next, "re: next");
    let messages = test.discord.look().said_by_bot(CHANNEL);
    let lines: Vec<&str> = messages.iter().flat_map(|part| part.lines()).collect();
    let expected: Vec<String> = (0..300).map(|line| format!("this is line {line}")).collect();
    assert_eq!((&lines[..300], lines[300]), (&expected.iter().map(String::as_str).collect::<Vec<_>>()[..], "re: next"));
    assert_eq!((lines.len(), test.backend.prompts().len()), (301, 2));
}

#[test]
fn message_is_given_up_after_three_attempts() {
    let mut test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("hold forever"));
    for times in 1..=3 {
        test.discord.until("the backend runs", |_| (test.backend.prompts().len() == times).then_some(()));
        test.kill();
        test.restart();
    }
    test.discord.answered(asked, "It is not tried again.");
    assert_eq!(test.backend.prompts().len(), 3);
}

#[test]
fn gentle_stop_waits_for_a_running_answer() {
    let mut test = BridgeTest::new().start();
    let asked = test.discord.say(CHANNEL, &mention("text almost|hold a"));
    test.discord.answered(asked, "almost");
    test.stop_gently();
    let late = test.discord.say(CHANNEL, &mention("too late"));
    test.backend.release("a");
    test.ended().unwrap();
    assert!(test.discord.look().replies(asked)[0].content.starts_with("re: text almost"));
    assert_eq!(test.backend.dropped.load(Ordering::SeqCst), 0);
    test.restart();
    test.discord.answered(late, "re: too late");
}

#[test]
fn immediate_stop_leaves_the_message_for_the_next_start() {
    let mut test = BridgeTest::new();
    test.settings.drain = Duration::from_secs(3600);
    let mut test = test.start();
    let asked = test.discord.say(CHANNEL, &mention("hold a"));
    test.discord.until("the backend runs", |_| (test.backend.prompts().len() == 1).then_some(()));
    test.stop_now().unwrap();
    assert_eq!(test.backend.dropped.load(Ordering::SeqCst), 1);
    test.backend.release("a");
    test.restart();
    test.discord.answered(asked, "re: hold a");
}

#[test]
fn missed_messages_of_a_listed_channel_without_a_conversation_are_answered() {
    let listen = trunkline_discord::Snowflake(CHANNEL);
    let test = BridgeTest::new();
    test.discord.say(CHANNEL, "sent before the first start");
    let mut test = test.allowing(trunkline_discord::Allow { listen: vec![listen], ..Default::default() }).start();
    // The cursor of the channel is set once its history was read.
    test.discord.until("the history was read", |state| {
        state.calls.iter().any(|call| call.path.ends_with("messages?limit=1")).then_some(())
    });
    test.stop().unwrap();
    let missed = test.discord.say(CHANNEL, "sent while it was stopped");
    test.restart();
    test.discord.answered(missed, "re: sent while it was stopped");
    assert_eq!(test.backend.prompts(), ["sent while it was stopped"]);
}

#[test]
fn live_messages_are_answered_after_the_history() {
    let mut test = BridgeTest::new().start();
    let first = test.discord.say(CHANNEL, &mention("first"));
    test.discord.answered(first, "re: first");
    test.stop().unwrap();
    test.discord.say(CHANNEL, &mention("missed"));
    // Reading needs a second attempt, and another message arrives in the meantime.
    let action = FaultAction::Answer { status: 502, headers: Vec::new(), body: serde_json::Value::Null };
    test.discord.fault("GET", "messages?after", action);
    test.restart();
    test.discord.until("the first attempt has failed", |state| state.faults.is_empty().then_some(()));
    let live = test.discord.say(CHANNEL, &mention("live"));
    test.discord.answered(live, "re: live");
    assert_eq!(test.backend.prompts(), ["first", "missed", "live"]);
    assert_eq!(test.discord.look().said_by_bot(CHANNEL), ["re: first", "re: missed", "re: live"]);
}
