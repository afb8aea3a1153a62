//! The fake agent as a long-lived process: the part of codex's app-server protocol that a turn needs.
//!
//! In a thread with tools of the client, each turn calls the first one. Its answer is the time at which the result was read,
//! and the result.

use std::io::{BufRead, stdin};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

const THREAD: &str = "01a1dc9b-98ad-7900-b3ff-2cd667be397c";
const TURN: &str = "01a1dc9b-98ad-7900-b3ff-2cd667be397d";

/// Whether this process was started as an app-server.
pub(crate) fn is_app_server() -> bool {
    std::env::args().any(|argument| argument == "app-server")
}

/// Number of the request that calls a tool.
const TOOL_CALL: u64 = 7;

/// Answers requests until stdin ends.
pub(crate) fn serve(line: &mut impl FnMut(&str)) {
    let mut tool = None;
    for message in stdin().lock().lines() {
        let Ok(message) = message else { return };
        let read_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let Ok(message) = serde_json::from_str::<Value>(&message) else { continue };
        let Some(id) = message.get("id") else { continue };
        let Some(method) = message["method"].as_str() else {
            if id == TOOL_CALL {
                let result = message["result"]["contentItems"][0]["text"].as_str().unwrap_or_default();
                end_turn(&format!("<{read_at}>{result}"), line);
            }
            continue;
        };
        line(&json!({"id": id, "result": answer(method)}).to_string());
        match (method, &tool) {
            ("thread/start", _) => tool = first_tool(&message),
            ("turn/start", None) => end_turn("ok", line),
            ("turn/start", Some(tool)) => line(&call(tool).to_string()),
            _ => {}
        }
    }
}

fn first_tool(start: &Value) -> Option<Value> {
    start.pointer("/params/dynamicTools/0/tools/0/name").cloned()
}

fn call(tool: &Value) -> Value {
    let params = json!({"threadId": THREAD, "turnId": TURN, "callId": "call", "tool": tool, "arguments": {}});
    json!({"id": TOOL_CALL, "method": "item/tool/call", "params": params})
}

fn end_turn(text: &str, line: &mut impl FnMut(&str)) {
    for notification in turn(text) {
        line(&notification.to_string());
    }
}

fn answer(method: &str) -> Value {
    match method {
        "thread/start" | "thread/resume" => json!({"thread": {"id": THREAD}}),
        "turn/start" => json!({"turn": {"id": TURN}}),
        _ => json!({}),
    }
}

fn turn(text: &str) -> [Value; 3] {
    let params = |more: Value| {
        let mut params = json!({"threadId": THREAD, "turnId": TURN});
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        params
    };
    let used = json!({"totalTokens": 2, "inputTokens": 1, "cachedInputTokens": 0, "outputTokens": 1});
    [
        json!({"method": "item/agentMessage/delta", "params": params(json!({"itemId": "m", "delta": text}))}),
        json!({"method": "thread/tokenUsage/updated", "params": params(json!({"tokenUsage": {"total": used, "last": used}}))}),
        json!({"method": "turn/completed", "params": {"threadId": THREAD, "turn": {"id": TURN, "status": "completed"}}}),
    ]
}
