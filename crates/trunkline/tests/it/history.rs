//! Conversations without a session id: a client that sends its whole history resumes the session it came from.

use serde_json::{Value, json};

use crate::http::{Reply, RequestBuilder};
use crate::test_gateway::TestGateway;

/// Answers with an increasing number, in a new thread unless it is resumed. Notes its arguments and stdin.
const CODEX: &str = "note \"$@\"; n=$(counted); thread=0000000$n-5bfb-49c6-b27e-b98fb2571b4f; \
    printf '%s|%s\\n' \"$*\" \"$(cat \"$seen/codex.stdin\" | tr '\\n' ' ')\" >>\"$seen/asked\"; \
    for arg in \"$@\"; do case $arg in 0000000*) thread=$arg;; esac; done; \
    echo '{\"type\":\"thread.started\",\"thread_id\":\"'$thread'\"}'; codex_answers \"answer $n\"";

fn gateway(entry: Value) -> TestGateway {
    let mut model = json!({"driver": "codex"});
    model.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    TestGateway::new().cli("codex", CODEX).model("m", model).start()
}

/// A request with these messages: user and assistant alternate, and the last one is the user's.
fn ask(gateway: &TestGateway, messages: &[&str]) -> RequestBuilder {
    let (last, before) = messages.split_last().unwrap();
    let roles = ["user", "assistant"].into_iter().cycle();
    before.iter().zip(roles).fold(gateway.chat(last), |ask, (text, role)| ask.preceded_by(role, *text))
}

/// Whether the agent resumed a session, and the whole prompt it got on stdin.
#[track_caller]
fn resumed_with(gateway: &TestGateway, reply: &Reply) -> (bool, String) {
    assert_eq!(reply.status, 200, "{reply:?}");
    let session = reply.json()["trunkline"]["session"].take();
    let resumed = session["resumed"].as_bool().unwrap();
    assert_eq!(session["how"], if resumed { json!("history") } else { Value::Null }, "{session}");
    let asked = gateway.read_note("asked");
    let (argv, stdin) = asked.lines().last().unwrap().split_once('|').unwrap();
    assert_eq!(argv.contains(" resume "), resumed, "{argv}");
    (resumed, stdin.trim_end().to_owned())
}

const NEW: &str = "--- USER TASK --- three";
const ALL: &str = "--- USER TASK --- [User] one  [Assistant] answer 1  [User] three";

#[test]
fn session_is_resumed_when_client_sends_its_history() {
    let mut gateway = gateway(json!({}));
    let first = ask(&gateway, &["one"]).send();
    assert_eq!(resumed_with(&gateway, &first), (false, "--- USER TASK --- one".to_owned()));
    let second = ask(&gateway, &["one", "answer 1", "three"]).send();
    assert_eq!(resumed_with(&gateway, &second), (true, NEW.to_owned()));
    assert_eq!(second.header("x-trunkline-session"), first.header("x-trunkline-session"));
    gateway.signal(rustix::process::Signal::TERM);
    gateway.wait_for_exit();
    gateway.restart();
    let third = ask(&gateway, &["one", "answer 1", "three", " answer 2\n", "five"]).send();
    assert_eq!(
        resumed_with(&gateway, &third),
        (true, "--- USER TASK --- five".to_owned()),
        "a restarted gateway resumes it too"
    );
}

/// A session can be resumed as soon as the client has the answer, even if the gateway is killed right after it.
#[test]
fn case_73_session_is_resumed_when_gateway_is_killed_right_after_an_answer() {
    let mut gateway = gateway(json!({}));
    for round in 0..6 {
        let (one, answer) = (format!("one {round}"), format!("answer {}", 2 * round + 1));
        let first = ask(&gateway, &[&one]).send();
        gateway.kill();
        gateway.restart();
        let by_id = first.header("x-trunkline-session").unwrap().to_owned();
        let second = if round % 2 == 0 {
            ask(&gateway, &[&one, &answer, "three"]).send()
        } else {
            gateway.chat("three").header("x-trunkline-session", &by_id).send()
        };
        assert_eq!(second.header("x-trunkline-session"), Some(by_id.as_str()), "{round}: {second:?}");
        assert!(gateway.read_note("asked").lines().last().unwrap().contains(" resume "), "{round}");
    }
}

#[test]
fn session_is_resumed_when_history_has_the_whole_stream_or_its_last_message() {
    let script = "note \"$@\"; echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
        codex_says 'let me see'; codex_answers 'it is four'";
    let gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    for how in ["all of it", "the last message"] {
        let streamed = gateway.chat(how).streamed().send().streamed_text();
        assert!(streamed.contains("let me see") && streamed.contains("it is four"), "{streamed}");
        let resent = if how == "all of it" { streamed.as_str() } else { "it is four" };
        let next = gateway.chat("and now?").preceded_by("user", how).preceded_by("assistant", resent).streamed().send();
        let last = next.frames().pop().unwrap();
        assert_eq!(last["trunkline"]["session"]["how"], "history", "{how}: {last}");
    }
}

