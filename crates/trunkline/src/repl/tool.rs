//! A tool call in one line: `edit_file("src/main.py", ...)`.

use serde_json::Value;

use super::plain::{plain, shortened};

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
    let (shown, more) = match input {
        Value::Object(members) => {
            let telling = TELLING.iter().find_map(|&name| members.get(name).filter(|value| is_telling(value)));
            let shown = telling.or_else(|| members.values().find(|value| is_telling(value)));
            (shown.or_else(|| members.values().next()), members.len() > 1)
        }
        Value::Null => (None, false),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => (Some(input), false),
    };
    let shown = shown.map(argument).unwrap_or_default();
    plain(&format!("{name}({shown}{})", if more { ", ..." } else { "" })).replace(['\n', '\t'], " ")
}

/// Whether a value is text: a string, or the words of a command.
fn is_telling(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(words) => !words.is_empty() && words.iter().all(Value::is_string),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn argument(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(shortened(text, LONGEST)).to_string(),
        Value::Array(words) if is_telling(value) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            Value::String(shortened(&words.join(" "), LONGEST)).to_string()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            shortened(&value.to_string(), LONGEST)
        }
    }
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
    fn a_call_is_one_short_line_whatever_it_holds() {
        let shown = call("b\u{1b}[2Jash\n", &json!({"command": format!("\u{9b}31m{}", "é".repeat(500))}));
        assert!(shown.chars().count() < 100 && !shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.starts_with("bash (") && shown.ends_with("…\")"), "{shown}");
    }
}
