//! Masks secrets in events before they are stored.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use trunkline_core::event::{Alternative, Answer, Attempted, Event, Receipt, SessionId, ToolCall};
use trunkline_core::failure::Failure;
use trunkline_core::secret::Secrets;

/// Returns the event with its secrets masked and each string cut to `max_bytes`.
pub(crate) fn masked(event: &Event, secrets: &Secrets, max_bytes: usize) -> Event {
    EventMask { secrets, max_bytes }.event(event)
}

/// Returns the event with its secrets masked and its strings at full length.
pub(crate) fn masked_whole<'a>(event: &'a Event, secrets: &Secrets) -> Cow<'a, Event> {
    match event {
        // Masked earlier, or written by the gateway itself.
        Event::Started { .. } | Event::Workspace(_) | Event::Attempted(_) => Cow::Borrowed(event),
        // Usually there is nothing to mask.
        Event::Text { delta } | Event::Thinking { delta } if !secrets.may_be_in(delta) => Cow::Borrowed(event),
        Event::Finished(Answer {
            content,
            usage: _,
            finish: _,
            calls,
            metadata,
            logprobs,
            notes,
            ignored,
            alternatives,
        }) if calls.is_empty()
            && logprobs.is_none()
            && notes.is_empty()
            && ignored.is_empty()
            && alternatives.is_empty()
            && !secrets.may_be_in(content)
            && !metadata.values().any(|value| may_be_in(secrets, value)) =>
        {
            Cow::Borrowed(event)
        }
        Event::Text { .. }
        | Event::Thinking { .. }
        | Event::ToolStarted { .. }
        | Event::ToolFinished { .. }
        | Event::ToolCall { .. }
        | Event::Notice { .. }
        | Event::Unknown { .. }
        | Event::Finished(_)
        | Event::Failed(_) => Cow::Owned(masked(event, secrets, usize::MAX)),
    }
}

