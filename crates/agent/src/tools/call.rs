//! Definitions of the tools, and parsing of tool calls. Pure.

use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::{RawValue, to_raw_value};
use trunkline_core::near::near;
use trunkline_core::turn::Json;
use trunkline_core::vocabulary::Permissions;

/// Definitions of the tools, in the order of [`AgentTool::ALL`]. They are kept as text to preserve the order of the
/// arguments, in which a model writes them.
const DEFINITIONS: &str = include_str!("definitions.json");

/// A tool call with valid arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolRequest {
    Read { path: String },
    Write { path: String, content: String },
    Edit { path: String, old: String, new: String },
    Bash { command: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentTool {
    ReadFile,
    WriteFile,
    EditFile,
    Bash,
}

/// Tools that may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllowedTools<'a> {
    pub(super) permissions: Permissions,
    /// Restricts the tools to these names; all if empty.
    pub(super) only: &'a [String],
}

/// Definitions of the allowed tools; `None` if there are none.
pub(super) fn definitions(allowed: AllowedTools<'_>) -> Option<Json> {
    let all: Vec<&RawValue> = serde_json::from_str(DEFINITIONS).expect("the definitions are valid JSON");
    let offered = all.into_iter().zip(AgentTool::ALL).filter(|(_, tool)| tool.is_allowed(allowed));
    let offered: Vec<&RawValue> = offered.map(|(definition, _)| definition).collect();
    (!offered.is_empty()).then(|| to_raw_value(&offered).expect("a list of JSON values serializes").into())
}

/// Names of the allowed tools.
pub(super) fn names(allowed: AllowedTools<'_>) -> Vec<&'static str> {
    AgentTool::ALL.into_iter().filter(|tool| tool.is_allowed(allowed)).map(AgentTool::name).collect()
}

/// Parses a call. The error describes what is wrong with it.
pub(super) fn parse(name: &str, arguments: &str, allowed: AllowedTools<'_>) -> Result<ToolRequest, String> {
    let tool = AgentTool::named(name, allowed)?;
    Ok(match tool {
        AgentTool::ReadFile => {
            let [path] = strings(name, arguments, ["path"])?;
            ToolRequest::Read { path }
        }
        AgentTool::WriteFile => {
            let [path, content] = strings(name, arguments, ["path", "content"])?;
            ToolRequest::Write { path, content }
        }
        AgentTool::EditFile => {
            let [path, old, new] = strings(name, arguments, ["path", "old_string", "new_string"])?;
            ToolRequest::Edit { path, old, new }
        }
        AgentTool::Bash => {
            let [command] = strings(name, arguments, ["command"])?;
            ToolRequest::Bash { command }
        }
    })
}

impl AgentTool {
    const ALL: [Self; 4] = [Self::ReadFile, Self::WriteFile, Self::EditFile, Self::Bash];

    const fn name(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::Bash => "bash",
        }
    }

    fn is_allowed(self, allowed: AllowedTools<'_>) -> bool {
        let named = allowed.only.is_empty() || allowed.only.iter().any(|name| name == self.name());
        named && self.is_permitted(allowed.permissions)
    }

    const fn is_permitted(self, permissions: Permissions) -> bool {
        match permissions {
            Permissions::Read => matches!(self, Self::ReadFile),
            Permissions::Edit | Permissions::Full => true,
        }
    }

    fn named(name: &str, allowed: AllowedTools<'_>) -> Result<Self, String> {
        let names = names(allowed);
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let Some(tool) = Self::ALL.into_iter().find(|tool| tool.name() == name) else {
            return Err(format!("there is no tool `{name}`; the tools are: {names}"));
        };
        if tool.is_allowed(allowed) {
            Ok(tool)
        } else if tool.is_permitted(allowed.permissions) {
            Err(format!("{name} is not allowed here; the tools are: {names}"))
        } else {
            Err(format!("{name} is not allowed: the workspace is read-only, and read_file is the only tool"))
        }
    }
}

