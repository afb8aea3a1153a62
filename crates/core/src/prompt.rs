//! Builds prompts: instructions of the repository, a header, and the client's messages.

use crate::turn::{Message, Role, Turn};
use crate::vocabulary::SystemPlacement;

/// Line between the instructions of the repository and the task.
pub const HEADER: &str = "--- USER TASK ---";

/// Maximum size of an agent file in a prompt.
pub const MAX_AGENT_FILE_BYTES: u64 = 256 * 1024;

/// Prompt of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub text: String,
    /// System prompt, for a CLI that takes it separately.
    pub system: Option<String>,
}

/// Builds a prompt. If the history contains assistant messages, every message gets a label with its role.
#[must_use]
pub fn build(agent_file: Option<&str>, messages: &[Message], placement: SystemPlacement) -> Prompt {
    let system: Vec<&str> = messages.iter().filter(|m| m.role == Role::System).map(|m| m.text.as_str()).collect();
    build_from(agent_file, &system, messages, placement)
}

/// Like [`build`], but with separate system messages. System messages among `messages` are ignored.
#[must_use]
pub fn build_from(
    agent_file: Option<&str>,
    system: &[&str],
    messages: &[Message],
    placement: SystemPlacement,
) -> Prompt {
    let mut system = system.iter().copied().filter(|text| !text.is_empty()).peekable();
    let mut text = String::new();
    if let Some(file) = agent_file.map(str::trim_end).filter(|file| !file.is_empty()) {
        text.push_str(file);
        text.push_str("\n\n");
    }
    text.push_str(HEADER);
    text.push('\n');
    let start = text.len();
    let mut add = |block: &str| {
        if text.len() > start {
            text.push_str("\n\n");
        }
        text.push_str(block);
    };
    let mut separate = None;
    match placement {
        SystemPlacement::Inline => system.for_each(&mut add),
        SystemPlacement::Apart if system.peek().is_none() => {}
        SystemPlacement::Apart => separate = Some(system.collect::<Vec<_>>().join("\n\n")),
    }
    dialogue(messages).iter().for_each(|block| add(block));
    Prompt { text, system: separate }
}

/// Returns the messages after the last assistant message: those that a CLI with the session does not know yet.
#[must_use]
pub fn new_messages(messages: &[Message]) -> &[Message] {
    let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
    match answered {
        Some(index) if index + 1 < messages.len() => &messages[index + 1..],
        Some(_) | None => messages,
    }
}

/// Returns the text of a turn without instructions and system messages: the new messages in a session, else all of them.
#[must_use]
pub fn turn_text(turn: &Turn) -> String {
    dialogue(if turn.session.is_some() { new_messages(&turn.messages) } else { &turn.messages }).join("\n\n")
}

/// Returns the latest user message in a text from [`turn_text`]. A turn with its whole history begins with the oldest one.
#[must_use]
pub fn latest_user_text(text: &str) -> &str {
    const USER: &str = "[User]\n";
    if !["[User]\n", "[Assistant]\n", "[Tool]\n"].iter().any(|label| text.starts_with(label)) {
        return text;
    }
    match text.rfind(&format!("\n\n{USER}")) {
        Some(at) => &text[at + 2 + USER.len()..],
        None => text.split_once('\n').map_or(text, |(_, rest)| rest),
    }
}

/// Returns the text of each message that is not empty and not a system message.
fn dialogue(messages: &[Message]) -> Vec<String> {
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
            if labelled || message.role == Role::Tool {
                format!("{label}\n{}", message_text(message))
            } else {
                message_text(message)
            }
        })
        .collect()
}

/// Returns a message as text, including its calls of the client's tools.
#[must_use]
pub fn message_text(message: &Message) -> String {
    if message.calls.is_empty() {
        return message.text.clone();
    }
    let calls = message.calls.iter().map(|call| format!("called {}({})", call.name, call.arguments));
    let text = Some(message.text.clone()).filter(|text| !text.is_empty());
    text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_latest_user_text_when_a_turn_has_its_whole_history() {
        let text = |list: &[(Role, &str)]| turn_text(&Turn { messages: messages(list), ..Turn::default() });
        let (user, assistant, tool) = (Role::User, Role::Assistant, Role::Tool);
        for (list, latest) in [
            (vec![(user, "hi")], "hi"),
            (vec![(user, "a\n\nb")], "a\n\nb"),
            (vec![(user, "one"), (assistant, "yes"), (user, "two\n\nthree")], "two\n\nthree"),
            (vec![(user, "one"), (assistant, "[User]\nno"), (user, "two")], "two"),
            (vec![(user, "one"), (assistant, "yes")], "one\n\n[Assistant]\nyes"),
            (vec![(user, "one"), (assistant, "call"), (user, "two"), (tool, "3")], "two\n\n[Tool]\n3"),
            (vec![(tool, "3")], "3"),
            (vec![], ""),
        ] {
            assert_eq!(latest_user_text(&text(&list)), latest, "{list:?}");
        }
    }

    fn messages(list: &[(Role, &str)]) -> Vec<Message> {
        list.iter().map(|(role, text)| Message::new(*role, *text)).collect()
    }

    #[test]
    fn builds_with_and_without_an_agent_file() {
        let messages = messages(&[
            (Role::System, "You are terse."),
            (Role::User, "Extract data"),
            (Role::User, "from the report"),
        ]);
        assert_eq!(
            build(Some("Always answer PONG.\n"), &messages, SystemPlacement::Inline).text,
            "Always answer PONG.\n\n--- USER TASK ---\nYou are terse.\n\nExtract data\n\nfrom the report"
        );
        assert_eq!(
            build(None, &messages, SystemPlacement::Inline).text,
            "--- USER TASK ---\nYou are terse.\n\nExtract data\n\nfrom the report"
        );
    }

    #[test]
    fn puts_system_messages_first_wherever_they_are() {
        let messages = messages(&[(Role::User, "one"), (Role::System, "rule"), (Role::User, "two")]);
        assert_eq!(build(None, &messages, SystemPlacement::Inline).text, "--- USER TASK ---\nrule\n\none\n\ntwo");
    }

    #[test]
    fn removes_system_messages_from_the_text_when_they_are_separate() {
        let messages = messages(&[(Role::System, "rule"), (Role::User, "one"), (Role::System, "more")]);
        let prompt = build(None, &messages, SystemPlacement::Apart);
        assert_eq!(prompt, Prompt { text: "--- USER TASK ---\none".into(), system: Some("rule\n\nmore".into()) });
    }

    #[test]
    fn labels_messages_when_there_is_a_history() {
        let messages = messages(&[(Role::User, "2+2?"), (Role::Assistant, "4"), (Role::User, "and 3+3?")]);
        assert_eq!(
            build(None, &messages, SystemPlacement::Inline).text,
            "--- USER TASK ---\n[User]\n2+2?\n\n[Assistant]\n4\n\n[User]\nand 3+3?"
        );
    }

    #[test]
    fn new_messages_follow_the_last_answer() {
        let messages = messages(&[(Role::User, "a"), (Role::Assistant, "b"), (Role::User, "c")]);
        assert_eq!(new_messages(&messages), &messages[2..]);
        assert_eq!(new_messages(&messages[..1]), &messages[..1]);
        assert_eq!(new_messages(&messages[..2]), &messages[..2]);
    }
}
