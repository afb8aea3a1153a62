//! Server of the Model Context Protocol (MCP), as far as an agent CLI needs it to call a client's tools. It has no I/O: a message
//! goes in, and the answer or the call comes out.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::mcp_server::CLIENT_SERVER;
use crate::turn::Json;

/// Name of the server in the configuration of a CLI. A CLI adds it to the names of the tools.
pub const SERVER: &str = CLIENT_SERVER;

/// Protocol version for a client that does not name one.
const DEFAULT_VERSION: &str = "2025-06-18";

/// Tool of a client, under a name that every CLI accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedTool {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub schema: Json,
}

/// Message of a CLI to the server.
#[derive(Debug, Deserialize)]
struct Incoming<'a> {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
}

/// Parameters of `tools/call`.
#[derive(Debug, Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(default, rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    #[serde(default, rename = "progressToken")]
    progress_token: Option<Value>,
}

/// Meaning of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpRequest {
    /// The answer, as JSON text.
    Answered(String),
    /// A call of a tool, to be answered with [`call_result`].
    Call(McpCall),
    /// A notification, or an answer to a request that was never sent.
    Notification,
}

/// Call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCall {
    /// Id of the request.
    pub id: Value,
    pub name: String,
    /// JSON text of the arguments.
    pub arguments: String,
    /// Token for reports of progress, which keep the CLI waiting.
    pub progress_token: Option<Value>,
}

/// Reads a message. A message that is not JSON-RPC is answered with an error.
#[must_use]
pub fn receive(message: &str, tools: &[OfferedTool]) -> McpRequest {
    let Ok(incoming) = serde_json::from_str::<Incoming<'_>>(message) else {
        return McpRequest::Answered(error(&Value::Null, -32700, "not a JSON-RPC message"));
    };
    let (Some(method), Some(id)) = (incoming.method, incoming.id.filter(|id| !id.is_null())) else {
        return McpRequest::Notification;
    };
    let params = incoming.params.map_or("{}", RawValue::get);
    McpRequest::Answered(match method.as_str() {
        "initialize" => result(&id, &initialized(params)),
        "ping" => result(&id, &json!({})),
        "tools/list" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{}]}}}}"#, listed(tools)),
        "tools/call" => match serde_json::from_str::<CallParams<'_>>(params) {
            Ok(call) if tools.iter().any(|tool| tool.name == call.name) => {
                return McpRequest::Call(McpCall {
                    id,
                    name: call.name,
                    arguments: call.arguments.map_or("{}", RawValue::get).to_owned(),
                    progress_token: call.meta.and_then(|meta| meta.progress_token),
                });
            }
            Ok(call) => error(&id, -32602, &format!("there is no tool {}", call.name)),
            Err(_) => error(&id, -32602, "tools/call needs the name of a tool"),
        },
        _ => error(&id, -32601, &format!("{method} is not supported")),
    })
}

/// Answer to a call of a tool.
#[must_use]
pub fn call_result(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], "isError": false}})
}

/// Answer to a call that gets no result from the client.
#[must_use]
pub fn call_failed(id: &Value, reason: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": reason}], "isError": true}})
}

/// Notification that a call is still in progress.
#[must_use]
pub fn progress(token: &Value, count: u64) -> Value {
    let params = json!({"progressToken": token, "progress": count, "message": "waiting for the client"});
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
}

fn initialized(params: &str) -> Value {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let version = params.get("protocolVersion").and_then(Value::as_str).unwrap_or(DEFAULT_VERSION);
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER, "version": env!("CARGO_PKG_VERSION")},
    })
}

/// The tools as a list without brackets. CLIs run several calls at once, and ask for no permission, only if a tool is said to
/// read only: the gateway changes nothing, and the client decides about its own tools.
fn listed(tools: &[OfferedTool]) -> String {
    let mut text = String::new();
    for tool in tools {
        if !text.is_empty() {
            text.push(',');
        }
        let (name, description) = (Value::from(tool.name.as_str()), tool.description.as_deref().unwrap_or_default());
        let (description, schema) = (Value::from(description), tool.schema.as_str());
        text.push_str(&format!(
            r#"{{"name":{name},"description":{description},"inputSchema":{schema},"annotations":{{"readOnlyHint":true}}}}"#
        ));
    }
    text
}

fn result(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn error(id: &Value, code: i32, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<OfferedTool> {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        vec![OfferedTool {
            name: "weather".into(),
            description: Some("Says \"rain\"".into()),
            schema: (&schema).into(),
        }]
    }

    fn answer(message: &str) -> Value {
        match receive(message, &tools()) {
            McpRequest::Answered(text) => serde_json::from_str(&text).unwrap(),
            other @ (McpRequest::Call(_) | McpRequest::Notification) => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_the_tools_with_their_schemas() {
        let list = answer(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        let tool = &list["result"]["tools"][0];
        assert_eq!((tool["name"].as_str(), tool["description"].as_str()), (Some("weather"), Some("Says \"rain\"")));
        assert_eq!(tool["inputSchema"]["properties"]["city"]["type"], "string");
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
    }

    #[test]
    fn takes_over_the_version_of_the_cli() {
        for (params, version) in [(r#"{"protocolVersion":"2025-11-25"}"#, "2025-11-25"), ("{}", DEFAULT_VERSION)] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"initialize","params":{params}}}"#);
            let answer = answer(&message);
            assert_eq!((answer["result"]["protocolVersion"].as_str(), &answer["id"]), (Some(version), &json!("a")));
        }
    }

    #[test]
    fn passes_calls_of_offered_tools_on() {
        let message = r#"{"id":7,"method":"tools/call","params":{"name":"weather","arguments":{"city":"Köln"},"_meta":{"progressToken":3}}}"#;
        let McpRequest::Call(call) = receive(message, &tools()) else { panic!("not a call") };
        assert_eq!((call.id, call.name.as_str()), (json!(7), "weather"));
        assert_eq!((call.arguments.as_str(), call.progress_token), (r#"{"city":"Köln"}"#, Some(json!(3))));
    }

    #[test]
    fn answers_anything_else_with_an_error_or_not_at_all() {
        for (message, code) in [
            ("no json", -32700),
            (r#"{"id":1,"method":"server/discover"}"#, -32601),
            (r#"{"id":1,"method":"tools/call","params":{"name":"shell"}}"#, -32602),
            (r#"{"id":1,"method":"tools/call"}"#, -32602),
        ] {
            assert_eq!(answer(message)["error"]["code"], code, "{message}");
        }
        for message in [r#"{"method":"notifications/initialized"}"#, r#"{"id":1,"result":{}}"#, "{}"] {
            assert_eq!(receive(message, &tools()), McpRequest::Notification, "{message}");
        }
    }
}
