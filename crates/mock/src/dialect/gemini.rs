//! Gemini generateContent. Model and form are in the path, not in the body.

use serde_json::{Value, json};

use super::{Asked, Reply, list, object, said, texts};
use crate::history::{Entry, History};
use crate::tools::{Offered, Taking};

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let instruction = ["systemInstruction", "system_instruction"].map(|name| &body[name]["parts"]);
    let mut entries = vec![Entry::Instructions(instruction.into_iter().flat_map(texts).collect())];
    for content in list(body, "contents")? {
        let parts = content["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |name: &'static str| parts.iter().map(move |part| &part[name]).filter(|part| part.is_object());
        let results: Vec<Entry> =
            named("functionResponse").map(|result| Entry::Result(vec![result["response"].to_string()])).collect();
        if results.is_empty() {
            entries.push(said(content["role"].as_str().unwrap_or("user"), texts(&content["parts"])));
        }
        entries.extend(results);
        entries
            .extend(named("functionCall").filter_map(|call| call["id"].as_str()).map(|id| Entry::Call(id.to_owned())));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    let declared = tools.filter_map(|tool| tool["functionDeclarations"].as_array()).flatten();
    Ok(Asked {
        history: History(entries),
        tools: declared.filter_map(offered).collect(),
        model: None,
        streams: false,
        include_usage: true,
    })
}

fn offered(declaration: &Value) -> Option<Offered> {
    let name = declaration["name"].as_str()?.to_owned();
    let schema = ["parametersJsonSchema", "parameters"].map(|key| &declaration[key]);
    let schema = schema.into_iter().find(|schema| schema.is_object()).cloned().unwrap_or_default();
    Some(Offered { name, taking: Taking::Object(schema) })
}

pub(super) fn whole(reply: &Reply) -> Value {
    let text = reply.text.iter().map(|text| json!({"text": text}));
    last(reply, text.chain(calls(reply)).collect())
}

/// A stream: text in pieces, calls whole, and the end in the last chunk.
pub(super) fn chunks(reply: &Reply) -> Vec<Value> {
    let mut parts: Vec<Value> = reply.words().map(|word| json!({"text": word})).chain(calls(reply)).collect();
    let final_part = parts.pop().unwrap_or_else(|| json!({"text": ""}));
    let mut chunks: Vec<Value> = parts.into_iter().map(|part| chunk(reply, json!([part]))).collect();
    chunks.push(last(reply, json!([final_part])));
    chunks
}

fn calls(reply: &Reply) -> impl Iterator<Item = Value> {
    reply
        .calls
        .iter()
        .map(|call| json!({"functionCall": {"id": call.id, "name": call.name, "args": object(&call.arguments)}}))
}

fn chunk(reply: &Reply, parts: Value) -> Value {
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

fn last(reply: &Reply, parts: Value) -> Value {
    let mut chunk = chunk(reply, parts);
    // It is also what stands at the end of an answer with calls.
    chunk["candidates"][0]["finishReason"] = json!("STOP");
    chunk
}
