//! Conversation state of a surface: the messages so far, and the model that remembers them in a session.
//!
//! A chat page or a terminal sends one turn after another, possibly to different models. A model that has a session for
//! the conversation continues it; any other model gets the whole history.

use serde::{Deserialize, Serialize};

use crate::event::{Event, SessionId};
use crate::failure::Category;
use crate::turn::{Message, Role, Turn};

/// Placeholder for an answer that was interrupted before its first text.
pub const INTERRUPTED: &str = "[interrupted]";

/// Messages of a conversation in order, and the session that remembers them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    #[serde(rename = "said")]
    messages: Vec<ConversationMessage>,
    /// The session that contains all of the messages.
    #[serde(rename = "thread")]
    remembered: Option<RememberedSession>,
    /// The turn in flight.
    #[serde(skip)]
    open: Option<OpenTurn>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ConversationMessage {
    role: Role,
    text: String,
}

/// Model that remembers the conversation, and its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedSession {
    model: String,
    session: SessionId,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OpenTurn {
    model: String,
    session: Option<SessionId>,
    /// Text since the last tool started.
    text: String,
    /// The model began to answer, so its session contains the question.
    begun: bool,
    /// An attempt failed. The next event tells whether it was the last one.
    attempt_failed: bool,
}

impl Conversation {
    /// Continues a session of a model from an earlier conversation.
    #[must_use]
    pub fn resume(model: &str, session: SessionId) -> Self {
        Self { remembered: Some(RememberedSession { model: model.to_owned(), session }), ..Self::default() }
    }

    /// Adds the messages of that earlier conversation, for models without the session.
    #[must_use]
    pub fn told(self, messages: impl IntoIterator<Item = (Role, String)>) -> Self {
        Self { messages: messages.into_iter().map(|(role, text)| ConversationMessage { role, text }).collect(), ..self }
    }

    /// Returns the next turn, with the history before it. A turn that is still open counts as interrupted.
    pub fn ask(&mut self, model: &str, text: &str) -> Turn {
        self.interrupt();
        self.messages.push(ConversationMessage { role: Role::User, text: text.to_owned() });
        let session = self.session_of(model).cloned();
        self.open = Some(OpenTurn { model: model.to_owned(), session: session.clone(), ..OpenTurn::default() });
        let messages = self.messages.iter().map(|message| Message::new(message.role, message.text.clone())).collect();
        Turn { model: model.to_owned(), messages, session, ..Turn::default() }
    }

    /// Updates the conversation from an event of the open turn.
    pub fn hear(&mut self, event: &Event) {
        let Some(open) = &mut self.open else { return };
        if std::mem::take(&mut open.attempt_failed) && !matches!(event, Event::Failed(_)) {
            (open.session, open.begun) = (None, false);
            open.text.clear();
        }
        match event {
            Event::Started { session: Some(session), .. } => open.session = Some(session.clone()),
            Event::Text { delta } => {
                open.begun = true;
                open.text.push_str(delta);
            }
            // Text before a tool is not part of the answer.
            Event::ToolStarted { .. } => {
                open.begun = true;
                open.text.clear();
            }
            Event::Attempted(attempt) => open.attempt_failed = attempt.category.is_some(),
            Event::Finished(answer) => self.close(answer.content.clone()),
            // A model that began to answer has found its session, and the session contains the question.
            Event::Failed(_) if open.begun => self.interrupt(),
            Event::Failed(failure) => self.drop_open_turn(failure.category),
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_) => {}
        }
    }

    /// Ends the open turn early. The text shown so far becomes its answer.
    pub fn interrupt(&mut self) {
        if let Some(open) = &mut self.open {
            let text = std::mem::take(&mut open.text);
            self.close(if text.trim().is_empty() { INTERRUPTED.to_owned() } else { text });
        }
    }

    /// Removes a turn that was requested but never began.
    pub fn withdraw(&mut self, why: Category) {
        if self.open.is_some() {
            self.messages.pop();
        }
        self.drop_open_turn(why);
    }

    /// Session that remembers the conversation.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        self.remembered.as_ref().map(|remembered| &remembered.session)
    }

    fn session_of(&self, model: &str) -> Option<&SessionId> {
        self.remembered.as_ref().filter(|remembered| remembered.model == model).map(|remembered| &remembered.session)
    }

    /// Drops the open turn. Its model may have lost the session.
    fn drop_open_turn(&mut self, why: Category) {
        let Some(open) = self.open.take() else { return };
        if !still_remembered(why) && self.session_of(&open.model).is_some() {
            self.remembered = None;
        }
    }

    fn close(&mut self, text: String) {
        self.messages.push(ConversationMessage { role: Role::Assistant, text });
        if let Some(OpenTurn { model, session, .. }) = self.open.take() {
            self.remembered = session.map(|session| RememberedSession { model, session });
        }
    }
}

