//! OpenAI chat completions.

use serde_json::{Value, json};
use trunkline_wire::sse;

use super::exchange::{MockReply, MockRequest, frame, halves, is_true, message_entry, model, required_list, texts};
use crate::history::{HistoryEntry, MockHistory};
use crate::tools::{CallArguments, MockCall, OfferedTool, ToolInput};

/// The only model of the mock. Responses name it, whatever model was requested.
pub(crate) const MODEL: &str = "mock-model";

pub(super) fn parse(body: &Value) -> Result<MockRequest, String> {
    let mut entries = Vec::new();
    for message in required_list(body, "messages")? {
        let texts = texts(&message["content"]);
        match message["role"].as_str().unwrap_or_default() {
            "tool" | "function" => entries.push(HistoryEntry::Result(texts)),
            role => entries.push(message_entry(role, texts)),
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        entries.extend(calls.filter_map(|call| call["id"].as_str()).map(|id| HistoryEntry::Call(id.to_owned())));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    Ok(MockRequest {
        history: MockHistory(entries),
        tools: tools.filter_map(offered_tool).collect(),
        model: model(body),
        stream: is_true(&body["stream"]),
        include_usage: is_true(&body["stream_options"]["include_usage"]),
    })
}

fn offered_tool(tool: &Value) -> Option<OfferedTool> {
    let function = &tool["function"];
    let name = function["name"].as_str()?.to_owned();
    Some(OfferedTool { name, input: ToolInput::Object(function["parameters"].clone()) })
}

pub(super) fn whole(reply: &MockReply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text});
    if !reply.calls.is_empty() {
        message["tool_calls"] = reply.calls.iter().map(|call| call_json(call, arguments(call))).collect();
    }
    json!({
        "id": id(reply),
        "object": "chat.completion",
        "created": reply.created,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reply)}],
        "usage": usage(reply),
    })
}

pub(super) fn events(reply: &MockReply) -> Vec<Vec<u8>> {
    let mut deltas =
        vec![json!({"role": "assistant", "content": if reply.text.is_some() { json!("") } else { json!(null) }})];
    deltas.extend(reply.words().map(|word| json!({"content": word})));
    for (index, call) in reply.calls.iter().enumerate() {
        let mut first = call_json(call, "");
        first["index"] = json!(index);
        deltas.push(json!({"tool_calls": [first]}));
        let pieces = halves(arguments(call));
        deltas.extend(pieces.map(|piece| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})));
    }
    let choice = |delta: Value, finish: Option<&str>| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    let mut chunks: Vec<Value> = deltas.into_iter().map(|delta| chunk(reply, choice(delta, None))).collect();
    chunks.push(chunk(reply, choice(json!({}), Some(finish_reason(reply)))));
    if reply.include_usage {
        let mut last = chunk(reply, json!([]));
        last["usage"] = usage(reply);
        chunks.push(last);
    }
    let mut frames: Vec<Vec<u8>> = chunks.iter().map(|chunk| frame(None, chunk)).collect();
    frames.push(sse::DONE.to_vec());
    frames
}

fn chunk(reply: &MockReply, choices: Value) -> Value {
    let mut chunk = json!({
        "id": id(reply),
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": MODEL,
        "choices": choices,
    });
    if reply.include_usage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

fn id(reply: &MockReply) -> String {
    format!("mock-{}", reply.id)
}

fn call_json(call: &MockCall, arguments: &str) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

fn arguments(call: &MockCall) -> &str {
    match &call.arguments {
        CallArguments::Json(text) | CallArguments::Freeform(text) => text,
    }
}

fn finish_reason(reply: &MockReply) -> &'static str {
    if reply.calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(reply: &MockReply) -> Value {
    json!({
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.total_tokens(),
        "prompt_tokens_details": {"cached_tokens": 0},
    })
}
