//! `GET /openapi.json`: it describes every route, and the gateway's answers agree with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::http::{Reply, send_raw};
use crate::test_gateway::TestGateway;

const METHODS: [&str; 3] = ["get", "post", "delete"];

fn document() -> Value {
    serde_json::from_str(include_str!("../../../../schemas/openapi.json")).unwrap()
}

fn gateway() -> TestGateway {
    let script = "printf '{\"type\":\"item.completed\",\"item\":{\"id\":\"r\",\"type\":\"reasoning\",\"text\":\"hm\"}}\\n'; codex_answers done";
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"}))
}

fn ask(gateway: &TestGateway, method: &str, path: &str, body: Option<&Value>) -> Reply {
    let address = gateway.address();
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!("{} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n", method.to_uppercase());
    let length = body.len();
    let kind = "content-type: application/json\r\n";
    send_raw(address, &format!("{head}{kind}content-length: {length}\r\n\r\n{body}")).finish()
}

/// Operations of the document: method, path, and the operation.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        let item = item.as_object().unwrap().clone();
        let path = path.clone();
        item.into_iter().map(move |(method, operation)| (method, path.clone(), operation))
    };
    paths.iter().flat_map(of_path).collect()
}

/// The schema of a response, with everything that it refers to.
fn schema(document: &Value, schema: &Value) -> jsonschema::Validator {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    jsonschema::validator_for(&schema).unwrap()
}

/// Checks an answer, or each frame of it, against the document.
#[track_caller]
fn check(document: &Value, method: &str, path: &str, reply: &Reply) {
    let responses = &document["paths"][path][method]["responses"];
    let response = if reply.status == 200 { &responses["200"] } else { &responses["default"] };
    let kind = reply.header("content-type").unwrap();
    let described = &response["content"][kind]["schema"];
    assert!(!described.is_null(), "{method} {path}: {} has no description for {kind}", reply.status);
    let validator = schema(document, described);
    let values: Vec<Value> = match kind {
        "text/event-stream" => reply.frames(),
        "application/x-ndjson" => reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        _ => vec![reply.json()],
    };
    assert!(!values.is_empty(), "{method} {path}: {reply:?}");
    for value in values {
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:#?}\n{value:#}");
    }
}

#[test]
fn document_is_served_without_a_key_and_has_the_version() {
    let gateway = gateway().env("TRUNKLINE_API_KEYS", "secret").start();
    for path in ["/openapi.json", "/v1/openapi.json"] {
        let reply = gateway.get(path);
        assert_eq!((reply.status, reply.json()), (200, document()), "{path}");
    }
    assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(gateway.get("/v1/models").status, 401);
}

#[test]
fn every_described_route_exists() {
    let gateway = gateway().start();
    for (method, path, _) in operations(&document()) {
        assert!(METHODS.contains(&method.as_str()), "{method} {path}");
        let path = path.replace("{id}", "none").replace("{model}", "none");
        let reply = ask(&gateway, &method, &path, (method != "get").then(|| json!({})).as_ref());
        assert!(reply.status != 405 && !reply.body.contains("unknown request URL"), "{method} {path}: {reply:?}");
    }
}

/// Texts of a source file between a prefix and a suffix.
fn between<'a>(text: &'a str, prefix: &str, suffix: &str) -> Vec<&'a str> {
    text.split(prefix).skip(1).filter_map(|rest| rest.split_once(suffix).map(|(found, _)| found)).collect()
}

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_route_is_described() {
    let mut text = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src"), &mut text);
    let mut routes = BTreeSet::new();
    for route in between(&text, "format!(\"{base}/", "\"") {
        routes.insert(format!("/v1/{}", route.trim_end_matches("{slash}")));
    }
    routes.extend(
        between(&text, "format!(\"/", "{slash}\"")
            .into_iter()
            .filter(|route| !route.contains("{name}"))
            .map(|route| format!("/{route}")),
    );
    routes.extend(between(&text, "&path(\"", "\"").into_iter().map(|route| format!("/api/{route}")));
    routes.extend(between(&text, ".route(\"", "\"").into_iter().map(str::to_owned));
    assert!(routes.len() > 25, "{routes:?}");
    let document = document();
    let described: BTreeSet<String> = operations(&document)
        .into_iter()
        .map(|(_, path, _)| path.split(':').next().unwrap().replace("{model}", "{id}"))
        .collect();
    let normal = |route: &str| {
        let route = route.replace("{{", "{").replace("}}", "}").replace("{*call}", "{id}").replace("{*id}", "{id}");
        match route.trim_end_matches('/') {
            "" => "/".to_owned(),
            "/v1/openapi.json" => "/openapi.json".to_owned(),
            route => route.to_owned(),
        }
    };
    let missing: Vec<String> =
        routes.iter().map(|route| normal(route)).filter(|route| !described.contains(route)).collect();
    assert!(missing.is_empty(), "schemas/openapi.json does not describe {missing:?}");
}

