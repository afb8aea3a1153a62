//! Tools of the client, which the agent offers to its model beside its own.

use std::pin::Pin;

use serde_json::{Value, json};
use trunkline_core::mcp::{OfferedTool, SERVER};

/// Tools that the client of the turn runs.
pub trait ClientToolbox: Send + Sync {
    fn tools(&self) -> &[OfferedTool];

    /// Calls a tool and waits for its result. An error is the reason why there is none.
    fn call(&self, name: &str, arguments: &str) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send + '_>>;
}

/// Name under which the model sees a tool: another one if the agent has a tool with that name.
fn shown_name(tool: &OfferedTool, own: &[&str]) -> String {
    if own.contains(&tool.name.as_str()) { format!("{SERVER}_{}", tool.name) } else { tool.name.clone() }
}

/// Definitions of the client's tools in OpenAI's format.
pub(super) fn definitions(tools: &dyn ClientToolbox, own: &[&str]) -> Vec<Value> {
    let definition = |tool: &OfferedTool| {
        let parameters: Value = serde_json::from_str(tool.schema.as_str()).unwrap_or_default();
        let description = tool.description.as_deref().unwrap_or_default();
        let function = json!({"name": shown_name(tool, own), "description": description, "parameters": parameters});
        json!({"type": "function", "function": function})
    };
    tools.tools().iter().map(definition).collect()
}

/// The client's name of a tool that the model calls. `None` if it is not one of the client's.
pub(super) fn offered_name<'a>(tools: &'a dyn ClientToolbox, own: &[&str], called: &str) -> Option<&'a str> {
    tools.tools().iter().find(|tool| shown_name(tool, own) == called).map(|tool| tool.name.as_str())
}
