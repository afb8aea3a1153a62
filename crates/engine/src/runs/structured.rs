//! Structured output of a run: the instruction in the prompt, the check of each answer, and one repair turn.
//!
//! ```text
//! attempt ──answer──▶ check ──valid──▶ bare JSON
//!    ▲                  │ first invalid answer
//!    └──── correction ──┘ ──second invalid answer──▶ failure, or the best answer with a note (strict: false)
//! ```
//!
//! An HTTP upstream has structured output of its own: it gets the request as the client sent it, and its answer is not
//! checked. A repair turn is an attempt like any other: it continues the session of the answer if the provider keeps
//! sessions, and otherwise gets the conversation with the answer and the correction at its end.

use std::borrow::Cow;
use std::sync::Arc;

use trunkline_core::event::{Answer, Finish, Receipt, SessionId, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Backend, Model};
use trunkline_core::turn::{Message, Role, Turn};

use crate::schema::{AnswerContract, Rejection, Verdict};
use crate::session::SessionThread;

/// Maximum length of an answer in the message of a failure.
const MAX_REPORTED_ANSWER_BYTES: usize = 3000;

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

    /// Whether the gateway checks the answers of a model.
    pub(crate) fn applies_to(model: &Model) -> bool {
        match &model.backend {
            Backend::Program(_) | Backend::Agent(_) => true,
            Backend::Api(_) => false,
        }
    }

    /// Returns the turn as the provider gets it.
    pub(crate) fn prepare<'a>(&self, turn: &'a Turn, model: &Model) -> Cow<'a, Turn> {
        if !Self::applies_to(model) {
            return Cow::Borrowed(turn);
        }
        let mut turn = turn.clone();
        add_instruction(&mut turn.messages, &self.contract.instruction());
        if let Some(repair) = &self.repair {
            turn.messages.push(Message::new(Role::Assistant, repair.content.clone()));
            turn.messages.push(Message::new(Role::User, repair.correction.clone()));
            turn.session = repair.session.clone().filter(|_| repair.provider == model.backend.name());
        }
        Cow::Owned(turn)
    }

    /// Carries the session of the first answer over to the repair: a provider need not report it again.
    pub(crate) fn continue_session(&self, thread: &mut SessionThread, model: &Model) {
        let repair = self.repair.as_ref().filter(|repair| repair.provider == model.backend.name());
        if let Some(session) = repair.and_then(|repair| repair.session.clone()) {
            thread.set_native(session);
        }
    }

    /// Checks an answer. `session` is the provider's id of the session, if it can be resumed.
    pub(crate) fn check(
        &mut self,
        model: &Model,
        mut answer: Answer,
        session: Option<SessionId>,
        receipt: Option<&Receipt>,
    ) -> AnswerCheck {
        // A client calls its tools before it gets an answer.
        if !Self::applies_to(model) || answer.finish == Finish::ToolCalls {
            return AnswerCheck::Accepted(answer);
        }
        let verdict = self.contract.check(&answer.content);
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
                answer.notes.push("the answer was cut off, so it does not match the schema".to_owned());
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
                answer.notes.push(format!("the answer does not match the schema:\n{}", rejection.listed()));
                AnswerCheck::Accepted(Answer { content, ..answer })
            }
        }
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