#[test]
fn answers_agree_with_the_document() {
    let (gateway, document) = (gateway().start(), document());
    let messages = json!([{"role": "user", "content": "hi"}]);
    let chat = json!({"model": "m", "messages": messages});
    let contents = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    let asked = [
        ("/v1/chat/completions", chat.clone()),
        ("/v1/responses", json!({"model": "m", "input": "hi"})),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "thinking": {"type": "adaptive"}, "messages": messages}),
        ),
        ("/v1/completions", json!({"model": "m", "prompt": "hi"})),
        ("/api/chat", chat.clone()),
        ("/api/generate", json!({"model": "m", "prompt": "hi"})),
    ];
    for (path, body) in asked {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = stream.into();
            let mut reply = ask(&gateway, "post", path, Some(&body));
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            reply.body = reply.body.replace("data: [DONE]\n\n", "");
            check(&document, "post", path, &reply);
            body["model"] = "none".into();
            check(&document, "post", path, &ask(&gateway, "post", path, Some(&body)));
            check(&document, "post", path, &ask(&gateway, "post", path, Some(&json!([]))));
        }
    }
    for (call, query) in [("generateContent", ""), ("streamGenerateContent", "?alt=sse"), ("streamGenerateContent", "")]
    {
        let path = format!("/v1beta/models/{{model}}:{call}");
        for model in ["m", "none"] {
            let reply = ask(&gateway, "post", &format!("{}{query}", path.replace("{model}", model)), Some(&contents));
            assert_eq!(reply.status == 200, model == "m", "{path}: {reply:?}");
            check(&document, "post", &path, &reply);
        }
    }
    for (path, body) in [
        ("/v1/messages/count_tokens", &chat),
        ("/v1beta/models/{model}:countTokens", &contents),
        ("/api/show", &json!({"model": "m"})),
        ("/v1/embeddings", &json!({"model": "m", "input": "hi"})),
        ("/api/embed", &json!({"model": "m", "input": "hi"})),
        ("/api/embeddings", &json!({"model": "m", "prompt": "hi"})),
    ] {
        check(&document, "post", path, &ask(&gateway, "post", &path.replace("{model}", "m"), Some(body)));
    }
    let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let response = ask(&gateway, "post", "/v1/responses", Some(&json!({"model": "m", "input": "hi"}))).json();
    let response = response["id"].as_str().unwrap();
    for (path, id) in [
        ("/v1/models", ""),
        ("/v1/models/{id}", "m"),
        ("/v1/models/{id}", "none"),
        ("/v1/runs", ""),
        ("/v1/runs/{id}", run.as_str()),
        ("/v1/runs/{id}", "none"),
        ("/v1/runs/{id}/events", run.as_str()),
        ("/v1/responses/{id}", response),
        ("/v1/responses/{id}", "none"),
        ("/v1/responses/{id}/input_items", response),
        ("/v1beta/models", ""),
        ("/v1beta/models/{model}", "m"),
        ("/api/tags", ""),
        ("/api/ps", ""),
        ("/api/version", ""),
        ("/health", ""),
        ("/health/providers", ""),
    ] {
        check(&document, "get", path, &gateway.get(&path.replace("{id}", id).replace("{model}", id)));
    }
    check(&document, "get", "/v1/route", &gateway.get("/v1/route?model=m"));
    for (method, path) in [("post", "/v1/responses/{id}/cancel"), ("delete", "/v1/responses/{id}")] {
        check(&document, method, path, &ask(&gateway, method, &path.replace("{id}", response), None));
    }
}
