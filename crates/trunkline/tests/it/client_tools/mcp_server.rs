//! The MCP server for CLIs that have no other way to call tools of the client.

use serde_json::json;

use super::*;

fn gateway() -> TestGateway {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/client_tools/fake_gemini.py");
    let script = format!("PATH=/usr/bin:/bin:$PATH; exec python3 '{program}' \"$@\"");
    TestGateway::new()
        .cli("gemini", &script)
        .model("m", json!({"driver": "gemini"}))
        .args(&["--grace", "500ms"])
        .start()
}

#[test]
fn call_waits_with_progress_for_the_result() {
    let gateway = gateway();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {"city": "Köln"}"#);
    let calls = dialogue.calls();
    assert_eq!((calls[0].1.as_str(), &calls[0].2), ("weather", &json!({"city": "Köln"})), "only what the model wrote");
    dialogue.result(&calls[0].0, "rain 🌧");
    assert_eq!(dialogue.send().content(), r#"[[1], "rain 🌧", false]"#.replace("🌧", "\\ud83c\\udf27"));
}

#[test]
fn server_answers_only_its_own_process() {
    let gateway = gateway();
    let reply = Dialogue::new(&gateway, "probe").send();
    let seen: Value = serde_json::from_str(&reply.content()).unwrap();
    let expected = json!({
        "get": 405, "delete": 200, "note": 202, "no secret": 401, "wrong secret": 401, "large": 413, "broken": true,
        "arguments": false, "tools": ["weather", "time"],
    });
    assert_eq!(seen, expected);
}
