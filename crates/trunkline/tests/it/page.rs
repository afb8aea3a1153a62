//! The chat page's endpoints with the real binary: what a simple client sees, and what is left of its runs.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

const ME: &str = "cookie: trunkline_chat=0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"]).start()
}

fn post(gateway: &TestGateway, path: &str, body: &Value) -> PendingReply {
    let (address, body) = (gateway.address(), body.to_string());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{ME}\r\n");
    send_raw(address, &format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

fn say(gateway: &TestGateway, message: &str) -> PendingReply {
    post(gateway, "/chat", &json!({"message": message, "model": "m"}))
}

fn shown(gateway: &TestGateway) -> Value {
    let address = gateway.address();
    let request = format!("GET /chat HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{ME}\r\n\r\n");
    send_raw(address, &request).finish().json()
}

fn names(reply: &Reply) -> Vec<&str> {
    reply.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

#[test]
fn a_recorded_tool_is_told_in_the_pages_words() {
    let gateway = TestGateway::new()
        .cli("claude", "note \"$@\"; replay claude/tool_streamjson_partial")
        .model("m", json!({"driver": "claude"}))
        .start();
    let reply = say(&gateway, "run it").finish();
    let told = names(&reply);
    assert_eq!((told.iter().filter(|name| **name == "tool").count(), told.last()), (1, Some(&"done")), "{reply:?}");
    let tool = reply.body.split("\n\n").find_map(|frame| frame.strip_prefix("event: tool\ndata: ")).unwrap();
    let tool: Value = serde_json::from_str(tool).unwrap();
    assert!(tool["name"].is_string() && tool["input"].is_object(), "{tool}");
    assert_eq!(tool["input"], tool["args"]);
    say(&gateway, "and again").finish();
    assert!(gateway.argv("claude").contains(&"--resume".to_owned()), "it goes on with its session");
}

#[test]
fn whoever_stops_or_hangs_up_stops_the_cli() {
    let script = "sleep 1000 & tell tool $!; tell pid $$; codex_says half; wait";
    for stop in [true, false] {
        let gateway = gateway(script);
        let mut talk = say(&gateway, "work");
        talk.read_until("half");
        let family = ["pid", "tool"].map(|name| gateway.wait_for_pid(name));
        if stop {
            assert_eq!(post(&gateway, "/stop", &json!({})).finish().json(), json!({"status": "ok"}));
            assert!(talk.finish().body.ends_with("event: done\ndata: {\"interrupted\":true}\n\n"));
        } else {
            drop(talk);
        }
        until_gone(&family);
        crate::observe::until("the answer is over", || shown(&gateway)["running"] == false);
        assert_eq!(shown(&gateway)["items"][2]["type"], "interrupted");
    }
}

#[test]
fn a_conversation_outlives_a_killed_gateway() {
    let mut gateway = gateway("codex_answers done");
    say(&gateway, "hello").finish();
    let folder = gateway.path("state/chats");
    let is_kept = || {
        let mut files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        files.any(|file| std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains("done")))
    };
    crate::observe::until("it is on disk", is_kept);
    let before = shown(&gateway);
    gateway.signal(Signal::KILL);
    gateway.wait_for_exit();
    gateway.restart();
    assert_eq!(shown(&gateway), before);
}

#[test]
fn a_cli_that_is_not_there_is_told_in_the_stream() {
    let gateway = TestGateway::new()
        .cli("codex", "note \"$@\"; codex_answers done")
        .model("m", json!({"driver": "gemini"}))
        .model("there", json!({"driver": "codex"}))
        .start();
    let reply = say(&gateway, "hello").finish();
    assert_eq!((reply.status, names(&reply)), (200, vec!["error", "done"]), "{reply:?}");
    assert!(reply.body.contains("\"code\":\"not_found\""), "{reply:?}");
    assert_eq!(shown(&gateway)["items"][1]["code"], "not_found");
    post(&gateway, "/chat", &json!({"message": "again", "model": "there"})).finish();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nagain", "what nobody heard was not said");
}
