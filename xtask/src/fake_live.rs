//! The fake agent as a long-lived process: the part of codex's app-server protocol that a turn needs.

use std::io::{BufRead, stdin};

use serde_json::{Value, json};

const THREAD: &str = "01a1dc9b-98ad-7900-b3ff-2cd667be397c";
const TURN: &str = "01a1dc9b-98ad-7900-b3ff-2cd667be397d";

/// Whether this process was started as an app-server.
pub(crate) fn is_app_server() -> bool {
    std::env::args().any(|argument| argument == "app-server")
}

/// Answers requests until stdin ends.
pub(crate) fn serve(line: &mut impl FnMut(&str)) {
    for message in stdin().lock().lines() {
        let Ok(message) = message else { return };
        let Ok(message) = serde_json::from_str::<Value>(&message) else { continue };
        let Some(id) = message.get("id") else { continue };
        let method = message["method"].as_str().unwrap_or_default();
        line(&json!({"id": id, "result": answer(method)}).to_string());
        if method == "turn/start" {
            for notification in turn() {
                line(&notification.to_string());
            }
        }
    }
}

fn answer(method: &str) -> Value {
    match method {
        "thread/start" | "thread/resume" => json!({"thread": {"id": THREAD}}),
        "turn/start" => json!({"turn": {"id": TURN}}),
        _ => json!({}),
    }
}

fn turn() -> [Value; 3] {
    let params = |more: Value| {
        let mut params = json!({"threadId": THREAD, "turnId": TURN});
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        params
    };
    let used = json!({"totalTokens": 2, "inputTokens": 1, "cachedInputTokens": 0, "outputTokens": 1});
    [
        json!({"method": "item/agentMessage/delta", "params": params(json!({"itemId": "m", "delta": "ok"}))}),
        json!({"method": "thread/tokenUsage/updated", "params": params(json!({"tokenUsage": {"total": used, "last": used}}))}),
        json!({"method": "turn/completed", "params": {"threadId": THREAD, "turn": {"id": TURN, "status": "completed"}}}),
    ]
}
