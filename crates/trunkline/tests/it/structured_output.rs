//! Answers in the form that a client asked for, from models that know nothing of schemas.

use serde_json::{Value, json};

use crate::http::{Reply, send_raw};
use crate::test_gateway::TestGateway;

/// A codex that gives one answer, and another once it is told that the first was not accepted. It counts the tokens of the
/// whole session.
const CODEX: &str = r#"prompt=$(cat)
printf '%s' "$prompt" >"$seen/prompt"
first='FIRST' second='SECOND'
printf '{"type":"thread.started","thread_id":"0199a213-81c0-7800-8aa1-bbab2a035a53"}\n'
case $prompt in
*'was not accepted'*) printf '%s' "$prompt" >"$seen/correction"; printf '%s ' "$@" >"$seen/arguments"; codex_says "$second"
    printf '{"type":"turn.completed","usage":{"input_tokens":7,"cached_input_tokens":0,"output_tokens":5}}\n' ;;
*) codex_answers "$first" ;;
esac"#;

const PROSE: &str = "I would say one.";
const WRONG: &str = r#"{\"n\": \"one\"}"#;
const RIGHT: &str = r#"{\"n\": 1}"#;
const FENCED: &str = r#"Here it is:\n```json\n{\"n\": 1}\n```"#;

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})
}

fn gateway(first: &str, second: &str) -> TestGateway {
    let script = CODEX.replace("FIRST", first).replace("SECOND", second);
    TestGateway::new().cli("codex", &script).model("m", json!({"driver": "codex"})).start()
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> Reply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let kind = "content-type: application/json\r\nanthropic-version: 2023-06-01\r\n";
    send_raw(address, &format!("{head}{kind}content-length: {}\r\n\r\n{body}", body.len())).finish()
}

/// A request in one dialect.
struct Asked {
    path: &'static str,
    body: Value,
    /// Place of the text in the answer.
    text: &'static str,
    /// Name of the member with the schema.
    member: &'static str,
}

/// The same question with a schema in every dialect.
fn dialects(schema: &Value) -> Vec<Asked> {
    let messages = json!([{"role": "user", "content": "How many?"}]);
    vec![
        Asked {
            path: "/v1/chat/completions",
            body: json!({"model": "m", "messages": messages, "response_format":
                {"type": "json_schema", "json_schema": {"name": "count", "strict": true, "schema": schema}}}),
            text: "/choices/0/message/content",
            member: "response_format.json_schema.schema",
        },
        Asked {
            path: "/v1/responses",
            body: json!({"model": "m", "input": "How many?", "text":
                {"format": {"type": "json_schema", "name": "count", "schema": schema}}}),
            text: "/output/0/content/0/text",
            member: "text.format.schema",
        },
        Asked {
            path: "/v1/messages",
            body: json!({"model": "m", "max_tokens": 100, "messages": messages, "output_config":
                {"format": {"type": "json_schema", "schema": schema}}}),
            text: "/content/0/text",
            member: "output_config.format.schema",
        },
        Asked {
            path: "/v1/messages",
            body: json!({"model": "m", "max_tokens": 100, "messages": messages,
                "output_format": {"type": "json_schema", "schema": schema}}),
            text: "/content/0/text",
            member: "output_config.format.schema",
        },
        Asked {
            path: "/api/chat",
            body: json!({"model": "m", "stream": false, "messages": messages, "format": schema}),
            text: "/message/content",
            member: "format",
        },
        Asked {
            path: "/v1beta/models/m:generateContent",
            body: json!({"contents": [{"role": "user", "parts": [{"text": "How many?"}]}], "generationConfig":
                {"responseMimeType": "application/json", "responseJsonSchema": schema}}),
            text: "/candidates/0/content/parts/0/text",
            member: "generationConfig.responseSchema",
        },
    ]
}

fn chat_format(schema: &Value, strict: bool) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "count", "strict": strict, "schema": schema}})
}

