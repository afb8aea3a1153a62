//! The client's tools, as chat completions have them.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::missing;

use crate::dialect::functions;

/// Whether, and which, tool the model has to call.
#[derive(Debug, Deserialize)]
pub(super) struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    pub(super) disable_parallel_tool_use: Option<bool>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<Value>,
    input_schema: Option<Value>,
    strict: Option<Value>,
}

impl ToolChoice {
    pub(super) fn check(&self) -> Result<(), ApiError> {
        match self.kind.as_str() {
            "auto" | "any" | "none" => Ok(()),
            "tool" if self.name.is_none() => Err(missing("tool_choice.name")),
            "tool" => Ok(()),
            _ => {
                let message = "`tool_choice.type` is auto, any, tool or none";
                Err(ApiError::invalid("invalid_value", message).about("tool_choice.type"))
            }
        }
    }

    pub(super) fn for_chat(&self) -> Value {
        match (self.kind.as_str(), &self.name) {
            ("any", _) => "required".into(),
            ("none", _) => "none".into(),
            ("tool", Some(name)) => functions::choice(&name.as_str().into()),
            _ => "auto".into(),
        }
    }
}

/// Refuses tools that are not objects, and tools of the client without a name.
pub(super) fn check(tools: &[Box<RawValue>]) -> Result<(), ApiError> {
    for (index, tool) in tools.iter().enumerate() {
        let path = format!("tools[{index}]");
        match parse(tool) {
            None => return Err(ApiError::invalid("invalid_value", format!("`{path}` is not a tool")).about(path)),
            Some(tool) if tool.is_custom() && tool.name.is_none() => return Err(missing(&format!("{path}.name"))),
            Some(_) => {}
        }
    }
    Ok(())
}

/// The tools of the client. Tools that Anthropic defines, such as web search, do not exist here.
pub(super) fn for_chat(tools: &[Box<RawValue>]) -> Option<Value> {
    let functions: Vec<Value> = tools.iter().filter_map(|tool| function(parse(tool)?)).collect();
    (!functions.is_empty()).then_some(functions.into())
}

fn function(tool: Tool) -> Option<Value> {
    if !tool.is_custom() {
        return None;
    }
    let more = [("description", tool.description), ("parameters", tool.input_schema), ("strict", tool.strict)];
    Some(functions::function(tool.name?, more))
}

impl Tool {
    fn is_custom(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "custom")
    }
}

fn parse(tool: &RawValue) -> Option<Tool> {
    // A struct would be read from an array, too.
    serde_json::from_str(tool.get()).ok().filter(|_| tool.get().starts_with('{'))
}
