//! Anthropic messages.

use serde_json::{Value, json};

use super::exchange::{
    MockReply, MockRequest, arguments_object, halves, is_true, message_entry, model, required_list, texts,
};
use crate::history::{HistoryEntry, MockHistory};
use crate::tools::{OfferedTool, ToolInput};

pub(super) fn parse(body: &Value) -> Result<MockRequest, String> {
    let mut entries = vec![HistoryEntry::Instructions(texts(&body["system"]))];
    for message in required_list(body, "messages")? {
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_type = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
        let results: Vec<HistoryEntry> =
            of_type("tool_result").map(|block| HistoryEntry::Result(texts(&block["content"]))).collect();
        let calls: Vec<HistoryEntry> = of_type("tool_use")
            .filter_map(|call| call["id"].as_str())
            .map(|id| HistoryEntry::Call(id.to_owned()))
            .collect();
        if results.is_empty() {
            entries.push(message_entry(message["role"].as_str().unwrap_or_default(), texts(&message["content"])));
        }
        // Text next to a tool result belongs to the result: it does not start a new turn.
        entries.extend(results);
        entries.extend(calls);
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    Ok(MockRequest {
        history: MockHistory(entries),
        tools: tools.filter_map(offered_tool).collect(),
        model: model(body),
        stream: is_true(&body["stream"]),
        include_usage: true,
    })
}

fn offered_tool(tool: &Value) -> Option<OfferedTool> {
    let name = tool["name"].as_str()?.to_owned();
    Some(OfferedTool { name, input: ToolInput::Object(tool["input_schema"].clone()) })
}

pub(super) fn whole(reply: &MockReply) -> Value {
    let text = reply.text.iter().map(|text| json!({"type": "text", "text": text}));
    let calls = reply
        .calls
        .iter()
        .map(|call| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(&call.arguments)}));
    let mut message = message(reply, reply.output_tokens);
    message["content"] = text.chain(calls).collect();
    message["stop_reason"] = json!(stop_reason(reply));
    message
}

pub(super) fn events(reply: &MockReply) -> Vec<Value> {
    // The first event reports one output token, because the others are not generated yet.
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
        let input = arguments_object(&call.arguments).to_string();
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

/// Returns a message without content.
fn message(reply: &MockReply, output_tokens: u64) -> Value {
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

fn stop_reason(reply: &MockReply) -> &'static str {
    if reply.calls.is_empty() { "end_turn" } else { "tool_use" }
}
