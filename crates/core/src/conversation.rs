//! A conversation as a surface keeps it: what was said so far, and who remembers it.
//!
//! A chat page and a terminal ask one thing after the other, perhaps of different models. A model that keeps the
//! conversation itself is asked to go on with it; any other is told everything that was said.

use serde::{Deserialize, Serialize};

use crate::event::{Event, SessionId};
use crate::failure::Category;
use crate::turn::{Message, Role, Turn};

/// Stands for an answer that was cut off before its first word.
pub const INTERRUPTED: &str = "[interrupted]";

/// What was said, in order, and with whom the talk can be gone on with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    said: Vec<ConversationMessage>,
    thread: Option<RememberedSession>,
    /// The turn that is on its way.
    #[serde(skip)]
    open: Option<OpenTurn>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ConversationMessage {
    role: Role,
    text: String,
}

/// A model that remembers the conversation, and its name for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedSession {
    model: String,
    session: SessionId,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OpenTurn {
    model: String,
    session: Option<SessionId>,
    /// What was shown since the last tool.
    text: String,
    /// It has begun to answer: it has heard what was asked.
    begun: bool,
    /// An attempt has failed. Whether it was the last, the next event tells.
    attempt_failed: bool,
}

impl Conversation {
    /// A conversation that a model remembers from an earlier time.
    #[must_use]
    pub fn resume(model: &str, session: SessionId) -> Self {
        Self { thread: Some(RememberedSession { model: model.to_owned(), session }), ..Self::default() }
    }

    /// What was said at that earlier time, for those who do not remember it.
    #[must_use]
    pub fn told(self, said: impl IntoIterator<Item = (Role, String)>) -> Self {
        Self { said: said.into_iter().map(|(role, text)| ConversationMessage { role, text }).collect(), ..self }
    }

    /// The next turn, with everything before it. A turn that was still open counts as interrupted.
    pub fn ask(&mut self, model: &str, text: &str) -> Turn {
        self.interrupt();
        self.said.push(ConversationMessage { role: Role::User, text: text.to_owned() });
        let session = self.thread.as_ref().filter(|thread| thread.model == model).map(|thread| thread.session.clone());
        self.open = Some(OpenTurn { model: model.to_owned(), session: session.clone(), ..OpenTurn::default() });
        let messages = self.said.iter().map(|said| Message::new(said.role, said.text.clone())).collect();
        Turn { model: model.to_owned(), messages, session, ..Turn::default() }
    }

    /// Takes in an event of the turn that is open.
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
            // What was said before a tool is not the answer.
            Event::ToolStarted { .. } => {
                open.begun = true;
                open.text.clear();
            }
            Event::Attempted(attempt) => open.attempt_failed = attempt.category.is_some(),
            Event::Finished(answer) => self.close(answer.content.clone()),
            // Who has begun to answer has found the session and heard the question, whatever went wrong after that.
            Event::Failed(_) if open.begun => self.interrupt(),
            Event::Failed(failure) => self.refused(failure.category),
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_) => {}
        }
    }

    /// The open turn was stopped: what was shown of its answer is all there will be.
    pub fn interrupt(&mut self) {
        if let Some(open) = &mut self.open {
            let text = std::mem::take(&mut open.text);
            self.close(if text.trim().is_empty() { INTERRUPTED.to_owned() } else { text });
        }
    }

    /// The turn that was asked for never began, and was never said.
    pub fn withdraw(&mut self, why: Category) {
        if self.open.is_some() {
            self.said.pop();
        }
        self.refused(why);
    }

    /// Under which name a model remembers what was said.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        self.thread.as_ref().map(|thread| &thread.session)
    }

    /// The open turn came to nothing: its model may not remember what came before it.
    fn refused(&mut self, why: Category) {
        let Some(open) = self.open.take() else { return };
        if !still_remembered(why) && self.thread.as_ref().is_some_and(|thread| thread.model == open.model) {
            self.thread = None;
        }
    }

    fn close(&mut self, text: String) {
        self.said.push(ConversationMessage { role: Role::Assistant, text });
        if let Some(OpenTurn { model, session, .. }) = self.open.take() {
            self.thread = session.map(|session| RememberedSession { model, session });
        }
    }
}

