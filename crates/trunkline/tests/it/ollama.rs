//! Ollama's API: `/api/chat`, `/api/generate`, and the routes about models.

use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, stream, whole};
use crate::http::{PendingReply, Reply, send_raw};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

const PNG: &str = "iVBORw0KGgo=";

/// Some text, a tool, and the answer.
const TOOL: &str = r#"codex_says 'Let me look.'
printf '{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"ls","status":"in_progress"}}\n'
printf '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"README.md","exit_code":0,"status":"completed"}}\n'
codex_says 'There is one.'; codex_ends"#;

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"])
}

/// A gateway whose model `m` is a service.
fn upstream(service: &FakeLlm) -> TestGateway {
    let router =
        format!("providers:\n- name: m\n  type: api\n  config: {{base_url: '{}/', model: gpt-x}}\n", service.url);
    TestGateway::new().config("router.yaml", &router).start()
}

/// Sends a request with these header lines.
fn open(gateway: &TestGateway, method: &str, path: &str, headers: &str, body: &Value) -> PendingReply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}"
    );
    send_raw(address, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()))
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> Reply {
    open(gateway, "POST", path, "", body).finish()
}

/// The body of a chat with the model `m`.
fn chat(text: &str, more: Value) -> Value {
    merged(json!({"model": "m", "messages": [{"role": "user", "content": text}]}), more)
}

fn generate(prompt: &str, more: Value) -> Value {
    merged(json!({"model": "m", "prompt": prompt}), more)
}

fn merged(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[track_caller]
fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")), "{reply:?}");
    assert!(reply.body.ends_with('\n'), "{reply:?}");
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The concatenated values of a member of all lines.
fn sum(lines: &[Value], pointer: &str) -> String {
    lines.iter().filter_map(|line| line.pointer(pointer)?.as_str()).collect()
}

/// The text of an error. It is all that the body has, except for the trace of a run.
#[track_caller]
fn error(reply: &Reply, status: u16) -> String {
    assert_eq!(reply.status, status, "{reply:?}");
    let body = reply.json();
    assert!(body.as_object().unwrap().keys().all(|name| name == "error" || name == "trunkline"), "{body}");
    body["error"].as_str().unwrap().to_owned()
}

#[test]
fn chat_is_streamed_unless_the_request_says_otherwise() {
    let gateway = gateway("note \"$@\"; codex_answers 'Hi there.'").start();
    let asked = json!({"model": "m", "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"},
    ]});
    let reply = post(&gateway, "/api/chat", &asked);
    let streamed = lines(&reply);
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nhello");
    assert_eq!(sum(&streamed, "/message/content"), "Hi there.");
    let (last, before) = streamed.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false && line["message"]["role"] == "assistant"), "{before:?}");
    assert_eq!((&last["done"], &last["done_reason"], &last["model"]), (&json!(true), &json!("stop"), &json!("m")));
    assert_eq!((&last["prompt_eval_count"], &last["eval_count"]), (&json!(3), &json!(2)));
    assert!(last["total_duration"].as_u64().unwrap() > 0 && last["eval_duration"].as_u64().unwrap() > 0, "{last}");
    assert_eq!(last["trunkline"]["run"], json!(reply.header("x-trunkline-run").unwrap()));

    let reply = post(&gateway, "/api/chat/", &chat("hello", json!({"stream": false, "keep_alive": "5m"})));
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let whole = reply.json();
    assert_eq!(whole["message"], json!({"role": "assistant", "content": "Hi there."}));
    assert_eq!((&whole["done"], &whole["trunkline"]["provider"]), (&json!(true), &json!("codex")));
    let time = whole["created_at"].as_str().unwrap();
    assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{time}");
    assert_eq!(reply.header("x-trunkline-provider"), Some("codex"));
}

#[test]
fn generate_answers_a_prompt() {
    let gateway = gateway("note \"$@\"; codex_answers 'Blue.'").start();
    let asked = json!({"system": "Be brief.", "suffix": "x", "context": [1, 2], "options": {"num_ctx": 4096}});
    let reply = post(&gateway, "/api/generate", &generate("Why?", asked));
    assert_eq!(sum(&lines(&reply), "/response"), "Blue.");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nBe brief.\n\nWhy?");
    let whole = post(
        &gateway,
        "/api/generate",
        &generate("Why?", json!({"system": "Be brief.", "raw": true, "stream": false, "images": [PNG]})),
    )
    .json();
    assert_eq!((&whole["response"], &whole["done_reason"]), (&json!("Blue."), &json!("stop")));
    assert!(gateway.read_note("codex.stdin").contains("Why?") && !gateway.read_note("codex.stdin").contains("brief"));
}

