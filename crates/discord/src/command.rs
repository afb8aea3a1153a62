//! Commands of the bridge itself, given as a slash command or as a message with the same text. Pure.

use serde_json::{Value, json};

/// A command to the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BridgeCommand {
    New,
    Stop,
    Status,
    /// Changes the model, or lists the models if `None`.
    Model(Option<String>),
}

impl BridgeCommand {
    /// Parses a message that consists of a command only.
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

    /// Parses a slash command as Discord reports it.
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

/// Definitions of the slash commands for Discord. Discord does not check permissions: the bridge refuses users who are not
/// allowed.
#[must_use]
pub(crate) fn definitions() -> Value {
    json!([
        {"name": "new", "type": 1, "description": "Start a new conversation"},
        {"name": "stop", "type": 1, "description": "Stop the answer that is being written here"},
        {"name": "status", "type": 1, "description": "Show the state of this channel"},
        {"name": "model", "type": 1, "description": "Show the models, or change the model of this channel", "options": [
            {"name": "name", "type": 3, "required": false, "description": "The new model"},
        ]},
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_a_command_only_when_it_has_no_other_text() {
        for (text, command) in [
            ("/new", Some(BridgeCommand::New)),
            (" /stop\n", Some(BridgeCommand::Stop)),
            ("/status", Some(BridgeCommand::Status)),
            ("/model", Some(BridgeCommand::Model(None))),
            ("/model one/model-5", Some(BridgeCommand::Model(Some("one/model-5".into())))),
            ("/new idea", None),
            ("/model a b", None),
            ("/clear", None),
            ("what does /new do?", None),
            ("", None),
        ] {
            assert_eq!(BridgeCommand::parse(text), command, "{text:?}");
        }
    }

    #[test]
    fn every_definition_can_be_parsed() {
        for definition in definitions().as_array().unwrap() {
            assert!(BridgeCommand::named(definition["name"].as_str().unwrap(), None).is_some(), "{definition}");
        }
    }
}
