//! The client's tools, as chat completions have them: a function is an object inside of its tool there.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use trunkline_core::turn::RequestMember;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::missing;

use super::mcp_tools;
use crate::dialect::functions;

/// Maximum number of tools without effect that are listed, and of the length of their types.
const MAX_LISTED_TOOLS: usize = 32;
const MAX_KIND_CHARS: usize = 64;

/// Whether, and which, tool the model has to call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ToolChoice {
    Mode(String),
    Tool(Map<String, Value>),
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<Value>,
    parameters: Option<Value>,
    strict: Option<Value>,
    connector_id: Option<Value>,
}

impl ToolChoice {
    pub(super) fn for_chat(&self) -> Value {
        match self {
            Self::Mode(mode) => mode.as_str().into(),
            // A tool of an MCP server is not one of the client's functions.
            Self::Tool(tool) if tool.get("type").and_then(Value::as_str) == Some(mcp_tools::KIND) => "auto".into(),
            Self::Tool(tool) => match tool.get("name") {
                Some(name) => functions::choice(name),
                None => "auto".into(),
            },
        }
    }
}

/// Refuses tools that are not objects with a type, and functions without a name.
pub(super) fn check(tools: &[Box<RawValue>]) -> Result<(), ApiError> {
    for (index, tool) in tools.iter().enumerate() {
        let path = format!("tools[{index}]");
        let Some(tool) = parse(tool) else {
            return Err(ApiError::invalid("invalid_value", format!("`{path}` is not a tool")).about(path));
        };
        match tool.kind.as_deref() {
            None => return Err(missing(&format!("{path}.type"))),
            Some("function") if tool.name.is_none() => return Err(missing(&format!("{path}.name"))),
            Some(_) => {}
        }
    }
    Ok(())
}

/// The functions among the tools. Tools that OpenAI itself runs, such as web search, do not exist here.
pub(super) fn for_chat(tools: &[Box<RawValue>]) -> Option<Value> {
    let functions: Vec<Value> = tools.iter().filter_map(|tool| function(parse(tool)?)).collect();
    (!functions.is_empty()).then_some(functions.into())
}

/// Tools that are neither functions nor MCP servers, by their place and type: no provider gets them.
pub(super) fn without_effect(tools: &[Box<RawValue>]) -> Vec<RequestMember> {
    let parsed = tools.iter().enumerate().filter_map(|(index, tool)| Some((index, parse(tool)?)));
    let is_known = |tool: &Tool| match tool.kind.as_deref() {
        Some(mcp_tools::KIND) => tool.connector_id.is_none(),
        kind => kind == Some("function"),
    };
    let others = parsed.filter(|(_, tool)| !is_known(tool)).filter_map(|(index, tool)| Some((index, tool.kind?)));
    let named = |(index, kind): (usize, String)| {
        let kind: String = kind.chars().take(MAX_KIND_CHARS).collect();
        RequestMember { name: format!("tools[{index}] ({kind})"), option: None }
    };
    others.take(MAX_LISTED_TOOLS).map(named).collect()
}

fn function(tool: Tool) -> Option<Value> {
    if tool.kind.as_deref() != Some("function") {
        return None;
    }
    let more = [("description", tool.description), ("parameters", tool.parameters), ("strict", tool.strict)];
    Some(functions::function(tool.name?, more))
}

fn parse(tool: &RawValue) -> Option<Tool> {
    // A struct would be read from an array, too.
    serde_json::from_str(tool.get()).ok().filter(|_| tool.get().starts_with('{'))
}
