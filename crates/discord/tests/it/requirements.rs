//! The requirements of a bridge with exchangeable backends, by their numbers; those of the CLIs themselves are tested
//! where the CLIs are.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use trunkline_core::event::SessionId;
use trunkline_core::provider::built_in;
use trunkline_core::turn::Shown;
use trunkline_discord::{Ask, Backend, Backends, EventResult, Invalid, Partial};

use crate::fake::{CHANNEL, mention};
use crate::world::{Puppet, World};

/// A prompt, a system prompt, perhaps a session and a callback go in; a result comes out.
#[test]
fn r1_1_r1_2_r8_4_a_prompt_becomes_a_result_and_the_callback_hears_it_grow() {
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

/// A backend has a name, and is found by it.
#[test]
fn r1_3_backends_are_known_by_their_names() {
    let backends = Backends::new(Arc::<Puppet>::default()).with([Arc::<Puppet>::default() as Arc<dyn Backend>]);
    assert_eq!(backends.names(), ["puppet"]);
}

/// It says whether it can be reached, and if not, where it was looked for.
#[test]
fn r1_4_a_backend_can_be_validated() {
    assert_eq!(Puppet::default().validate(), Ok(()));
    let invalid = Invalid { name: "b".into(), path: "/bin/b".into(), why: "not executable".into() };
    assert_eq!(invalid.to_string(), "backend b at /bin/b: not executable");
}

/// The fields of a result, as they are written.
#[test]
fn r8_1_a_result_has_three_fields() {
    let result = EventResult { session_id: Some(SessionId("s".into())), ..EventResult::error("why") };
    let json = json!({"responseText": "why", "sessionId": "s", "isError": true});
    assert_eq!(serde_json::to_value(result).unwrap(), json);
    assert_eq!(serde_json::to_value(EventResult::default()).unwrap(), json!({"isError": false}));
}

/// The callback is optional: who wants an answer whole asks without one.
#[test]
fn r8_4_the_bridge_asks_for_partials_only_where_they_are_shown() {
    for (shown, partials) in [(Shown::AsItComes, true), (Shown::AtTheEnd, false)] {
        let mut world = World::new();
        world.settings.shown = shown;
        let world = world.start();
        let id = world.discord.say(CHANNEL, &mention("text a|text b"));
        world.discord.answered(id, "re: text a|text b");
        assert_eq!(world.puppet.asked.lock().unwrap()[0].partials, partials, "{shown:?}");
    }
}

/// What is given to the bridge is all it knows of a CLI: it names none.
#[test]
fn r10_1_no_cli_is_named_in_the_bridge() {
    let clis: Vec<String> = built_in()
        .into_iter()
        .flat_map(|(name, provider)| [vec![name, provider.program], provider.aliases].concat())
        .collect();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            read += 1;
            let text = fs::read_to_string(&path).unwrap().to_lowercase();
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
            let named = words.find(|word| clis.iter().any(|cli| cli == word));
            assert_eq!(named, None, "{}", path.display());
        }
    }
    assert!(read > 20, "only {read} files");
}

/// The bridge is given its backend, asks nobody else, posts what it returns, and keeps the session for the channel.
#[test]
fn r10_1_r10_2_r10_3_r10_4_the_session_that_comes_back_is_kept_for_its_channel() {
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
