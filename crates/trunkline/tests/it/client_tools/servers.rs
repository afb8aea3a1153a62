//! MCP servers that a CLI connects to: those of a model, and those of a request in the Responses API.

use std::path::Path;

use super::*;

const TOKEN: &str = "harbour-token-7741";
const CLIENT_TOKEN: &str = "client-token-9923";

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

fn docs() -> Value {
    json!({"docs": {"url": "https://docs.test/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}})
}

fn mcp_tool(url: &str) -> Value {
    json!({"type": "mcp", "server_label": "wiki", "server_url": url, "authorization": CLIENT_TOKEN, "require_approval": "never"})
}

fn respond(gateway: &TestGateway, text: &str, tools: &[Value]) -> Reply {
    let body = json!({"model": "m", "input": text, "tools": tools});
    post(gateway, "/v1/responses", "", &body)
}

/// Text of a response.
#[track_caller]
fn output(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    let body = reply.json();
    let message = body["output"].as_array().unwrap().iter().find(|item| item["type"] == "message").unwrap().clone();
    message["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files_with(&entry, text));
        } else if fs::read(&entry).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes())) {
            found.push(entry.display().to_string());
        }
    }
    found
}

/// Arguments of all processes that were started.
fn arguments(gateway: &TestGateway) -> String {
    let read = |pid: &u32| fs::read_to_string(gateway.path("seen").join(format!("pid.{pid}"))).unwrap();
    processes(gateway).iter().map(read).collect()
}

#[test]
fn servers_of_the_model_reach_the_cli_over_stdin_only() {
    let files = json!({"command": "serve-files", "args": ["--root", "/"], "env": {"KEY": "${DOCS_TOKEN}"}});
    let mut servers = docs();
    servers["files"] = files;
    let gateway = gateway(json!({"mcpServers": servers})).env("DOCS_TOKEN", TOKEN).start();
    let reply = gateway.chat("servers").send();
    let header = backwards(&format!("Bearer {TOKEN}"));
    let expected = json!({
        "docs": {"type": "http", "url": "https://docs.test/mcp", "headers": {"Authorization": header}, "alwaysLoad": true},
        "files": {"type": "stdio", "command": "serve-files", "args": ["--root", "/"], "env": {"KEY": backwards(TOKEN)},
            "alwaysLoad": true},
    });
    assert_eq!(serde_json::from_str::<Value>(&reply.content()).unwrap(), expected);
    let arguments = arguments(&gateway);
    assert!(arguments.contains("--allowedTools=mcp__docs") && arguments.contains("--allowedTools=mcp__files"));
    assert!(!arguments.contains(TOKEN), "{arguments}");
}

#[test]
fn servers_of_the_model_stay_with_tools_of_the_client_and_without_own_tools() {
    let gateway = gateway(json!({"mcpServers": docs(), "ownTools": "off"}))
        .env("DOCS_TOKEN", TOKEN)
        .env("TRUNKLINE_WARM", "8")
        .start();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {"city": "Oslo"}"#);
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "snow");
    let reply = dialogue.send();
    assert_eq!(reply.content(), r#"["snow"]"#);
    dialogue.say(&reply, "servers");
    assert!(dialogue.send().content().contains("https://docs.test/mcp"));
}

#[test]
fn session_continues_in_a_new_process_with_the_servers() {
    let gateway = gateway(json!({"mcpServers": docs()})).env("DOCS_TOKEN", TOKEN).args(&["--warm", "0"]).start();
    let first = gateway.chat("say hello").send();
    let session = first.json()["trunkline"]["session_id"].as_str().unwrap().to_owned();
    let second = gateway.chat("servers").header("x-trunkline-session", &session).send();
    assert!(second.content().contains("https://docs.test/mcp"), "{second:?}");
    assert_eq!(second.json()["trunkline"]["session_id"], session.as_str());
    assert!(arguments(&gateway).contains("--resume"));
    assert_eq!(processes(&gateway).len(), 2);
}

#[test]
fn server_that_cannot_be_reached_fails_the_run_with_the_reason() {
    let servers = json!({"docs": {"url": "https://broken.test/mcp"}});
    let gateway = gateway(json!({"mcpServers": servers})).start();
    let reply = gateway.chat("servers").send();
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("connection refused"), "{reply:?}");
}

#[test]
fn server_of_a_request_is_used_when_the_model_allows_its_url() {
    let gateway = gateway(json!({"allowMcpServers": ["https://wiki.test/*"]})).start();
    let reply = respond(&gateway, "servers", &[mcp_tool("https://wiki.test/mcp")]);
    let header = backwards(&format!("Bearer {CLIENT_TOKEN}"));
    let expected = json!({"wiki": {"type": "http", "url": "https://wiki.test/mcp", "headers": {"Authorization": header},
        "alwaysLoad": true}});
    assert_eq!(serde_json::from_str::<Value>(&output(&reply)).unwrap(), expected);
    assert_eq!(reply.json()["trunkline"].get("ignored"), None, "{reply:?}");
    assert!(arguments(&gateway).contains("--allowedTools=mcp__wiki"));
}

