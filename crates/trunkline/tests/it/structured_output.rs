//! Answers in the form that a client asked for: from models that know nothing of schemas, through CLIs that pass them on, and
//! from HTTP upstreams.

use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, stream, whole};
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
            member: "generationConfig.responseJsonSchema",
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
    let format = json!({"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "minItems": "x"}});
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "?"}]}], "generationConfig": format});
    let reply = post(&gateway, "/v1beta/models/m:generateContent", &body);
    assert!(reply.status == 400 && reply.body.contains("generationConfig.responseSchema"), "{reply:?}");
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

/// A codex that records its arguments, its prompt and the schema, and answers.
const RECORDING_CODEX: &str = r#"cat >"$seen/prompt"; : >"$seen/schema"; printf '%s ' "$@" >"$seen/arguments"
while [ $# -gt 0 ]; do
    if [ "$1" = --output-schema ]; then cat "$2" >"$seen/schema"; fi
    shift
done
codex_answers '{\"n\": 1}'"#;

#[test]
fn cli_gets_the_schema_in_a_file_when_its_service_accepts_it() {
    let gateway = TestGateway::new().cli("codex", RECORDING_CODEX).model("m", json!({"driver": "codex"})).start();
    let ask = |schema: &Value| {
        let reply = gateway.chat("How many?").with("response_format", chat_format(schema, true)).send();
        assert_eq!(reply.content(), "{\"n\": 1}");
        (gateway.read_note("schema"), gateway.read_note("prompt").contains("must match this JSON Schema"))
    };
    assert_eq!(ask(&schema()), (schema().to_string(), false));
    // The service would refuse an object that may have other members.
    let open = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    assert_eq!(ask(&open), (String::new(), true));
    assert!(!gateway.read_note("arguments").contains("--output-schema"));
}

#[test]
fn cli_gets_the_schema_as_an_argument_unless_it_is_too_long() {
    let script = r#"cat >"$seen/prompt"; for argument; do printf '%s\n' "$argument"; done >"$seen/arguments"
printf '{"type":"result","subtype":"success","is_error":false,"result":"{\\"n\\": 1}","session_id":"s"}\n'"#;
    let gateway = TestGateway::new().cli("claude", script).model("m", json!({"driver": "claude"})).start();
    for (length, is_argument) in [(10, true), (200_000, false)] {
        let schema = json!({"type": "object", "properties": {"n": {"description": "x".repeat(length)}}});
        let reply = gateway.chat("How many?").with("response_format", chat_format(&schema, true)).send();
        assert_eq!(reply.content(), "{\"n\": 1}");
        let arguments = gateway.read_note("arguments");
        assert_eq!(arguments.contains(&format!("--json-schema\n{schema}\n")), is_argument, "{length}");
        let prompt = gateway.read_note("prompt");
        assert_eq!(prompt.contains(&schema.to_string()), !is_argument, "{length}");
    }
}

#[test]
fn answer_is_repaired_when_the_cli_itself_refuses_it() {
    let script = r#"prompt=$(cat); session='"session_id":"3f0ac4de-3f3f-4c51-9d2b-0b9c4a1c7b11"'
printf '{"type":"system","subtype":"init",%s}\n' "$session"
case $prompt in
*'was not accepted'*) printf '{"type":"result","subtype":"success","is_error":false,"result":"{\\"n\\": 1}",%s}\n' "$session" ;;
*) printf '{"type":"assistant","message":{"id":"a","content":[{"type":"tool_use","id":"t","name":"StructuredOutput","input":{"n":"one"}}]},%s}\n' "$session"
   printf '{"type":"result","subtype":"error_max_structured_output_retries","is_error":true,"errors":["no"],%s}\n' "$session"
   exit 1 ;;
esac"#;
    let gateway = TestGateway::new().cli("claude", script).model("m", json!({"driver": "claude"})).start();
    let answer = gateway.chat("How many?").with("response_format", chat_format(&schema(), true)).send().json();
    assert_eq!(answer["choices"][0]["message"]["content"], "{\"n\": 1}", "{answer}");
    let attempts = &answer["trunkline"]["attempts"];
    assert_eq!(
        (&attempts[0]["outcome"], &attempts[1]["outcome"]),
        (&json!("schema_mismatch"), &json!("ok")),
        "{answer}"
    );
    assert!(!answer.to_string().contains("StructuredOutput"), "{answer}");
    let error = gateway.chat("How many?").send().error(422);
    assert_eq!(error["code"], "schema_mismatch", "without a schema of the client: {error}");
}

