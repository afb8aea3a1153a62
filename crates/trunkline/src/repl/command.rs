//! Parses a line of input: a message for the model, a shell command, or a command of the REPL.

use trunkline_core::near::near;

/// A parsed line of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplInput {
    Nothing,
    Message(String),
    /// A shell command, which the model does not see.
    Shell(String),
    Clear,
    Help,
    /// Without a name lists the models, with one switches to it.
    Model(Option<String>),
    Sessions,
    Leave,
    /// An argument after a command that takes none.
    UnexpectedArgument(String),
    Unknown {
        name: String,
        near: Vec<String>,
    },
}

/// Commands of the REPL with their descriptions.
pub(super) const COMMANDS: [(&str, &str); 6] = [
    ("/clear", "forget the conversation and start a new one"),
    ("/model [NAME]", "show the models, or switch to another"),
    ("/sessions", "conversations of this folder that can be resumed"),
    ("/help", "this list"),
    ("/exit", "leave; so does Ctrl+D, and Ctrl+C on an empty line"),
    ("/quit", "the same"),
];

impl ReplInput {
    pub(super) fn parse(line: &str) -> Self {
        let line = line.trim();
        if let Some(command) = line.strip_prefix('!') {
            let command = command.trim();
            return if command.is_empty() { Self::Nothing } else { Self::Shell(command.to_owned()) };
        }
        if let Some(text) = line.strip_prefix("//") {
            return Self::Message(format!("/{text}"));
        }
        if line.is_empty() {
            return Self::Nothing;
        }
        if !line.starts_with('/') {
            return Self::Message(line.to_owned());
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match (name, rest) {
            ("/clear", "") => Self::Clear,
            ("/help" | "/?" | "/", "") => Self::Help,
            ("/model" | "/models", "") => Self::Model(None),
            ("/model", model) => Self::Model(Some(model.to_owned())),
            ("/sessions", "") => Self::Sessions,
            ("/exit" | "/quit", "") => Self::Leave,
            ("/clear" | "/help" | "/?" | "/models" | "/sessions" | "/exit" | "/quit", _) => {
                Self::UnexpectedArgument(name.to_owned())
            }
            _ => {
                let known = COMMANDS.iter().filter_map(|(typed, _)| typed.split(' ').next());
                Self::Unknown { name: name.to_owned(), near: near(name, known) }
            }
        }
    }
}

/// Text of `/help`.
pub(super) fn help() -> String {
    let mut rows: Vec<(&str, &str)> = COMMANDS.to_vec();
    rows.push(("!COMMAND", "run a shell command here; the model does not see it"));
    rows.push(("//TEXT", "send a message that begins with a slash"));
    rows.push(("Alt+Enter", "new line in the message; a \\ at the end of a line does the same"));
    rows.push(("Ctrl+C", "stop the answer; clear the line"));
    let width = rows.iter().map(|(typed, _)| typed.len()).max().unwrap_or(0);
    let rows: Vec<String> = rows.iter().map(|(typed, about)| format!("  {typed:width$}  {about}")).collect();
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> ReplInput {
        ReplInput::Message(text.to_owned())
    }

    fn unknown(name: &str, near: &[&str]) -> ReplInput {
        ReplInput::Unknown { name: name.to_owned(), near: near.iter().map(|&near| near.to_owned()).collect() }
    }

    #[test]
    fn parses_lines() {
        for (line, input) in [
            ("", ReplInput::Nothing),
            ("  \t ", ReplInput::Nothing),
            ("!", ReplInput::Nothing),
            ("! ", ReplInput::Nothing),
            ("hello", message("hello")),
            (" hello /clear\n", message("hello /clear")),
            ("one\ntwo", message("one\ntwo")),
            ("what does !x do?", message("what does !x do?")),
            ("!ls -l | wc", ReplInput::Shell("ls -l | wc".into())),
            ("! cargo test", ReplInput::Shell("cargo test".into())),
            ("/clear", ReplInput::Clear),
            (" /clear ", ReplInput::Clear),
            ("/help", ReplInput::Help),
            ("/model", ReplInput::Model(None)),
            ("/model  codex", ReplInput::Model(Some("codex".into()))),
            ("/sessions", ReplInput::Sessions),
            ("/exit", ReplInput::Leave),
            ("/quit", ReplInput::Leave),
            ("//etc/hosts is wrong", message("/etc/hosts is wrong")),
            ("/claer", unknown("/claer", &["/clear"])),
            ("/etc/hosts is wrong", unknown("/etc/hosts", &[])),
            ("/", ReplInput::Help),
            ("/clear everything", ReplInput::UnexpectedArgument("/clear".into())),
            ("/exit now", ReplInput::UnexpectedArgument("/exit".into())),
        ] {
            assert_eq!(ReplInput::parse(line), input, "{line:?}");
        }
    }

    #[test]
    fn every_command_in_help_is_known() {
        for (typed, _) in COMMANDS {
            let name = typed.split(' ').next().unwrap();
            assert!(!matches!(ReplInput::parse(name), ReplInput::Unknown { .. } | ReplInput::Message(_)), "{name}");
            assert!(help().contains(typed));
        }
    }
}