#[test]
fn answer_is_bare_json_in_every_dialect() {
    for (first, second, attempts) in [(RIGHT, PROSE, 1), (FENCED, PROSE, 1), (PROSE, RIGHT, 2), (WRONG, FENCED, 2)] {
        let gateway = gateway(first, second);
        for asked in dialects(&schema()) {
            let reply = post(&gateway, asked.path, &asked.body);
            assert_eq!(reply.status, 200, "{} {first}: {reply:?}", asked.path);
            let answer = reply.json();
            // The notice of the repair is an item of its own.
            let place = asked.text.replace("/output/0", &format!("/output/{}", attempts - 1));
            assert_eq!(answer.pointer(&place), Some(&json!("{\"n\": 1}")), "{} {first}: {answer}", asked.path);
            let receipt = &answer["trunkline"];
            assert_eq!(receipt["attempts"].as_array().map(Vec::len), Some(attempts), "{receipt}");
            assert_eq!(receipt["notes"].as_array().map_or(0, Vec::len), attempts - 1, "{receipt}");
            assert!(receipt["ignored"].is_null(), "{receipt}");
        }
    }
}

#[test]
fn answer_that_never_matches_is_an_error_in_every_dialect() {
    let gateway = gateway(WRONG, PROSE);
    for asked in dialects(&schema()) {
        let reply = post(&gateway, asked.path, &asked.body);
        if asked.path == "/v1/responses" {
            let answer = reply.json();
            assert!(reply.body.contains("schema_mismatch"), "{answer}");
            continue;
        }
        assert_eq!(reply.status, 422, "{}: {reply:?}", asked.path);
        assert!(reply.body.to_lowercase().contains("schema_mismatch"), "{}: {}", asked.path, reply.body);
        assert!(reply.body.contains("/n: "), "{}: {}", asked.path, reply.body);
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    let error = gateway.chat("How many?").with("response_format", chat_format(&schema(), true)).send().error(422);
    assert_eq!(error["code"], "schema_mismatch");
    let detail = error["detail"].as_str().unwrap();
    assert!(detail.contains("- /n: ") && detail.ends_with("The answer was:\n{\"n\": \"one\"}"), "{detail}");
}

#[test]
fn best_answer_is_returned_with_a_note_when_not_strict() {
    let gateway = gateway(WRONG, PROSE);
    let reply = gateway.chat("How many?").with("response_format", chat_format(&schema(), false)).send();
    assert_eq!(reply.content(), "{\"n\": \"one\"}");
    let notes = reply.json()["trunkline"]["notes"].to_string();
    assert!(notes.contains("does not match the schema") && notes.contains("/n: "), "{notes}");
}

#[test]
fn any_object_is_enough_for_json_object() {
    let gateway = gateway(r"[1]", FENCED);
    for (path, body, text) in [
        ("/v1/chat/completions", json!({"response_format": {"type": "json_object"}}), "/choices/0/message/content"),
        ("/api/chat", json!({"format": "json", "stream": false}), "/message/content"),
    ] {
        let mut body = body;
        body["model"] = json!("m");
        body["messages"] = json!([{"role": "user", "content": "How many?"}]);
        let answer = post(&gateway, path, &body).json();
        assert_eq!(answer.pointer(text), Some(&json!("{\"n\": 1}")), "{answer}");
    }
}

#[test]
fn hostile_schemas_are_a_bad_request_that_names_the_place_in_every_dialect() {
    let gateway = gateway(RIGHT, RIGHT);
    let mut deep = json!({"type": "string"});
    for _ in 0..40 {
        deep = json!({"properties": {"a": deep}});
    }
    for (schema, place) in [
        (json!({"type": "object", "properties": {"a": {"type": "strng"}}}), "/properties/a/type"),
        (json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/s"}}}), "/properties/a/$ref"),
        (json!({"type": "string", "pattern": "(?=a)b"}), "(?=a)b"),
        (json!({"type": "object", "description": "x".repeat(1024 * 1024)}), "1048576"),
        (deep, "64 levels"),
    ] {
        for asked in dialects(&schema) {
            let reply = post(&gateway, asked.path, &asked.body);
            assert_eq!(reply.status, 400, "{} {place}: {reply:?}", asked.path);
            assert!(reply.body.contains(place) && reply.body.contains(asked.member), "{}: {}", asked.path, reply.body);
        }
    }
    let looped = json!({"$ref": "#", "type": "object"});
    let reply = gateway.chat("How many?").with("response_format", chat_format(&looped, true)).send();
    assert_eq!(reply.content(), "{\"n\": 1}");
}

#[test]
fn stream_shows_nothing_before_the_answer_is_valid() {
    let gateway = gateway(PROSE, FENCED);
    let streamed = gateway.chat("How many?").streamed().with("response_format", chat_format(&schema(), true)).send();
    assert_eq!(streamed.streamed_text(), "{\"n\": 1}", "{}", streamed.body);
    assert!(streamed.is_done() && !streamed.body.contains("I would say"), "{}", streamed.body);
    for asked in dialects(&schema()) {
        let path = asked.path.replace(":generateContent", ":streamGenerateContent?alt=sse");
        let mut body = asked.body;
        if !path.contains("v1beta") {
            body["stream"] = json!(true);
        }
        let reply = post(&gateway, &path, &body);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        assert!(reply.body.contains("{\\\"n\\\": 1}"), "{path}: {}", reply.body);
        assert!(!reply.body.contains("I would say"), "{path}: {}", reply.body);
    }
}

#[test]
fn repair_continues_the_session_and_adds_up_the_usage() {
    let gateway = gateway(WRONG, RIGHT);
    let reply = gateway.chat("How many?").with("response_format", chat_format(&schema(), true)).send();
    let answer = reply.json();
    let arguments = gateway.read_note("arguments");
    assert!(arguments.contains("resume") && arguments.contains("0199a213-81c0-7800-8aa1-bbab2a035a53"), "{arguments}");
    let correction = gateway.read_note("correction");
    assert!(correction.contains("- /n: ") && !correction.contains("How many?"), "{correction}");
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(7), &json!(5)));
    assert_eq!(answer["trunkline"]["attempts"][0]["outcome"], "schema_mismatch");
    assert_eq!(answer["trunkline"]["attempts"][1]["outcome"], "ok");
    assert!(answer["trunkline"]["session_id"].is_string(), "{answer}");
    let history = vec![
        json!({"role": "user", "content": "How many?"}),
        json!({"role": "assistant", "content": reply.content()}),
        json!({"role": "user", "content": "And tomorrow?"}),
    ];
    let next = gateway.chat("").with_messages(history).send().json();
    assert_eq!(next["trunkline"]["session_id"], answer["trunkline"]["session_id"], "found by its history: {next}");
}