#[test]
fn tools_of_the_agent_are_thinking_unless_it_is_switched_off() {
    let gateway = gateway(TOOL).start();
    for (think, shown) in [(json!(null), true), (json!(true), true), (json!("low"), true), (json!(false), false)] {
        let streamed = lines(&post(&gateway, "/api/chat", &chat("hi", json!({"think": think}))));
        assert_eq!(sum(&streamed, "/message/content"), "Let me look.\n\nThere is one.");
        let thinking = sum(&streamed, "/message/thinking");
        assert_eq!(thinking.contains("[tool]") && thinking.contains("ls"), shown, "{think}: {thinking}");
        let whole = post(&gateway, "/api/generate", &generate("hi", json!({"think": think, "stream": false}))).json();
        assert_eq!(whole["response"], "There is one.");
        assert_eq!(whole["thinking"].as_str(), shown.then_some(thinking.as_str()), "{think}");
    }
}

#[test]
fn conversation_is_continued_by_its_history_and_by_the_header() {
    let script = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e299086500%s"}\n' "$n"
codex_answers "answer $n""#;
    let gateway = gateway(script).start();
    let first = lines(&post(&gateway, "/api/chat", &chat("one", json!({}))));
    let session = first.last().unwrap()["trunkline"]["session_id"].as_str().unwrap().to_owned();
    let history = json!({"stream": false, "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": sum(&first, "/message/content"), "thinking": "hm"},
        {"role": "user", "content": "two"},
    ]});
    let second = post(&gateway, "/api/chat", &chat("", history)).json();
    assert_eq!(second["message"]["content"], "answer 2");
    assert_eq!(second["trunkline"]["session"]["resumed"], true, "{second}");
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ntwo");
    let header = format!("x-trunkline-session: {session}\r\n");
    let third = open(&gateway, "POST", "/api/generate", &header, &generate("three", json!({"stream": false}))).finish();
    assert_eq!((third.status, third.header("x-trunkline-session")), (200, Some(session.as_str())));
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nthree");
}

#[test]
fn failure_is_a_status_before_the_first_line_and_a_line_after_it() {
    let gateway =
        gateway("case $(cat) in *late*) codex_says one ;; esac; echo 'Error: invalid api key' >&2; exit 1").start();
    for path in ["/api/chat", "/api/generate"] {
        let body = |text: &str, more: Value| if path == "/api/chat" { chat(text, more) } else { generate(text, more) };
        for more in [json!({}), json!({"stream": false})] {
            let reply = post(&gateway, path, &body("early", more));
            assert!(error(&reply, 500).starts_with("CLI failed: "), "{reply:?}");
            assert_eq!(reply.header("x-should-retry"), Some("false"));
        }
        let streamed = lines(&post(&gateway, path, &body("late", json!({}))));
        let last = streamed.last().unwrap();
        assert!(last["error"].as_str().unwrap().starts_with("CLI failed: "), "{last}");
        assert!(last["trunkline"]["run"].is_string() && last.get("done").is_none(), "{last}");
    }
}

#[test]
fn key_is_required_and_its_error_has_the_shape_of_the_dialect() {
    let gateway = gateway("codex_answers ok").env("TRUNKLINE_API_KEYS", "first-key").start();
    for (method, path) in [("POST", "/api/chat"), ("GET", "/api/tags"), ("GET", "/api/version")] {
        for headers in ["", "authorization: Bearer wrong\r\n"] {
            let reply = open(&gateway, method, path, headers, &chat("hi", json!({}))).finish();
            assert!(error(&reply, 401).starts_with("Incorrect API key provided: "), "{reply:?}");
        }
    }
    let headers = "authorization: Bearer first-key\r\n";
    let reply = open(&gateway, "POST", "/api/chat", headers, &chat("hi", json!({}))).finish();
    assert_eq!(sum(&lines(&reply), "/message/content"), "ok");
}

#[test]
fn model_is_found_with_the_default_tag_and_an_unknown_one_is_a_404() {
    let gateway = gateway("codex_answers ok").start();
    let asked = json!({"model": "m:latest", "stream": false});
    let reply = post(&gateway, "/api/chat", &chat("hi", asked)).json();
    assert_eq!((&reply["message"]["content"], &reply["model"]), (&json!("ok"), &json!("m:latest")));
    for (path, body) in [
        ("/api/chat", chat("hi", json!({"model": "ghost"}))),
        ("/api/chat", json!({"model": "ghost"})),
        ("/api/generate", generate("hi", json!({"model": "ghost:latest"}))),
        ("/api/generate", json!({"model": "m:8b"})),
        ("/api/show", json!({"model": "ghost"})),
    ] {
        let text = error(&post(&gateway, path, &body), 404);
        assert!(text.starts_with("model '") && text.contains("not found; models here: m"), "{text}");
    }
}

