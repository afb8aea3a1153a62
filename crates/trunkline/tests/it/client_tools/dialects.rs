//! The same call and result in every API dialect.

use serde_json::json;

use super::*;

const PROMPT: &str = r#"call weather {"city": "Rom"}"#;

fn schema() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}})
}

#[test]
fn responses_api() {
    let gateway = gateway(json!({})).start();
    let tools = json!([{"type": "function", "name": "weather", "parameters": schema()}]);
    let body = json!({"model": "m", "input": PROMPT, "tools": tools});
    let first = post(&gateway, "/v1/responses", "", &body).json();
    let call = first["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    assert_eq!((call["name"].as_str(), call["arguments"].as_str()), (Some("weather"), Some(r#"{"city":"Rom"}"#)));
    let result = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}]);
    let body = json!({"model": "m", "input": result, "tools": tools, "previous_response_id": first["id"]});
    let second = post(&gateway, "/v1/responses", "", &body).json();
    let message = second["output"].as_array().unwrap().last().unwrap();
    assert_eq!(message["content"][0]["text"], r#"["sun"]"#, "{second}");
    assert_ne!(first["id"], second["id"]);
    assert_eq!(processes(&gateway).len(), 1);
}

#[test]
fn tools_that_are_no_functions_are_listed_as_ignored() {
    let gateway = gateway(json!({})).start();
    let foreign = json!({"type": "web_search"});
    let tools = json!([{"type": "function", "name": "weather", "parameters": schema()}, foreign]);
    let body = json!({"model": "m", "input": "tools", "tools": tools});
    let response = post(&gateway, "/v1/responses", "", &body).json();
    assert_eq!(response["trunkline"]["ignored"], json!(["tools[1] (web_search)"]), "{response}");
}

#[test]
fn messages_api() {
    let gateway = gateway(json!({})).start();
    let tools = json!([{"name": "weather", "input_schema": schema()}]);
    let mut messages = vec![json!({"role": "user", "content": PROMPT})];
    let ask = |messages: &[Value]| {
        let body = json!({"model": "m", "max_tokens": 99, "messages": messages, "tools": tools});
        post(&gateway, "/v1/messages", "", &body).json()
    };
    let first = ask(&messages);
    assert_eq!(first["stop_reason"], "tool_use", "{first}");
    let call = first["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
    assert_eq!((call["name"].as_str(), &call["input"]["city"]), (Some("weather"), &json!("Rom")));
    let result = json!([{"type": "tool_result", "tool_use_id": call["id"], "content": "sun"}]);
    messages.push(json!({"role": "assistant", "content": first["content"]}));
    messages.push(json!({"role": "user", "content": result}));
    let second = ask(&messages);
    assert_eq!(second["content"][0]["text"], r#"["sun"]"#, "{second}");
    assert_eq!(processes(&gateway).len(), 1);
}

#[test]
fn gemini_api() {
    let gateway = gateway(json!({})).start();
    let tools = json!([{"functionDeclarations": [{"name": "weather", "parameters": schema()}]}]);
    let mut contents = vec![json!({"role": "user", "parts": [{"text": PROMPT}]})];
    let ask = |contents: &[Value]| {
        let body = json!({"contents": contents, "tools": tools});
        post(&gateway, "/v1beta/models/m:generateContent", "", &body).json()
    };
    let first = ask(&contents);
    let content = first["candidates"][0]["content"].clone();
    let call = content["parts"].as_array().unwrap().iter().find_map(|part| part.get("functionCall")).unwrap();
    assert_eq!((call["name"].as_str(), &call["args"]["city"]), (Some("weather"), &json!("Rom")), "{first}");
    let response = json!({"name": "weather", "id": call["id"], "response": {"output": "sun"}});
    contents.extend([content, json!({"role": "user", "parts": [{"functionResponse": response}]})]);
    let second = ask(&contents);
    let text = second["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap();
    assert!(text.contains("sun"), "{second}");
    assert_eq!(processes(&gateway).len(), 1);
}

#[test]
fn ollama_api() {
    let gateway = gateway(json!({})).start();
    let mut messages = vec![json!({"role": "user", "content": PROMPT})];
    let ask = |messages: &[Value]| {
        let body = json!({"model": "m", "messages": messages, "tools": tools(), "stream": false});
        post(&gateway, "/api/chat", "", &body).json()
    };
    let first = ask(&messages)["message"].take();
    let call = &first["tool_calls"][0]["function"];
    assert_eq!((call["name"].as_str(), &call["arguments"]["city"]), (Some("weather"), &json!("Rom")), "{first}");
    messages.extend([first, json!({"role": "tool", "tool_name": "weather", "content": "sun"})]);
    let second = ask(&messages);
    assert_eq!(second["message"]["content"], r#"["sun"]"#, "{second}");
    assert_eq!(processes(&gateway).len(), 1);
}

#[test]
fn streamed_chat() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, PROMPT).with("stream", json!(true));
    let frames = dialogue.send().frames();
    let deltas: Vec<&Value> = frames
        .iter()
        .map(|frame| &frame["choices"][0]["delta"]["tool_calls"][0])
        .filter(|call| !call.is_null())
        .collect();
    let arguments: String = deltas.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!((deltas[0]["function"]["name"].as_str(), arguments.as_str()), (Some("weather"), r#"{"city":"Rom"}"#));
    let reasons: Vec<&str> = frames.iter().filter_map(|frame| frame["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons, ["tool_calls"]);
    let id = deltas[0]["id"].as_str().unwrap().to_owned();
    let call = json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}});
    dialogue.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    dialogue.result(&id, "sun");
    assert_eq!(dialogue.send().streamed_text(), r#"["sun"]"#);
}
