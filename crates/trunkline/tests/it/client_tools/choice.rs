//! `tool_choice`, and the CLI's own tools.

use std::fs;

use serde_json::json;

use super::*;

#[test]
fn tool_is_not_offered_when_the_choice_is_none() {
    let gateway = gateway(json!({})).start();
    let dialogue = Dialogue::new(&gateway, "tools").with("tool_choice", json!("none"));
    assert_eq!(dialogue.send().content(), "[]");
}

#[test]
fn only_the_named_tool_is_offered() {
    let gateway = gateway(json!({})).start();
    let choice = json!({"type": "function", "function": {"name": "time"}});
    let mut dialogue = Dialogue::new(&gateway, "call time {}").with("tool_choice", choice);
    let calls = dialogue.calls();
    assert_eq!(calls[0].1, "time");
    let unknown = json!({"type": "function", "function": {"name": "tides"}});
    let error = Dialogue::new(&gateway, "say hi").with("tool_choice", unknown).send().error(400);
    assert!(error["message"].as_str().unwrap().contains("tides"), "{error}");
}

#[test]
fn model_that_calls_nothing_is_reminded_once_and_then_the_run_fails() {
    let gateway = gateway(json!({})).start();
    let reply = Dialogue::new(&gateway, "say hi").with("tool_choice", json!("required")).send();
    assert!(reply.status >= 400, "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("tool_choice"), "{reply:?}");
    let reply = Dialogue::new(&gateway, "say hi").send();
    assert_eq!(reply.status, 200, "without the choice the answer is given: {reply:?}");
}

#[test]
fn own_tools_are_off_for_a_model_or_a_request() {
    let gateway = gateway(json!({"ownTools": "off"})).model("keep", json!({"driver": "claude"})).start();
    let arguments = |pid: u32| fs::read_to_string(gateway.path("seen").join(format!("pid.{pid}"))).unwrap();
    assert_eq!(Dialogue::new(&gateway, "tools").send().status, 200);
    let first = processes(&gateway);
    assert!(arguments(first[0]).contains("--tools\0\0"), "{:?}", arguments(first[0]));
    let body = json!({"model": "keep", "messages": [{"role": "user", "content": "say hi"}]});
    let path = "/v1/chat/completions";
    assert_eq!(post(&gateway, path, "x-trunkline-own-tools: off\r\n", &body).content(), "say hi");
    let off = processes(&gateway).into_iter().filter(|pid| arguments(*pid).contains("--tools\0\0")).count();
    assert_eq!(off, 2);
    assert_eq!(post(&gateway, path, "x-trunkline-own-tools: some\r\n", &body).status, 400);
}
