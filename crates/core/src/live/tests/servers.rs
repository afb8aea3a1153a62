//! MCP servers in the conversations with each CLI, and in its arguments.

use serde_json::json;

use super::*;
use crate::mcp_server::{McpServer, McpTransport};

fn docs(allowed_tools: Option<Vec<String>>) -> McpServer {
    let headers = [("Authorization".to_owned(), "Bearer t".to_owned())].into();
    McpServer {
        name: "docs".into(),
        transport: McpTransport::Http { url: "https://d.test/".into(), headers },
        allowed_tools,
    }
}

fn files() -> McpServer {
    let env = [("KEY".to_owned(), "k".to_owned())].into();
    let transport = McpTransport::Stdio { command: "serve".into(), args: vec!["-v".into()], env };
    McpServer { name: "files".into(), transport, allowed_tools: None }
}

/// The messages in some bytes.
fn messages(bytes: &[u8]) -> Vec<Value> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn hear(channel: &mut LiveChannel, message: &Value) -> Vec<Value> {
    messages(&channel.hear(format!("{message}\n").as_bytes()).reply)
}

fn greeting() -> Greeting {
    Greeting { cwd: "/repo".into(), servers: vec![docs(None)], ..Greeting::default() }
}

#[test]
fn claude_gets_all_servers_before_it_is_ready() {
    let success = |id: &str, response: Value| json!({"type": "control_response", "response": {"subtype": "success", "request_id": id, "response": response}});
    let (mut channel, _) = LiveChannel::new(LiveProtocol::Claude, greeting());
    let set = hear(&mut channel, &success("greeting", json!({})));
    let docs =
        json!({"type": "http", "url": "https://d.test/", "headers": {"Authorization": "Bearer t"}, "alwaysLoad": true});
    assert_eq!(set[0]["request"], json!({"subtype": "mcp_set_servers", "servers": {"docs": docs}}));
    assert_eq!(*channel.stage(), ChannelStage::Booting);
    hear(&mut channel, &success("offer", json!({"added": ["docs"], "errors": {}})));
    assert_eq!(*channel.stage(), ChannelStage::Ready);
    let offer = ToolOffer { servers: vec![files()], ..ToolOffer::default() };
    let offered = messages(&channel.offer(&offer).unwrap());
    let files = json!({"type": "stdio", "command": "serve", "args": ["-v"], "env": {"KEY": "k"}, "alwaysLoad": true});
    assert_eq!(
        offered[0]["request"]["servers"],
        json!({"docs": docs, "files": files}),
        "the new list replaces the old one"
    );
    hear(&mut channel, &success("offer", json!({"errors": {"files": "no such program"}})));
    assert!(matches!(channel.stage(), ChannelStage::Broken(why) if why.contains("no such program")));
}

#[test]
fn claude_may_call_only_allowed_tools_of_a_server_without_asking() {
    let servers = vec![docs(Some(vec!["search".into()]))];
    let permissions = Permissions::Read;
    let (mut channel, _) =
        LiveChannel::new(LiveProtocol::Claude, Greeting { servers, permissions, ..Greeting::default() });
    for (tool, allowed) in [
        ("mcp__docs__search", true),
        ("mcp__docs__delete", false),
        ("mcp__docs2__search", false),
        ("mcp__client__any", true),
        ("Bash", false),
    ] {
        let request = json!({"subtype": "can_use_tool", "tool_name": tool, "input": {}});
        let reply = hear(&mut channel, &json!({"type": "control_request", "request_id": "1", "request": request}));
        let behavior = &reply[0]["response"]["response"]["behavior"];
        assert_eq!(behavior, if allowed { "allow" } else { "deny" }, "{tool}");
    }
}

#[test]
fn codex_has_the_servers_in_every_thread_and_loses_those_of_the_user() {
    let servers = vec![docs(Some(vec!["search".into()]))];
    let greeting = Greeting { servers, servers_off: vec!["a.b".into()], ..greeting() };
    let (mut channel, _) = LiveChannel::new(LiveProtocol::AppServer, greeting);
    let started = hear(&mut channel, &json!({"id": 1, "result": {}}));
    let common = json!({"required": true, "omit_tools_from": ["deferred"], "default_tools_approval_mode": "approve"});
    let mut docs =
        json!({"url": "https://d.test/", "http_headers": {"Authorization": "Bearer t"}, "enabled_tools": ["search"]});
    docs.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
    let expected = json!({"mcp_servers": {"a.b": {"enabled": false}, "docs": docs}});
    assert_eq!((&started[1]["method"], &started[1]["params"]["config"]), (&json!("thread/start"), &expected));
    hear(&mut channel, &json!({"id": 2, "result": {"thread": {"id": "t1"}}}));
    let offered = messages(&channel.offer(&ToolOffer { servers: vec![files()], ..ToolOffer::default() }).unwrap());
    assert_eq!(offered[0]["params"]["config"]["mcp_servers"]["files"]["command"], "serve");
    assert_eq!(offered[0]["params"].get("dynamicTools"), None);
    hear(&mut channel, &json!({"id": 3, "result": {"thread": {"id": "t2"}}}));
    let resumed = messages(&channel.say("on", Some("t0")).unwrap());
    assert_eq!(resumed[0]["method"], "thread/resume");
    assert_eq!(resumed[0]["params"]["config"]["mcp_servers"]["docs"]["url"], "https://d.test/");
}

