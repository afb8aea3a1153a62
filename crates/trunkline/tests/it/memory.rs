//! Conversations without an id: a client that sends its whole history goes on with what its agent remembers.

use serde_json::{Value, json};

use crate::http::{Reply, RequestBuilder};
use crate::test_gateway::TestGateway;

/// Answers with a number that grows, each time it is begun anew in a thread of its own; notes how it was asked.
const CODEX: &str = "note \"$@\"; n=$(counted); thread=0000000$n-5bfb-49c6-b27e-b98fb2571b4f; \
    printf '%s|%s\\n' \"$*\" \"$(cat \"$seen/codex.stdin\" | tr '\\n' ' ')\" >>\"$seen/asked\"; \
    for arg in \"$@\"; do case $arg in 0000000*) thread=$arg;; esac; done; \
    echo '{\"type\":\"thread.started\",\"thread_id\":\"'$thread'\"}'; codex_answers \"answer $n\"";

fn gateway(entry: Value) -> TestGateway {
    let mut whole = json!({"driver": "codex"});
    whole.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    TestGateway::new().cli("codex", CODEX).model("m", whole).start()
}

/// A request with this history, users and assistants by turns, that ends with a user.
fn ask(gateway: &TestGateway, said: &[&str]) -> RequestBuilder {
    let (last, before) = said.split_last().unwrap();
    let roles = ["user", "assistant"].into_iter().cycle();
    before.iter().zip(roles).fold(gateway.chat(last), |ask, (text, role)| ask.preceded_by(role, *text))
}