/// Whether a conversation can still be gone on with after a failure of this kind. Where the failure may be about the
/// conversation itself, the next turn tells everything anew.
const fn still_remembered(category: Category) -> bool {
    match category {
        Category::Quota
        | Category::RateLimit
        | Category::Authentication
        | Category::Network
        | Category::Server
        | Category::Timeout
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

    fn told(turn: &Turn) -> Vec<&str> {
        turn.messages.iter().map(|message| message.text.as_str()).collect()
    }

    fn session(turn: &Turn) -> Option<&str> {
        turn.session.as_ref().map(|session| session.0.as_str())
    }

    fn after(events: &[Event]) -> Conversation {
        let mut talk = Conversation::default();
        talk.ask("a", "one");
        events.iter().for_each(|event| talk.hear(event));
        talk
    }

    #[test]
    fn the_same_model_goes_on_and_another_is_told_everything() {
        let mut talk = after(&[started("s"), text("look"), finished("done")]);
        let mut other = talk.clone();
        let turn = talk.ask("a", "two");
        assert_eq!((session(&turn), told(&turn)), (Some("s"), vec!["one", "done", "two"]));
        let turn = other.ask("b", "two");
        assert_eq!((session(&turn), told(&turn)), (None, vec!["one", "done", "two"]));
        other.hear(&finished("from b"));
        let back = other.ask("a", "three");
        assert_eq!(session(&back), None, "what b said is not in a's memory");
    }

    #[test]
    fn a_model_without_a_memory_is_told_everything() {
        let mut talk = after(&[finished("1")]);
        let turn = talk.ask("a", "two");
        assert_eq!((session(&turn), told(&turn)), (None, vec!["one", "1", "two"]));
    }

    #[test]
    fn what_was_shown_of_an_interrupted_answer_is_kept() {
        let tool = Event::ToolStarted { id: "t".into(), name: "bash".into(), input: serde_json::Value::Null };
        for (events, kept) in [
            (vec![started("s"), text("half an")], "half an"),
            (vec![started("s")], INTERRUPTED),
            (vec![started("s"), text("let me see"), tool.clone()], INTERRUPTED),
            (vec![started("s"), tool, text("it is")], "it is"),
        ] {
            let mut talk = after(&events);
            let turn = talk.ask("a", "two");
            assert_eq!((session(&turn), told(&turn)), (Some("s"), vec!["one", kept, "two"]));
        }
    }

    #[test]
    fn a_failure_about_the_conversation_ends_its_memory() {
        for category in Category::ALL {
            let mut talk = after(&[started("s"), finished("1")]);
            talk.ask("a", "two");
            talk.hear(&Event::Failed(Failure::new(category, "no")));
            let turn = talk.ask("a", "three");
            assert_eq!(session(&turn).is_some(), still_remembered(category), "{category:?}");
            assert_eq!(told(&turn), ["one", "1", "two", "three"]);
        }
    }

    #[test]
    fn who_failed_after_a_beginning_has_heard_the_question() {
        let failed = Event::Failed(Failure::new(Category::Server, "no"));
        for (events, told_next) in [
            (vec![started("s"), failed.clone()], vec!["one", "two"]),
            (vec![started("s"), text("half"), failed], vec!["one", "half", "two"]),
        ] {
            let mut talk = after(&events);
            let turn = talk.ask("a", "two");
            assert_eq!((session(&turn).is_some(), told(&turn)), (events.len() == 3, told_next));
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
    fn a_session_of_an_attempt_that_failed_is_nobodys() {
        let mut talk = after(&[started("s"), attempt_failed(Category::Server), finished("1")]);
        assert_eq!(session(&talk.ask("a", "two")), None);
    }

    #[test]
    fn who_failed_in_the_middle_of_an_answer_still_remembers() {
        for category in Category::ALL {
            let failed = Event::Failed(Failure::new(category, "no"));
            let mut talk = after(&[started("s"), text("half"), attempt_failed(category), failed]);
            let turn = talk.ask("a", "two");
            assert_eq!((session(&turn), told(&turn)), (Some("s"), vec!["one", "half", "two"]), "{category:?}");
        }
    }

    #[test]
    fn a_failure_of_another_model_says_nothing_against_a_session() {
        let mut talk = after(&[started("s"), finished("1")]);
        talk.ask("b", "two");
        talk.hear(&Event::Failed(Failure::new(Category::Validation, "no")));
        assert_eq!(session(&talk.ask("a", "three")), Some("s"));
    }

    #[test]
    fn a_turn_that_never_began_was_never_said() {
        for category in Category::ALL {
            let mut talk = after(&[]);
            talk.withdraw(category);
            assert_eq!(talk, Conversation::default());
            let mut talk = after(&[started("s"), finished("1")]);
            talk.ask("a", "two");
            talk.withdraw(category);
            let turn = talk.ask("a", "three");
            assert_eq!(session(&turn).is_some(), still_remembered(category), "{category:?}");
            assert_eq!(told(&turn), ["one", "1", "three"]);
        }
    }

    #[test]
    fn what_was_said_at_an_earlier_time_is_told_to_another_model() {
        let said = [(Role::User, "one".to_owned()), (Role::Assistant, "1".to_owned())];
        let mut talk = Conversation::resume("a", SessionId("s".into())).told(said);
        let mut other = talk.clone();
        let turn = talk.ask("a", "two");
        assert_eq!((session(&turn), told(&turn)), (Some("s"), vec!["one", "1", "two"]));
        let turn = other.ask("b", "two");
        assert_eq!((session(&turn), told(&turn)), (None, vec!["one", "1", "two"]));
    }

    #[test]
    fn it_is_read_back_as_it_was_written() {
        let talk = after(&[started("s"), finished("1")]);
        let json = serde_json::to_string(&talk).unwrap();
        assert_eq!(serde_json::from_str::<Conversation>(&json).unwrap(), talk);
        let resumed = Conversation::resume("a", SessionId("s".into())).ask("a", "two");
        assert_eq!((session(&resumed), told(&resumed)), (Some("s"), vec!["two"]));
    }
}