#[test]
fn secrets_of_a_request_are_stored_nowhere() {
    let mut gateway = gateway(json!({"allowMcpServers": ["https://wiki.test/*"]})).start();
    let mut tool = mcp_tool("https://wiki.test/mcp?key=query-secret-1");
    tool["headers"] = json!({"X-Key": "header-secret-22"});
    let reply = respond(&gateway, &format!("say the token is {CLIENT_TOKEN}"), &[tool]);
    let shown = reply.json()["tools"][0].clone();
    assert_eq!((&shown["authorization"], &shown["headers"]), (&json!("***"), &json!({"X-Key": "***"})), "{reply:?}");
    assert_eq!(shown["server_url"], "https://wiki.test/mcp?***");
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    let stored = gateway.get(&format!("/v1/responses/{id}"));
    let runs = gateway.get("/v1/runs");
    for secret in [CLIENT_TOKEN, "header-secret-22", "query-secret-1"] {
        assert!(!format!("{stored:?}{runs:?}").contains(secret), "{secret}");
    }
    gateway.kill();
    for secret in ["header-secret-22", "query-secret-1"] {
        assert_eq!(files_with(&gateway.path("state"), secret), Vec::<String>::new());
    }
    assert!(!arguments(&gateway).contains("secret"));
}

#[test]
fn server_of_a_request_is_refused_unless_the_model_allows_its_url() {
    for (entry, url) in [
        (json!({}), "https://wiki.test/mcp"),
        (json!({"allowMcpServers": ["https://wiki.test/*"]}), "https://wiki.test.evil/mcp"),
        (json!({"allowMcpServers": ["https://wiki.test/mcp"]}), "https://wiki.test/other"),
    ] {
        let gateway = gateway(entry).start();
        let reply = respond(&gateway, "servers", &[mcp_tool(url)]);
        assert_eq!(reply.status, 400, "{reply:?}");
        let error = reply.json()["error"].clone();
        assert_eq!((&error["param"], &error["code"]), (&json!("tools[0].server_url"), &json!("invalid_value")));
        assert!(error["message"].as_str().unwrap().contains("allowMcpServers"), "{error}");
        assert!(processes(&gateway).is_empty(), "a process was started");
    }
}

#[test]
fn server_of_a_request_is_not_offered_when_the_client_forbids_tools() {
    let gateway = gateway(json!({"allowMcpServers": ["https://wiki.test/*"]})).start();
    let body =
        json!({"model": "m", "input": "servers", "tools": [mcp_tool("https://wiki.test/mcp")], "tool_choice": "none"});
    assert_eq!(output(&post(&gateway, "/v1/responses", "", &body)), "{}", "no server");
}

#[test]
fn model_that_cannot_have_servers_ignores_or_refuses_them() {
    for (strict, status) in [(false, 200), (true, 400)] {
        let model = json!({"driver": "text", "command": "sh", "args": ["-c", "cat >/dev/null; echo hi"], "strictParameters": strict});
        let gateway = TestGateway::new().model("m", model).start();
        let reply = respond(&gateway, "hello", &[mcp_tool("https://wiki.test/mcp")]);
        assert_eq!(reply.status, status, "{reply:?}");
        let body = reply.json();
        let named = if strict { &body["error"]["message"] } else { &body["trunkline"]["ignored"] }.to_string();
        assert!(named.contains("tools[0] (mcp)"), "{named}");
    }
}

#[test]
fn gemini_gets_the_servers_in_its_session_and_rules_that_allow_them() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/client_tools/fake_gemini.py");
    let script = format!("PATH=/usr/bin:/bin:$PATH; exec python3 '{program}' \"$@\"");
    let mut servers = docs();
    servers["docs"]["allowedTools"] = json!(["search"]);
    let gateway = TestGateway::new()
        .cli("gemini", &script)
        .model("m", json!({"driver": "gemini", "mcpServers": servers}))
        .env("DOCS_TOKEN", TOKEN)
        .args(&["--grace", "500ms"])
        .start();
    let reply = gateway.chat("servers").send();
    let rules = [
        "mcpName = \"client\"",
        "toolName = \"*\"",
        "mcpName = \"client\"",
        "toolName = \"*\"",
        "mcpName = \"*\"",
        "toolName = \"*\"",
        "mcpName = \"docs\"",
        "toolName = [\"search\"]",
        "mcpName = \"docs\"",
        "toolName = \"*\"",
        "mcpName = \"*\"",
        "toolName = \"*\"",
    ];
    let expected = json!([["docs"], rules, "session/new"]);
    assert_eq!(serde_json::from_str::<Value>(&reply.content()).unwrap(), expected);
}

#[test]
fn check_names_the_variable_of_a_server_that_is_not_set() {
    let gateway = gateway(json!({"mcpServers": docs()}));
    let checked = gateway.run(&["check"]);
    assert_eq!(checked.code, Some(3), "{checked:?}");
    let message = format!("{}{}", checked.stdout, checked.stderr);
    assert!(message.contains("mcpServers.docs") && message.contains("DOCS_TOKEN"), "{message}");
}
