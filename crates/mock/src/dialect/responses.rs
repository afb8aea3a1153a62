//! OpenAI responses.

use serde_json::{Value, json};

use super::exchange::{MockReply, MockRequest, halves, is_true, message_entry, model, required_list, texts};
use crate::history::{HistoryEntry, MockHistory};
use crate::tools::{CallArguments, MockCall, OfferedTool, ToolInput};

pub(super) fn parse(body: &Value) -> Result<MockRequest, String> {
    let mut entries = vec![HistoryEntry::Instructions(texts(&body["instructions"]))];
    if let Some(text) = body["input"].as_str() {
        entries.push(HistoryEntry::User(vec![text.to_owned()]));
    } else {
        entries.extend(required_list(body, "input")?.iter().map(entry));
    }
    // For newer models Codex sends tools as items of the input, grouped into namespaces.
    let items = body["input"].as_array().into_iter().flatten();
    let among_input = items.filter(|item| item["type"] == "additional_tools").map(|item| &item["tools"]);
    let mut tools = Vec::new();
    for list in [&body["tools"]].into_iter().chain(among_input) {
        collect_tools(list, &mut tools);
    }
    Ok(MockRequest {
        history: MockHistory(entries),
        tools,
        model: model(body),
        stream: is_true(&body["stream"]),
        include_usage: true,
    })
}

/// Parses one item of the input. An item without a type is a message.
fn entry(item: &Value) -> HistoryEntry {
    match item["type"].as_str().unwrap_or("message") {
        "message" => message_entry(item["role"].as_str().unwrap_or_default(), texts(&item["content"])),
        "function_call_output" | "custom_tool_call_output" => HistoryEntry::Result(texts(&item["output"])),
        "function_call" | "custom_tool_call" => {
            HistoryEntry::Call(item["call_id"].as_str().unwrap_or_default().to_owned())
        }
        _ => HistoryEntry::Assistant(Vec::new()),
    }
}

/// Namespace of tools that are called without one.
const DEFAULT_NAMESPACE: &str = "functions";

/// Collects tools from a list that can contain namespaces. A tool in a namespace gets the name `namespace/tool`.
fn collect_tools(list: &Value, tools: &mut Vec<OfferedTool>) {
    for tool in list.as_array().into_iter().flatten() {
        if tool["type"] == "namespace" {
            let before = tools.len();
            collect_tools(&tool["tools"], tools);
            let namespace = tool["name"].as_str().unwrap_or(DEFAULT_NAMESPACE);
            for tool in tools[before..].iter_mut().filter(|_| namespace != DEFAULT_NAMESPACE) {
                tool.name = format!("{namespace}/{}", tool.name);
            }
        } else {
            tools.extend(offered_tool(tool));
        }
    }
}

fn offered_tool(tool: &Value) -> Option<OfferedTool> {
    let name = tool["name"].as_str()?.to_owned();
    let input = match tool["type"].as_str() {
        Some("custom") => ToolInput::Text,
        _ => ToolInput::Object(tool["parameters"].clone()),
    };
    Some(OfferedTool { name, input })
}

pub(super) fn whole(reply: &MockReply) -> Value {
    let items: Vec<Value> = items(reply).iter().map(OutputItem::done).collect();
    response(reply, "completed", json!(items))
}

pub(super) fn events(reply: &MockReply) -> Vec<Value> {
    let started = response(reply, "in_progress", json!([]));
    let mut events = vec![
        json!({"type": "response.created", "response": started}),
        json!({"type": "response.in_progress", "response": started}),
    ];
    for (index, item) in items(reply).iter().enumerate() {
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item.added()}));
        item.deltas(index, reply, &mut events);
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item.done()}));
    }
    events.push(json!({"type": "response.completed", "response": whole(reply)}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events
}

/// Output item of the model.
enum OutputItem<'a> {
    Message { id: String, text: &'a str },
    Call { id: String, call: &'a MockCall },
}

fn items(reply: &MockReply) -> Vec<OutputItem<'_>> {
    let message = reply.text.iter().map(|text| OutputItem::Message { id: format!("msg_mock{}", reply.id), text });
    let calls = reply.calls.iter().enumerate();
    let calls = calls.map(|(index, call)| OutputItem::Call { id: format!("fc_mock{}_{index}", reply.id), call });
    message.chain(calls).collect()
}

impl OutputItem<'_> {
    fn added(&self) -> Value {
        match self {
            Self::Message { id, .. } => {
                json!({"type": "message", "id": id, "status": "in_progress", "role": "assistant", "content": []})
            }
            Self::Call { id, call } => call_json(id, call, "in_progress", ""),
        }
    }

    fn done(&self) -> Value {
        match self {
            Self::Message { id, text } => json!({
                "type": "message", "id": id, "status": "completed", "role": "assistant", "content": [part(text)],
            }),
            Self::Call { id, call } => {
                let (CallArguments::Json(input) | CallArguments::Freeform(input)) = &call.arguments;
                call_json(id, call, "completed", input)
            }
        }
    }

    fn deltas(&self, index: usize, reply: &MockReply, events: &mut Vec<Value>) {
        match self {
            Self::Message { id, text } => {
                let about =
                    |kind: &str| json!({"type": kind, "item_id": id, "output_index": index, "content_index": 0});
                let with = |kind: &str, key: &str, value: Value| {
                    let mut event = about(kind);
                    event[key] = value;
                    event
                };
                events.push(with("response.content_part.added", "part", part("")));
                for word in reply.words() {
                    let mut event = with("response.output_text.delta", "delta", json!(word));
                    event["logprobs"] = json!([]);
                    events.push(event);
                }
                let mut event = with("response.output_text.done", "text", json!(text));
                event["logprobs"] = json!([]);
                events.push(event);
                events.push(with("response.content_part.done", "part", part(text)));
            }
            Self::Call { id, call } => {
                let (kind, whole, input) = match &call.arguments {
                    CallArguments::Json(text) => ("response.function_call_arguments", "arguments", text),
                    CallArguments::Freeform(text) => ("response.custom_tool_call_input", "input", text),
                };
                for piece in halves(input) {
                    events.push(
                        json!({"type": format!("{kind}.delta"), "item_id": id, "output_index": index, "delta": piece}),
                    );
                }
                let mut done = json!({"type": format!("{kind}.done"), "item_id": id, "output_index": index});
                done[whole] = json!(input);
                if whole == "arguments" {
                    done["name"] = json!(call.name);
                }
                events.push(done);
            }
        }
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn call_json(id: &str, call: &MockCall, status: &str, input: &str) -> Value {
    let (kind, key) = match &call.arguments {
        CallArguments::Json(_) => ("function_call", "arguments"),
        CallArguments::Freeform(_) => ("custom_tool_call", "input"),
    };
    let (namespace, name) = match call.name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, call.name.as_str()),
    };
    let mut item = json!({"type": kind, "id": id, "status": status, "call_id": call.id, "name": name});
    if let Some(namespace) = namespace {
        item["namespace"] = json!(namespace);
    }
    item[key] = json!(input);
    item
}

fn response(reply: &MockReply, status: &str, output: Value) -> Value {
    let usage = (status == "completed").then(|| {
        json!({
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.total_tokens(),
        })
    });
    json!({
        "id": format!("resp_mock{}", reply.id),
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    })
}