#[test]
fn acp_has_the_servers_in_a_new_and_in_a_loaded_session() {
    let docs = json!({"type": "http", "name": "docs", "url": "https://d.test/",
        "headers": [{"name": "Authorization", "value": "Bearer t"}]});
    let files_entry =
        json!({"name": "files", "command": "serve", "args": ["-v"], "env": [{"name": "KEY", "value": "k"}]});
    for (session, method) in [(None, "session/new"), (Some("s0".to_owned()), "session/load")] {
        let greeting = Greeting { servers: vec![self::docs(None), files()], session: session.clone(), ..greeting() };
        let (mut channel, _) = LiveChannel::new(LiveProtocol::Acp, greeting);
        let begun = hear(&mut channel, &json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        assert_eq!(begun[0]["method"], method);
        assert_eq!(begun[0]["params"]["mcpServers"], json!([docs, files_entry]));
        assert_eq!(begun[0]["params"].get("sessionId").and_then(Value::as_str), session.as_deref());
        hear(&mut channel, &json!({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s0"}}));
        let prompt = messages(&channel.say("on", None).unwrap());
        assert_eq!(prompt[0]["params"]["sessionId"], "s0");
    }
}

#[test]
fn acp_session_that_cannot_be_loaded_breaks_the_channel() {
    let (mut channel, _) = LiveChannel::new(LiveProtocol::Acp, Greeting { session: Some("s0".into()), ..greeting() });
    hear(&mut channel, &json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    hear(&mut channel, &json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -1, "message": "no such session"}}));
    assert!(matches!(channel.stage(), ChannelStage::Broken(why) if why.contains("no such session")));
}

#[test]
fn arguments_allow_the_servers_and_contain_no_secret() {
    let servers = [docs(Some(vec!["a".into(), "b".into()])), files()];
    for (provider, expected, off) in [
        (
            "claude",
            "--allowedTools=mcp__client --allowedTools=mcp__docs__a --allowedTools=mcp__docs__b --allowedTools=mcp__files",
            "--tools  --strict-mcp-config",
        ),
        ("codex", "", ""),
        (
            "gemini",
            "--policy {server-file}0 --policy {server-file}1 --policy {server-file}2",
            "--allowed-mcp-server-names client --allowed-mcp-server-names docs --allowed-mcp-server-names files",
        ),
        (
            "qwen",
            "--allowed-tools=mcp__client --allowed-tools=mcp__docs__a --allowed-tools=mcp__docs__b --allowed-tools=mcp__files",
            "--allowed-mcp-server-names=client --allowed-mcp-server-names=docs --allowed-mcp-server-names=files",
        ),
        ("opencode", "", ""),
    ] {
        let recipe = provider::built_in()[provider].live.as_ref().unwrap().tools.clone().unwrap();
        let made = recipe.server_arguments(&servers);
        assert_eq!(made.args.concat().join(" "), expected, "{provider}");
        let args = recipe.own_tools_off(&servers).concat().join(" ");
        assert!(args.ends_with(off), "{provider}: {args}");
        for file in &made.files {
            let file: toml::Table = toml::from_str(file).unwrap();
            let decisions = file["rule"].as_array().unwrap().iter().map(|rule| rule["decision"].as_str().unwrap());
            assert_eq!(decisions.collect::<Vec<_>>(), ["allow", "deny", "ask_user"], "{provider}");
        }
    }
    let opencode = provider::built_in()["opencode"].live.as_ref().unwrap().tools.clone().unwrap();
    let allowed = r#"{"*":"deny","client_*":"allow","docs_*":"allow","files_*":"allow"}"#;
    assert_eq!(opencode.own_tools_off_env(&servers)["OPENCODE_PERMISSION"], allowed);
}

#[test]
fn own_servers_of_the_user_are_found_by_name() {
    let own = OwnServers { file: "config.toml".into(), table: "mcp_servers".into() };
    let text = "model = 'x'\n[mcp_servers.lamp]\ncommand = 'a'\n[mcp_servers.lamp.env]\nA = 'b'\n[mcp_servers.'a.b']\nurl = 'u'\n";
    assert_eq!(own.names(text), ["a.b", "lamp"]);
    for text in ["", "no toml [", "mcp_servers = 7"] {
        assert_eq!(own.names(text), Vec::<String>::new());
    }
}
