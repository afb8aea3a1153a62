//! Texts for the model: the form that its answer must have, and what was wrong with an answer.

use super::{AnswerContract, ContractShape, Rejection};

impl AnswerContract {
    /// Returns the instruction for the end of the prompt.
    pub(crate) fn instruction(&self) -> String {
        match &self.shape {
            ContractShape::Object => {
                "Answer with exactly one JSON object and nothing else: no prose before or after it, and no code fence."
                    .to_owned()
            }
            ContractShape::Schema { text, .. } => format!(
                "Answer with exactly one JSON value and nothing else: no prose before or after it, and no code fence. \
                 The value must match this JSON Schema:\n{text}"
            ),
        }
    }

    /// Returns the message that asks for a corrected answer.
    pub(crate) fn correction(&self, rejection: &Rejection) -> String {
        let wanted = match &self.shape {
            ContractShape::Object => "one JSON object",
            ContractShape::Schema { .. } => "one JSON value that matches the JSON Schema",
        };
        format!(
            "Your answer was not accepted. Problems:\n{}\n\nAnswer again, with {wanted} and nothing else: no prose before or \
             after it, and no code fence. Do not repeat the work.",
            rejection.listed()
        )
    }
}

impl Rejection {
    /// Returns the problems as a list.
    pub(crate) fn listed(&self) -> String {
        self.problems.iter().map(|problem| format!("- {problem}")).collect::<Vec<_>>().join("\n")
    }
}
