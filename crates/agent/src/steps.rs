//! The loop, without any I/O: what is to be done next, given what has happened so far.
//!
//! Ask the model; run the calls it makes, in order; ask again; until it makes none.

use trunkline_core::event::{Answer, Call, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::Message;

use crate::transcript::Transcript;

/// How often the model is asked in one turn, where nothing else is said.
pub const MAX_ASKED: u32 = 50;

/// One turn of the agent.
#[derive(Debug)]
pub struct Steps {
    transcript: Transcript,
    /// How often the model may be asked.
    limit: u32,
    asked: u32,
    usage: Usage,
    answer: Option<Answer>,
}

/// What is to be done now.
#[derive(Debug, PartialEq)]
pub enum Next {
    Ask,
    Run(Call),
    Finish(Answer),
    Fail(Failure),
}

impl Steps {
    /// A turn that begins with everything said so far, the user's message last.
    #[must_use]
    pub fn new(transcript: Transcript, limit: Option<u32>) -> Self {
        let limit = limit.unwrap_or(MAX_ASKED).max(1);
        Self { transcript, limit, asked: 0, usage: Usage::default(), answer: None }
    }

    #[must_use]
    pub fn messages(&self) -> &[Message] {
        self.transcript.messages()
    }

    /// Says the same until something has happened.
    #[must_use]
    pub fn next(&self) -> Next {
        if let Some(call) = self.transcript.open().first() {
            return Next::Run(call.clone());
        }
        match &self.answer {
            Some(answer) => Next::Finish(answer.clone()),
            None if self.asked >= self.limit => Next::Fail(too_many(self.limit)),
            None => Next::Ask,
        }
    }

    /// The model has answered.
    pub fn answered(&mut self, answer: Answer) {
        self.asked += 1;
        self.usage = if self.asked == 1 { answer.usage } else { self.usage.plus(answer.usage) };
        let Answer { content, finish, calls, metadata, .. } = answer;
        self.transcript.answer(&content, calls);
        if self.transcript.open().is_empty() {
            self.answer = Some(Answer { content, usage: self.usage, finish, calls: Vec::new(), metadata });
        }
    }

    /// The call that was next has been run.
    pub fn ran(&mut self, output: &str) {
        self.transcript.result(output);
    }

    /// The user has had enough: what was shown of an answer is kept, and every call gets its result.
    pub fn interrupt(&mut self, shown: &str) {
        if self.transcript.open().is_empty() && self.answer.is_none() {
            self.transcript.answer(shown, Vec::new());
        }
        self.transcript.close();
    }
}

fn too_many(limit: u32) -> Failure {
    Failure::new(Category::Unknown, format!("the model was asked {limit} times and still wants to go on"))
        .hint("say \"go on\" in the same session, or raise maxTurns")
}

#[cfg(test)]
mod tests {
    use trunkline_core::event::Finish;
    use trunkline_core::turn::Role;

    use super::*;
    use crate::transcript::INTERRUPTED;
    use crate::transcript::tests::{call, is_valid};

    fn says(content: &str, calls: &[&str]) -> Answer {
        let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
        Answer { calls: calls.iter().map(|id| call(id)).collect(), ..Answer::new(content, usage, Finish::Stop) }
    }

    fn begun(limit: Option<u32>) -> Steps {
        let mut transcript = Transcript::default();
        transcript.add(Message::new(Role::User, "go"));
        Steps::new(transcript, limit)
    }

    fn texts(steps: &Steps) -> Vec<&str> {
        steps.messages().iter().map(|message| message.text.as_str()).collect()
    }

    #[test]
    fn asks_runs_in_order_asks_again_and_ends() {
        let mut steps = begun(None);
        assert_eq!(steps.next(), Next::Ask);
        steps.answered(says("two things", &["a", "b"]));
        assert_eq!(steps.next(), Next::Run(call("a")));
        assert_eq!(steps.next(), Next::Run(call("a")), "nothing has happened");
        steps.ran("1");
        assert_eq!(steps.next(), Next::Run(call("b")));
        steps.ran("2");
        assert_eq!(steps.next(), Next::Ask);
        steps.answered(says("done", &[]));
        let Next::Finish(answer) = steps.next() else { panic!("{:?}", steps.next()) };
        assert_eq!((answer.content.as_str(), answer.usage.input_tokens), ("done", 20));
        assert_eq!(texts(&steps), ["go", "two things", "1", "2", "done"]);
        assert!(is_valid(steps.messages()));
    }

    #[test]
    fn the_limit_counts_questions_and_leaves_a_valid_transcript() {
        let mut steps = begun(Some(2));
        for _ in 0..2 {
            assert_eq!(steps.next(), Next::Ask);
            steps.answered(says("", &["a"]));
            steps.ran("more");
        }
        let Next::Fail(failure) = steps.next() else { panic!("{:?}", steps.next()) };
        assert_eq!(failure.message, "the model was asked 2 times and still wants to go on");
        assert!(is_valid(steps.messages()));
    }

    #[test]
    fn an_interrupt_leaves_a_valid_transcript_wherever_it_comes() {
        let mut thinking = begun(None);
        thinking.interrupt("half a");
        assert_eq!(texts(&thinking), ["go", "half a"]);
        let mut silent = begun(None);
        silent.interrupt("");
        assert_eq!(texts(&silent), ["go"]);
        let mut running = begun(None);
        running.answered(says("see", &["a", "b"]));
        running.ran("1");
        running.interrupt("see");
        assert_eq!(texts(&running), ["go", "see", "1", INTERRUPTED]);
        for steps in [thinking, silent, running] {
            assert!(is_valid(steps.messages()));
        }
    }

    #[test]
    fn an_empty_answer_ends_the_turn() {
        let mut steps = begun(None);
        steps.answered(says("", &[]));
        assert!(matches!(steps.next(), Next::Finish(_)));
        assert_eq!(texts(&steps), ["go"]);
    }
}