fn upstream(service: &FakeLlm) -> TestGateway {
    let file = format!(
        "providers:\n- {{name: up, type: api, config: {{base_url: '{}/', model: gpt-x}}}}\nrouting: {{max_retries: 0}}\n",
        service.url
    );
    TestGateway::new().config("router.yaml", &file).start()
}

fn says(content: &str) -> Value {
    json!({"role": "assistant", "content": content})
}

#[test]
fn answer_of_an_upstream_is_repaired_by_one_more_call() {
    let service = FakeLlm::new([whole(says("I would say one."), "stop"), whole(says("```\n{\"n\": 1}\n```"), "stop")]);
    let gateway = upstream(&service);
    let format = chat_format(&schema(), true);
    let reply = gateway.chat("How many?").model("up").with("response_format", format.clone()).send();
    let answer = reply.json();
    assert_eq!(reply.content(), "{\"n\": 1}", "{answer}");
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(14), &json!(6)));
    let seen = service.seen();
    let messages = |index: usize| seen[index].1["messages"].as_array().unwrap().clone();
    assert_eq!(
        messages(0),
        [json!({"role": "user", "content": "How many?"})],
        "the first call is as the client sent it"
    );
    assert_eq!((messages(1).len(), &messages(1)[1]["content"]), (3, &json!("I would say one.")));
    assert!(messages(1)[2]["content"].as_str().unwrap().contains("the answer is not JSON"), "{seen:?}");
    assert!(seen.iter().all(|(_, body)| body["response_format"] == format));
}

#[test]
fn answer_of_an_upstream_that_never_matches_is_an_error_only_if_strict() {
    let wrong = || whole(says("{\"n\": \"one\"}"), "stop");
    let service = FakeLlm::new([wrong(), wrong(), wrong(), wrong()]);
    let gateway = upstream(&service);
    let ask =
        |strict: bool| gateway.chat("?").model("up").with("response_format", chat_format(&schema(), strict)).send();
    let error = ask(true).error(422);
    assert!(error["code"] == "schema_mismatch" && error["detail"].as_str().unwrap().contains("/n: "), "{error}");
    let best = ask(false);
    assert_eq!(best.content(), "{\"n\": \"one\"}");
    assert!(best.json()["trunkline"]["notes"].to_string().contains("does not match the schema"));
    assert_eq!(service.seen().len(), 4);
}

#[test]
fn stream_of_an_upstream_is_passed_on_and_checked_at_its_end() {
    let wrong = || stream(&[json!({"content": "{\"n\": "}), json!({"content": "\"one\"}"})], "stop");
    let right = stream(&[json!({"content": "{\"n\": "}), json!({"content": "1}"})], "stop");
    let service = FakeLlm::new([right, wrong(), wrong()]);
    let gateway = upstream(&service);
    let ask = |strict: bool| {
        gateway.chat("?").model("up").streamed().with("response_format", chat_format(&schema(), strict)).send()
    };
    let valid = ask(true);
    assert_eq!((valid.streamed_text().as_str(), valid.is_done()), ("{\"n\": 1}", true));
    let invalid = ask(true);
    assert!(invalid.body.contains("schema_mismatch"), "{}", invalid.body);
    let lenient = ask(false);
    assert_eq!((lenient.streamed_text().as_str(), lenient.is_done()), ("{\"n\": \"one\"}", true));
    assert_eq!(service.seen().len(), 3, "nothing is asked again");
}

#[test]
fn upstream_decides_about_schemas_that_the_gateway_cannot_check() {
    let service = FakeLlm::new([whole(says("one"), "stop"), whole(says("one"), "stop")]);
    let gateway = upstream(&service);
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/s"}}});
    let reply = gateway.chat("?").model("up").with("response_format", chat_format(&remote, true)).send();
    assert_eq!(reply.content(), "one");
    let several =
        gateway.chat("?").model("up").with("n", 2).with("response_format", chat_format(&schema(), true)).send();
    assert_eq!(several.content(), "one");
}
