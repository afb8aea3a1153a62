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
    fn a_call_is_one_short_line_whatever_it_holds() {
        let shown = call("b\u{1b}[2Jash\n", &json!({"command": format!("\u{9b}31m{}", "é".repeat(500))}));
        assert!(shown.chars().count() < 100 && !shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.starts_with("bash (") && shown.ends_with("…\")"), "{shown}");
    }
}