#[test]
fn new_session_starts_when_history_was_changed() {
    for (messages, what) in [
        (&["one!", "answer 1", "three"][..], "an edited question"),
        (&["one", "answer 1, edited", "three"], "an edited answer"),
        (&["answer 1", "one", "three"], "another order"),
        (&["one"], "the first answer again"),
    ] {
        let gateway = gateway(json!({}));
        ask(&gateway, &["one"]).send();
        let (resumed, stdin) = resumed_with(&gateway, &ask(&gateway, messages).send());
        assert!(!resumed, "{what}");
        assert!(messages.iter().all(|text| stdin.contains(text)), "{what}: {stdin}");
    }
}

#[test]
fn new_session_starts_when_system_message_changes() {
    let gateway = gateway(json!({}));
    gateway.chat("one").preceded_by("system", "be brief").send();
    let ask_again = |before: &str, after: Option<&str>| {
        let ask = gateway
            .chat("three")
            .preceded_by("system", before)
            .preceded_by("user", "one")
            .preceded_by("assistant", "answer 1");
        let ask = after.into_iter().fold(ask, |ask, text| ask.preceded_by("system", text));
        resumed_with(&gateway, &ask.send())
    };
    assert!(!ask_again("be long", None).0);
    assert!(!ask_again("be brief", Some("be kind")).0);
    assert_eq!(ask_again("be brief", None), (true, "--- USER TASK --- be brief  three".to_owned()));
}

#[test]
fn new_session_starts_when_the_same_request_is_repeated() {
    let gateway = gateway(json!({}));
    ask(&gateway, &["one"]).send();
    let messages = ["one", "answer 1", "three"];
    assert_eq!(resumed_with(&gateway, &ask(&gateway, &messages).send()), (true, NEW.to_owned()));
    assert_eq!(resumed_with(&gateway, &ask(&gateway, &messages).send()), (false, ALL.to_owned()));
    // Both branches of the conversation can be resumed.
    for (answer, resumed) in [("answer 2", true), ("answer 3", true), ("answer 4", false)] {
        let reply = ask(&gateway, &["one", "answer 1", "three", answer, "five"]).send();
        assert_eq!(resumed_with(&gateway, &reply).0, resumed, "{answer}");
    }
}

#[test]
fn new_session_starts_when_session_is_busy() {
    let script = format!("[ -e \"$seen/slow\" ] && {{ rm \"$seen/slow\"; tell started; await go; }}; {CODEX}");
    let gateway = TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex"})).start();
    ask(&gateway, &["one"]).send();
    gateway.leave_note("slow");
    let messages = ["one", "answer 1", "three"];
    let slow = ask(&gateway, &messages).open();
    gateway.wait_for_note("started");
    let other = ask(&gateway, &messages).send();
    assert_eq!(
        resumed_with(&gateway, &other),
        (false, ALL.to_owned()),
        "neither waits for the busy session nor resumes it"
    );
    gateway.leave_note("go");
    assert_eq!(resumed_with(&gateway, &slow.finish()), (true, NEW.to_owned()));
}

#[test]
fn new_session_starts_when_session_was_continued_by_its_id() {
    let gateway = gateway(json!({}));
    let first = ask(&gateway, &["one"]).send();
    let id = first.header("x-trunkline-session").unwrap();
    gateway.chat("in between").header("x-trunkline-session", id).send();
    let messages = ["one", "answer 1", "three"];
    assert_eq!(resumed_with(&gateway, &ask(&gateway, &messages).send()), (false, ALL.to_owned()));
}

#[test]
fn new_session_starts_when_the_last_turn_failed() {
    let script = format!(
        "[ -e \"$seen/fail\" ] && {{ rm \"$seen/fail\"; echo 'Error: 401 Unauthorized' >&2; exit 1; }}; {CODEX}"
    );
    let gateway = TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex"})).start();
    ask(&gateway, &["one"]).send();
    gateway.leave_note("fail");
    let messages = ["one", "answer 1", "three"];
    ask(&gateway, &messages).send().error(500);
    // Another body: the same one would get the same failure again.
    let again = ask(&gateway, &messages).with("user", "again").send();
    assert_eq!(resumed_with(&gateway, &again), (false, ALL.to_owned()));
}

/// A minimal image, and the same image in another encoding.
const IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const RE_ENCODED: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

#[test]
fn session_is_resumed_only_when_history_has_the_same_images() {
    let with_images = |images: &[&str]| {
        let text = json!({"type": "text", "text": "one"});
        let images = images.iter().map(|url| json!({"type": "image_url", "image_url": {"url": url}}));
        Value::from_iter(std::iter::once(text).chain(images))
    };
    for (case, resent, resumed) in [
        ("dropped", json!("one"), false),
        ("re-encoded", with_images(&[RE_ENCODED]), false),
        ("sent twice", with_images(&[IMAGE, IMAGE]), false),
        ("the same", with_images(&[IMAGE]), true),
    ] {
        let gateway = gateway(json!({}));
        gateway.chat("one").image(IMAGE).send().content();
        let reply = gateway.chat("three").preceded_by("user", resent).preceded_by("assistant", "answer 1").send();
        assert_eq!(resumed_with(&gateway, &reply).0, resumed, "{case}");
        if resumed {
            assert!(
                !gateway.argv("codex").iter().any(|arg| arg == "-i" || arg == "--image"),
                "the agent already has the image: {case}"
            );
        }
    }
}

