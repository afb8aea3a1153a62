//! Embeddings of HTTP upstreams: OpenAI's route and Ollama's.

use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, Script, refusal};
use crate::http::{Reply, send_raw};
use crate::observe::until;
use crate::test_gateway::TestGateway;

/// A gateway with the service as provider `up`, and a CLI as the model `m`.
fn gateway(service: &FakeLlm) -> TestGateway {
    let router = format!(
        "providers:\n- name: up\n  type: api\n  config: {{base_url: '{}/', model: embed-1, api_key_env: UP_KEY}}\n",
        service.url
    );
    TestGateway::new()
        .env("UP_KEY", "hunter2-hunter2")
        .cli("codex", "tell ran 1; codex_answers ok")
        .model("m", json!({"driver": "codex"}))
        .config("router.yaml", &router)
}

fn request(gateway: &TestGateway, path: &str, headers: &str, body: &Value) -> String {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn post(gateway: &TestGateway, path: &str, headers: &str, body: &Value) -> Reply {
    send_raw(gateway.address(), &request(gateway, path, headers, body)).finish()
}

/// The answer of a service, with the vectors in reverse order.
fn vectors() -> (Script, String) {
    let body = json!({"object": "list", "model": "embed-1", "data": [
        {"object": "embedding", "index": 1, "embedding": [0.25, -1e-7]}, {"object": "embedding", "index": 0, "embedding": [1, 2]},
    ], "usage": {"prompt_tokens": 5, "total_tokens": 5}})
    .to_string();
    (Script::Says(200, "content-type: application/json\r\n", body.clone()), body)
}

#[test]
fn request_and_answer_are_passed_on_unchanged() {
    let service = FakeLlm::new((0..4).map(|_| vectors().0));
    let gateway = gateway(&service).start();
    let inputs = [json!("hi"), json!(["a", "b"]), json!([1, 2, 3]), json!([[1, 2], [3]])];
    for (at, (path, input)) in
        ["/v1/embeddings", "/embeddings", "/v1/embeddings/", "/embeddings/"].iter().zip(inputs).enumerate()
    {
        let asked = json!({"model": if at == 0 { "up" } else { "up/large" }, "input": input, "encoding_format": "base64",
            "dimensions": 2, "user": "me"});
        let reply = post(&gateway, path, "", &asked);
        assert_eq!((reply.status, reply.body.as_str()), (200, vectors().1.as_str()));
        let (head, mut sent) = service.seen()[at].clone();
        assert!(head.starts_with("POST /v1/embeddings HTTP/1.1"), "{head}");
        assert!(head.to_lowercase().contains("authorization: bearer hunter2-hunter2"), "{head}");
        assert_eq!(sent["model"].take(), if at == 0 { "embed-1" } else { "large" });
        assert_eq!(
            sent,
            json!({"model": null, "input": asked["input"], "encoding_format": "base64", "dimensions": 2, "user": "me"})
        );
    }
    assert_eq!(gateway.get("/v1/runs").json()["data"], json!([]), "it is no run");
}

#[test]
fn routes_of_ollama_are_translations() {
    let service = FakeLlm::new((0..2).map(|_| vectors().0));
    let gateway = gateway(&service).start();
    let asked = json!({"model": "up:latest", "input": ["a", "b"], "truncate": true, "dimensions": 2});
    let reply = post(&gateway, "/api/embed", "", &asked).json();
    assert_eq!((&reply["model"], &reply["embeddings"]), (&json!("up:latest"), &json!([[1, 2], [0.25, -1e-7]])));
    assert_eq!((&reply["prompt_eval_count"], &reply["load_duration"]), (&json!(5), &json!(0)));
    assert!(reply["total_duration"].as_u64().unwrap() > 0);
    assert_eq!(
        service.seen()[0].1,
        json!({"model": "embed-1", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2})
    );
    let reply = post(&gateway, "/api/embeddings", "", &json!({"model": "up", "prompt": "a"})).json();
    assert_eq!(reply, json!({"embedding": [1, 2]}));
    assert_eq!(service.seen()[1].1["input"], "a");
    let loaded = post(&gateway, "/api/embed", "", &json!({"model": "up"})).json();
    assert_eq!(loaded["embeddings"], json!([]));
    assert_eq!(post(&gateway, "/api/embeddings", "", &json!({"model": "up"})).json(), json!({"embedding": []}));
    assert_eq!(service.seen().len(), 2, "an empty input is not sent");
}

#[test]
fn model_without_embeddings_is_refused_with_a_list_of_others() {
    let gateway = gateway(&FakeLlm::new([])).start();
    let asked = |model: &str| json!({"model": model, "input": "hi"});
    let error = post(&gateway, "/v1/embeddings", "", &asked("m")).error(400);
    assert_eq!((&error["code"], &error["param"]), (&json!("unsupported_model"), &json!("model")));
    assert!(error["hint"].as_str().unwrap().contains("up, up/<model>"), "{error}");
    let text = post(&gateway, "/api/embed", "", &asked("m")).json()["error"].as_str().unwrap().to_owned();
    assert!(text.starts_with("m has no embeddings") && text.contains("up/<model>"), "{text}");
    assert_eq!(post(&gateway, "/v1/embeddings", "", &asked("ghost")).error(400)["code"], "model_not_found");
    assert_eq!(post(&gateway, "/api/embed", "", &asked("ghost")).status, 404);
    for (body, param) in [
        (json!({"input": "hi"}), "model"),
        (json!({"model": 7, "input": "hi"}), "model"),
        (json!({"model": "up"}), "input"),
        (json!({"model": "up", "input": {"text": "hi"}}), "input"),
    ] {
        assert_eq!(post(&gateway, "/v1/embeddings", "", &body).error(400)["param"], param, "{body}");
    }
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn failure_of_the_service_has_its_category_and_no_key() {
    for (status, headers, error, category, our_status) in [
        (401, "", json!({"message": "bad key hunter2-hunter2"}), "authentication", 500),
        (400, "", json!({"message": "too many inputs"}), "validation", 500),
        (429, "retry-after: 7\r\n", json!({"message": "slow down"}), "rate_limit", 429),
        (200, "", json!({"message": "no such model", "code": 404}), "not_found", 500),
    ] {
        let gateway = gateway(&FakeLlm::new([refusal(status, headers, error)])).start();
        let reply = post(&gateway, "/v1/embeddings", "", &json!({"model": "up", "input": "hi"}));
        assert_eq!(reply.error(our_status)["code"], category);
        assert_eq!(reply.header("retry-after"), (category == "rate_limit").then_some("7"));
        assert!(!reply.body.contains("hunter2"), "{reply:?}");
    }
}

#[test]
fn keys_and_limits_are_those_of_other_requests() {
    let service = FakeLlm::new([vectors().0]);
    let gateway =
        gateway(&service).env("TRUNKLINE_API_KEYS", "first-key").args(&["--requests-per-minute-per-key", "1"]).start();
    let asked = json!({"model": "up", "input": "hi"});
    assert_eq!(post(&gateway, "/v1/embeddings", "", &asked).error(401)["code"], "invalid_api_key");
    let key = "authorization: Bearer first-key\r\n";
    let first = post(&gateway, "/v1/embeddings", key, &asked);
    assert_eq!((first.status, first.header("x-ratelimit-remaining-requests")), (200, Some("0")));
    assert_eq!(post(&gateway, "/v1/embeddings", key, &asked).error(429)["code"], "rate_limit_exceeded");
}

#[test]
fn request_to_the_service_is_cancelled_when_client_disconnects() {
    let service = FakeLlm::new([Script::Hangs("{\"data\":".to_owned(), "gone")]);
    let gateway = gateway(&service).start();
    let asked = request(&gateway, "/v1/embeddings", "", &json!({"model": "up", "input": "hi"}));
    let pending = send_raw(gateway.address(), &asked);
    until("the service has the request", || !service.seen().is_empty());
    drop(pending);
    until("the service sees the disconnect", || service.seen().iter().any(|(head, _)| head == "gone"));
}
