//! Anthropic messages.

use serde_json::{Value, json};

use super::{Asked, Reply, halves, is_true, list, model, object, said, texts};
use crate::history::{Entry, History};
use crate::tools::{Offered, Taking};

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let mut entries = vec![Entry::Instructions(texts(&body["system"]))];
    for message in list(body, "messages")? {
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_type = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
        let results: Vec<Entry> = of_type("tool_result").map(|block| Entry::Result(texts(&block["content"]))).collect();
        let calls: Vec<Entry> =
            of_type("tool_use").filter_map(|call| call["id"].as_str()).map(|id| Entry::Call(id.to_owned())).collect();
        if results.is_empty() {
            entries.push(said(message["role"].as_str().unwrap_or_default(), texts(&message["content"])));
        }
        // Words beside a result belong to it: they do not begin a new turn.
        entries.extend(results);
        entries.extend(calls);
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    Ok(Asked {
        history: History(entries),
        tools: tools.filter_map(offered).collect(),
        model: model(body),
        streams: is_true(&body["stream"]),
        include_usage: true,
    })
}

fn offered(tool: &Value) -> Option<Offered> {
    let name = tool["name"].as_str()?.to_owned();
    Some(Offered { name, taking: Taking::Object(tool["input_schema"].clone()) })
}

pub(super) fn whole(reply: &Reply) -> Value {
    let text = reply.text.iter().map(|text| json!({"type": "text", "text": text}));
    let calls = reply
        .calls
        .iter()
        .map(|call| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": object(&call.arguments)}));
    let mut message = message(reply, reply.output_tokens);
    message["content"] = text.chain(calls).collect();
    message["stop_reason"] = json!(stop_reason(reply));
    message
}

pub(super) fn events(reply: &Reply) -> Vec<Value> {
    // The first count is of a single token: the others are still to come.
    let mut events = vec![json!({"type": "message_start", "message": message(reply, 1)}), json!({"type": "ping"})];
    let mut block = |start: Value, deltas: Vec<Value>, index: usize| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let deltas = deltas.into_iter();
        events.extend(deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
    };
    if reply.text.is_some() {
        let words = reply.words().map(|word| json!({"type": "text_delta", "text": word})).collect();
        block(json!({"type": "text", "text": ""}), words, 0);
    }
    for (index, call) in reply.calls.iter().enumerate() {
        let input = object(&call.arguments).to_string();
        let pieces = halves(&input).map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        block(start, pieces, index + usize::from(reply.text.is_some()));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(reply), "stop_sequence": null},
        "usage": {"output_tokens": reply.output_tokens},
    }));
    events.push(json!({"type": "message_stop"}));
    events
}

/// A message before anything is said.
fn message(reply: &Reply, output_tokens: u64) -> Value {
    json!({
        "id": format!("msg_mock{}", reply.id),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": reply.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output_tokens,
        },
    })
}

fn stop_reason(reply: &Reply) -> &'static str {
    if reply.calls.is_empty() { "end_turn" } else { "tool_use" }
}