/// Whether a session can be continued after a failure of this category. If the failure may be about the session itself,
/// the next turn sends the whole history in a new session.
const fn still_remembered(category: Category) -> bool {
    match category {
        Category::Quota
        | Category::RateLimit
        | Category::Authentication
        | Category::Network
        | Category::Server
        | Category::Timeout
        | Category::SchemaMismatch
        | Category::Cancelled => true,
        Category::Validation | Category::NotFound | Category::Configuration | Category::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Answer, Finish, Usage};
    use crate::failure::Failure;

    fn started(session: &str) -> Event {
        Event::Started { session: Some(SessionId(session.into())), model: None }
    }

    fn text(delta: &str) -> Event {
        Event::Text { delta: delta.into() }
    }

    fn finished(content: &str) -> Event {
        Event::Finished(Answer::new(content, Usage::default(), Finish::Stop))
    }

    fn texts(turn: &Turn) -> Vec<&str> {
        turn.messages.iter().map(|message| message.text.as_str()).collect()
    }

    fn session(turn: &Turn) -> Option<&str> {
        turn.session.as_ref().map(|session| &*session.0)
    }

    fn after(events: &[Event]) -> Conversation {
        let mut conversation = Conversation::default();
        conversation.ask("a", "one");
        events.iter().for_each(|event| conversation.hear(event));
        conversation
    }

    #[test]
    fn continues_the_session_for_the_same_model_and_sends_the_history_to_another() {
        let mut conversation = after(&[started("s"), text("look"), finished("done")]);
        let mut other = conversation.clone();
        let turn = conversation.ask("a", "two");
        assert_eq!((session(&turn), texts(&turn)), (Some("s"), vec!["one", "done", "two"]));
        let turn = other.ask("b", "two");
        assert_eq!((session(&turn), texts(&turn)), (None, vec!["one", "done", "two"]));
        other.hear(&finished("from b"));
        let back = other.ask("a", "three");
        assert_eq!(session(&back), None, "the session of a does not contain the answer of b");
    }

    #[test]
    fn sends_the_history_when_the_model_has_no_session() {
        let mut conversation = after(&[finished("1")]);
        let turn = conversation.ask("a", "two");
        assert_eq!((session(&turn), texts(&turn)), (None, vec!["one", "1", "two"]));
    }

    #[test]
    fn keeps_the_shown_text_when_an_answer_is_interrupted() {
        let tool = Event::ToolStarted { id: "t".into(), name: "bash".into(), input: serde_json::Value::Null };
        for (events, kept) in [
            (vec![started("s"), text("half an")], "half an"),
            (vec![started("s")], INTERRUPTED),
            (vec![started("s"), text("let me see"), tool.clone()], INTERRUPTED),
            (vec![started("s"), tool, text("it is")], "it is"),
        ] {
            let mut conversation = after(&events);
            let turn = conversation.ask("a", "two");
            assert_eq!((session(&turn), texts(&turn)), (Some("s"), vec!["one", kept, "two"]));
        }
    }

    #[test]
    fn drops_the_session_when_the_failure_may_be_about_it() {
        for category in Category::ALL {
            let mut conversation = after(&[started("s"), finished("1")]);
            conversation.ask("a", "two");
            conversation.hear(&Event::Failed(Failure::new(category, "no")));
            let turn = conversation.ask("a", "three");
            assert_eq!(session(&turn).is_some(), still_remembered(category), "{category:?}");
            assert_eq!(texts(&turn), ["one", "1", "two", "three"]);
        }
    }

    #[test]
    fn keeps_the_session_when_the_model_failed_after_it_began_to_answer() {
        let failed = Event::Failed(Failure::new(Category::Server, "no"));
        for (events, texts_next) in [
            (vec![started("s"), failed.clone()], vec!["one", "two"]),
            (vec![started("s"), text("half"), failed], vec!["one", "half", "two"]),
        ] {
            let mut conversation = after(&events);
            let turn = conversation.ask("a", "two");
            assert_eq!((session(&turn).is_some(), texts(&turn)), (events.len() == 3, texts_next));
        }
    }

    fn attempt_failed(category: Category) -> Event {
        let attempted = crate::event::Attempted {
            provider: "p".into(),
            model: "a".into(),
            category: Some(category),
            message: None,
            duration: std::time::Duration::ZERO,
            workspace: None,
            sandbox: None,
        };
        Event::Attempted(attempted.into())
    }

    #[test]
    fn drops_the_session_of_a_failed_attempt_when_another_attempt_answers() {
        let mut conversation = after(&[started("s"), attempt_failed(Category::Server), finished("1")]);
        assert_eq!(session(&conversation.ask("a", "two")), None);
    }

    #[test]
    fn keeps_the_session_when_the_last_attempt_failed_in_the_middle_of_an_answer() {
        for category in Category::ALL {
            let failed = Event::Failed(Failure::new(category, "no"));
            let mut conversation = after(&[started("s"), text("half"), attempt_failed(category), failed]);
            let turn = conversation.ask("a", "two");
            assert_eq!((session(&turn), texts(&turn)), (Some("s"), vec!["one", "half", "two"]), "{category:?}");
        }
    }

    #[test]
    fn keeps_the_session_when_another_model_fails() {
        let mut conversation = after(&[started("s"), finished("1")]);
        conversation.ask("b", "two");
        conversation.hear(&Event::Failed(Failure::new(Category::Validation, "no")));
        assert_eq!(session(&conversation.ask("a", "three")), Some("s"));
    }

    #[test]
    fn removes_the_question_when_its_turn_never_began() {
        for category in Category::ALL {
            let mut conversation = after(&[]);
            conversation.withdraw(category);
            assert_eq!(conversation, Conversation::default());
            let mut conversation = after(&[started("s"), finished("1")]);
            conversation.ask("a", "two");
            conversation.withdraw(category);
            let turn = conversation.ask("a", "three");
            assert_eq!(session(&turn).is_some(), still_remembered(category), "{category:?}");
            assert_eq!(texts(&turn), ["one", "1", "three"]);
        }
    }

    #[test]
    fn sends_the_earlier_history_to_another_model_when_a_session_is_resumed() {
        let earlier = [(Role::User, "one".to_owned()), (Role::Assistant, "1".to_owned())];
        let mut conversation = Conversation::resume("a", SessionId("s".into())).told(earlier);
        let mut other = conversation.clone();
        let turn = conversation.ask("a", "two");
        assert_eq!((session(&turn), texts(&turn)), (Some("s"), vec!["one", "1", "two"]));
        let turn = other.ask("b", "two");
        assert_eq!((session(&turn), texts(&turn)), (None, vec!["one", "1", "two"]));
    }

    #[test]
    fn is_the_same_after_serialization() {
        let conversation = after(&[started("s"), finished("1")]);
        let json = serde_json::to_string(&conversation).unwrap();
        assert_eq!(serde_json::from_str::<Conversation>(&json).unwrap(), conversation);
        let resumed = Conversation::resume("a", SessionId("s".into())).ask("a", "two");
        assert_eq!((session(&resumed), texts(&resumed)), (Some("s"), vec!["two"]));
    }
}
