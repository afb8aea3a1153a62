//! Events become one whole response.

use std::time::Duration;

use trunkline_core::event::{Answer, Event, Finish, Receipt, SessionId, Usage};

use crate::chat::{
    AssistantMessage, Attempt, ChatResponse, Choice, Extension, FinishReason, PromptTokens, TokenCounts,
};

/// What all chunks of an answer share, and a whole answer has once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// `cmpl-` and a UUID.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The name the client asked for.
    pub model: String,
}

/// What is learnt on the way and told at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub run: String,
    pub provider: String,
    pub session: Option<SessionId>,
    pub workspace: Option<Receipt>,
}

impl Trace {
    /// Keeps what an event says about the run itself.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Started { session: Some(session), .. } => self.session = Some(session.clone()),
            Event::Workspace(receipt) => self.workspace = Some(receipt.clone()),
            Event::Started { session: None, .. }
            | Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Finished(_)
            | Event::Failed(_) => {}
        }
    }

    /// The extension object of an answer, or an error, that took `elapsed`.
    #[must_use]
    pub fn extension(&self, outcome: &str, usage_estimated: bool, elapsed: Duration) -> Extension {
        let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Extension {
            run: self.run.clone(),
            provider: self.provider.clone(),
            session_id: self.session.clone(),
            attempts: vec![Attempt { provider: self.provider.clone(), outcome: outcome.to_owned(), duration_ms }],
            workspace: self.workspace.clone(),
            usage_estimated,
        }
    }
}

/// The whole response to a turn that ended in `answer`.
#[must_use]
pub fn whole(head: Head, trace: &Trace, answer: Answer, elapsed: Duration) -> ChatResponse {
    let message = AssistantMessage { role: "assistant".to_owned(), content: answer.content, refusal: () };
    ChatResponse {
        id: head.id,
        object: "chat.completion".to_owned(),
        created: head.created,
        model: head.model,
        choices: vec![Choice { index: 0, message, finish_reason: answer.finish.into(), logprobs: () }],
        usage: answer.usage.into(),
        trunkline: trace.extension("ok", answer.usage.estimated, elapsed),
    }
}

impl From<Finish> for FinishReason {
    fn from(finish: Finish) -> Self {
        match finish {
            Finish::Stop => Self::Stop,
            Finish::Length => Self::Length,
            Finish::ContentFilter => Self::ContentFilter,
        }
    }
}

impl From<Usage> for TokenCounts {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            prompt_tokens_details: PromptTokens { cached_tokens: usage.cached_tokens },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_whole_answer_has_every_member() {
        let head = Head { id: "cmpl-1".into(), created: 7, model: "codex-x".into() };
        let mut trace = Trace { run: "r1".into(), provider: "codex".into(), ..Trace::default() };
        let receipt = Receipt { base: "abc".into(), files_changed: 2, ..Receipt::default() };
        trace.observe(&Event::Started { session: Some(SessionId("s1".into())), model: None });
        trace.observe(&Event::Started { session: None, model: Some("gpt".into()) });
        trace.observe(&Event::Workspace(receipt));
        let usage = Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 4, estimated: false };
        let answer = Answer { content: "hi".into(), usage, finish: Finish::Length };
        let response = whole(head, &trace, answer, Duration::from_millis(12));
        let expected = json!({
            "id": "cmpl-1", "object": "chat.completion", "created": 7, "model": "codex-x",
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": "hi", "refusal": null},
                "finish_reason": "length", "logprobs": null,
            }],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4}},
            "trunkline": {
                "run": "r1", "provider": "codex", "session_id": "s1",
                "attempts": [{"provider": "codex", "outcome": "ok", "duration_ms": 12}],
                "workspace": {"base": "abc", "branch": null, "commit": null, "files_changed": 2, "insertions": 0,
                    "deletions": 0, "path": null},
            },
        });
        assert_eq!(serde_json::to_value(&response).unwrap(), expected);
        assert_eq!(serde_json::from_value::<ChatResponse>(expected).unwrap(), response);
    }

    #[test]
    fn an_estimate_is_marked() {
        let usage = Usage::estimate("four", "eight");
        let extension = Trace::default().extension("ok", usage.estimated, Duration::ZERO);
        assert_eq!(serde_json::to_value(extension).unwrap()["usage_estimated"], json!(true));
    }

    #[test]
    fn finish_reasons_are_openais() {
        for (finish, name) in
            [(Finish::Stop, "stop"), (Finish::Length, "length"), (Finish::ContentFilter, "content_filter")]
        {
            assert_eq!(serde_json::to_value(FinishReason::from(finish)).unwrap(), json!(name));
        }
    }
}