#[test]
fn session_is_resumed_only_when_history_has_the_same_tool_calls() {
    let call = |arguments: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1",
        "type": "function", "function": {"name": "weather", "arguments": arguments}}]})
    };
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let user = |text: &str| json!({"role": "user", "content": text});
    let before = [user("one"), call("{}"), result("c1", "rain"), user("so?")];
    let send = |gateway: &TestGateway, messages: Vec<Value>| gateway.chat("").with_messages(messages).send();
    for (case, at, changed, resumed) in [
        ("the same", 0, user("one"), true),
        ("another call", 1, call("{\"in\":\"Oslo\"}"), false),
        ("another result", 2, result("c1", "sun"), false),
        ("a result of another call", 2, result("c2", "rain"), false),
        ("a user message instead of a result", 2, user("rain"), false),
    ] {
        let gateway = gateway(json!({}));
        assert_eq!(send(&gateway, before.to_vec()).status, 200);
        let mut again = before.to_vec();
        again[at] = changed;
        again.extend([json!({"role": "assistant", "content": "answer 1"}), user("three")]);
        let reply = send(&gateway, again);
        assert_eq!(resumed_with(&gateway, &reply).0, resumed, "{case}");
    }
}

#[test]
fn new_session_starts_when_api_key_or_model_differs() {
    let gateway = TestGateway::new()
        .cli("codex", CODEX)
        .model("m", json!({"driver": "codex"}))
        .model("n", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "key-of-ann,key-of-ben")
        .start();
    let resumed = |key: &str, model: &str, messages: &[&str]| {
        resumed_with(
            &gateway,
            &ask(&gateway, messages).model(model).header("authorization", &format!("Bearer {key}")).send(),
        )
        .0
    };
    assert!(!resumed("key-of-ann", "m", &["one"]));
    let messages = ["one", "answer 1", "three"];
    assert!(!resumed("key-of-ben", "m", &messages));
    assert!(!resumed("key-of-ann", "n", &messages));
    assert!(resumed("key-of-ann", "m", &messages));
}

#[test]
fn session_is_resumed_only_by_its_id_when_model_disables_resume() {
    let gateway = gateway(json!({"resume": false}));
    ask(&gateway, &["one"]).send();
    let messages = ["one", "answer 1", "three"];
    assert_eq!(resumed_with(&gateway, &ask(&gateway, &messages).send()), (false, ALL.to_owned()));
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let by_id = gateway.chat("hi").header("x-trunkline-session", &id).send().json();
    assert_eq!(by_id["trunkline"]["session"]["how"], "id", "{by_id}");
    let checked = gateway.run(&["check", "m"]);
    assert!(checked.stdout.contains("by its id only (resume: false)"), "{checked:?}");
}

#[test]
fn whole_history_is_sent_when_cli_keeps_no_sessions() {
    let gateway = TestGateway::new()
        .cli("sh-agent", "cat >\"$seen/stdin\"; echo answer")
        .model("m", json!({"driver": "text", "command": "sh-agent"}))
        .start();
    gateway.chat("one").send();
    let reply = ask(&gateway, &["one", "answer", "three"]).send().json();
    assert_eq!((&reply["trunkline"]["session_id"], &reply["trunkline"]["session"]), (&Value::Null, &Value::Null));
    assert!(gateway.read_note("stdin").contains("[User]\none"));
}

#[test]
fn every_turn_is_stored_whether_it_came_by_http_or_command_line() {
    let gateway = gateway(json!({}));
    let first = ask(&gateway, &["one"]).send();
    let id = first.header("x-trunkline-session").unwrap().to_owned();
    ask(&gateway, &["one", "answer 1", "three"]).send();
    gateway.run(&["run", "-m", "m", "--session", &id, "five"]).exits(0);
    gateway.signal(rustix::process::Signal::TERM);
    let mut gateway = gateway;
    gateway.wait_for_exit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let turns = runtime.block_on(async {
        let store = trunkline_store::Store::open(&gateway.path("state/trunkline.db")).await.unwrap();
        store.turns(&trunkline_store::SessionKey(id)).await.unwrap()
    });
    let stored: Vec<_> = turns
        .iter()
        .map(|turn| (turn.surface.unwrap().name(), turn.prompt.as_str(), turn.answer.as_deref().unwrap()))
        .collect();
    assert_eq!(stored, [("http", "one", "answer 1"), ("http", "three", "answer 2"), ("run", "five", "answer 3")]);
}
