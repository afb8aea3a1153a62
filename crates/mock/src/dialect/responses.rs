//! OpenAI responses.

use serde_json::{Value, json};

use super::{Asked, Reply, halves, is_true, list, model, said, texts};
use crate::history::{Entry, History};
use crate::tools::{Arguments, Call, Offered, Taking};

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let mut entries = vec![Entry::Instructions(texts(&body["instructions"]))];
    if let Some(text) = body["input"].as_str() {
        entries.push(Entry::User(vec![text.to_owned()]));
    } else {
        entries.extend(list(body, "input")?.iter().map(entry));
    }
    // Newer models are told of their tools among the input, sorted into namespaces.
    let items = body["input"].as_array().into_iter().flatten();
    let among_input = items.filter(|item| item["type"] == "additional_tools").map(|item| &item["tools"]);
    let mut tools = Vec::new();
    for list in [&body["tools"]].into_iter().chain(among_input) {
        offers(list, &mut tools);
    }
    Ok(Asked {
        history: History(entries),
        tools,
        model: model(body),
        streams: is_true(&body["stream"]),
        include_usage: true,
    })
}

/// One item of the input. A message need not say that it is one.
fn entry(item: &Value) -> Entry {
    match item["type"].as_str().unwrap_or("message") {
        "message" => said(item["role"].as_str().unwrap_or_default(), texts(&item["content"])),
        "function_call_output" | "custom_tool_call_output" => Entry::Result(texts(&item["output"])),
        "function_call" | "custom_tool_call" => Entry::Call(item["call_id"].as_str().unwrap_or_default().to_owned()),
        _ => Entry::Assistant(Vec::new()),
    }
}

fn offers(list: &Value, tools: &mut Vec<Offered>) {
    for tool in list.as_array().into_iter().flatten() {
        if tool["type"] == "namespace" {
            offers(&tool["tools"], tools);
        } else {
            tools.extend(offered(tool));
        }
    }
}

fn offered(tool: &Value) -> Option<Offered> {
    let name = tool["name"].as_str()?.to_owned();
    let taking = match tool["type"].as_str() {
        Some("custom") => Taking::Text,
        _ => Taking::Object(tool["parameters"].clone()),
    };
    Some(Offered { name, taking })
}

pub(super) fn whole(reply: &Reply) -> Value {
    let items: Vec<Value> = items(reply).iter().map(Item::done).collect();
    response(reply, "completed", json!(items))
}

pub(super) fn events(reply: &Reply) -> Vec<Value> {
    let opened = response(reply, "in_progress", json!([]));
    let mut events = vec![
        json!({"type": "response.created", "response": opened}),
        json!({"type": "response.in_progress", "response": opened}),
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

/// One thing the model puts out.
enum Item<'a> {
    Message { id: String, text: &'a str },
    Call { id: String, call: &'a Call },
}

fn items(reply: &Reply) -> Vec<Item<'_>> {
    let message = reply.text.iter().map(|text| Item::Message { id: format!("msg_mock{}", reply.id), text });
    let calls = reply.calls.iter().enumerate();
    let calls = calls.map(|(index, call)| Item::Call { id: format!("fc_mock{}_{index}", reply.id), call });
    message.chain(calls).collect()
}

impl Item<'_> {
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
                let (Arguments::Json(input) | Arguments::Freeform(input)) = &call.arguments;
                call_json(id, call, "completed", input)
            }
        }
    }

    fn deltas(&self, index: usize, reply: &Reply, events: &mut Vec<Value>) {
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
                    Arguments::Json(text) => ("response.function_call_arguments", "arguments", text),
                    Arguments::Freeform(text) => ("response.custom_tool_call_input", "input", text),
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

fn call_json(id: &str, call: &Call, status: &str, input: &str) -> Value {
    let (kind, key) = match &call.arguments {
        Arguments::Json(_) => ("function_call", "arguments"),
        Arguments::Freeform(_) => ("custom_tool_call", "input"),
    };
    let mut item = json!({"type": kind, "id": id, "status": status, "call_id": call.id, "name": call.name});
    item[key] = json!(input);
    item
}

fn response(reply: &Reply, status: &str, output: Value) -> Value {
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