/// Parses arguments with exactly these names, all strings. The error lists everything that is wrong, so that the model can
/// fix it in one step.
fn strings<const N: usize>(tool: &str, arguments: &str, names: [&str; N]) -> Result<[String; N], String> {
    let takes = format!("{tool} takes one JSON object with {}, all strings", quoted(&names));
    let value = match serde_json::from_str(arguments) {
        Ok(value) => value,
        // Some models send an empty text instead of an empty object.
        Err(_) if arguments.trim().is_empty() => Value::Object(serde_json::Map::new()),
        Err(error) if error.classify() == Category::Eof => {
            return Err(format!(
                "the arguments of {tool} end in the middle ({error}): perhaps the answer became too long; \
                 send them again, or do it in smaller steps"
            ));
        }
        Err(error) => return Err(format!("the arguments of {tool} are not valid JSON: {error}; {takes}")),
    };
    let Value::Object(mut given) = value else {
        return Err(format!("the arguments of {tool} are {}; {takes}", kind(&value)));
    };
    let mut wrong = Vec::new();
    let found = names.map(|name| match given.remove(name) {
        Some(Value::String(text)) => text,
        Some(other) => {
            wrong.push(format!("`{name}` must be a string, not {}", kind(&other)));
            String::new()
        }
        None => {
            wrong.push(format!("`{name}` is missing"));
            String::new()
        }
    });
    wrong.extend(given.keys().map(|unknown| match near(unknown, names).first() {
        Some(meant) => format!("there is no argument `{unknown}`, perhaps you mean `{meant}`"),
        None => format!("there is no argument `{unknown}`"),
    }));
    if wrong.is_empty() { Ok(found) } else { Err(format!("{}; {takes}", wrong.join("; "))) }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const fn all_tools(permissions: Permissions) -> AllowedTools<'static> {
        AllowedTools { permissions, only: &[] }
    }

    #[test]
    fn offers_and_accepts_only_allowed_tools() {
        let only = ["bash".to_owned(), "read_file".to_owned()];
        let allowed = AllowedTools { permissions: Permissions::Edit, only: &only };
        let offered: Value = serde_json::from_str(definitions(allowed).unwrap().as_str()).unwrap();
        let names: Vec<&Value> = offered.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["read_file", "bash"]);
        let refused = parse("write_file", "{}", allowed).unwrap_err();
        assert_eq!(refused, "write_file is not allowed here; the tools are: read_file, bash");
        let reading = AllowedTools { permissions: Permissions::Read, only: &only };
        assert!(parse("bash", "{}", reading).unwrap_err().contains("read-only"));
    }

    #[test]
    fn definitions_have_openai_format_and_argument_order() {
        let tool = |name: &str, description: &str, takes: &[(&str, &str)]| {
            let names: Vec<&str> = takes.iter().map(|(name, _)| *name).collect();
            let properties: serde_json::Map<String, Value> = takes
                .iter()
                .map(|(name, about)| ((*name).to_owned(), json!({"type": "string", "description": about})))
                .collect();
            json!({"type": "function", "function": {"name": name, "description": description,
                "parameters": {"type": "object", "properties": properties, "required": names}}})
        };
        let read = tool("read_file", "Read the contents of a file", &[("path", "File path to read")]);
        let write = tool(
            "write_file",
            "Write content to a file (creates or overwrites)",
            &[("path", "File path to write"), ("content", "Content to write")],
        );
        let edit = tool(
            "edit_file",
            "Edit a file by replacing a specific string with another",
            &[
                ("path", "File path to edit"),
                ("old_string", "Exact string to find and replace"),
                ("new_string", "String to replace with"),
            ],
        );
        let bash = tool("bash", "Execute a shell command", &[("command", "Command to execute")]);
        let all = json!([read, write, edit, bash]);
        for (permissions, expected) in
            [(Permissions::Read, json!([read])), (Permissions::Edit, all.clone()), (Permissions::Full, all)]
        {
            let found: Value = serde_json::from_str(definitions(all_tools(permissions)).unwrap().as_str()).unwrap();
            assert_eq!(found, expected, "{permissions:?}");
        }
    }

    /// The definitions and the parser must agree on names.
    #[test]
    fn every_defined_tool_can_be_called() {
        let all: Value = serde_json::from_str(DEFINITIONS).unwrap();
        let calls: Vec<ToolRequest> = (all.as_array().unwrap().iter())
            .map(|tool| {
                let required = tool["function"]["parameters"]["required"].as_array().unwrap();
                let arguments: serde_json::Map<String, Value> =
                    required.iter().map(|name| (name.as_str().unwrap().to_owned(), name.clone())).collect();
                let name = tool["function"]["name"].as_str().unwrap();
                parse(name, &Value::Object(arguments).to_string(), all_tools(Permissions::Edit)).unwrap()
            })
            .collect();
        let (path, content, command) = ("path".to_owned(), "content".to_owned(), "command".to_owned());
        let expected = [
            ToolRequest::Read { path: path.clone() },
            ToolRequest::Write { path: path.clone(), content },
            ToolRequest::Edit { path, old: "old_string".into(), new: "new_string".into() },
            ToolRequest::Bash { command },
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn error_lists_everything_that_is_wrong_with_a_call() {
        let edit = "edit_file takes one JSON object with `path`, `old_string`, `new_string`, all strings";
        let read = "read_file takes one JSON object with `path`, all strings";
        for (name, arguments, expected) in [
            (
                "reed_file",
                "{}",
                "there is no tool `reed_file`; the tools are: read_file, write_file, edit_file, bash".into(),
            ),
            ("read_file", "", format!("`path` is missing; {read}")),
            ("read_file", "{}", format!("`path` is missing; {read}")),
            ("read_file", "[]", format!("the arguments of read_file are an array; {read}")),
            ("read_file", r#""a.txt""#, format!("the arguments of read_file are a string; {read}")),
            ("read_file", r#"{"path": 7}"#, format!("`path` must be a string, not a number; {read}")),
            ("read_file", r#"{"path": null}"#, format!("`path` must be a string, not null; {read}")),
            ("read_file", r#"{"path": "a", "limit": 5}"#, format!("there is no argument `limit`; {read}")),
            (
                "edit_file",
                r#"{"path": "a", "old_str": "x", "new_string": {}}"#,
                format!(
                    "`old_string` is missing; `new_string` must be a string, not an object; \
                     there is no argument `old_str`, perhaps you mean `old_string`; {edit}"
                ),
            ),
            (
                "read_file",
                "{'path': 'a'}",
                format!(
                    "the arguments of read_file are not valid JSON: key must be a string at line 1 column 2; {read}"
                ),
            ),
            (
                "read_file",
                r#"{"path": "a"#,
                "the arguments of read_file end in the middle (EOF while parsing a string at line 1 column 11): \
                 perhaps the answer became too long; send them again, or do it in smaller steps"
                    .into(),
            ),
        ] {
            assert_eq!(parse(name, arguments, all_tools(Permissions::Full)), Err(expected), "{name} {arguments}");
        }
    }

    #[test]
    fn only_read_file_is_allowed_when_workspace_is_read_only() {
        for name in ["write_file", "edit_file", "bash"] {
            let expected = format!("{name} is not allowed: the workspace is read-only, and read_file is the only tool");
            assert_eq!(parse(name, "{}", all_tools(Permissions::Read)), Err(expected));
        }
        let unknown = "there is no tool `ls`; the tools are: read_file".to_owned();
        assert_eq!(parse("ls", "{}", all_tools(Permissions::Read)), Err(unknown));
        let call = ToolRequest::Read { path: "a".into() };
        assert_eq!(parse("read_file", r#"{"path": "a"}"#, all_tools(Permissions::Read)), Ok(call));
    }
}
