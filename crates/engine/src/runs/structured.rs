//! Structured output of a run: the instruction in the prompt, the check of each answer, and one repair turn.
//!
//! ```text
//! attempt ──answer──▶ check ──valid──▶ bare JSON
//!    ▲                  │ first invalid answer
//!    └──── correction ──┘ ──second invalid answer──▶ failure, or the best answer with a note (strict: false)
//! ```
//!
//! An HTTP upstream has structured output of its own: it gets the request as the client sent it. An answer that a client has
//! seen while it was written cannot be repaired; it is checked at its end. A repair turn is an attempt like any other: it continues the session of the answer if the provider keeps
//! sessions, and otherwise gets the conversation with the answer and the correction at its end.

use std::borrow::Cow;
use std::sync::Arc;

use trunkline_core::event::{Answer, Finish, Receipt, SessionId, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Backend, Model};
use trunkline_core::turn::{AnswerTiming, Message, Role, Turn};

use crate::attempt::request::NativeSchema;
use crate::schema::{AnswerContract, Rejection, Verdict};
use crate::session::SessionThread;

/// Maximum length of an answer in the message of a failure.
const MAX_REPORTED_ANSWER_BYTES: usize = 3000;

/// Note about an answer that is not complete.
const CUT_OFF_NOTE: &str = "the answer was cut off, so it does not match the schema";

/// Structured output of a run.
pub(crate) struct StructuredOutput {
    contract: Arc<AnswerContract>,
    repair: Option<Repair>,
    /// Workspace of the answer that was repaired.
    first_receipt: Option<Receipt>,
}

/// First answer of a model, which is being repaired.
struct Repair {
    provider: String,
    content: String,
    rejection: Rejection,
    correction: String,
    usage: Usage,
    /// The provider's id of the session with that answer.
    session: Option<SessionId>,
}

impl Repair {
    /// The session with the answer, if this model can continue it.
    fn session_at(&self, model: &Model) -> Option<SessionId> {
        self.session.clone().filter(|_| self.provider == model.backend.name())
    }
}

/// A turn as a provider gets it.
pub(crate) struct PreparedTurn<'a> {
    pub(crate) turn: Cow<'a, Turn>,
    /// Schema that is not in the messages of the turn.
    pub(crate) schema: Option<NativeSchema>,
}

/// When an answer is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckTime {
    /// Nothing is shown before the answer is valid.
    BeforeShown,
    /// The client has seen the answer as it came.
    AfterShown,
}

/// Outcome of the check of an answer.
pub(crate) enum AnswerCheck {
    /// The answer for the client.
    Accepted(Answer),
    /// The model gets one more turn. The failure is that of the attempt.
    Repair(Failure),
    Rejected(Failure),
}

impl StructuredOutput {
    pub(crate) fn new(contract: Arc<AnswerContract>) -> Self {
        Self { contract, repair: None, first_receipt: None }
    }

    /// When the answer of a model is checked. The stream of an upstream is passed on as it comes, as the client expects of it.
    pub(crate) fn check_time(model: &Model, shown: AnswerTiming) -> CheckTime {
        match (&model.backend, shown) {
            (Backend::Api(_), AnswerTiming::AsItComes) => CheckTime::AfterShown,
            (Backend::Api(_), AnswerTiming::AtTheEnd) | (Backend::Program(_) | Backend::Agent(_), _) => {
                CheckTime::BeforeShown
            }
        }
    }

