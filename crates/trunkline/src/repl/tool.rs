//! One-line texts for a tool call, `edit_file("src/main.py", ...)`, and for its failure.

use std::collections::HashMap;

use serde_json::Value;

use super::plain::{first_line, plain, shortened};

/// Argument names of known agents that say most about a call, in order of preference. JSON objects have no order.
const KEY_ARGUMENTS: [&str; 14] = [
    "path",
    "file_path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "command",
    "cmd",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
    "name",
    "content",
];

/// Limit of an argument in a call.
const MAX_CALL_CHARS: usize = 72;

/// Text of a call: its most important argument, and three dots for the others.
#[must_use]
pub(crate) fn call(name: &str, input: &Value) -> String {
    let more = match input {
        Value::Object(members) => members.len() > 1,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    };
    let shown = match (key_argument(input), input) {
        (Some(text), _) => Value::String(shortened(&text, MAX_CALL_CHARS)).to_string(),
        (None, Value::Object(members)) => members.values().next().map(Value::to_string).unwrap_or_default(),
        (None, Value::Null) => String::new(),
        (None, other) => other.to_string(),
    };
    let shown = shortened(&shown, 2 * MAX_CALL_CHARS);
    plain(&format!("{name}({shown}{})", if more { ", ..." } else { "" })).replace(['\n', '\t'], " ")
}

/// The most important text in a value: itself, the words of a command, or that of a member.
fn key_argument(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) if words.iter().all(Value::is_string) && !words.is_empty() => {
            Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        Value::Array(values) => values.iter().find_map(key_argument),
        Value::Object(members) => {
            let known = KEY_ARGUMENTS.iter().find_map(|&name| members.get(name).and_then(key_argument));
            known.or_else(|| members.values().find_map(key_argument))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Limit of a failed tool's output.
const MAX_OUTPUT_CHARS: usize = 200;

/// Tools that are running, to name the one that failed.
#[derive(Debug, Default)]
pub(crate) struct RunningTools(HashMap<String, RunningTool>);

#[derive(Debug)]
struct RunningTool {
    name: String,
    /// It runs a command, so its output is not the reason for a failure.
    is_command: bool,
}

impl RunningTools {
    pub(crate) fn started(&mut self, id: &str, name: &str, input: &Value) {
        let is_command = ["command", "cmd"].iter().any(|key| input.get(key).is_some());
        self.0.insert(id.to_owned(), RunningTool { name: plain(name), is_command });
    }

    /// Removes a tool that succeeded.
    pub(crate) fn finished(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Text for a tool that failed: `bash exited with status 1; output: hello`, `edit_file failed: no such file`.
    pub(crate) fn failed(&mut self, id: &str, output: &str) -> String {
        let tool = self.0.remove(id);
        let (name, is_command) = tool.map_or(("a tool".to_owned(), false), |tool| (tool.name, tool.is_command));
        let (status, rest) = exit_status(output);
        let shown = first_line(&rest, MAX_OUTPUT_CHARS);
        let how = status.map_or_else(|| "failed".to_owned(), |status| format!("exited with status {status}"));
        match (shown.is_empty(), is_command || status.is_some()) {
            (true, _) => format!("{name} {how}"),
            (false, true) => format!("{name} {how}; output: {shown}"),
            (false, false) => format!("{name} {how}: {shown}"),
        }
    }
}

/// Splits the exit status that an agent added to a command's output: `[exit code: 1]` below it, or `Exit code 1` above.
fn exit_status(output: &str) -> (Option<i32>, String) {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let below = |line: &str| line.trim().strip_prefix("[exit code: ")?.strip_suffix(']')?.parse().ok();
    let above = |line: &str| line.trim().strip_prefix("Exit code ")?.parse().ok();
    if let Some((status, rest)) = lines.split_last().and_then(|(last, rest)| Some((below(last)?, rest))) {
        return (Some(status), rest.join("\n"));
    }
    if let Some((status, rest)) = lines.split_first().and_then(|(first, rest)| Some((above(first)?, rest))) {
        return (Some(status), rest.join("\n"));
    }
    (None, output.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_the_most_important_argument() {
        for (name, input, shown) in [
            ("read_file", json!({"path": "src/main.py"}), r#"read_file("src/main.py")"#),
            (
                "edit_file",
                json!({"new_string": "b", "old_string": "a", "path": "src/main.py"}),
                r#"edit_file("src/main.py", ...)"#,
            ),
            ("write_file", json!({"path": "a", "content": "x\n"}), r#"write_file("a", ...)"#),
            ("bash", json!({"command": "cargo test"}), r#"bash("cargo test")"#),
            ("bash", json!({"command": "a \"b\"\nc"}), r#"bash("a \"b\"\nc")"#),
            ("shell", json!({"command": ["sh", "-c", "ls"]}), r#"shell("sh -c ls")"#),
            ("file_change", json!({"changes": [{"kind": "add", "path": "a.txt"}]}), r#"file_change("a.txt")"#),
            ("other", json!({"count": 3}), "other(3)"),
            ("other", json!({"count": 3, "zone": "x"}), r#"other("x", ...)"#),
            ("nothing", json!({}), "nothing()"),
            ("nothing", Value::Null, "nothing()"),
            ("odd", json!("text"), r#"odd("text")"#),
        ] {
            assert_eq!(call(name, &input), shown);
        }
    }

    #[test]
    fn output_is_not_shown_as_the_reason_when_a_command_fails() {
        let (bash, edit) = (json!({"command": "./hello"}), json!({"path": "a"}));
        for (name, input, output, expected) in [
            ("bash", &bash, "hello, world\n[exit code: 1]", "bash exited with status 1; output: hello, world"),
            ("bash", &bash, "[exit code: 127]", "bash exited with status 127"),
            ("Bash", &bash, "Exit code 3\nerr", "Bash exited with status 3; output: err"),
            ("command_execution", &bash, "hello, world", "command_execution failed; output: hello, world"),
            ("command_execution", &bash, "", "command_execution failed"),
            ("edit_file", &edit, "old_string not found", "edit_file failed: old_string not found"),
            (
                "edit_file",
                &edit,
                "the text [exit code: x] is not there",
                "edit_file failed: the text [exit code: x] is not there",
            ),
        ] {
            let mut tools = RunningTools::default();
            tools.started("1", name, input);
            assert_eq!(tools.failed("1", output), expected);
            assert_eq!(tools.failed("1", "no"), "a tool failed: no", "it is no longer running");
        }
    }

    #[test]
    fn call_is_one_short_line_without_control_characters() {
        let shown = call("b\u{1b}[2Jash\n", &json!({"command": format!("\u{9b}31m{}", "é".repeat(500))}));
        assert!(shown.chars().count() < 100 && !shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.starts_with("bash (") && shown.ends_with("…\")"), "{shown}");
    }
}
