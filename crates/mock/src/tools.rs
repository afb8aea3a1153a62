//! Translates calls of our four tools into calls of the client's tools: `write_file` in a script becomes `Write` for
//! Claude Code, a patch for Codex, and `write` for OpenCode.
//!
//! The tools in the request decide: a tool is found by its name, its arguments are renamed by its schema. A client
//! without file tools gets a shell command. A call that matches no offered tool is passed on as written; the client
//! then reports it.

use serde_json::{Map, Value, json};

use crate::shell;

/// Tool that the client offers in its request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OfferedTool {
    pub name: String,
    pub input: ToolInput,
}

/// Kind of input that a tool accepts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolInput {
    /// Arguments described by a JSON schema.
    Object(Value),
    /// Free text.
    Text,
}

/// Tool call in terms of the client's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MockCall {
    pub id: String,
    pub name: String,
    pub arguments: CallArguments,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallArguments {
    /// JSON as text. It may be invalid.
    Json(String),
    /// For a tool that takes free text.
    Freeform(String),
}

/// Names of our tools in other clients, the most likely first.
const TOOL_NAMES: [(&str, &[&str]); 4] = [
    ("read_file", &["read_file", "Read", "read", "view"]),
    ("write_file", &["write_file", "Write", "write", "create_file"]),
    ("edit_file", &["edit_file", "Edit", "edit", "replace", "str_replace"]),
    ("bash", &["bash", "Bash", "exec_command", "shell_command", "run_shell_command", "shell", "execute_command"]),
];

/// Names of our parameters in other clients.
const PARAMETER_NAMES: [(&str, &[&str]); 5] = [
    ("path", &["path", "file_path", "filePath", "absolute_path", "filename"]),
    ("content", &["content", "contents", "file_text", "text"]),
    ("old_string", &["old_string", "oldString", "old_str", "old_text"]),
    ("new_string", &["new_string", "newString", "new_str", "new_text"]),
    ("command", &["command", "cmd", "script"]),
];

/// Codex's tool for file changes.
const PATCH_TOOL: &str = "apply_patch";

/// Codex's tool for newer models: it runs JavaScript, which can call the other tools.
const CODE_TOOL: &str = "exec";

/// Translates the name and arguments of a scripted call for this client. `folder` is its working directory, if known.
#[must_use]
pub(crate) fn translate(
    name: &str,
    arguments: &str,
    offered: &[OfferedTool],
    folder: Option<&str>,
) -> (String, CallArguments) {
    let verbatim = || (name.to_owned(), CallArguments::Json(arguments.to_owned()));
    let Ok(Value::Object(given)) = serde_json::from_str(arguments) else { return verbatim() };
    if let ("bash", Some(command)) = (name, given.get("command").and_then(Value::as_str))
        && find(name, offered).is_none()
        && let Some(call) = code_call(command, offered)
    {
        return call;
    }
    if let Some((tool, schema)) = find(name, offered) {
        let theirs = rename(&given, schema, folder);
        if tool == name && theirs == given {
            return verbatim();
        }
        return (tool.to_owned(), CallArguments::Json(Value::Object(theirs).to_string()));
    }
    fallback_call(name, &given, offered).unwrap_or_else(verbatim)
}

/// Finds the offered tool that corresponds to our tool `name`. CLIs put the name of an MCP server before the name of its tool.
fn find<'a>(name: &str, offered: &'a [OfferedTool]) -> Option<(&'a str, &'a Value)> {
    let described = |tool: &'a OfferedTool| match &tool.input {
        ToolInput::Object(schema) => Some((tool.name.as_str(), schema)),
        ToolInput::Text => None,
    };
    match TOOL_NAMES.iter().find(|(ours, _)| *ours == name) {
        Some((_, names)) => {
            // Claude Code's way to name a tool of an MCP server, which is a client's own tool behind the gateway.
            let of_server =
                |tool: &&OfferedTool| tool.name.strip_suffix(name).is_some_and(|server| server.ends_with("__"));
            let exact = names.iter().find_map(|name| offered.iter().find(|tool| tool.name == *name));
            exact.or_else(|| offered.iter().find(of_server)).and_then(described)
        }
        None => {
            let decorated =
                |tool: &&OfferedTool| tool.name.strip_suffix(name).is_some_and(|server| server.ends_with(['_', '/']));
            let exact = offered.iter().find(|tool| tool.name == name);
            exact.or_else(|| offered.iter().find(decorated)).and_then(described)
        }
    }
}

