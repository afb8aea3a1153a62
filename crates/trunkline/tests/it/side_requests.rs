//! Requests that clients send on their own, such as for the title of a conversation.

use serde_json::json;

use crate::http::{Reply, RequestBuilder};
use crate::test_gateway::TestGateway;

const TITLE: &str = "You are a title generator. You output ONLY a thread title. Nothing else.";

/// Records its arguments and its folder, and answers with a session that could be resumed.
const CODEX: &str = "note \"$@\"; pwd >\"$seen/folder\"; replay codex/reasoning";

fn gateway() -> TestGateway {
    TestGateway::new().cli("codex", CODEX).model("m", json!({"driver": "codex", "worktree": true}))
}

fn title(gateway: &TestGateway) -> RequestBuilder {
    gateway.chat("hi").preceded_by("system", TITLE)
}

/// The run of a reply, as `GET /v1/runs/{id}` has it.
fn run(gateway: &TestGateway, reply: &Reply) -> serde_json::Value {
    gateway.get(&format!("/v1/runs/{}", reply.header("x-trunkline-run").unwrap())).json()
}

#[test]
fn side_request_runs_without_worktree_session_and_write_permission() {
    let gateway = gateway().start();
    let reply = title(&gateway).send();
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("x-trunkline-session"), None);
    let extension = &reply.json()["trunkline"];
    assert_eq!((&extension["workspace"], &extension["session_id"]), (&json!(null), &json!(null)));
    assert!(gateway.argv("codex").windows(2).any(|two| two == ["-s", "read-only"]), "{:?}", gateway.argv("codex"));
    let recorded = run(&gateway, &reply);
    assert_eq!((&recorded["side"], &recorded["model"]), (&json!("opencode/title"), &json!("m")));
    let usual = gateway.chat("hi").send();
    assert!(usual.header("x-trunkline-session").is_some());
    assert_eq!(run(&gateway, &usual)["side"], json!(null));
    assert!(!gateway.argv("codex").contains(&"read-only".to_owned()));
}

#[test]
fn request_in_a_named_session_or_with_tools_runs_as_usual() {
    let gateway = gateway().start();
    let session = gateway.chat("hi").send().header("x-trunkline-session").unwrap().to_owned();
    let tools = json!([{"type": "function", "function": {"name": "edit", "parameters": {}}}]);
    let with_tools = title(&gateway).with("tools", tools).with("tool_choice", "none");
    for request in [title(&gateway).header("x-trunkline-session", &session), with_tools] {
        let reply = request.send();
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(run(&gateway, &reply)["side"], json!(null));
    }
}

#[test]
fn side_requests_are_answered_by_the_configured_model_and_by_rules_of_the_user() {
    let rule = "[[side_request]]\nclient = \"mine\"\npurpose = \"summary\"\nuser_agent = \"mine/\"\nprompt = \"Summarise this page\"\n";
    let gateway = gateway()
        .cli("cheap", "cat >/dev/null; echo cheap")
        .model("small", json!({"driver": "text", "command": "../bin/cheap"}))
        .section("server", json!({"sideRequests": "small"}))
        .config("clients.toml", rule)
        .start();
    let reply = title(&gateway).model("m").send();
    assert_eq!((reply.content().trim(), reply.json()["model"].as_str()), ("cheap", Some("m")));
    assert_eq!(run(&gateway, &reply)["model"], "small");
    let ask = |agent: &str| gateway.chat("Summarise this page: …").model("m").header("user-agent", agent).send();
    let recognised = ask("mine/2.0");
    assert_eq!(recognised.content().trim(), "cheap");
    assert_eq!(run(&gateway, &recognised)["side"], "mine/summary");
    assert_eq!(run(&gateway, &ask("curl/8"))["side"], json!(null));
}

#[test]
fn side_requests_run_like_all_others_when_they_are_switched_off() {
    let gateway = gateway().section("server", json!({"sideRequests": false})).start();
    let reply = title(&gateway).send();
    assert!(reply.header("x-trunkline-session").is_some());
    assert_eq!(run(&gateway, &reply)["side"], json!(null));
}
