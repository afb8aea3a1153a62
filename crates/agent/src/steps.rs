//! The agent loop without I/O: decides the next step from the events so far.
//!
//! The loop calls the model, runs the tool calls of its answer in order, and repeats until an answer has no tool calls.

use trunkline_core::event::{Answer, ToolCall, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::Message;

use crate::transcript::AgentTranscript;

/// Default for the maximum number of model calls in one turn.
pub const DEFAULT_MAX_MODEL_CALLS: u32 = 50;

/// One turn of the agent.
#[derive(Debug)]
pub struct Steps {
    transcript: AgentTranscript,
    /// Maximum number of model calls.
    limit: u32,
    model_calls: u32,
    usage: Usage,
    answer: Option<Answer>,
}

/// The next step of a turn.
#[derive(Debug, PartialEq)]
pub enum NextStep {
    CallModel,
    RunTool(ToolCall),
    Finish(Answer),
    Fail(Failure),
}

impl Steps {
    /// Starts a turn. The last message of the transcript is the user's.
    #[must_use]
    pub fn new(transcript: AgentTranscript, limit: Option<u32>) -> Self {
        let limit = limit.unwrap_or(DEFAULT_MAX_MODEL_CALLS).max(1);
        Self { transcript, limit, model_calls: 0, usage: Usage::default(), answer: None }
    }

    #[must_use]
    pub fn messages(&self) -> &[Message] {
        self.transcript.messages()
    }

    /// The next step. Does not change until `answered`, `tool_finished` or `interrupt` is called.
    #[must_use]
    pub fn next(&self) -> NextStep {
        if let Some(call) = self.transcript.open().first() {
            return NextStep::RunTool(call.clone());
        }
        match &self.answer {
            Some(answer) => NextStep::Finish(answer.clone()),
            None if self.model_calls >= self.limit => NextStep::Fail(too_many(self.limit)),
            None => NextStep::CallModel,
        }
    }

    /// Records an answer of the model.
    pub fn answered(&mut self, answer: Answer) {
        self.model_calls += 1;
        self.usage = if self.model_calls == 1 { answer.usage } else { self.usage.plus(answer.usage) };
        let Answer { content, finish, calls, metadata, .. } = answer;
        self.transcript.answer(&content, calls);
        if self.transcript.open().is_empty() {
            self.answer = Some(Answer { metadata, ..Answer::new(content, self.usage, finish) });
        }
    }

    /// Records the output of the tool call that was the next step.
    pub fn tool_finished(&mut self, output: &str) {
        self.transcript.result(output);
    }

    /// Ends the turn early. Streamed text of an unfinished answer is kept, and every open call gets a result.
    pub fn interrupt(&mut self, streamed: &str) {
        if self.transcript.open().is_empty() && self.answer.is_none() {
            self.transcript.answer(streamed, Vec::new());
        }
        self.transcript.close();
    }
}

fn too_many(limit: u32) -> Failure {
    Failure::new(Category::Unknown, format!("the model was called {limit} times and has not finished"))
        .hint("send \"continue\" in the same session, or raise maxTurns")
}

#[cfg(test)]
mod tests {
    use trunkline_core::event::Finish;
    use trunkline_core::turn::Role;

    use super::*;
    use crate::transcript::INTERRUPTED;
    use crate::transcript::tests::{call, is_valid};

    fn answer(content: &str, calls: &[&str]) -> Answer {
        let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
        Answer { calls: calls.iter().map(|id| call(id)).collect(), ..Answer::new(content, usage, Finish::Stop) }
    }

    fn started(limit: Option<u32>) -> Steps {
        let mut transcript = AgentTranscript::default();
        transcript.add(Message::new(Role::User, "go"));
        Steps::new(transcript, limit)
    }

    fn texts(steps: &Steps) -> Vec<&str> {
        steps.messages().iter().map(|message| message.text.as_str()).collect()
    }

    #[test]
    fn runs_tools_in_order_and_calls_the_model_until_it_requests_no_tool() {
        let mut steps = started(None);
        assert_eq!(steps.next(), NextStep::CallModel);
        steps.answered(answer("two things", &["a", "b"]));
        assert_eq!(steps.next(), NextStep::RunTool(call("a")));
        assert_eq!(steps.next(), NextStep::RunTool(call("a")), "no event since");
        steps.tool_finished("1");
        assert_eq!(steps.next(), NextStep::RunTool(call("b")));
        steps.tool_finished("2");
        assert_eq!(steps.next(), NextStep::CallModel);
        steps.answered(answer("done", &[]));
        let NextStep::Finish(last) = steps.next() else { panic!("{:?}", steps.next()) };
        assert_eq!((last.content.as_str(), last.usage.input_tokens), ("done", 20));
        assert_eq!(texts(&steps), ["go", "two things", "1", "2", "done"]);
        assert!(is_valid(steps.messages()));
    }

    #[test]
    fn transcript_is_valid_when_limit_of_model_calls_is_reached() {
        let mut steps = started(Some(2));
        for _ in 0..2 {
            assert_eq!(steps.next(), NextStep::CallModel);
            steps.answered(answer("", &["a"]));
            steps.tool_finished("more");
        }
        let NextStep::Fail(failure) = steps.next() else { panic!("{:?}", steps.next()) };
        assert_eq!(failure.message, "the model was called 2 times and has not finished");
        assert!(is_valid(steps.messages()));
    }

    #[test]
    fn transcript_is_valid_when_interrupted_at_any_point() {
        let mut thinking = started(None);
        thinking.interrupt("half a");
        assert_eq!(texts(&thinking), ["go", "half a"]);
        let mut silent = started(None);
        silent.interrupt("");
        assert_eq!(texts(&silent), ["go"]);
        let mut running = started(None);
        running.answered(answer("see", &["a", "b"]));
        running.tool_finished("1");
        running.interrupt("see");
        assert_eq!(texts(&running), ["go", "see", "1", INTERRUPTED]);
        for steps in [thinking, silent, running] {
            assert!(is_valid(steps.messages()));
        }
    }

    #[test]
    fn turn_ends_when_answer_is_empty() {
        let mut steps = started(None);
        steps.answered(answer("", &[]));
        assert!(matches!(steps.next(), NextStep::Finish(_)));
        assert_eq!(texts(&steps), ["go"]);
    }
}
