//! The requirements of a bridge with exchangeable backends, by their numbers; those of the CLIs themselves are tested
//! where the CLIs are.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use trunkline_core::event::SessionId;
use trunkline_discord::{Ask, Backend, Backends, EventResult, Partial};

use crate::fake::{CHANNEL, mention};
use crate::world::{Puppet, World};

/// 1.1, 1.2, 8.4: a prompt, a system prompt, perhaps a session and a callback go in; a result comes out.
#[test]
fn r1_a_prompt_becomes_a_result_and_the_callback_hears_it_grow() {
    let puppet = Puppet::default();
    let session = SessionId("before".into());
    let ask = Ask { prompt: "text a|text b", system_prompt: "s", session: Some(&session), ..Ask::default() };
    let mut heard = Vec::new();
    let mut hear = |partial: Partial<'_>| heard.push(format!("{partial:?}"));
    let result = puppet.execute(ask.clone(), Some(&mut hear)).now_or_never().unwrap();
    assert_eq!(heard, ["Text(\"a\")", "Text(\"b\")"]);
    assert_eq!(result.session_id, Some(SessionId("session".into())));
    assert_eq!(puppet.execute(ask, None).now_or_never(), Some(result));
    let asked = puppet.asked.lock().unwrap()[0].clone();
    assert_eq!((asked.system.as_str(), asked.session.as_deref()), ("s", Some("before")));
}

/// 1.3, 6: a backend has a name, and is found by it.
#[test]
fn r1_backends_are_known_by_their_names() {
    let backends = Backends::new(Arc::<Puppet>::default()).with([Arc::<Puppet>::default() as Arc<dyn Backend>]);
    assert_eq!(backends.names(), ["puppet"]);
}

/// 8.1: the fields of a result, as they are written.
#[test]
fn r8_a_result_has_three_fields() {
    let result = EventResult { session_id: Some(SessionId("s".into())), ..EventResult::error("why") };
    let json = json!({"responseText": "why", "sessionId": "s", "isError": true});
    assert_eq!(serde_json::to_value(result).unwrap(), json);
}

/// 10.1 to 10.4: the bridge is given its backend, asks nobody else, and keeps the session it returns for the channel.
#[test]
fn r10_the_session_that_comes_back_is_kept_for_its_channel() {
    let world = World::new().start();
    let sessions = |text: &str, answer: &str| {
        let id = world.discord.say(CHANNEL, &mention(text));
        world.discord.answered(id, answer);
        world.puppet.asked.lock().unwrap().last().unwrap().session.clone()
    };
    assert_eq!(sessions("one", "re: one"), None);
    assert_eq!(sessions("two", "re: two"), Some("session".to_owned()));
    // A backend that returns none has none to go on with.
    assert_eq!(sessions("forget", "forgot"), Some("session".to_owned()));
    assert_eq!(sessions("three", "re: three"), None);
    // A failure of the conversation itself, too: the next turn tells everything anew.
    assert_eq!(sessions("fail lost", "lost"), Some("session".to_owned()));
    assert_eq!(sessions("four", "re: four"), None);
}
