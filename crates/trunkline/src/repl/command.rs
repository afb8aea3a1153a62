//! What a line means: a message for the model, a command for the shell, or one for the REPL itself.

use trunkline_core::near::near;

/// Something the user said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Message(String),
    /// To be run as it is, past the model.
    Shell(String),
    Clear,
    Help,
    /// The models there are, or a change to one.
    Model(Option<String>),
    Sessions,
    Leave,
    /// A command that takes nothing after it, and something after it.
    Surplus(String),
    Unknown {
        name: String,
        near: Vec<String>,
    },
}

/// The REPL's own commands: what is typed, and what it is for.
pub(super) const COMMANDS: [(&str, &str); 6] = [
    ("/clear", "forget the conversation and start anew"),
    ("/model [NAME]", "show the models, or go on with another"),
    ("/sessions", "conversations of this folder that can be resumed"),
    ("/help", "this list"),
    ("/exit", "leave; so does Ctrl+D, and Ctrl+C on an empty line"),
    ("/quit", "the same"),
];

impl Said {
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
                Self::Surplus(name.to_owned())
            }
            _ => {
                let known = COMMANDS.iter().filter_map(|(typed, _)| typed.split(' ').next());
                Self::Unknown { name: name.to_owned(), near: near(name, known) }
            }
        }
    }
}

/// What `/help` shows.
pub(super) fn help() -> String {
    let mut rows: Vec<(&str, &str)> = COMMANDS.to_vec();
    rows.push(("!COMMAND", "run a shell command here, past the model"));
    rows.push(("//TEXT", "send a message that begins with a slash"));
    rows.push(("Alt+Enter", "a new line in the message; so does a \\ at the end of a line"));
    rows.push(("Ctrl+C", "stop the answer that is coming; clear the line"));
    let width = rows.iter().map(|(typed, _)| typed.len()).max().unwrap_or(0);
    let rows: Vec<String> = rows.iter().map(|(typed, about)| format!("  {typed:width$}  {about}")).collect();
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Said {
        Said::Message(text.to_owned())
    }

    fn unknown(name: &str, near: &[&str]) -> Said {
        Said::Unknown { name: name.to_owned(), near: near.iter().map(|&near| near.to_owned()).collect() }
    }

    #[test]
    fn lines_and_what_they_mean() {
        for (line, said) in [
            ("", Said::Nothing),
            ("  \t ", Said::Nothing),
            ("!", Said::Nothing),
            ("! ", Said::Nothing),
            ("hello", message("hello")),
            (" hello /clear\n", message("hello /clear")),
            ("one\ntwo", message("one\ntwo")),
            ("what does !x do?", message("what does !x do?")),
            ("!ls -l | wc", Said::Shell("ls -l | wc".into())),
            ("! cargo test", Said::Shell("cargo test".into())),
            ("/clear", Said::Clear),
            (" /clear ", Said::Clear),
            ("/help", Said::Help),
            ("/model", Said::Model(None)),
            ("/model  codex", Said::Model(Some("codex".into()))),
            ("/sessions", Said::Sessions),
            ("/exit", Said::Leave),
            ("/quit", Said::Leave),
            ("//etc/hosts is wrong", message("/etc/hosts is wrong")),
            ("/claer", unknown("/claer", &["/clear"])),
            ("/etc/hosts is wrong", unknown("/etc/hosts", &[])),
            ("/", Said::Help),
            ("/clear everything", Said::Surplus("/clear".into())),
            ("/exit now", Said::Surplus("/exit".into())),
        ] {
            assert_eq!(Said::parse(line), said, "{line:?}");
        }
    }

    #[test]
    fn every_command_that_help_shows_is_one() {
        for (typed, _) in COMMANDS {
            let name = typed.split(' ').next().unwrap();
            assert!(!matches!(Said::parse(name), Said::Unknown { .. } | Said::Message(_)), "{name}");
            assert!(help().contains(typed));
        }
    }
}
