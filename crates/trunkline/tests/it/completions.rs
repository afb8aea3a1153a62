//! `POST /v1/completions`.

use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, whole};
use crate::http::{PendingReply, Reply, send_raw};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"])
}

/// Sends a request with these header lines.
fn open(gateway: &TestGateway, path: &str, headers: &str, body: &Value) -> PendingReply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    let length = body.len();
    send_raw(address, &format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"))
}

fn post(gateway: &TestGateway, body: &Value) -> Reply {
    open(gateway, "/v1/completions", "", body).finish()
}

/// The body of a request for the model `m`.
fn body(prompt: impl Into<Value>, more: Value) -> Value {
    let mut body = json!({"model": "m", "prompt": prompt.into()});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn text(frames: &[Value]) -> String {
    frames.iter().filter_map(|frame| frame["choices"][0]["text"].as_str()).collect()
}

#[test]
fn prompt_is_completed_whole_and_streamed() {
    let gateway = gateway("note \"$@\"; codex_answers 'upon a time'").start();
    let reply =
        open(&gateway, "/completions/", "", &body(json!(["Once"]), json!({"max_tokens": 9, "echo": true}))).finish();
    let whole = reply.json();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nOnce");
    let choice = json!({"text": "Onceupon a time", "index": 0, "logprobs": null, "finish_reason": "stop"});
    assert_eq!((&whole["object"], &whole["choices"]), (&json!("text_completion"), &json!([choice])));
    assert_eq!((&whole["usage"]["total_tokens"], &whole["trunkline"]["provider"]), (&json!(5), &json!("codex")));
    let run = reply.header("x-trunkline-run").unwrap();
    assert_eq!(whole["id"], format!("cmpl-{run}"));

    let reply = post(&gateway, &body("Once", json!({"stream": true, "stream_options": {"include_usage": true}})));
    let frames = reply.frames();
    assert_eq!((text(&frames).as_str(), reply.is_done()), ("upon a time", true));
    assert!(frames.iter().all(|frame| frame["object"] == "text_completion" && frame["model"] == "m"));
    let finishes: Vec<&Value> =
        frames.iter().map(|frame| &frame["choices"][0]["finish_reason"]).filter(|finish| !finish.is_null()).collect();
    assert_eq!(finishes, [&json!("stop")]);
    let (last, before) = frames.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(5)));
    assert_eq!(before.last().unwrap()["trunkline"]["provider"], "codex");
}

#[test]
fn reasoning_is_left_out_and_a_session_is_named_by_its_header() {
    let script = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e299086500%s"}\n' "$n"
printf '{"type":"item.completed","item":{"id":"item_9","type":"reasoning","text":"secret thoughts"}}\n'
codex_answers "answer $n""#;
    let gateway = gateway(script).start();
    let first = post(&gateway, &body("one", json!({"stream": true})));
    assert_eq!(text(&first.frames()), "answer 1");
    assert!(!first.body.contains("secret thoughts"), "{first:?}");
    let session = first.frames().last().unwrap()["trunkline"]["session_id"].as_str().unwrap().to_owned();
    let header = format!("x-trunkline-session: {session}\r\n");
    let second = open(&gateway, "/v1/completions", &header, &body("two", json!({}))).finish().json();
    assert_eq!(second["choices"][0]["text"], "answer 2");
    assert_eq!(second["trunkline"]["session"]["resumed"], true);
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ntwo");
}

#[test]
fn failure_is_a_status_before_the_first_chunk_and_a_chunk_after_it() {
    let gateway =
        gateway("case $(cat) in *late*) codex_says one ;; esac; echo 'Error: invalid api key' >&2; exit 1").start();
    for more in [json!({}), json!({"stream": true})] {
        assert_eq!(post(&gateway, &body("early", more)).error(500)["code"], "authentication");
    }
    let late = post(&gateway, &body("late", json!({"stream": true})));
    let frames = late.frames();
    assert_eq!((text(&frames).as_str(), late.is_done()), ("one", false));
    assert_eq!(frames.last().unwrap()["error"]["code"], "authentication");
}

#[test]
fn invalid_request_is_a_400_that_names_the_member() {
    let gateway = gateway("tell ran 1; codex_answers ok").env("TRUNKLINE_API_KEYS", "first-key").start();
    let key = "authorization: Bearer first-key\r\n";
    assert_eq!(post(&gateway, &body("hi", json!({}))).error(401)["code"], "invalid_api_key");
    for (asked, param) in [
        (json!({"prompt": "hi"}), "model"),
        (json!({"model": "m"}), "prompt"),
        (body("hi", json!({"model": "ghost"})), "model"),
        (body(7, json!({})), "prompt"),
        (body("", json!({})), "prompt"),
        (body(json!(["a", "b"]), json!({})), "prompt"),
        (body(json!([1, 2]), json!({})), "prompt"),
        (body("hi", json!({"n": 2})), "n"),
        (body("hi", json!({"best_of": 2})), "best_of"),
        (body("hi", json!({"suffix": "x"})), "suffix"),
        (body("hi", json!({"logprobs": 3})), "logprobs"),
        (body("hi", json!({"stream": "yes"})), "stream"),
        (body("hi", json!({"max_tokens": -1})), "max_tokens"),
    ] {
        let error = open(&gateway, "/v1/completions", key, &asked).finish().error(400);
        assert_eq!(error["param"], param, "{asked}: {error}");
    }
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn run_is_cancelled_when_client_disconnects() {
    let gateway = gateway("tell pid $$; codex_says one; await go; codex_ends").start();
    let mut stream = open(&gateway, "/v1/completions", "", &body("hi", json!({"stream": true})));
    stream.read_until("\"text\":\"one\"");
    drop(stream);
    until_gone(&[gateway.wait_for_pid("pid")]);
    until("the run is cancelled", || gateway.get("/v1/runs").json()["data"][0]["state"] == "cancelled");
}

#[test]
fn repeated_request_is_the_same_completion_under_an_idempotency_key() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").start();
    for more in [json!({}), json!({"stream": true})] {
        let key = format!("idempotency-key: {}\r\n", more.to_string().len());
        let send = || open(&gateway, "/v1/completions", &key, &body("hi", more.clone())).finish();
        let (first, second) = (send(), send());
        assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"), "{more}");
        assert_eq!((second.header("idempotent-replayed"), &first.body), (Some("true"), &second.body));
    }
    assert_eq!(gateway.read_note("codex.runs").len(), 2);
}

#[test]
fn options_reach_an_upstream() {
    let service = FakeLlm::new([whole(json!({"role": "assistant", "content": "upon"}), "length")]);
    let router =
        format!("providers:\n- name: m\n  type: api\n  config: {{base_url: '{}/', model: gpt-x}}\n", service.url);
    let gateway = TestGateway::new().config("router.yaml", &router).start();
    let asked = json!({"max_tokens": 9, "temperature": 0, "stop": ["."], "seed": 7, "user": "me", "n": 1});
    let choice = post(&gateway, &body("Once", asked)).json()["choices"][0].take();
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("upon"), &json!("length")));
    let sent = service.seen()[0].1.clone();
    assert_eq!(sent["messages"], json!([{"role": "user", "content": "Once"}]));
    assert_eq!((&sent["max_tokens"], &sent["temperature"], &sent["stop"]), (&json!(9), &json!(0), &json!(["."])));
    assert_eq!((&sent["seed"], &sent["user"]), (&json!(7), &json!("me")));
}
