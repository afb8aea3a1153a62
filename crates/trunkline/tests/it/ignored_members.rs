//! Members of a request that have no effect on a model, and what models say about their abilities.

use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, whole};
use crate::http::{Reply, send_raw};
use crate::test_gateway::TestGateway;

fn gateway() -> TestGateway {
    TestGateway::new()
        .cli("codex", "cat >/dev/null; codex_answers 'Hi.'")
        .model("m", json!({"driver": "codex"}))
        .model("strict", json!({"driver": "codex", "strictParameters": true}))
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> Reply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let kind = "content-type: application/json\r\nanthropic-version: 2023-06-01\r\n";
    send_raw(address, &format!("{head}{kind}content-length: {}\r\n\r\n{body}", body.len())).finish()
}

/// Requests with members that a CLI ignores, and the names of these members.
fn requests(model: &str) -> Vec<(String, Value, Vec<&'static str>)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
    vec![
        (
            "/v1/chat/completions".to_owned(),
            json!({"model": model, "messages": messages, "temperature": 0, "seed": 7, "logit_bias": {"1": 1},
                "made_up": true, "user": "u", "logprobs": false}),
            vec!["logit_bias", "made_up", "seed", "temperature"],
        ),
        ("/v1/completions".to_owned(), json!({"model": model, "prompt": "hi", "max_tokens": 5}), vec!["max_tokens"]),
        (
            "/v1/responses".to_owned(),
            json!({"model": model, "input": "hi", "top_p": 0.5, "text": {"verbosity": "low"}}),
            vec!["text.verbosity", "top_p"],
        ),
        (
            "/v1/messages".to_owned(),
            json!({"model": model, "max_tokens": 5, "messages": messages, "stop_sequences": ["x"]}),
            vec!["stop_sequences"],
        ),
        (
            "/api/chat".to_owned(),
            json!({"model": model, "stream": false, "messages": messages, "options": {"num_ctx": 4096, "top_k": 3}}),
            vec!["options.num_ctx", "options.top_k"],
        ),
        (
            format!("/v1beta/models/{model}:generateContent"),
            json!({"contents": contents, "generationConfig": {"topK": 3}}),
            vec!["generationConfig.topK"],
        ),
    ]
}

#[test]
fn ignored_members_are_listed_in_every_dialect() {
    let gateway = gateway().start();
    for (path, body, expected) in requests("m") {
        let answer = post(&gateway, &path, &body).json();
        let mut ignored: Vec<String> =
            serde_json::from_value(answer["trunkline"]["ignored"].clone()).unwrap_or_default();
        ignored.sort();
        assert_eq!(ignored, expected, "{path}: {answer}");
    }
    let streamed = gateway.chat("hi").streamed().with("seed", 7).send();
    assert!(streamed.body.contains("\"ignored\":[\"seed\"]"), "{}", streamed.body);
    assert!(gateway.chat("hi").send().json()["trunkline"]["ignored"].is_null());
}

#[test]
fn ignored_members_are_a_bad_request_when_parameters_are_strict() {
    let gateway = gateway().start();
    for (path, body, names) in requests("strict") {
        let reply = post(&gateway, &path, &body);
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        assert!(names.iter().all(|name| reply.body.contains(name)), "{path}: {}", reply.body);
    }
    let error = gateway.chat("hi").model("strict").with("seed", 7).send().error(400);
    assert_eq!((&error["code"], &error["param"]), (&json!("unsupported_parameter"), &json!("seed")));
    assert_eq!(gateway.chat("hi").model("strict").with("user", "u").send().content(), "Hi.");
}

#[test]
fn models_say_what_they_can_do() {
    let gateway = gateway().model("tree", json!({"driver": "codex", "worktree": true})).start();
    let expected = |worktree: bool| {
        json!({"provider": "codex", "tools": true, "schemas": true, "images": true, "sessions": true,
            "own_tools": true, "worktree": worktree})
    };
    let list = gateway.get("/v1/models").json();
    let of = |name: &str| {
        let models = list["data"].as_array().unwrap();
        models.iter().find(|model| model["id"] == name).unwrap()["trunkline"].clone()
    };
    assert_eq!((of("m"), of("tree")), (expected(false), expected(true)));
    assert_eq!(gateway.get("/v1/models/tree").json()["trunkline"], expected(true));
    assert_eq!(gateway.get("/v1beta/models/m").json()["trunkline"], expected(false));
    assert_eq!(post(&gateway, "/api/show", &json!({"model": "m"})).json()["trunkline"], expected(false));
}

#[test]
fn http_upstream_ignores_only_members_that_it_does_not_get() {
    let answer = || whole(json!({"role": "assistant", "content": "Hello"}), "stop");
    let service = FakeLlm::new([answer()]);
    let file =
        format!("providers:\n- {{name: up, type: api, config: {{base_url: '{}/', model: gpt-x}}}}\n", service.url);
    let gateway = TestGateway::new().config("router.yaml", &file).start();
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "https://example.org"}}});
    let request =
        gateway.chat("hi").model("up").with("seed", 7).with("made_up", 1).with("response_format", schema.clone());
    let answer = request.send().json();
    assert_eq!(answer["trunkline"]["ignored"], json!(["made_up"]), "{answer}");
    let (_, sent) = service.seen().remove(0);
    assert_eq!((&sent["seed"], &sent["response_format"]), (&json!(7), &schema), "as the client sent them");
    let abilities = gateway.get("/v1/models/up").json()["trunkline"].clone();
    assert_eq!((&abilities["tools"], &abilities["own_tools"]), (&json!(true), &json!(false)), "{abilities}");
}