#[test]
fn request_without_a_prompt_loads_the_model_without_a_run() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    for (path, body, reason) in [
        ("/api/generate", json!({"model": "m"}), "load"),
        ("/api/generate", json!({"model": "m", "prompt": "", "keep_alive": 0}), "unload"),
        ("/api/chat", json!({"model": "m", "messages": []}), "load"),
    ] {
        let loaded = lines(&post(&gateway, path, &body));
        assert_eq!((loaded.len(), &loaded[0]["done"], &loaded[0]["done_reason"]), (1, &json!(true), &json!(reason)));
        let whole = post(&gateway, path, &merged(body, json!({"stream": false})));
        assert_eq!((whole.header("content-type"), whole.json()), (Some("application/json"), loaded[0].clone()));
    }
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn invalid_request_is_a_400_that_names_the_member() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    let message = |message: Value| json!({"model": "m", "messages": [message]});
    for (path, body, member) in [
        ("/api/chat", json!({"messages": [{"role": "user", "content": "hi"}]}), "model"),
        ("/api/chat", message(json!({"role": "robot", "content": "hi"})), "messages[0].role"),
        ("/api/chat", message(json!({"role": "user", "content": ["hi"]})), "messages[0].content"),
        ("/api/chat", message(json!({"role": "user", "content": "a\u{0}"})), "messages[0].content"),
        ("/api/chat", message(json!({"role": "user", "content": "hi", "images": ["!"]})), "messages[0].images[0]"),
        ("/api/chat", message(json!(["user", "hi"])), "messages[0]"),
        ("/api/chat", message(json!({"role": "assistant", "content": "hi"})), "messages"),
        ("/api/chat", chat("hi", json!({"stream": "yes"})), "stream"),
        ("/api/chat", chat("hi", json!({"format": "xml"})), "format"),
        ("/api/chat", chat("hi", json!({"options": []})), "options"),
        ("/api/chat", chat("hi", json!({"options": {"num_predict": "x"}})), "options.num_predict"),
        ("/api/chat", chat("hi", json!({"tools": {}})), "tools"),
        ("/api/chat", chat("hi", json!({"think": 7})), "think"),
        ("/api/generate", generate("hi", json!({"images": vec![PNG; 17]})), "images"),
        ("/api/generate", generate("hi", json!({"prompt": 7})), "prompt"),
        ("/api/show", json!({}), "model"),
    ] {
        let text = error(&post(&gateway, path, &body), 400);
        assert!(text.contains(member) && text.len() < 500, "{body}: {text}");
    }
    let address = gateway.address();
    let head = format!("POST /api/chat HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    error(
        &send_raw(address, &format!("{head}content-type: application/json\r\ncontent-length: 1\r\n\r\n{{")).finish(),
        400,
    );
    error(&send_raw(address, &format!("{head}content-length: 2\r\n\r\n{{}}")).finish(), 415);
    error(&gateway.get("/api/nonsense"), 404);
    error(&gateway.get("/api/chat"), 405);
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn run_is_cancelled_when_client_disconnects() {
    let gateway = gateway("tell pid $$; codex_says one; await go; codex_says two; codex_ends").start();
    let mut stream = open(&gateway, "POST", "/api/chat", "", &chat("hi", json!({})));
    stream.read_until("\"content\":\"one\"");
    let running = gateway.get("/api/ps").json();
    assert_eq!((&running["models"][0]["name"], &running["models"][0]["size_vram"]), (&json!("m"), &json!(0)));
    drop(stream);
    until_gone(&[gateway.wait_for_pid("pid")]);
    until("the run is cancelled", || gateway.get("/v1/runs").json()["data"][0]["state"] == "cancelled");
    assert_eq!(gateway.get("/api/ps").json(), json!({"models": []}));
}

#[test]
fn repeated_request_is_the_same_run_under_an_idempotency_key() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").start();
    for (path, body) in [
        ("/api/chat", chat("hi", json!({}))),
        ("/api/chat", chat("hi", json!({"stream": false}))),
        ("/api/generate", generate("hi", json!({}))),
    ] {
        let key = format!("idempotency-key: {path}{}\r\n", body.to_string().len());
        let send = || open(&gateway, "POST", path, &key, &body).finish();
        let (first, second) = (send(), send());
        assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"), "{body}");
        assert_eq!((second.header("idempotent-replayed"), &first.body), (Some("true"), &second.body));
    }
    assert_eq!(gateway.read_note("codex.runs").len(), 3);
}