/// Whether the agent went on by itself, and what it was told: all that is on its stdin.
#[track_caller]
fn told(gateway: &TestGateway, reply: &Reply) -> (bool, String) {
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
fn the_second_request_of_a_conversation_goes_on_with_it() {
    let mut line = gateway(json!({}));
    let first = ask(&line, &["one"]).send();
    assert_eq!(told(&line, &first), (false, "--- USER TASK --- one".to_owned()));
    let second = ask(&line, &["one", "answer 1", "three"]).send();
    assert_eq!(told(&line, &second), (true, NEW.to_owned()));
    assert_eq!(second.header("x-trunkline-session"), first.header("x-trunkline-session"));
    line.signal(rustix::process::Signal::TERM);
    line.wait_for_exit();
    line.restart();
    let third = ask(&line, &["one", "answer 1", "three", " answer 2\n", "five"]).send();
    assert_eq!(told(&line, &third), (true, "--- USER TASK --- five".to_owned()), "another gateway knows it too");
}

/// What a client has an answer of it can go on with, however soon the gateway was killed after that.
#[test]
fn case_73_who_is_killed_right_after_an_answer_has_not_forgotten_it() {
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
fn a_stream_is_recognised_by_all_of_it_and_by_its_last_message() {
    let script = "note \"$@\"; echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
        codex_says 'let me see'; codex_answers 'it is four'";
    let gateway = TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start();
    for how in ["all of it", "the last message"] {
        let streamed = gateway.chat(how).streamed().send().streamed_text();
        assert!(streamed.contains("let me see") && streamed.contains("it is four"), "{streamed}");
        let kept = if how == "all of it" { streamed.as_str() } else { "it is four" };
        let next = gateway.chat("and now?").preceded_by("user", how).preceded_by("assistant", kept).streamed().send();
        let last = next.frames().pop().unwrap();
        assert_eq!(last["trunkline"]["session"]["how"], "history", "{how}: {last}");
    }
}

#[test]
fn whatever_was_changed_begins_anew() {
    for (said, what) in [
        (&["one!", "answer 1", "three"][..], "an edited question"),
        (&["one", "answer 1, edited", "three"], "an edited answer"),
        (&["answer 1", "one", "three"], "another order"),
        (&["one"], "the first answer again"),
    ] {
        let gateway = gateway(json!({}));
        ask(&gateway, &["one"]).send();
        let (resumed, stdin) = told(&gateway, &ask(&gateway, said).send());
        assert!(!resumed, "{what}");
        assert!(said.iter().all(|text| stdin.contains(text)), "{what}: {stdin}");
    }
}

#[test]
fn instructions_count_and_new_ones_begin_anew() {
    let gateway = gateway(json!({}));
    gateway.chat("one").preceded_by("system", "be brief").send();
    let said = |before: &str, after: Option<&str>| {
        let ask = gateway
            .chat("three")
            .preceded_by("system", before)
            .preceded_by("user", "one")
            .preceded_by("assistant", "answer 1");
        let ask = after.into_iter().fold(ask, |ask, text| ask.preceded_by("system", text));
        told(&gateway, &ask.send())
    };
    assert!(!said("be long", None).0);
    assert!(!said("be brief", Some("be kind")).0);
    assert_eq!(said("be brief", None), (true, "--- USER TASK --- be brief  three".to_owned()));
}

#[test]
fn another_answer_to_the_same_question_begins_anew() {
    let gateway = gateway(json!({}));
    ask(&gateway, &["one"]).send();
    let said = ["one", "answer 1", "three"];
    assert_eq!(told(&gateway, &ask(&gateway, &said).send()), (true, NEW.to_owned()));
    assert_eq!(told(&gateway, &ask(&gateway, &said).send()), (false, ALL.to_owned()));
    // Both ways on are there.
    for (answer, going_on) in [("answer 2", true), ("answer 3", true), ("answer 4", false)] {
        let reply = ask(&gateway, &["one", "answer 1", "three", answer, "five"]).send();
        assert_eq!(told(&gateway, &reply).0, going_on, "{answer}");
    }
}

#[test]
fn two_who_go_on_at_once_do_not_meet() {
    let script = format!("[ -e \"$seen/slow\" ] && {{ rm \"$seen/slow\"; tell started; await go; }}; {CODEX}");
    let gateway = TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex"})).start();
    ask(&gateway, &["one"]).send();
    gateway.leave_note("slow");
    let said = ["one", "answer 1", "three"];
    let slow = ask(&gateway, &said).open();
    gateway.wait_for_note("started");
    let other = ask(&gateway, &said).send();
    assert_eq!(told(&gateway, &other), (false, ALL.to_owned()), "it does not wait, and is not let in");
    gateway.leave_note("go");
    assert_eq!(told(&gateway, &slow.finish()), (true, NEW.to_owned()));
}

#[test]
fn what_was_said_after_it_by_its_id_counts() {
    let gateway = gateway(json!({}));
    let first = ask(&gateway, &["one"]).send();
    let id = first.header("x-trunkline-session").unwrap();
    gateway.chat("in between").header("x-trunkline-session", id).send();
    let said = ["one", "answer 1", "three"];
    assert_eq!(told(&gateway, &ask(&gateway, &said).send()), (false, ALL.to_owned()));
}

#[test]
fn a_turn_that_failed_was_heard_all_the_same() {
    let script = format!(
        "[ -e \"$seen/fail\" ] && {{ rm \"$seen/fail\"; echo 'Error: 401 Unauthorized' >&2; exit 1; }}; {CODEX}"
    );
    let gateway = TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex"})).start();
    ask(&gateway, &["one"]).send();
    gateway.leave_note("fail");
    let said = ["one", "answer 1", "three"];
    ask(&gateway, &said).send().error(500);
    assert_eq!(told(&gateway, &ask(&gateway, &said).send()), (false, ALL.to_owned()));
}

/// The smallest picture, and the same in other bytes.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const RE_ENCODED: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

#[test]
fn pictures_that_were_shown_are_part_of_what_was_said() {
    let shown = |pictures: &[&str]| {
        let text = json!({"type": "text", "text": "one"});
        let pictures = pictures.iter().map(|url| json!({"type": "image_url", "image_url": {"url": url}}));
        Value::from_iter(std::iter::once(text).chain(pictures))
    };
    for (case, resent, resumed) in [
        ("dropped", json!("one"), false),
        ("encoded anew", shown(&[RE_ENCODED]), false),
        ("shown twice", shown(&[PICTURE, PICTURE]), false),
        ("the same", shown(&[PICTURE]), true),
    ] {
        let gateway = gateway(json!({}));
        gateway.chat("one").image(PICTURE).send().content();
        let reply = gateway.chat("three").preceded_by("user", resent).preceded_by("assistant", "answer 1").send();
        assert_eq!(told(&gateway, &reply).0, resumed, "{case}");
        if resumed {
            assert!(!gateway.argv("codex").iter().any(|arg| arg == "-i" || arg == "--image"), "it has seen it: {case}");
        }
    }
}

#[test]
fn what_tools_said_is_part_of_it() {
    let call = |arguments: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1",
        "type": "function", "function": {"name": "weather", "arguments": arguments}}]})
    };
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let user = |text: &str| json!({"role": "user", "content": text});
    let before = [user("one"), call("{}"), result("c1", "rain"), user("so?")];
    let send = |line: &TestGateway, messages: Vec<Value>| line.chat("").with_messages(messages).send();
    for (case, at, changed, resumed) in [
        ("the same", 0, user("one"), true),
        ("another call", 1, call("{\"in\":\"Oslo\"}"), false),
        ("another result", 2, result("c1", "sun"), false),
        ("of another call", 2, result("c2", "rain"), false),
        ("said by the user", 2, user("rain"), false),
    ] {
        let line = gateway(json!({}));
        assert_eq!(send(&line, before.to_vec()).status, 200);
        let mut again = before.to_vec();
        again[at] = changed;
        again.extend([json!({"role": "assistant", "content": "answer 1"}), user("three")]);
        let reply = send(&line, again);
        assert_eq!(told(&line, &reply).0, resumed, "{case}");
    }
}

