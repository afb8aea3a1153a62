//! Gemini generateContent. Model and format are in the path, not in the body.

use serde_json::{Value, json};

use super::exchange::{MockReply, MockRequest, arguments_object, message_entry, required_list, texts};
use crate::history::{HistoryEntry, MockHistory};
use crate::tools::{OfferedTool, ToolInput};

pub(super) fn parse(body: &Value) -> Result<MockRequest, String> {
    let instruction = ["systemInstruction", "system_instruction"].map(|name| &body[name]["parts"]);
    let mut entries = vec![HistoryEntry::Instructions(instruction.into_iter().flat_map(texts).collect())];
    for content in required_list(body, "contents")? {
        let parts = content["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |name: &'static str| parts.iter().map(move |part| &part[name]).filter(|part| part.is_object());
        let results: Vec<HistoryEntry> = named("functionResponse")
            .map(|result| HistoryEntry::Result(vec![result["response"].to_string()]))
            .collect();
        if results.is_empty() {
            entries.push(message_entry(content["role"].as_str().unwrap_or("user"), texts(&content["parts"])));
        }
        entries.extend(results);
        entries.extend(
            named("functionCall").filter_map(|call| call["id"].as_str()).map(|id| HistoryEntry::Call(id.to_owned())),
        );
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    let declared = tools.filter_map(|tool| tool["functionDeclarations"].as_array()).flatten();
    Ok(MockRequest {
        history: MockHistory(entries),
        tools: declared.filter_map(offered_tool).collect(),
        model: None,
        stream: false,
        include_usage: true,
    })
}

fn offered_tool(declaration: &Value) -> Option<OfferedTool> {
    let name = declaration["name"].as_str()?.to_owned();
    let schema = ["parametersJsonSchema", "parameters"].map(|key| &declaration[key]);
    let schema = schema.into_iter().find(|schema| schema.is_object()).cloned().unwrap_or_default();
    Some(OfferedTool { name, input: ToolInput::Object(schema) })
}

pub(super) fn whole(reply: &MockReply) -> Value {
    let text = reply.text.iter().map(|text| json!({"text": text}));
    last(reply, text.chain(calls(reply)).collect())
}

/// Returns the chunks of a stream: text word by word, complete calls, and the finish reason in the last chunk.
pub(super) fn chunks(reply: &MockReply) -> Vec<Value> {
    let mut parts: Vec<Value> = reply.words().map(|word| json!({"text": word})).chain(calls(reply)).collect();
    let final_part = parts.pop().unwrap_or_else(|| json!({"text": ""}));
    let mut chunks: Vec<Value> = parts.into_iter().map(|part| chunk(reply, json!([part]))).collect();
    chunks.push(last(reply, json!([final_part])));
    chunks
}

fn calls(reply: &MockReply) -> impl Iterator<Item = Value> {
    reply.calls.iter().map(
        |call| json!({"functionCall": {"id": call.id, "name": call.name, "args": arguments_object(&call.arguments)}}),
    )
}

fn chunk(reply: &MockReply, parts: Value) -> Value {
    json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "usageMetadata": {
            "promptTokenCount": reply.input_tokens,
            "candidatesTokenCount": reply.output_tokens,
            "totalTokenCount": reply.total_tokens(),
        },
        "modelVersion": reply.model,
        "responseId": format!("mock{}", reply.id),
    })
}

fn last(reply: &MockReply, parts: Value) -> Value {
    let mut chunk = chunk(reply, parts);
    // Gemini uses the same reason for answers with tool calls.
    chunk["candidates"][0]["finishReason"] = json!("STOP");
    chunk
}