#[test]
fn models_are_listed_and_described() {
    let service = FakeLlm::new([]);
    let router = format!("providers:\n- name: up\n  type: api\n  config: {{base_url: '{}/', model: g}}\n", service.url);
    let gateway = gateway("codex_answers ok").config("router.yaml", &router).start();
    assert!(gateway.get("/api/version").json()["version"].as_str().unwrap().split('.').count() == 3);
    let tags = gateway.get("/api/tags").json();
    let listed = tags["models"].as_array().unwrap();
    let openai = gateway.get("/v1/models").json();
    let ids: Vec<&Value> = openai["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(listed.iter().map(|model| &model["model"]).collect::<Vec<_>>(), ids);
    let first = &listed[0];
    assert_eq!((&first["name"], &first["size"]), (&json!("m"), &json!(0)));
    assert_eq!(first["details"]["families"], json!(["codex"]));
    let digest = first["digest"].as_str().unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");

    for (body, family, capabilities) in [
        (json!({"model": "m"}), "codex", json!(["completion", "vision", "thinking"])),
        (json!({"name": "m:latest", "verbose": true}), "codex", json!(["completion", "vision", "thinking"])),
        (json!({"model": "up/any:8b"}), "up", json!(["completion", "tools", "vision"])),
    ] {
        let shown = post(&gateway, "/api/show", &body).json();
        assert_eq!((&shown["details"]["family"], &shown["capabilities"]), (&json!(family), &capabilities), "{shown}");
        assert_eq!(shown["model_info"]["general.architecture"], family);
        assert!(shown["model_info"][format!("{family}.context_length")].as_u64().unwrap() > 4096);
        assert!(["modelfile", "parameters", "template"].iter().all(|name| shown[name].is_string()), "{shown}");
    }
}

#[test]
fn models_cannot_be_changed_and_the_root_answers() {
    let gateway = gateway("codex_answers ok").start();
    for (method, path) in [
        ("POST", "/api/pull"),
        ("POST", "/api/push"),
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("DELETE", "/api/delete"),
        ("POST", "/api/blobs/sha256:00"),
    ] {
        let text = error(&open(&gateway, method, path, "", &json!({"model": "m"})).finish(), 400);
        assert!(text.contains(path) && text.contains("models.json"), "{text}");
    }
    let address = gateway.address();
    let head = send_raw(address, &format!("HEAD / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")).finish();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn tools_options_and_formats_reach_an_upstream_and_calls_come_back() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
    let first = json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]});
    let piece = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let service = FakeLlm::new([
        whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
        stream(&[first, piece("{\"city\":"), piece("\"Rome\"}")], "tool_calls"),
        whole(json!({"role": "assistant", "content": "{\"answer\":\"Sunny.\"}"}), "length"),
    ]);
    let gateway = upstream(&service);
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]);
    let asked = |stream: bool| {
        chat(
            "Weather?",
            json!({"tools": tools, "stream": stream, "options": {"num_predict": 9, "temperature": 0, "seed": 7}}),
        )
    };
    let calls = json!([{"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}}]);
    let reply = post(&gateway, "/api/chat", &asked(false)).json();
    assert_eq!(reply["message"], json!({"role": "assistant", "content": "", "tool_calls": calls}));
    assert_eq!(reply["done_reason"], "stop");
    let sent = service.seen()[0].1.clone();
    assert_eq!((&sent["tools"], &sent["max_tokens"], &sent["seed"]), (&tools, &json!(9), &json!(7)));
    assert_eq!((&sent["model"], &sent["temperature"]), (&json!("gpt-x"), &json!(0)));
    let streamed = lines(&post(&gateway, "/api/chat", &asked(true)));
    assert_eq!((streamed.len(), &streamed[0]["message"]["tool_calls"]), (2, &calls), "{streamed:?}");

    let history = json!({"stream": false, "format": {"type": "object"}, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "tool_name": "weather", "content": "24 C"},
    ]});
    let last = post(&gateway, "/api/chat", &chat("", history)).json();
    assert_eq!(
        (&last["message"]["content"], &last["done_reason"]),
        (&json!("{\"answer\":\"Sunny.\"}"), &json!("length"))
    );
    let sent = service.seen()[2].1.clone();
    let id = &sent["messages"][1]["tool_calls"][0]["id"];
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}},
            ]},
            {"role": "tool", "content": "24 C", "tool_call_id": id},
        ])
    );
    let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}});
    assert_eq!(sent["response_format"], format);
}
