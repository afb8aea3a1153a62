//! Discord asks to wait, or is not there for a moment.

use std::time::Duration;

use serde_json::json;

use crate::fake::{CHANNEL, What, mention};
use crate::world::World;

/// When the calls were made whose path ends like this.
fn times(world: &World, method: &str, path: &str) -> Vec<std::time::Instant> {
    let state = world.discord.look();
    let calls = state.calls.iter().filter(|call| call.method == method && call.path.ends_with(path));
    calls.map(|call| call.at).collect()
}

#[test]
fn a_limit_of_one_route_is_waited_for() {
    let world = World::new().start();
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
    world.discord.fault("POST", "/messages", What::Answer { status: 429, headers, body });
    let asked = world.discord.say(CHANNEL, &mention("hi"));
    world.discord.answered(asked, "re: hi");
    let times = times(&world, "POST", "/messages");
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= Duration::from_millis(600), "{:?}", times[1] - times[0]);
}

#[test]
fn a_limit_on_everything_stops_everything() {
    let world = World::new();
    world.discord.look().guilds.insert(21, crate::fake::GUILD);
    let world = world.start();
    let headers = vec![("retry-after", "1".to_owned()), ("x-ratelimit-scope", "global".to_owned())];
    let body = json!({"message": "You are being rate limited.", "retry_after": 1.0, "global": true});
    world.discord.fault("POST", "20/messages", What::Answer { status: 429, headers, body });
    let asked = world.discord.say(CHANNEL, &mention("hi"));
    let refused = world.discord.until("it was refused", |state| {
        let call = state.calls.iter().find(|call| call.method == "POST" && call.path.ends_with("20/messages"));
        call.map(|call| call.at)
    });
    let other = world.discord.say(21, &mention("elsewhere"));
    world.discord.answered(asked, "re: hi");
    world.discord.answered(other, "re: elsewhere");
    let state = world.discord.look();
    let next: Vec<Duration> = state
        .calls
        .iter()
        .filter(|call| call.method == "POST" && call.path.ends_with("/messages") && call.at > refused)
        .map(|call| call.at - refused)
        .collect();
    assert!(next.len() == 2 && next.iter().all(|wait| *wait >= Duration::from_millis(950)), "{next:?}");
}

#[test]
fn an_answer_waits_until_discord_is_back() {
    let world = World::new().start();
    for _ in 0..2 {
        let what = What::Answer { status: 503, headers: Vec::new(), body: json!({"message": "upstream"}) };
        world.discord.fault("POST", "/messages", what);
    }
    let asked = world.discord.say(CHANNEL, &mention("hi"));
    world.discord.answered(asked, "re: hi");
    assert_eq!(times(&world, "POST", "/messages").len(), 3);
}

#[test]
fn an_answer_that_discord_will_not_have_is_given_up() {
    let world = World::new().start();
    let what =
        What::Answer { status: 403, headers: Vec::new(), body: json!({"message": "Missing Access", "code": 50001}) };
    world.discord.fault("POST", "/messages", what);
    world.discord.say(CHANNEL, &mention("hi"));
    let next = world.discord.say(CHANNEL, &mention("again"));
    world.discord.answered(next, "re: again");
    assert_eq!(world.discord.look().said_by_bot(CHANNEL), ["re: again"]);
}
