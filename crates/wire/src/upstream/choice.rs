//! Assembly of one choice of an answer from streamed pieces. An answer has several if the request asked for them.

use trunkline_core::event::{Alternative, Event, Finish};

use super::calls::CallAssembler;
use super::chunk::UpstreamChoice;
use super::logprobs::LogprobsAssembler;

/// One choice, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct ChoiceAssembler {
    content: String,
    calls: CallAssembler,
    logprobs: LogprobsAssembler,
    finish: Option<Finish>,
}

/// Reason why a choice is not an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChoiceError {
    TooManyCalls,
    /// The upstream ended the choice with an error; the text is its JSON, if it sent any.
    Reported(Option<String>),
}

impl ChoiceAssembler {
    /// Adds a piece, or the complete choice. Appends an event for each new text or call to `events`.
    pub(super) fn add(&mut self, mut choice: UpstreamChoice<'_>, events: &mut Vec<Event>) -> Result<(), ChoiceError> {
        let whole = choice.is_whole();
        let mut message = choice.take_message();
        let (thought, answer) = message.take_texts();
        if !thought.is_empty() {
            events.push(Event::Thinking { delta: thought });
        }
        if !answer.is_empty() {
            self.content.push_str(&answer);
            events.push(Event::Text { delta: answer });
        }
        for piece in message.pieces() {
            events.extend(self.calls.add(piece, whole).map_err(|_too_many| ChoiceError::TooManyCalls)?);
        }
        if let Some(logprobs) = choice.logprobs {
            self.logprobs.add(logprobs);
        }
        if let Some(error) = choice.error {
            return Err(ChoiceError::Reported(Some(error.get().to_owned())));
        }
        match choice.finish_reason.0.as_deref() {
            None | Some("") => {}
            Some("error") => return Err(ChoiceError::Reported(None)),
            Some(reason) => self.finish = Some(finish(reason)),
        }
        Ok(())
    }

    /// Bytes buffered so far.
    pub(super) fn size(&self) -> usize {
        self.content.len() + self.calls.size + self.logprobs.size()
    }

    /// Whether its last piece has arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Takes the choice as it is.
    pub(super) fn take(&mut self) -> Alternative {
        let finish = match self.finish.unwrap_or(Finish::Stop) {
            // Some servers send `stop` although there are tool calls.
            Finish::Stop if !self.calls.is_empty() => Finish::ToolCalls,
            // And some announce tool calls that never come.
            Finish::ToolCalls if self.calls.is_empty() => Finish::Stop,
            finish @ (Finish::Stop | Finish::Length | Finish::ContentFilter | Finish::ToolCalls) => finish,
        };
        Alternative {
            content: std::mem::take(&mut self.content),
            finish,
            calls: self.calls.take(),
            logprobs: self.logprobs.take(),
        }
    }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "length" | "max_tokens" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        _ => Finish::Stop,
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
