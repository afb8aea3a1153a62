//! The numbered requirements of a bridge with exchangeable backends. Requirements of the CLIs are tested with the CLIs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use trunkline_core::event::SessionId;
use trunkline_core::provider::built_in;
use trunkline_core::turn::AnswerTiming;
use trunkline_discord::{BackendRequest, ChatBackend, ChatBackends, EventResult, InvalidBackend, Partial};

use crate::bridge_test::{BridgeTest, ScriptedBackend};
use crate::fake::{CHANNEL, mention};

/// A backend takes a prompt, a system prompt, an optional session and an optional callback, and returns a result.
#[test]
fn r1_1_r1_2_r8_4_backend_returns_a_result_and_reports_partials() {
    let backend = ScriptedBackend::default();
    let session = SessionId("before".into());
    let request = BackendRequest {
        prompt: "text a|text b",
        system_prompt: "s",
        session: Some(&session),
        ..BackendRequest::default()
    };
    let mut received = Vec::new();
    let mut receive = |partial: Partial<'_>| received.push(format!("{partial:?}"));
    let result = backend.execute(request.clone(), Some(&mut receive)).now_or_never().unwrap();
    assert_eq!(received, ["Text(\"a\")", "Text(\"b\")"]);
    assert_eq!(result.session_id, Some(SessionId("session".into())));
    assert_eq!(backend.execute(request, None).now_or_never(), Some(result));
    let asked = backend.requests.lock().unwrap()[0].clone();
    assert_eq!((asked.system.as_str(), asked.session.as_deref()), ("s", Some("before")));
}

/// A backend is found by its name.
#[test]
fn r1_3_backend_with_a_repeated_name_is_ignored() {
    let backends = ChatBackends::new(Arc::<ScriptedBackend>::default())
        .with([Arc::<ScriptedBackend>::default() as Arc<dyn ChatBackend>]);
    assert_eq!(backends.names(), ["scripted"]);
}

/// Validation names the path of a backend that cannot be used.
#[test]
fn r1_4_backend_can_be_validated() {
    assert_eq!(ScriptedBackend::default().validate(), Ok(()));
    let invalid = InvalidBackend { name: "b".into(), path: "/bin/b".into(), why: "not executable".into() };
    assert_eq!(invalid.to_string(), "backend b at /bin/b: not executable");
}

/// Fields of a result in JSON.
#[test]
fn r8_1_result_has_three_fields() {
    let result = EventResult { session_id: Some(SessionId("s".into())), ..EventResult::error("why") };
    let json = json!({"responseText": "why", "sessionId": "s", "isError": true});
    assert_eq!(serde_json::to_value(result).unwrap(), json);
    assert_eq!(serde_json::to_value(EventResult::default()).unwrap(), json!({"isError": false}));
}

/// The callback is optional.
#[test]
fn r8_4_bridge_requests_partials_only_when_drafts_are_shown() {
    for (shown, partials) in [(AnswerTiming::AsItComes, true), (AnswerTiming::AtTheEnd, false)] {
        let mut test = BridgeTest::new();
        test.settings.shown = shown;
        let test = test.start();
        let id = test.discord.say(CHANNEL, &mention("text a|text b"));
        test.discord.answered(id, "re: text a|text b");
        assert_eq!(test.backend.requests.lock().unwrap()[0].partials, partials, "{shown:?}");
    }
}

/// The source of the bridge names no CLI.
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

/// The bridge calls only its backend, posts the result, and keeps the session for the channel.
#[test]
fn r10_1_r10_2_r10_3_r10_4_returned_session_is_kept_for_the_channel() {
    let test = BridgeTest::new().start();
    let sessions = |text: &str, answer: &str| {
        let id = test.discord.say(CHANNEL, &mention(text));
        test.discord.answered(id, answer);
        test.backend.requests.lock().unwrap().last().unwrap().session.clone()
    };
    assert_eq!(sessions("one", "re: one"), None);
    assert_eq!(sessions("two", "re: two"), Some("session".to_owned()));
    // A result without a session ends the session.
    assert_eq!(sessions("forget", "forgot"), Some("session".to_owned()));
    assert_eq!(sessions("three", "re: three"), None);
    // So does a failure: the next turn sends the whole history.
    assert_eq!(sessions("fail lost", "lost"), Some("session".to_owned()));
    assert_eq!(sessions("four", "re: four"), None);
}
