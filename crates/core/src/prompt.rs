//! The prompt: the repository's instructions, a header, and what the client said.

use crate::turn::{Message, Role, Turn};

// Alias for the users in other crates. TODO: import it from `vocabulary` there.
#[doc(hidden)]
pub use crate::vocabulary::SystemPlacement;

/// The line between the repository's instructions and the task.
pub const HEADER: &str = "--- USER TASK ---";

/// The longest agent file that is read into a prompt.
pub const MAX_AGENT_FILE: u64 = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub text: String,
    pub system: Option<String>,
}

/// Puts a prompt together. With assistant turns in the history every turn is labelled, else the texts stand alone.
#[must_use]
pub fn build(agent_file: Option<&str>, messages: &[Message], placement: SystemPlacement) -> Prompt {
    let system: Vec<&str> = messages
        .iter()
        .filter(|m| m.role == Role::System)
        .map(|m| m.text.as_str())
        .filter(|text| !text.is_empty())
        .collect();
    let talk = talk(messages);
    let mut blocks = Vec::new();
    let mut apart = None;
    match placement {
        SystemPlacement::Inline => blocks.extend(system.iter().map(|text| (*text).to_owned())),
        SystemPlacement::Apart if system.is_empty() => {}
        SystemPlacement::Apart => apart = Some(system.join("\n\n")),
    }
    blocks.extend(talk);
    let task = format!("{HEADER}\n{}", blocks.join("\n\n"));
    let text = match agent_file.map(str::trim_end).filter(|file| !file.is_empty()) {
        Some(file) => format!("{file}\n\n{task}"),
        None => task,
    };
    Prompt { text, system: apart }
}

/// What is new to a CLI that remembers the conversation: the messages after the last assistant turn.
#[must_use]
pub fn latest(messages: &[Message]) -> &[Message] {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
    match answered {
        Some(index) if index + 1 < messages.len() => &messages[index + 1..],
        Some(_) | None => messages,
    }
}

/// What a turn tells its provider, without what stands above it: all of the talk, or what is new in it.
#[must_use]
pub fn told(turn: &Turn) -> String {
    talk(if turn.session.is_some() { latest(&turn.messages) } else { &turn.messages }).join("\n\n")
}

/// The user's latest words in what [`told`] made of a turn: a conversation that is told anew begins with its oldest ones.
#[must_use]
pub fn latest_words(told: &str) -> &str {
    const USER: &str = "[User]\n";
    if !["[User]\n", "[Assistant]\n", "[Tool]\n"].iter().any(|label| told.starts_with(label)) {
        return told;
    }
    match told.rfind(&format!("\n\n{USER}")) {
        Some(at) => &told[at + 2 + USER.len()..],
        None => told.split_once('\n').map_or(told, |(_, words)| words),
    }
}

fn talk(messages: &[Message]) -> Vec<String> {
    let labelled = messages.iter().any(|m| m.role == Role::Assistant && !m.is_empty());
    messages
        .iter()
        .filter(|m| m.role != Role::System && !m.is_empty())
        .map(|message| {
            let label = match message.role {
                Role::Assistant => "[Assistant]",
                Role::Tool => "[Tool]",
                Role::User | Role::System => "[User]",
            };
            if labelled || message.role == Role::Tool { format!("{label}\n{}", said(message)) } else { said(message) }
        })
        .collect()
}

/// A message as text: calls of the client's own tools are part of what was said.
#[must_use]
pub fn said(message: &Message) -> String {
    let calls = message.calls.iter().map(|call| format!("called {}({})", call.name, call.arguments));
    let text = Some(message.text.clone()).filter(|text| !text.is_empty());
    text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_words_are_the_users_last_when_a_conversation_is_told_anew() {
        let talk = |list: &[(Role, &str)]| told(&Turn { messages: messages(list), ..Turn::default() });
        let (user, assistant, tool) = (Role::User, Role::Assistant, Role::Tool);
        for (said, latest) in [
            (vec![(user, "hi")], "hi"),
            (vec![(user, "a\n\nb")], "a\n\nb"),
            (vec![(user, "one"), (assistant, "yes"), (user, "two\n\nthree")], "two\n\nthree"),
            (vec![(user, "one"), (assistant, "[User]\nno"), (user, "two")], "two"),
            (vec![(user, "one"), (assistant, "yes")], "one\n\n[Assistant]\nyes"),
            (vec![(user, "one"), (assistant, "call"), (user, "two"), (tool, "3")], "two\n\n[Tool]\n3"),
            (vec![(tool, "3")], "3"),
            (vec![], ""),
        ] {
            assert_eq!(latest_words(&talk(&said)), latest, "{said:?}");
        }
    }

    fn messages(list: &[(Role, &str)]) -> Vec<Message> {
        list.iter().map(|(role, text)| Message::new(*role, *text)).collect()
    }

    #[test]
    fn with_and_without_the_agent_file() {
        let talk = messages(&[
            (Role::System, "You are terse."),
            (Role::User, "Extract data"),
            (Role::User, "from the report"),
        ]);
        assert_eq!(
            build(Some("Always answer PONG.\n"), &talk, SystemPlacement::Inline).text,
            "Always answer PONG.\n\n--- USER TASK ---\nYou are terse.\n\nExtract data\n\nfrom the report"
        );
        assert_eq!(
            build(None, &talk, SystemPlacement::Inline).text,
            "--- USER TASK ---\nYou are terse.\n\nExtract data\n\nfrom the report"
        );
    }

    #[test]
    fn a_system_message_anywhere_stands_above_the_users() {
        let talk = messages(&[(Role::User, "one"), (Role::System, "rule"), (Role::User, "two")]);
        assert_eq!(build(None, &talk, SystemPlacement::Inline).text, "--- USER TASK ---\nrule\n\none\n\ntwo");
    }

    #[test]
    fn system_messages_apart_leave_the_text() {
        let talk = messages(&[(Role::System, "rule"), (Role::User, "one"), (Role::System, "more")]);
        let prompt = build(None, &talk, SystemPlacement::Apart);
        assert_eq!(prompt, Prompt { text: "--- USER TASK ---\none".into(), system: Some("rule\n\nmore".into()) });
    }

    #[test]
    fn a_history_is_labelled() {
        let talk = messages(&[(Role::User, "2+2?"), (Role::Assistant, "4"), (Role::User, "and 3+3?")]);
        assert_eq!(
            build(None, &talk, SystemPlacement::Inline).text,
            "--- USER TASK ---\n[User]\n2+2?\n\n[Assistant]\n4\n\n[User]\nand 3+3?"
        );
    }

    #[test]
    fn only_what_follows_the_last_answer_is_new() {
        let talk = messages(&[(Role::User, "a"), (Role::Assistant, "b"), (Role::User, "c")]);
        assert_eq!(latest(&talk), &talk[2..]);
        assert_eq!(latest(&talk[..1]), &talk[..1]);
        assert_eq!(latest(&talk[..2]), &talk[..2]);
    }
}