#[test]
fn it_is_each_owners_and_each_models_own() {
    let gateway = TestGateway::new()
        .cli("codex", CODEX)
        .model("m", json!({"driver": "codex"}))
        .model("n", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "key-of-ann,key-of-ben")
        .start();
    let of = |key: &str, model: &str, said: &[&str]| {
        told(&gateway, &ask(&gateway, said).model(model).header("authorization", &format!("Bearer {key}")).send()).0
    };
    assert!(!of("key-of-ann", "m", &["one"]));
    let said = ["one", "answer 1", "three"];
    assert!(!of("key-of-ben", "m", &said));
    assert!(!of("key-of-ann", "n", &said));
    assert!(of("key-of-ann", "m", &said));
}

#[test]
fn who_does_not_want_it_does_not_get_it() {
    let gateway = gateway(json!({"resume": false}));
    ask(&gateway, &["one"]).send();
    let said = ["one", "answer 1", "three"];
    assert_eq!(told(&gateway, &ask(&gateway, &said).send()), (false, ALL.to_owned()));
    let id = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let by_id = gateway.chat("hi").header("x-trunkline-session", &id).send().json();
    assert_eq!(by_id["trunkline"]["session"]["how"], "id", "{by_id}");
    let checked = gateway.run(&["check", "m"]);
    assert!(checked.stdout.contains("by its id only (resume: false)"), "{checked:?}");
}

#[test]
fn who_cannot_remember_is_told_everything() {
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
fn every_turn_is_kept_whatever_the_door() {
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
    let kept: Vec<_> = turns
        .iter()
        .map(|turn| (turn.surface.unwrap().name(), turn.prompt.as_str(), turn.answer.as_deref().unwrap()))
        .collect();
    assert_eq!(kept, [("http", "one", "answer 1"), ("http", "three", "answer 2"), ("run", "five", "answer 3")]);
}
