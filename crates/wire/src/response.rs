//! Conversion of events into one complete response.

use trunkline_core::event::{
    Alternative, Answer, Attempted, Event, Finish, Receipt, Resumption, SessionId, ToolCall, Usage,
};

use crate::chat::{
    AssistantMessage, AttemptObject, CallFormat, CalledFunction, ChatResponse, Choice, Extension, FinishReason,
    Logprobs, MessageCall, PromptTokens, TokenCounts,
};

/// Members that every chunk of a streamed answer repeats, and a complete response has once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// `cmpl-` and a UUID.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model name from the request.
    pub model: String,
    pub calls: CallFormat,
}

/// Facts about a run, collected from its events and reported at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub run: String,
    pub provider: String,
    pub session: Option<SessionId>,
    /// How the turn got that session.
    pub resumption: Option<Resumption>,
    pub workspace: Option<Receipt>,
    pub attempts: Vec<Attempted>,
    /// A tool has run: a repeated request would start on the changes it made.
    pub acted: bool,
    /// The current attempt has ended; another one may follow.
    over: bool,
}

impl Trace {
    /// Records the facts that an event reports about the run itself.
    pub fn observe(&mut self, event: &Event) {
        if self.over && !matches!(event, Event::Finished(_) | Event::Failed(_)) {
            // Another attempt has started: the session and workspace of the previous one no longer apply.
            (self.over, self.session, self.workspace) = (false, None, None);
        }
        match event {
            Event::Started { session: Some(session), .. } => self.session = Some(session.clone()),
            Event::Workspace(receipt) => self.workspace = Some(receipt.clone()),
            Event::Attempted(attempt) => {
                self.attempts.push((**attempt).clone());
                self.over = true;
            }
            Event::ToolStarted { .. } => self.acted = true,
            Event::Started { session: None, .. }
            | Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Finished(_)
            | Event::Failed(_) => {}
        }
    }

    /// Returns the `trunkline` object of a response or an error.
    #[must_use]
    pub fn extension(&self, answer: Option<&Answer>) -> Extension {
        Extension {
            run: self.run.clone(),
            provider: self.provider.clone(),
            session_id: self.session.clone(),
            session: self.resumption.clone().filter(|resumption| Some(&resumption.id) == self.session.as_ref()),
            attempts: self.attempts.iter().map(AttemptObject::from).collect(),
            workspace: self.workspace.clone(),
            usage_estimated: answer.is_some_and(|answer| answer.usage.estimated),
            metadata: answer.map(|answer| answer.metadata.clone()).unwrap_or_default(),
            notes: answer.map(|answer| answer.notes.clone()).unwrap_or_default(),
            ignored: answer.map(|answer| answer.ignored.clone()).unwrap_or_default(),
        }
    }
}

/// Builds the complete response to a turn that ended with `answer`.
#[must_use]
pub fn whole(head: Head, trace: &Trace, answer: Answer) -> ChatResponse {
    let Answer { content, usage, finish, calls, metadata, logprobs, notes, ignored, alternatives } = answer;
    let trunkline = Extension { usage_estimated: usage.estimated, metadata, notes, ignored, ..trace.extension(None) };
    let choices = std::iter::once(Alternative { content, finish, calls, logprobs }).chain(alternatives);
    let choices = (0..).zip(choices).map(|(index, answer)| choice(index, answer, head.calls)).collect();
    ChatResponse {
        id: head.id,
        object: "chat.completion".to_owned(),
        created: head.created,
        model: head.model,
        choices,
        usage: usage.into(),
        trunkline,
    }
}

fn choice(index: u32, answer: Alternative, format: CallFormat) -> Choice {
    let only_calls = answer.content.is_empty() && !answer.calls.is_empty();
    let mut calls = answer.calls.into_iter().map(MessageCall::from);
    let (tool_calls, function_call) = match format {
        CallFormat::ToolCalls => (calls.collect(), None),
        CallFormat::FunctionCall => (Vec::new(), calls.next().map(|call| call.function)),
    };
    let message = AssistantMessage {
        role: "assistant".to_owned(),
        content: (!only_calls).then_some(answer.content),
        refusal: (),
        tool_calls,
        function_call,
    };
    let finish_reason = FinishReason::of(answer.finish, format);
    Choice { index, message, finish_reason, logprobs: answer.logprobs.and_then(Logprobs::new) }
}

impl From<&Attempted> for AttemptObject {
    fn from(attempt: &Attempted) -> Self {
        Self {
            provider: attempt.provider.clone(),
            model: attempt.model.clone(),
            outcome: attempt.category.map_or("ok", |category| category.name()).to_owned(),
            category: attempt.category,
            duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
            message: attempt.message.clone(),
            workspace: attempt.workspace.clone(),
            sandbox: attempt.sandbox,
        }
    }
}

impl From<ToolCall> for MessageCall {
    fn from(call: ToolCall) -> Self {
        let function = CalledFunction { name: call.name, arguments: call.arguments };
        Self { id: call.id, kind: "function".to_owned(), function }
    }
}

