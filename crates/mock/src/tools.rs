//! Our four tools in the words of whoever asks: a script says `write_file`, and Claude Code is asked for `Write`, Codex for
//! a patch, OpenCode for `write`.
//!
//! What the request offers decides: a tool by its name, its arguments by its schema. A client without file tools gets a
//! shell command. A call that fits nothing is passed on as written, and the client says what it thinks of it.

use serde_json::{Map, Value, json};

use crate::shell;

/// A tool the client offers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offered {
    pub name: String,
    pub taking: Taking,
}

/// What a tool takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Taking {
    /// Arguments by a JSON schema.
    Object(Value),
    /// Free text.
    Text,
}

/// A call as the client is asked to make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub id: String,
    pub name: String,
    pub arguments: Arguments,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// JSON as text, as a model wrote it.
    Json(String),
    /// For a tool that takes free text.
    Freeform(String),
}

/// What others call our tools, the likeliest first.
const TOOLS: [(&str, &[&str]); 4] = [
    ("read_file", &["read_file", "Read", "read", "view"]),
    ("write_file", &["write_file", "Write", "write", "create_file"]),
    ("edit_file", &["edit_file", "Edit", "edit", "replace", "str_replace"]),
    ("bash", &["bash", "Bash", "exec_command", "shell_command", "run_shell_command", "shell", "execute_command"]),
];

/// What others call our parameters.
const PARAMETERS: [(&str, &[&str]); 5] = [
    ("path", &["path", "file_path", "filePath", "absolute_path", "filename"]),
    ("content", &["content", "contents", "file_text", "text"]),
    ("old_string", &["old_string", "oldString", "old_str", "old_text"]),
    ("new_string", &["new_string", "newString", "new_str", "new_text"]),
    ("command", &["command", "cmd", "script"]),
];

/// Codex's tool for files.
const PATCH: &str = "apply_patch";

/// Codex's tool for newer models: JavaScript, from which the others are called.
const CODE: &str = "exec";

/// The name and arguments by which this client is asked to do what a script says. `folder` is where it works, if known.
#[must_use]
pub(crate) fn translate(name: &str, arguments: &str, offered: &[Offered], folder: Option<&str>) -> (String, Arguments) {
    let verbatim = || (name.to_owned(), Arguments::Json(arguments.to_owned()));
    let Ok(Value::Object(given)) = serde_json::from_str(arguments) else { return verbatim() };
    if let ("bash", Some(command)) = (name, given.get("command").and_then(Value::as_str))
        && find(name, offered).is_none()
        && let Some(call) = in_code(command, offered)
    {
        return call;
    }
    if let Some((tool, schema)) = find(name, offered) {
        let theirs = rename(&given, schema, folder);
        if tool == name && theirs == given {
            return verbatim();
        }
        return (tool.to_owned(), Arguments::Json(Value::Object(theirs).to_string()));
    }
    instead(name, &given, offered).unwrap_or_else(verbatim)
}

/// The offered tool that does what ours of this name does.
fn find<'a>(name: &str, offered: &'a [Offered]) -> Option<(&'a str, &'a Value)> {
    let (_, names) = TOOLS.iter().find(|(ours, _)| *ours == name)?;
    names.iter().find_map(|name| {
        offered.iter().find(|tool| tool.name == *name).and_then(|tool| match &tool.taking {
            Taking::Object(schema) => Some((tool.name.as_str(), schema)),
            Taking::Text => None,
        })
    })
}

/// Our arguments under the names of `schema`, with whatever else it requires.
fn rename(given: &Map<String, Value>, schema: &Value, folder: Option<&str>) -> Map<String, Value> {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let mut theirs = Map::new();
    for (ours, value) in given {
        let names = PARAMETERS.iter().find(|(name, _)| name == ours).map_or(&[][..], |(_, names)| names);
        let name = names.iter().copied().find(|name| properties.contains_key(*name)).unwrap_or(ours);
        let value = match (ours.as_str(), value) {
            // Under our own name it may be relative, as ours are; most others want it absolute.
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
            theirs.insert(required.to_owned(), filler(&properties.get(required).cloned().unwrap_or_default()));
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

/// A value for a parameter that a script knows nothing of.
fn filler(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().unwrap_or("string").to_lowercase();
    match kind.as_str() {
        "boolean" => json!(false),
        "integer" | "number" => json!(0),
        "array" => json!([]),
        "object" => json!({}),
        _ => json!("as the script says"),
    }
}

/// A file tool's work by other means: a patch where that says it exactly, else a shell command.
fn instead(name: &str, given: &Map<String, Value>, offered: &[Offered]) -> Option<(String, Arguments)> {
    let text = |key: &str| given.get(key).and_then(Value::as_str);
    let path = text("path")?;
    if name == "write_file"
        && let Some(patch) = offered.iter().find(|tool| tool.name == PATCH)
        && let Some(input) = shell::patch_that_adds(path, text("content")?)
    {
        let arguments = match patch.taking {
            Taking::Text => Arguments::Freeform(input),
            Taking::Object(_) => Arguments::Json(json!({"input": input}).to_string()),
        };
        return Some((PATCH.to_owned(), arguments));
    }
    let command = match name {
        "read_file" => shell::read(path),
        "write_file" => shell::write(path, text("content")?),
        "edit_file" => shell::edit(path, text("old_string")?, text("new_string")?),
        _ => return None,
    };
    let Some((tool, schema)) = find("bash", offered) else { return in_code(&command, offered) };
    let ours = Map::from_iter([("command".to_owned(), json!(command))]);
    Some((tool.to_owned(), Arguments::Json(Value::Object(rename(&ours, schema, None)).to_string())))
}

/// A shell command for a client that only takes code.
fn in_code(command: &str, offered: &[Offered]) -> Option<(String, Arguments)> {
    let code = offered.iter().find(|tool| tool.name == CODE && tool.taking == Taking::Text)?;
    let source = format!("text(await tools.exec_command({}));", json!({"cmd": command}));
    Some((code.name.clone(), Arguments::Freeform(source)))
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