/// Renames our arguments to those of `schema`, and adds placeholders for other required ones.
fn rename(given: &Map<String, Value>, schema: &Value, folder: Option<&str>) -> Map<String, Value> {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let mut theirs = Map::new();
    for (ours, value) in given {
        let names = PARAMETER_NAMES.iter().find(|(name, _)| name == ours).map_or(&[][..], |(_, names)| names);
        let name = names.iter().copied().find(|name| properties.contains_key(*name)).unwrap_or(ours);
        let value = match (ours.as_str(), value) {
            // Our own tools accept relative paths. Most others require absolute ones.
            ("path", Value::String(path)) if name != "path" => json!(absolute(path, folder)),
            ("command", Value::String(command)) if properties.get(name).is_some_and(|p| p["type"] == "array") => {
                json!(["bash", "-lc", command])
            }
            _ => value.clone(),
        };
        theirs.insert(name.to_owned(), value);
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !theirs.contains_key(required) {
            theirs.insert(required.to_owned(), placeholder(&properties.get(required).cloned().unwrap_or_default()));
        }
    }
    theirs
}

fn absolute(path: &str, folder: Option<&str>) -> String {
    match folder {
        Some(folder) if !path.starts_with('/') => format!("{}/{path}", folder.trim_end_matches('/')),
        _ => path.to_owned(),
    }
}

/// Returns a harmless value for a required parameter that scripts do not have.
fn placeholder(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().unwrap_or("string").to_lowercase();
    match kind.as_str() {
        "boolean" => json!(false),
        "integer" | "number" => json!(0),
        "array" => json!([]),
        "object" => json!({}),
        _ => json!("from the script"),
    }
}

/// Replaces a file tool that the client does not offer: by a patch if it represents the content exactly, else by a
/// shell command.
fn fallback_call(name: &str, given: &Map<String, Value>, offered: &[OfferedTool]) -> Option<(String, CallArguments)> {
    let text = |key: &str| given.get(key).and_then(Value::as_str);
    let path = text("path")?;
    if name == "write_file"
        && let Some(patch) = offered.iter().find(|tool| tool.name == PATCH_TOOL)
        && let Some(input) = shell::add_file_patch(path, text("content")?)
    {
        let arguments = match patch.input {
            ToolInput::Text => CallArguments::Freeform(input),
            ToolInput::Object(_) => CallArguments::Json(json!({"input": input}).to_string()),
        };
        return Some((PATCH_TOOL.to_owned(), arguments));
    }
    let command = match name {
        "read_file" => shell::read(path),
        "write_file" => shell::write(path, text("content")?),
        "edit_file" => shell::edit(path, text("old_string")?, text("new_string")?),
        _ => return None,
    };
    let Some((tool, schema)) = find("bash", offered) else { return code_call(&command, offered) };
    let ours = Map::from_iter([("command".to_owned(), json!(command))]);
    Some((tool.to_owned(), CallArguments::Json(Value::Object(rename(&ours, schema, None)).to_string())))
}

/// Wraps a shell command in JavaScript, for a client that only runs code.
fn code_call(command: &str, offered: &[OfferedTool]) -> Option<(String, CallArguments)> {
    let code = offered.iter().find(|tool| tool.name == CODE_TOOL && tool.input == ToolInput::Text)?;
    let source = format!("text(await tools.exec_command({}));", json!({"cmd": command}));
    Some((code.name.clone(), CallArguments::Freeform(source)))
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
