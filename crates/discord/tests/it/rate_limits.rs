//! Rate limits, and failures of the REST API.

use std::time::Duration;

use serde_json::json;

use crate::bridge_test::BridgeTest;
use crate::fake::{CHANNEL, FaultAction, mention};

/// Times of the calls whose path has this end.
fn times(test: &BridgeTest, method: &str, path: &str) -> Vec<std::time::Instant> {
    let state = test.discord.look();
    let calls = state.calls.iter().filter(|call| call.method == method && call.path.ends_with(path));
    calls.map(|call| call.at).collect()
}

#[test]
fn call_is_repeated_after_the_limit_of_its_route() {
    let test = BridgeTest::new().start();
    let headers = [
        ("retry-after", "1"),
        ("x-ratelimit-scope", "user"),
        ("x-ratelimit-bucket", "abcd"),
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset-after", "0.6"),
    ];
    let headers = headers.map(|(name, value)| (name, value.to_owned())).to_vec();
    let body = json!({"message": "You are being rate limited.", "retry_after": 0.6, "global": false});
    test.discord.fault("POST", "/messages", FaultAction::Answer { status: 429, headers, body });
    let asked = test.discord.say(CHANNEL, &mention("hi"));
    test.discord.answered(asked, "re: hi");
    let times = times(&test, "POST", "/messages");
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= Duration::from_millis(600), "{:?}", times[1] - times[0]);
}

#[test]
fn all_calls_wait_when_the_limit_is_global() {
    let test = BridgeTest::new();
    test.discord.look().guilds.insert(21, crate::fake::GUILD);
    let test = test.start();
    let headers = vec![("retry-after", "1".to_owned()), ("x-ratelimit-scope", "global".to_owned())];
    let body = json!({"message": "You are being rate limited.", "retry_after": 1.0, "global": true});
    test.discord.fault("POST", "20/messages", FaultAction::Answer { status: 429, headers, body });
    let asked = test.discord.say(CHANNEL, &mention("hi"));
    let refused = test.discord.until("the call was refused", |state| {
        let call = state.calls.iter().find(|call| call.method == "POST" && call.path.ends_with("20/messages"));
        call.map(|call| call.at)
    });
    let other = test.discord.say(21, &mention("elsewhere"));
    test.discord.answered(asked, "re: hi");
    test.discord.answered(other, "re: elsewhere");
    let state = test.discord.look();
    let next: Vec<Duration> = state
        .calls
        .iter()
        .filter(|call| call.method == "POST" && call.path.ends_with("/messages") && call.at > refused)
        .map(|call| call.at - refused)
        .collect();
    assert!(next.len() == 2 && next.iter().all(|wait| *wait >= Duration::from_millis(950)), "{next:?}");
}

#[test]
fn answer_is_sent_when_discord_is_available_again() {
    let test = BridgeTest::new().start();
    for _ in 0..2 {
        let action = FaultAction::Answer { status: 503, headers: Vec::new(), body: json!({"message": "upstream"}) };
        test.discord.fault("POST", "/messages", action);
    }
    let asked = test.discord.say(CHANNEL, &mention("hi"));
    test.discord.answered(asked, "re: hi");
    assert_eq!(times(&test, "POST", "/messages").len(), 3);
}

#[test]
fn answer_is_given_up_when_discord_refuses_it() {
    let test = BridgeTest::new().start();
    let action = FaultAction::Answer {
        status: 403,
        headers: Vec::new(),
        body: json!({"message": "Missing Access", "code": 50001}),
    };
    test.discord.fault("POST", "/messages", action);
    test.discord.say(CHANNEL, &mention("hi"));
    let next = test.discord.say(CHANNEL, &mention("again"));
    test.discord.answered(next, "re: again");
    assert_eq!(test.discord.look().said_by_bot(CHANNEL), ["re: again"]);
}
