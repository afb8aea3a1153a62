//! A tool call in one line: `edit_file("src/main.py", ...)`; and how one failed, in another.

use std::collections::HashMap;

use serde_json::Value;

use super::plain::{first_line, plain, shortened};

/// What a call is about, in the words of the agents we know; JSON objects have no order to go by.
const TELLING: [&str; 14] = [
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

/// A call longer than this is not read anyway.
const LONGEST: usize = 72;

/// The call as it is shown: the argument that tells most, and three dots for the others.
#[must_use]
pub(crate) fn call(name: &str, input: &Value) -> String {
    let more = match input {
        Value::Object(members) => members.len() > 1,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    };
    let shown = match (telling(input), input) {
        (Some(text), _) => Value::String(shortened(&text, LONGEST)).to_string(),
        (None, Value::Object(members)) => members.values().next().map(Value::to_string).unwrap_or_default(),
        (None, Value::Null) => String::new(),
        (None, other) => other.to_string(),
    };
    let shown = shortened(&shown, 2 * LONGEST);
    plain(&format!("{name}({shown}{})", if more { ", ..." } else { "" })).replace(['\n', '\t'], " ")
}

/// What says most of a value: a text, the words of a command, or whichever member has one.
fn telling(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) if words.iter().all(Value::is_string) && !words.is_empty() => {
            Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        Value::Array(values) => values.iter().find_map(telling),
        Value::Object(members) => {
            let known = TELLING.iter().find_map(|&name| members.get(name).and_then(telling));
            known.or_else(|| members.values().find_map(telling))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The most of a failed tool's output that is shown.
const MAX_OUTPUT: usize = 200;

/// The tools that run, to say which one failed.
#[derive(Debug, Default)]
pub(crate) struct Tools(HashMap<String, Tool>);

#[derive(Debug)]
struct Tool {
    name: String,
    /// Its output is that of a command, and not the reason for a failure.
    is_command: bool,
}

impl Tools {
    pub(crate) fn started(&mut self, id: &str, name: &str, input: &Value) {
        let is_command = ["command", "cmd"].iter().any(|key| input.get(key).is_some());
        self.0.insert(id.to_owned(), Tool { name: plain(name), is_command });
    }

    /// A tool has done what it should.
    pub(crate) fn finished(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// How a tool failed: `bash exited with status 1; output: hello`, `edit_file failed: no such file`.
    pub(crate) fn failed(&mut self, id: &str, output: &str) -> String {
        let tool = self.0.remove(id);
        let (name, is_command) = tool.map_or(("a tool".to_owned(), false), |tool| (tool.name, tool.is_command));
        let (status, rest) = exit_status(output);
        let said = first_line(&rest, MAX_OUTPUT);
        let how = status.map_or_else(|| "failed".to_owned(), |status| format!("exited with status {status}"));
        match (said.is_empty(), is_command || status.is_some()) {
            (true, _) => format!("{name} {how}"),
            (false, true) => format!("{name} {how}; output: {said}"),
            (false, false) => format!("{name} {how}: {said}"),
        }
    }
}

/// The exit status that an agent noted beside what a command printed: `[exit code: 1]` below it, or `Exit code 1` above.
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
    fn the_telling_argument_is_shown() {
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
    fn output_is_not_told_as_a_reason_when_a_command_fails() {
        let (bash, edit) = (json!({"command": "./hello"}), json!({"path": "a"}));
        for (name, input, output, told) in [
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
            let mut tools = Tools::default();
            tools.started("1", name, input);
            assert_eq!(tools.failed("1", output), told);
            assert_eq!(tools.failed("1", "no"), "a tool failed: no", "it runs no more");
        }
    }

    #[test]
    fn a_call_is_one_short_line_whatever_it_holds() {
        let shown = call("b\u{1b}[2Jash\n", &json!({"command": format!("\u{9b}31m{}", "é".repeat(500))}));
        assert!(shown.chars().count() < 100 && !shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.starts_with("bash (") && shown.ends_with("…\")"), "{shown}");
    }
}
