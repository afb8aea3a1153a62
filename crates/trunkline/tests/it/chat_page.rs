//! The chat page's endpoints with the real binary: the frames a simple client receives, and cleanup of its runs.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

const COOKIE: &str = "cookie: trunkline_chat=0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"]).start()
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> PendingReply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{COOKIE}\r\n");
    send_raw(address, &format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// Sends a chat message.
fn send(gateway: &TestGateway, message: &str) -> PendingReply {
    post(gateway, "/chat", &json!({"message": message, "model": "m"}))
}

/// The conversation as the page loads it.
fn conversation(gateway: &TestGateway) -> Value {
    let address = gateway.address();
    let request = format!("GET /chat HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{COOKIE}\r\n\r\n");
    send_raw(address, &request).finish().json()
}

/// The names of all frames.
fn frame_names(reply: &Reply) -> Vec<&str> {
    reply.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

#[test]
fn recorded_tool_use_becomes_page_frames() {
    let gateway = TestGateway::new()
        .cli("claude", "note \"$@\"; replay claude/tool_streamjson_partial")
        .model("m", json!({"driver": "claude"}))
        .start();
    let reply = send(&gateway, "run it").finish();
    let names = frame_names(&reply);
    assert_eq!((names.iter().filter(|name| **name == "tool").count(), names.last()), (1, Some(&"done")), "{reply:?}");
    let tool = reply.body.split("\n\n").find_map(|frame| frame.strip_prefix("event: tool\ndata: ")).unwrap();
    let tool: Value = serde_json::from_str(tool).unwrap();
    assert!(tool["name"].is_string() && tool["input"].is_object(), "{tool}");
    assert_eq!(tool["input"], tool["args"]);
    send(&gateway, "and again").finish();
    assert!(gateway.argv("claude").contains(&"--resume".to_owned()), "the second message resumes the session");
}

#[test]
fn cli_is_stopped_when_user_stops_or_client_disconnects() {
    let script = "sleep 1000 & tell tool $!; tell pid $$; codex_says half; wait";
    for stop in [true, false] {
        let gateway = gateway(script);
        let mut answer = send(&gateway, "work");
        answer.read_until("half");
        let pids = ["pid", "tool"].map(|name| gateway.wait_for_pid(name));
        if stop {
            assert_eq!(post(&gateway, "/stop", &json!({})).finish().json(), json!({"status": "ok"}));
            assert!(answer.finish().body.ends_with("event: done\ndata: {\"interrupted\":true}\n\n"));
        } else {
            drop(answer);
        }
        until_gone(&pids);
        crate::observe::until("the answer is over", || conversation(&gateway)["running"] == false);
        assert_eq!(conversation(&gateway)["items"][2]["type"], "interrupted");
    }
}

#[test]
fn conversation_is_kept_when_gateway_is_killed() {
    let mut gateway = gateway("codex_answers done");
    send(&gateway, "hello").finish();
    let folder = gateway.path("state/chats");
    let is_stored = || {
        let mut files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        files.any(|file| std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains("done")))
    };
    crate::observe::until("the conversation is on disk", is_stored);
    let before = conversation(&gateway);
    gateway.signal(Signal::KILL);
    gateway.wait_for_exit();
    gateway.restart();
    assert_eq!(conversation(&gateway), before);
}

#[test]
fn stream_has_an_error_frame_when_cli_is_not_installed() {
    let gateway = TestGateway::new()
        .cli("codex", "note \"$@\"; codex_answers done")
        .model("m", json!({"driver": "gemini"}))
        .model("there", json!({"driver": "codex"}))
        .start();
    let reply = send(&gateway, "hello").finish();
    assert_eq!((reply.status, frame_names(&reply)), (200, vec!["error", "done"]), "{reply:?}");
    assert!(reply.body.contains("\"code\":\"not_found\""), "{reply:?}");
    assert_eq!(conversation(&gateway)["items"][1]["code"], "not_found");
    post(&gateway, "/chat", &json!({"message": "again", "model": "there"})).finish();
    assert_eq!(
        gateway.read_note("codex.stdin"),
        "--- USER TASK ---\nagain",
        "the failed message is not part of the history"
    );
}
