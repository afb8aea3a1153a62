//! Each of the seven CLIs, replaced by a script that replays a recording: the same answer whole and streamed.

use serde_json::{Value, json};

use crate::test_gateway::TestGateway;

/// Driver, program, recording, answer.
const CLIS: [(&str, &str, &str, &str); 7] = [
    ("claude", "claude", "claude/slow_streamjson_partial", "Hello from the mock."),
    ("codex", "codex", "codex/reasoning", "Hello from the mock.\nSecond line éè 你好 🦀."),
    ("gemini", "gemini", "gemini/ansi-stream-json", "plain red \u{7}bell  end\r\nline2\ttab"),
    ("qwen", "qwen", "qwen/slow-stream-json-partial", "chunk0 chunk1 chunk2 chunk3 chunk4 chunk5 "),
    ("opencode", "opencode", "opencode/reasoning_thinking", "Hello from the mock.\nSecond line éè 你好 🦀."),
    ("ax-glm", "ax-glm", "ax/glm_prompt", "Hello from the mock model. Unicode: café 日本 🎉"),
    ("ax-grok", "ax-grok", "ax/grok_prompt", "Hello from the mock model. Unicode: café 日本 🎉"),
];

fn gateway_with_all_clis() -> TestGateway {
    let gateway = CLIS.iter().fold(TestGateway::new(), |gateway, (driver, program, recording, _)| {
        gateway
            .cli(program, &format!("note \"$@\"; replay {recording}"))
            .model(&format!("{driver}-repo"), json!({"driver": driver}))
    });
    gateway.start()
}

#[test]
fn every_cli_answers_whole_and_streamed() {
    let gateway = gateway_with_all_clis();
    for (driver, _, _, answer) in CLIS {
        let model = format!("{driver}-repo");
        let whole = gateway.chat("hi").model(&model).send();
        assert_eq!(whole.content(), answer, "{driver}");
        let streamed = gateway.chat("hi").model(&model).streamed().send();
        assert_eq!(streamed.streamed_text(), answer, "{driver}");
        assert!(streamed.is_done(), "{driver}: {}", streamed.body);
    }
}

#[test]
fn response_has_openai_shape_and_names_the_provider() {
    let gateway = gateway_with_all_clis();
    let reply = gateway.chat("hi").model("codex-repo").send();
    let body = reply.json();
    assert!(body["id"].as_str().unwrap().starts_with("cmpl-"), "{body}");
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "codex-repo");
    assert_eq!(body["choices"][0]["index"], 0);
    assert_eq!(body["choices"][0]["message"]["role"], "assistant");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["trunkline"]["provider"], "codex");
    assert_eq!(body["trunkline"]["workspace"], Value::Null);
    assert_eq!(reply.header("x-trunkline-provider"), Some("codex"));
    assert!(reply.header("x-request-id").is_some());
}