#[test]
fn provider_without_sessions_gets_the_conversation_with_the_correction() {
    let script = "prompt=$(cat); case $prompt in *'was not accepted'*) printf '%s' \"$prompt\" >\"$seen/correction\"; \
                  echo '{\"n\": 1}' ;; *) echo 'I would say one.' ;; esac";
    let model = json!({"driver": "text", "command": "plain"});
    let gateway = TestGateway::new().cli("plain", script).model("m", model).start();
    let reply = gateway.chat("How many?").with("response_format", chat_format(&schema(), true)).send();
    assert_eq!(reply.content(), "{\"n\": 1}");
    let prompt = gateway.read_note("correction");
    let places = ["How many?", "JSON Schema", "I would say one.", "was not accepted"].map(|text| prompt.find(text));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{prompt}");
}

#[test]
fn worktree_of_the_first_answer_is_reported_when_the_repair_changes_nothing() {
    let script = "prompt=$(cat); case $prompt in *'was not accepted'*) codex_answers '{\\\"n\\\": 1}' ;; \
                  *) echo work >made-by-agent; codex_answers 'Done.' ;; esac";
    let model = json!({"driver": "codex", "worktree": true, "permissions": "edit"});
    let gateway = TestGateway::new().cli("codex", script).model("m", model).start();
    let answer = gateway.chat("Work.").with("response_format", chat_format(&schema(), true)).send().json();
    let workspace = &answer["trunkline"]["workspace"];
    assert_eq!(workspace["files_changed"], 1, "{answer}");
    let branch = workspace["branch"].as_str().unwrap();
    assert!(gateway.git(&["show", "--name-only", "--format=", branch]).contains("made-by-agent"));
}
