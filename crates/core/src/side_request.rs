//! Side requests: requests that a client sends on its own, such as for the title of a conversation. They are recognised by
//! data: `clients.toml` next to this file, and the user's own file of that name.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use crate::turn::{Message, Role, Turn};

const BUILT_IN: &str = include_str!("clients.toml");

/// Shortest text that identifies a side request, in characters. A shorter one might begin a request of a user.
const MIN_TEXT: usize = 12;

/// Beginning of a prompt that is searched for `prompt_contains`, in bytes.
const SEARCHED_BYTES: usize = 4096;

/// A rule that recognises a side request. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideRequestRule {
    /// Client and purpose, as `client/purpose`.
    pub name: Arc<str>,
    written: WrittenRule,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    client: String,
    purpose: String,
    user_agent: Option<String>,
    system: Option<String>,
    prompt: Option<String>,
    prompt_contains: Option<String>,
    #[serde(default)]
    with_tools: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    #[serde(default)]
    side_request: Vec<WrittenRule>,
}

/// Error of a `clients.toml`.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error(
        "the side request {0}: `system` or `prompt` is required, with at least {MIN_TEXT} characters: a shorter text \
         might begin a request of a user"
    )]
    TooWide(String),
}

/// The rules that are built in.
#[must_use]
pub fn built_in() -> &'static [SideRequestRule] {
    static RULES: LazyLock<Vec<SideRequestRule>> =
        LazyLock::new(|| parse(BUILT_IN).expect("clients.toml is checked by the tests"));
    &RULES
}

/// Parses a `clients.toml`.
pub fn parse(text: &str) -> Result<Vec<SideRequestRule>, ClientsError> {
    let file: WrittenFile = toml::from_str(text)?;
    file.side_request.into_iter().map(SideRequestRule::new).collect()
}

impl SideRequestRule {
    fn new(written: WrittenRule) -> Result<Self, ClientsError> {
        let name = format!("{}/{}", written.client, written.purpose);
        let is_narrow = |text: &String| text.trim().chars().count() >= MIN_TEXT;
        let texts = || [&written.system, &written.prompt].into_iter().flatten();
        if texts().next().is_none() || !texts().all(is_narrow) {
            return Err(ClientsError::TooWide(name));
        }
        Ok(Self { name: name.into(), written })
    }

    /// Whether a turn is this side request. A turn of a session that the client names is none.
    #[must_use]
    pub fn recognises(&self, turn: &Turn, user_agent: Option<&str>) -> bool {
        let WrittenRule { user_agent: agent, system, prompt, prompt_contains, with_tools, .. } = &self.written;
        let begins = |message: &Message, text: &str| message.text.trim_start().starts_with(text);
        let is_system = |text: &String| {
            let mut systems = turn.messages.iter().filter(|message| message.role == Role::System);
            systems.any(|message| begins(message, text))
        };
        let last = turn.messages.last().filter(|message| message.role == Role::User);
        turn.session.is_none()
            && (*with_tools || turn.options.tools.is_none())
            && agent.as_ref().is_none_or(|agent| user_agent.is_some_and(|given| given.starts_with(agent.as_str())))
            && prompt.as_ref().is_none_or(|text| last.is_some_and(|message| begins(message, text)))
            && system.as_ref().is_none_or(is_system)
            && prompt_contains
                .as_ref()
                .is_none_or(|text| last.is_some_and(|message| head(message).contains(text.as_str())))
    }
}

