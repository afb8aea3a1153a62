//! Results of tool calls.

/// Result of a tool call, as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    pub output: String,
    pub ok: bool,
}

/// Output of a tool, or the reason why it failed. Both are texts for the model.
pub(super) type ToolResult = Result<String, String>;

impl From<ToolResult> for ToolOutcome {
    fn from(result: ToolResult) -> Self {
        match result {
            Ok(output) => Self { output, ok: true },
            Err(output) => Self { output, ok: false },
        }
    }
}
