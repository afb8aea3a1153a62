//! The client's functions, as chat completions have them.

use serde::Deserialize;
use serde_json::Value;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::missing;

use super::contents::OneOrMany;
use super::schema::json_schema;
use crate::dialect::functions::{choice, function as function_tool};

/// Maximum number of functions in a request.
const MAX_FUNCTIONS: usize = 4096;

/// A group of functions. Tools that Google runs, such as its search, have other members and do not exist here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tool {
    #[serde(alias = "function_declarations")]
    function_declarations: Option<OneOrMany<Function, MAX_FUNCTIONS>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Function {
    name: Option<String>,
    description: Option<Value>,
    parameters: Option<Value>,
    #[serde(alias = "parameters_json_schema")]
    parameters_json_schema: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig {
    #[serde(alias = "function_calling_config")]
    function_calling_config: Option<Object<FunctionCallingConfig>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCallingConfig {
    mode: Option<String>,
    #[serde(alias = "allowed_function_names")]
    allowed_function_names: Option<Vec<String>>,
}

impl ToolConfig {
    /// Whether, and which, function the model has to call.
    pub(super) fn for_chat(&self) -> Option<Value> {
        let config = &self.function_calling_config.as_ref()?.0;
        match (config.mode.as_deref()?, config.allowed_function_names.as_deref().unwrap_or_default()) {
            ("ANY" | "any", [only]) => Some(choice(&only.as_str().into())),
            ("ANY" | "any", _) => Some("required".into()),
            ("NONE" | "none", _) => Some("none".into()),
            _ => Some("auto".into()),
        }
    }
}

/// The functions of all tools, or an error that names one without a name.
pub(super) fn for_chat(tools: Vec<Tool>) -> Result<Option<Value>, ApiError> {
    let mut functions = Vec::new();
    for (index, tool) in tools.into_iter().enumerate() {
        let declared = tool.function_declarations.map(|declared| declared.0).unwrap_or_default();
        for (number, function) in declared.into_iter().enumerate() {
            let name = function.name.filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| missing(&format!("tools[{index}].functionDeclarations[{number}].name")))?;
            let parameters = function.parameters_json_schema.or_else(|| function.parameters.map(json_schema));
            functions.push(function_tool(name, [("description", function.description), ("parameters", parameters)]));
        }
    }
    Ok((!functions.is_empty()).then_some(functions.into()))
}