    /// Returns the turn as the provider gets it.
    pub(crate) fn prepare<'a>(&self, turn: &'a Turn, model: &Model) -> PreparedTurn<'a> {
        let schema = self.native_schema(model);
        // An upstream gets the schema as the client sent it. It has ignored it if its answer must be repaired.
        let instructed = match &model.backend {
            Backend::Program(_) => schema.is_none(),
            Backend::Agent(_) => true,
            Backend::Api(_) => self.repair.is_some(),
        };
        if !instructed && self.repair.is_none() {
            return PreparedTurn { turn: Cow::Borrowed(turn), schema };
        }
        let mut turn = turn.clone();
        if instructed {
            add_instruction(&mut turn.messages, &self.contract.instruction());
        }
        if let Some(repair) = &self.repair {
            turn.messages.push(Message::new(Role::Assistant, repair.content.clone()));
            turn.messages.push(Message::new(Role::User, repair.correction.clone()));
            turn.session = repair.session_at(model);
        }
        PreparedTurn { turn: Cow::Owned(turn), schema }
    }

    /// The schema for a CLI that passes it on to its model.
    fn native_schema(&self, model: &Model) -> Option<NativeSchema> {
        let text = self.contract.native(model.backend.program()?.schemas?)?;
        let known = self.repair.as_ref().and_then(|repair| repair.session_at(model)).is_some();
        Some(NativeSchema { text, instruction: (!known).then(|| self.contract.instruction()) })
    }

    /// Carries the session of the first answer over to the repair: a provider need not report it again.
    pub(crate) fn continue_session(&self, thread: &mut SessionThread, model: &Model) {
        if let Some(session) = self.repair.as_ref().and_then(|repair| repair.session_at(model)) {
            thread.set_native(session);
        }
    }

    /// Checks an answer. `session` is the provider's id of the session, if it can be resumed.
    pub(crate) fn check(
        &mut self,
        model: &Model,
        time: CheckTime,
        mut answer: Answer,
        session: Option<SessionId>,
        receipt: Option<&Receipt>,
    ) -> AnswerCheck {
        // A client calls its tools before it gets an answer.
        if answer.finish == Finish::ToolCalls {
            return AnswerCheck::Accepted(answer);
        }
        let verdict = self.contract.check(&answer.content);
        if time == CheckTime::AfterShown {
            return self.check_shown(verdict, answer);
        }
        let earlier = self.repair.take();
        match &earlier {
            Some(earlier) => answer.usage = earlier.usage.plus(answer.usage),
            None => self.first_receipt = None,
        }
        match (verdict, earlier) {
            (Verdict::Accepted(content), earlier) => {
                if earlier.is_some() {
                    answer.notes.push("the first answer did not match the schema; this one was repaired".to_owned());
                }
                AnswerCheck::Accepted(Answer { content, ..answer })
            }
            (Verdict::Rejected(_), _) if answer.finish != Finish::Stop => {
                answer.notes.push(CUT_OFF_NOTE.to_owned());
                AnswerCheck::Accepted(answer)
            }
            (Verdict::Rejected(rejection), None) => {
                let failure = mismatch(&rejection, &answer.content);
                self.repair = Some(Repair {
                    provider: model.backend.name().to_owned(),
                    correction: self.contract.correction(&rejection),
                    content: answer.content,
                    rejection,
                    usage: answer.usage,
                    session,
                });
                self.first_receipt = receipt.cloned();
                AnswerCheck::Repair(failure)
            }
            (Verdict::Rejected(rejection), Some(earlier)) => {
                let (rejection, content) = match earlier.rejection.is_json && !rejection.is_json {
                    true => (earlier.rejection, earlier.content),
                    false => (rejection, answer.content),
                };
                if self.contract.is_strict() {
                    return AnswerCheck::Rejected(mismatch(&rejection, &content));
                }
                answer.notes.push(mismatch_note(&rejection));
                AnswerCheck::Accepted(Answer { content, ..answer })
            }
        }
    }

    /// Decides about an answer that the client has seen already.
    fn check_shown(&self, verdict: Verdict, mut answer: Answer) -> AnswerCheck {
        match verdict {
            Verdict::Accepted(json) if json == answer.content.trim() => {}
            Verdict::Accepted(_) => answer.notes.push("the answer has text around its JSON".to_owned()),
            Verdict::Rejected(_) if answer.finish != Finish::Stop => answer.notes.push(CUT_OFF_NOTE.to_owned()),
            Verdict::Rejected(rejection) if self.contract.is_strict() => {
                return AnswerCheck::Rejected(mismatch(&rejection, &answer.content));
            }
            Verdict::Rejected(rejection) => answer.notes.push(mismatch_note(&rejection)),
        }
        AnswerCheck::Accepted(answer)
    }

    /// Returns the workspace to report: that of the first answer, unless the repair changed files.
    pub(crate) fn receipt(&self, last: Option<Receipt>) -> Option<Receipt> {
        match (self.first_receipt.clone(), last) {
            (Some(first), Some(last)) if last.commit.is_none() => Some(first),
            (first, last) => last.or(first),
        }
    }
}

/// Adds the instruction to the last message: executables get that one apart from the earlier ones.
fn add_instruction(messages: &mut Vec<Message>, instruction: &str) {
    match messages.iter_mut().rfind(|message| message.role != Role::System) {
        Some(message) if message.role == Role::User => {
            message.text = format!("{}\n\n{instruction}", message.text);
        }
        Some(_) | None => messages.push(Message::new(Role::User, instruction)),
    }
}

fn mismatch_note(rejection: &Rejection) -> String {
    format!("the answer does not match the schema:\n{}", rejection.listed())
}

fn mismatch(rejection: &Rejection, answer: &str) -> Failure {
    let shown = crate::runs::masking::head(answer, MAX_REPORTED_ANSWER_BYTES);
    let message = format!(
        "the answer does not match the schema: {}\n{}\nThe answer was:\n{shown}",
        rejection.problems.first().map(String::as_str).unwrap_or_default(),
        rejection.listed()
    );
    Failure::new(Category::SchemaMismatch, message)
}

#[cfg(test)]
#[path = "structured_tests.rs"]
mod tests;
