//! Routes of the server, and errors for invalid requests.

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::mock::{MockServer, RawResponse};

const SCRIPT: &str = r#"{"scenarios": [{"trigger": "go", "steps": [{"response": {"content": "Gone."}}]}]}"#;

#[tokio::test]
async fn every_route_responds_in_its_own_format() {
    let mock = MockServer::with_script(SCRIPT).await;
    let chat = r#"{"model": "x", "messages": [{"role": "user", "content": "go"}]}"#;
    let input = r#"{"model": "x", "input": "go"}"#;
    let contents = r#"{"contents": [{"role": "user", "parts": [{"text": "go"}]}]}"#;
    for (path, body, pointer, expected) in [
        ("/chat/completions", chat, "/choices/0/message/content", json!("Gone.")),
        ("/v1/chat/completions", chat, "/choices/0/message/content", json!("Gone.")),
        ("/v1/chat/completions", chat, "/model", json!("mock-model")),
        ("/responses", input, "/output/0/content/0/text", json!("Gone.")),
        ("/v1/responses", input, "/model", json!("x")),
        ("/v1/messages", chat, "/content/0/text", json!("Gone.")),
        ("/v1/messages?beta=true", chat, "/model", json!("x")),
        ("/v1/messages/count_tokens", chat, "/input_tokens", json!(1)),
        ("/v1beta/models/gem:generateContent", contents, "/candidates/0/content/parts/0/text", json!("Gone.")),
        ("/v1beta/models/a/gem:generateContent", contents, "/modelVersion", json!("a/gem")),
        ("/v1beta/models/gem:streamGenerateContent", contents, "/0/candidates/0/content/parts/0/text", json!("Gone.")),
        ("/v1/models/gem:generateContent", contents, "/modelVersion", json!("gem")),
        ("/v1beta/models/gem:countTokens", contents, "/totalTokens", json!(1)),
    ] {
        let answer = mock.ask("POST", path, body).await;
        assert_eq!((answer.status, answer.json().pointer(pointer)), (200, Some(&expected)), "{path} {answer:?}");
        assert!(answer.head.contains("content-type: application/json"), "{path}");
    }
    for (path, pointer, expected) in [
        ("/health", "/status", json!("ok")),
        ("/v1/models", "/data/0/id", json!("mock-model")),
        ("/models", "/object", json!("list")),
        ("/v1/models/mock-model", "/object", json!("model")),
        ("/v1beta/models", "/models/0/name", json!("models/mock-model")),
    ] {
        let answer = mock.ask("GET", path, "").await;
        assert_eq!((answer.status, answer.json().pointer(pointer)), (200, Some(&expected)), "{path}");
    }
    mock.stop().await;
}

#[tokio::test]
async fn streams_are_event_streams() {
    let mock = MockServer::with_script(SCRIPT).await;
    for (path, body, last) in [
        ("/v1/chat/completions", r#"{"stream":true,"messages":[{"role":"user","content":"go"}]}"#, "[DONE]"),
        ("/v1/responses", r#"{"stream":true,"input":"go"}"#, "response.completed"),
        ("/v1/messages", r#"{"stream":true,"messages":[{"role":"user","content":"go"}]}"#, "message_stop"),
        (
            "/v1beta/models/gem:streamGenerateContent?key=k&alt=sse",
            r#"{"contents":[{"role":"user","parts":[{"text":"go"}]}]}"#,
            "STOP",
        ),
    ] {
        let answer = mock.ask("POST", path, body).await;
        assert!(answer.head.contains("content-type: text/event-stream"), "{path} {answer:?}");
        assert!(answer.complete && answer.text().ends_with("\n\n"), "{path}");
        assert!(answer.text().trim_end().rsplit("\n\n").next().unwrap().contains(last), "{path}: {}", answer.text());
    }
    mock.stop().await;
}

#[tokio::test]
async fn errors_have_the_format_of_the_dialect_when_request_is_invalid() {
    let mock = MockServer::with_script(SCRIPT).await;
    for (method, path, body, status, pointer, expected) in [
        ("GET", "/nowhere", "", 404, "/error/message", "/nowhere"),
        ("GET", "/v1/models/gpt-5", "", 404, "/error/message", "only mock-model"),
        ("GET", "/v1/chat/completions", "", 405, "/error/message", "GET"),
        ("POST", "/v1/chat/completions", "{", 400, "/error/message", "not valid JSON"),
        ("POST", "/v1/chat/completions", "[]", 400, "/error/message", "not a JSON object"),
        ("POST", "/v1/chat/completions", "{}", 400, "/error/message", "`messages`"),
        ("POST", "/v1/messages", "{}", 400, "/error/type", "invalid_request_error"),
        ("POST", "/v1beta/models/gem:generateContent", "{}", 400, "/error/status", "INVALID_ARGUMENT"),
        ("POST", "/v1beta/models/gem:embed", "{}", 404, "/error/message", "embed"),
    ] {
        let answer = mock.ask(method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path} {answer:?}");
        let json = answer.json();
        assert!(json.pointer(pointer).unwrap().as_str().unwrap().contains(expected), "{method} {path}: {json}");
    }
    mock.stop().await;
}

#[tokio::test]
async fn body_is_rejected_by_its_headers_when_too_large_or_compressed() {
    let mock = MockServer::with_script(SCRIPT).await;
    for (header, status, expected) in [
        ("content-length: 67108865", 413, "larger than 64 MiB"),
        ("content-length: 1\r\ncontent-encoding: zstd", 415, "zstd"),
    ] {
        let mut bytes = Vec::new();
        let mut socket = mock.send_raw(&format!("POST /v1/responses HTTP/1.1\r\n{header}"), "").await;
        socket.read_to_end(&mut bytes).await.unwrap();
        let answer = RawResponse::parse(&bytes);
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.text().contains(expected), "{answer:?}");
    }
    mock.stop().await;
}

#[tokio::test]
async fn same_request_gets_same_reply_and_history_selects_the_step() {
    let mock = MockServer::with_script(
        r#"{"scenarios": [{"trigger": "go", "steps": [
            {"response": {"tool_calls": [{"id": "call_001", "function": {"name": "bash", "arguments": {"command": "ls"}}}]}},
            {"response": {"content": "done"}}
        ]}]}"#,
    )
    .await;
    let ask = async |messages: &str| {
        mock.ask("POST", "/v1/chat/completions", &format!(r#"{{"messages": [{messages}]}}"#)).await.json()
    };
    let user = r#"{"role":"user","content":"go"}"#;
    let called = |id: &str| {
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"bash","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"{id}","content":"x"}}"#
        )
    };
    let call_id = "/choices/0/message/tool_calls/0/id";
    for _ in 0..2 {
        let first = ask(user).await;
        assert_eq!(first.pointer(call_id), Some(&json!("call_001")));
        assert_eq!(first["choices"][0]["message"]["content"], json!(null));
        assert_eq!(first["id"], ask(user).await["id"]);
    }
    let second = ask(&format!("{user},{}", called("call_001"))).await;
    assert_eq!(second["choices"][0]["message"], json!({"role": "assistant", "content": "done"}));
    // When the scenario runs again in the same conversation, the call gets a new id.
    let again = ask(&format!("{user},{},{user}", called("call_001"))).await;
    assert_eq!(again.pointer(call_id), Some(&json!("call_001_2")));
    mock.stop().await;
}