impl FinishReason {
    pub(crate) const fn of(finish: Finish, calls: CallFormat) -> Self {
        match (finish, calls) {
            (Finish::Stop, _) => Self::Stop,
            (Finish::Length, _) => Self::Length,
            (Finish::ContentFilter, _) => Self::ContentFilter,
            (Finish::ToolCalls, CallFormat::ToolCalls) => Self::ToolCalls,
            (Finish::ToolCalls, CallFormat::FunctionCall) => Self::FunctionCall,
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
    use std::time::Duration;

    use super::*;
    use serde_json::json;
    use trunkline_core::failure::Category;

    #[test]
    fn complete_response_has_every_member() {
        let head = Head { id: "cmpl-1".into(), created: 7, model: "codex-x".into(), calls: CallFormat::ToolCalls };
        let mut trace = Trace { run: "r1".into(), provider: "codex".into(), ..Trace::default() };
        let receipt = Receipt { base: "abc".into(), files_changed: Some(2), ..Receipt::unchanged() };
        trace.observe(&Event::Started { session: Some(SessionId("s1".into())), model: None });
        trace.observe(&Event::Started { session: None, model: Some("gpt".into()) });
        trace.observe(&Event::Workspace(receipt));
        trace.observe(&Event::Attempted(attempt(None).into()));
        let usage = Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 4, estimated: false };
        let answer = Answer::new("hi", usage, Finish::Length);
        let response = whole(head, &trace, answer);
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
                "attempts": [
                    {"provider": "codex", "model": "m", "outcome": "ok", "category": null, "duration_ms": 12},
                ],
                "workspace": {"base": "abc", "branch": null, "commit": null, "files_changed": 2, "insertions": 0,
                    "deletions": 0, "path": null},
            },
        });
        assert_eq!(serde_json::to_value(&response).unwrap(), expected);
        assert_eq!(serde_json::from_value::<ChatResponse>(expected).unwrap(), response);
    }

    fn attempt(category: Option<Category>) -> Attempted {
        Attempted {
            provider: "codex".into(),
            model: "m".into(),
            category,
            message: category.map(|_| "no".to_owned()),
            duration: Duration::from_millis(12),
            workspace: None,
            sandbox: None,
        }
    }

    #[test]
    fn session_of_previous_attempt_is_dropped_when_another_attempt_starts() {
        let mut trace = Trace::default();
        trace.observe(&Event::Started { session: Some(SessionId("of the first".into())), model: None });
        trace.observe(&Event::Attempted(attempt(Some(Category::Server)).into()));
        assert!(trace.session.is_some(), "kept: this attempt may be the last");
        trace.observe(&Event::Notice { message: "another".into() });
        assert_eq!((trace.session.clone(), trace.attempts.len()), (None, 1));
        let extension = serde_json::to_value(trace.extension(None)).unwrap();
        assert_eq!(
            extension["attempts"][0],
            json!({"provider": "codex", "model": "m", "outcome": "server", "category": "server", "duration_ms": 12,
                "message": "no"})
        );
    }

    #[test]
    fn content_is_null_when_there_are_only_calls() {
        let call = ToolCall { id: "call_1".into(), name: "weather".into(), arguments: "{}".into() };
        let answer = Answer { calls: vec![call], ..Answer::new("", Usage::default(), Finish::ToolCalls) };
        let head = Head { id: "cmpl-1".into(), created: 7, model: "m".into(), calls: CallFormat::ToolCalls };
        let choice = &serde_json::to_value(whole(head, &Trace::default(), answer)).unwrap()["choices"][0];
        let expected = json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        ]});
        assert_eq!((&choice["message"], &choice["finish_reason"]), (&expected, &json!("tool_calls")));
    }

    #[test]
    fn estimated_usage_is_marked() {
        let usage = Usage::estimate("four", "eight");
        let extension = Trace::default().extension(Some(&Answer::new("", usage, Finish::Stop)));
        assert_eq!(serde_json::to_value(extension).unwrap()["usage_estimated"], json!(true));
    }

    #[test]
    fn notes_and_ignored_members_are_in_the_extension_only_when_there_are_any() {
        let plain = Answer::new("", Usage::default(), Finish::Stop);
        let noted = Answer { notes: vec!["n".into()], ignored: vec!["seed".into()], ..plain.clone() };
        for (answer, expected) in [(plain, json!([null, null])), (noted, json!([["n"], ["seed"]]))] {
            let head = Head { id: "cmpl-1".into(), created: 7, model: "m".into(), calls: CallFormat::ToolCalls };
            let streamed = serde_json::to_value(Trace::default().extension(Some(&answer))).unwrap();
            let complete = serde_json::to_value(whole(head, &Trace::default(), answer).trunkline).unwrap();
            assert_eq!(json!([streamed["notes"], streamed["ignored"]]), expected);
            assert_eq!(complete, streamed);
        }
    }

    #[test]
    fn finish_reasons_have_openai_names() {
        for (finish, name) in [
            (Finish::Stop, "stop"),
            (Finish::Length, "length"),
            (Finish::ContentFilter, "content_filter"),
            (Finish::ToolCalls, "tool_calls"),
        ] {
            assert_eq!(serde_json::to_value(FinishReason::of(finish, CallFormat::ToolCalls)).unwrap(), json!(name));
        }
    }
}