/// The part of a prompt that is searched.
fn head(message: &Message) -> &str {
    let end = (0..=SEARCHED_BYTES.min(message.text.len())).rev().find(|&end| message.text.is_char_boundary(end));
    &message.text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SessionId;
    use crate::turn::{Json, Options};

    fn turn(messages: &[(Role, &str)]) -> Turn {
        Turn { messages: messages.iter().map(|(role, text)| Message::new(*role, *text)).collect(), ..Turn::default() }
    }

    fn found(turn: &Turn, user_agent: Option<&str>) -> Option<String> {
        built_in().iter().find(|rule| rule.recognises(turn, user_agent)).map(|rule| rule.name.to_string())
    }

    #[test]
    fn side_requests_of_known_clients_are_recognised() {
        use Role::{Assistant, System, User};
        let title = "You are a title generator. You output ONLY a thread title. Nothing else.";
        let suggestion = "[SUGGESTION MODE: Suggest what the user might naturally type next into Claude Code.]";
        for (messages, agent, expected) in [
            (
                &[(System, title), (User, "Generate a title for this conversation:\n"), (User, "hi")][..],
                None,
                "opencode/title",
            ),
            (&[(User, "hi"), (Assistant, "yes"), (User, suggestion)], Some("claude-cli/3.1"), "claude-code/suggestion"),
            (
                &[(User, "### Task:\nGenerate a concise title summarizing the chat history.\n")],
                None,
                "open-webui/title",
            ),
            (&[(User, "### Task:\nGenerate 1-3 broad tags categorizing the main themes")], None, "open-webui/tags"),
            (&[(System, "Generate concise conversation titles."), (User, "x")], None, "gptme/title"),
        ] {
            assert_eq!(found(&turn(messages), agent).as_deref(), Some(expected), "{messages:?}");
        }
    }

    #[test]
    fn requests_of_users_are_not_recognised() {
        use Role::{Assistant, System, User};
        let title = "You are a title generator. You output ONLY a thread title.";
        for messages in [
            &[(User, "Generate a title for README.md")][..],
            &[(User, title)],
            &[(User, "### Task:\nGenerate a concise README")],
            &[(User, "### Task:\nGenerate a concise title"), (Assistant, "a"), (User, "now fix the tests")],
            &[(System, "You are a coding agent. You are a title generator."), (User, "hi")],
            &[(User, "why does the log say [SUGGESTION MODE: Suggest what the user might naturally type next")],
            &[],
        ] {
            assert_eq!(found(&turn(messages), None), None, "{messages:?}");
        }
        let side = turn(&[(System, title), (User, "hi")]);
        assert!(found(&side, None).is_some());
        let tools = Some(Json::from(&serde_json::json!([])));
        assert_eq!(found(&Turn { options: Options { tools, ..Options::default() }, ..side.clone() }, None), None);
        assert_eq!(found(&Turn { session: Some(SessionId("s".into())), ..side }, None), None);
    }

    #[test]
    fn rule_that_is_too_wide_is_refused() {
        let rule = |conditions: &str| format!("[[side_request]]\nclient = \"c\"\npurpose = \"p\"\n{conditions}");
        for (conditions, expected) in [
            ("", Err("the side request c/p")),
            ("prompt = \"title\"", Err("the side request c/p")),
            ("prompt = \"Generate a title now\"\nsystem = \"You\"", Err("the side request c/p")),
            ("prompt_contains = \"Generate a title now\"", Err("the side request c/p")),
            ("promt = \"Generate a title now\"", Err("unknown field")),
            ("prompt = \"Generate a title now\"", Ok(1)),
        ] {
            match (parse(&rule(conditions)), expected) {
                (Ok(rules), Ok(number)) => assert_eq!(rules.len(), number),
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{conditions}: {error}"),
                (result, _) => panic!("{conditions}: {result:?}"),
            }
        }
    }

    #[test]
    fn long_prompt_is_searched_at_its_beginning() {
        let rules = "[[side_request]]\nclient = \"c\"\npurpose = \"p\"\nprompt = \"Describe it all\"\nprompt_contains = \"needle\"";
        let rule = parse(rules).unwrap().remove(0);
        let ask = |gap: usize| turn(&[(Role::User, &format!("Describe it all {}needle", "ä".repeat(gap)))]);
        assert!(rule.recognises(&ask(100), None));
        assert!(!rule.recognises(&ask(SEARCHED_BYTES), None));
    }
}
