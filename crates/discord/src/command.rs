//! What can be told to the bridge itself: as a slash command, or as a message that reads like one. Pure.

use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    New,
    Stop,
    Status,
    /// None asks which there are.
    Model(Option<String>),
}

impl Command {
    /// A message that is nothing but a command.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let name = words.next()?.strip_prefix('/')?;
        let (argument, more) = (words.next(), words.next());
        if more.is_some() {
            return None;
        }
        Self::named(name, argument.map(str::to_owned))
    }

    /// A slash command as Discord reports it.
    #[must_use]
    pub fn named(name: &str, argument: Option<String>) -> Option<Self> {
        match (name, argument) {
            ("new", None) => Some(Self::New),
            ("stop", None) => Some(Self::Stop),
            ("status", None) => Some(Self::Status),
            ("model", model) => Some(Self::Model(model)),
            _ => None,
        }
    }
}

/// What Discord is told about them. Discord checks nothing: whoever is not allowed is refused when it is used.
#[must_use]
pub(crate) fn definitions() -> Value {
    json!([
        {"name": "new", "type": 1, "description": "Forget this conversation and begin another"},
        {"name": "stop", "type": 1, "description": "Stop the answer that is being written here"},
        {"name": "status", "type": 1, "description": "What is going on here"},
        {"name": "model", "type": 1, "description": "Show the models, or talk to another one here", "options": [
            {"name": "name", "type": 3, "required": false, "description": "The model to talk to"},
        ]},
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_command_only_if_it_is_nothing_else() {
        for (text, command) in [
            ("/new", Some(Command::New)),
            (" /stop\n", Some(Command::Stop)),
            ("/status", Some(Command::Status)),
            ("/model", Some(Command::Model(None))),
            ("/model one/model-5", Some(Command::Model(Some("one/model-5".into())))),
            ("/new idea", None),
            ("/model a b", None),
            ("/clear", None),
            ("what does /new do?", None),
            ("", None),
        ] {
            assert_eq!(Command::parse(text), command, "{text:?}");
        }
    }

    #[test]
    fn every_definition_is_understood() {
        for definition in definitions().as_array().unwrap() {
            assert!(Command::named(definition["name"].as_str().unwrap(), None).is_some(), "{definition}");
        }
    }
}
