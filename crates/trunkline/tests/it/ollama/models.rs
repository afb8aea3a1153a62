//! Models, keys, and requests that do not run.

use serde_json::{Value, json};

use super::{PNG, chat, error, gateway, generate, lines, merged, open, post, sum};
use crate::fake_llm::FakeLlm;
use crate::http::send_raw;

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
        (json!({"model": "m"}), "codex", json!(["completion", "tools", "vision", "thinking"])),
        (json!({"name": "m:latest", "verbose": true}), "codex", json!(["completion", "tools", "vision", "thinking"])),
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