/// Whether a value may contain a secret.
fn may_be_in(secrets: &Secrets, value: &Value) -> bool {
    match value {
        Value::String(text) => secrets.may_be_in(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// Returns a JSON text with the secrets in its strings masked.
pub(crate) fn masked_json(json: &RawValue, secrets: &Secrets) -> Option<Box<RawValue>> {
    if !secrets.may_be_in(json.get()) {
        return Some(json.to_owned());
    }
    // A mask in place of a number would not be JSON, so only strings are masked.
    let value = serde_json::from_str(json.get()).ok()?;
    serde_json::value::to_raw_value(&EventMask { secrets, max_bytes: usize::MAX }.value(&value)).ok()
}

/// Returns the first `max_bytes` of a text, cut at a character boundary.
pub(crate) fn head(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

struct EventMask<'a> {
    secrets: &'a Secrets,
    max_bytes: usize,
}

/// Every field is named, so a new field does not compile until it is masked.
impl EventMask<'_> {
    fn event(&self, event: &Event) -> Event {
        match event {
            Event::Started { session, model } => Event::Started {
                session: session.as_ref().map(|SessionId(id)| SessionId(self.text(id).into())),
                model: self.maybe(model),
            },
            Event::Text { delta } => Event::Text { delta: self.text(delta) },
            Event::Thinking { delta } => Event::Thinking { delta: self.text(delta) },
            Event::ToolStarted { id, name, input } => {
                Event::ToolStarted { id: self.text(id), name: self.text(name), input: self.value(input) }
            }
            Event::ToolFinished { id, output, ok } => {
                Event::ToolFinished { id: self.text(id), output: self.text(output), ok: *ok }
            }
            Event::ToolCall { index, id, name, arguments } => Event::ToolCall {
                index: *index,
                id: self.maybe(id),
                name: self.maybe(name),
                arguments: self.text(arguments),
            },
            Event::Notice { message } => Event::Notice { message: self.text(message) },
            Event::Unknown { line } => Event::Unknown { line: self.text(line) },
            Event::Workspace(receipt) => Event::Workspace(self.receipt(receipt)),
            Event::Attempted(attempted) => Event::Attempted(self.attempted(attempted).into()),
            Event::Finished(answer) => Event::Finished(self.answer(answer)),
            Event::Failed(failure) => Event::Failed(self.failure(failure)),
        }
    }

    fn answer(&self, answer: &Answer) -> Answer {
        let Answer { content, usage, finish, calls, metadata, logprobs, notes, ignored, alternatives } = answer;
        Answer {
            content: self.text(content),
            usage: *usage,
            finish: *finish,
            calls: self.calls(calls),
            metadata: self.members(metadata),
            logprobs: self.logprobs(content, logprobs),
            notes: notes.iter().map(|note| self.text(note)).collect(),
            ignored: ignored.iter().map(|member| self.text(member)).collect(),
            alternatives: alternatives.iter().map(|alternative| self.alternative(alternative)).collect(),
        }
    }

    fn alternative(&self, Alternative { content, finish, calls, logprobs }: &Alternative) -> Alternative {
        Alternative {
            content: self.text(content),
            finish: *finish,
            calls: self.calls(calls),
            logprobs: self.logprobs(content, logprobs),
        }
    }

    fn calls(&self, calls: &[ToolCall]) -> Vec<ToolCall> {
        let call = |ToolCall { id, name, arguments }: &ToolCall| ToolCall {
            id: self.text(id),
            name: self.text(name),
            arguments: self.text(arguments),
        };
        calls.iter().map(call).collect()
    }

    /// Keeps log probabilities only if nothing in them or in their text is masked or cut. A secret may be split into tokens
    /// here, where a mask of strings would miss it, and JSON cannot be cut.
    fn logprobs(&self, content: &str, logprobs: &Option<String>) -> Option<String> {
        logprobs.clone().filter(|json| self.text(content) == *content && self.text(json) == *json)
    }

    fn attempted(&self, attempted: &Attempted) -> Attempted {
        let Attempted { provider, model, category, message, duration, workspace, sandbox } = attempted;
        Attempted {
            provider: self.text(provider),
            model: self.text(model),
            category: *category,
            message: self.maybe(message),
            duration: *duration,
            workspace: workspace.as_ref().map(|receipt| self.receipt(receipt)),
            sandbox: *sandbox,
        }
    }

    fn receipt(&self, receipt: &Receipt) -> Receipt {
        let Receipt { base, branch, commit, files_changed, insertions, deletions, path, reason, refs, warnings } =
            receipt;
        Receipt {
            base: self.text(base),
            branch: self.maybe(branch),
            commit: self.maybe(commit),
            files_changed: *files_changed,
            insertions: *insertions,
            deletions: *deletions,
            path: self.maybe(path),
            reason: self.maybe(reason),
            refs: refs.iter().map(|name| self.text(name)).collect(),
            warnings: warnings.iter().map(|warning| self.text(warning)).collect(),
        }
    }

    fn failure(&self, failure: &Failure) -> Failure {
        let Failure { category, message, hint, retry_after, session_lost } = failure;
        Failure {
            category: *category,
            message: self.text(message),
            hint: self.maybe(hint),
            retry_after: *retry_after,
            session_lost: *session_lost,
        }
    }

    fn text(&self, text: &str) -> String {
        self.secrets.mask(head(text, self.max_bytes))
    }

    fn maybe(&self, text: &Option<String>) -> Option<String> {
        text.as_deref().map(|text| self.text(text))
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => Value::Array(values.iter().map(|value| self.value(value)).collect()),
            Value::Object(members) => Value::Object(self.members(members)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn members(&self, members: &Map<String, Value>) -> Map<String, Value> {
        members.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use trunkline_core::event::{Enforcement, Finish, Usage};
    use trunkline_core::failure::Category;

    use super::*;

    const SECRET: &str = "hunter2-hunter2";

    /// One event of each kind, with `text` in every string field.
    fn events(text: &str) -> Vec<Event> {
        let (text, maybe) = (text.to_owned(), Some(text.to_owned()));
        let value = json!({"command": ["ls", {"deep": text}], "count": 3, "none": null, "yes": true});
        let Value::Object(members) = value.clone() else { unreachable!() };
        let receipt = Receipt {
            base: text.clone(),
            branch: maybe.clone(),
            commit: maybe.clone(),
            files_changed: Some(1),
            insertions: Some(2),
            deletions: Some(3),
            path: maybe.clone(),
            reason: maybe.clone(),
            refs: vec![text.clone()],
            warnings: vec![text.clone()],
        };
        let attempted = Attempted {
            provider: text.clone(),
            model: text.clone(),
            category: Some(Category::Quota),
            message: maybe.clone(),
            duration: Duration::from_secs(1),
            workspace: Some(receipt.clone()),
            sandbox: Some(Enforcement::Kernel),
        };
        let call = ToolCall { id: text.clone(), name: text.clone(), arguments: text.clone() };
        let usage = Usage { input_tokens: 1, output_tokens: 2, cached_tokens: 3, estimated: true };
        let failure = Failure::new(Category::Server, text.clone()).hint(text.clone());
        vec![
            Event::Started { session: Some(SessionId(text.as_str().into())), model: maybe.clone() },
            Event::Text { delta: text.clone() },
            Event::Thinking { delta: text.clone() },
            Event::ToolStarted { id: text.clone(), name: text.clone(), input: value },
            Event::ToolFinished { id: text.clone(), output: text.clone(), ok: true },
            Event::ToolCall { index: 1, id: maybe.clone(), name: maybe, arguments: text.clone() },
            Event::Notice { message: text.clone() },
            Event::Unknown { line: text.clone() },
            Event::Workspace(receipt),
            Event::Attempted(attempted.into()),
            Event::Finished(Answer {
                calls: vec![call.clone()],
                metadata: members,
                notes: vec![text.clone()],
                ignored: vec![text.clone()],
                alternatives: vec![Alternative {
                    content: text.clone(),
                    finish: Finish::Stop,
                    calls: vec![call],
                    logprobs: None,
                }],
                ..Answer::new(text, usage, Finish::Length)
            }),
            Event::Failed(failure.retry_after(Some(Duration::from_secs(2)))),
        ]
    }

    #[test]
    fn masks_every_string_and_nothing_else() {
        let secrets = Secrets::new([SECRET.to_owned()]);
        let masked: Vec<Event> =
            events(&format!("a {SECRET} b")).iter().map(|event| masked(event, &secrets, usize::MAX)).collect();
        assert_eq!(masked, events("a *** b"));
        let cut: Vec<Event> = events("aaäb").iter().map(|event| super::masked(event, &secrets, 3)).collect();
        assert_eq!(cut, events("aa"), "cut to the limit at a character boundary");
    }

    #[test]
    fn log_probabilities_are_dropped_when_the_answer_has_a_secret() {
        let secrets = Secrets::new([SECRET.to_owned()]);
        let answer = |content: &str, logprobs: &str| {
            let (content, logprobs) = (content.to_owned(), Some(logprobs.to_owned()));
            let alternative = Alternative {
                content: content.clone(),
                finish: Finish::Stop,
                calls: Vec::new(),
                logprobs: logprobs.clone(),
            };
            let first = Answer::new(content, Usage::default(), Finish::Stop);
            Answer { logprobs, alternatives: vec![alternative], ..first }
        };
        for (content, logprobs, kept) in [
            ("hunter", r#"{"content":[{"token":"hunter"}]}"#, true),
            (SECRET, r#"{"content":[{"token":"hunter2-"},{"token":"hunter2"}]}"#, false),
            ("a", r#"{"content":[{"token":"hunter2-hunter2"}]}"#, false),
        ] {
            let event = Event::Finished(answer(content, logprobs));
            let Event::Finished(masked) = masked_whole(&event, &secrets).into_owned() else { unreachable!() };
            let kept_in = (masked.logprobs.is_some(), masked.alternatives[0].logprobs.is_some());
            assert_eq!(kept_in, (kept, kept), "{content} {logprobs}");
        }
    }

    #[test]
    fn masked_whole_skips_events_of_the_gateway_itself() {
        let secrets = Secrets::new([SECRET.to_owned()]);
        for event in events(SECRET) {
            let ours = matches!(event, Event::Started { .. } | Event::Workspace(_) | Event::Attempted(_));
            let kept = serde_json::to_string(&masked_whole(&event, &secrets)).unwrap();
            assert_eq!(kept.contains(SECRET), ours, "{kept}");
        }
    }
}
