//! OpenCode `run --format json`: steps of complete parts. There is no terminal event: a turn succeeded if its last step
//! finished by itself and there was a message.

use std::time::Duration;

use crate::event::{Finish, Usage};
use crate::failure::retry_after;
use crate::parse::fields::nested_error;
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError};

/// Parser of OpenCode's events.
#[derive(Debug, Default)]
pub(super) struct OpencodeParser {
    step: u64,
}

impl OpencodeParser {
    pub(super) fn read_event(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
        let part = value.get("part");
        let session = value.get("sessionID").and_then(Value::as_str);
        if part.is_some() && transcript.session.as_ref().is_some_and(|known| session.is_some_and(|id| *id != *known.0))
        {
            // Steps of a sub-agent are ignored: its result is the output of a tool of the main agent.
            return true;
        }
        match (kind, part) {
            ("step_start", Some(_)) => {
                self.step += 1;
                // OpenCode continues after the error.
                if let Some(reported) = transcript.error.take() {
                    transcript.transient_error = Some(reported);
                }
                // The turn is complete only when its last step finishes by itself.
                transcript.stopped = false;
            }
            ("text", Some(part)) => {
                transcript.begin_message(Some(&format!("step {}", self.step)));
                if transcript.mark() > 0 {
                    transcript.text("\n");
                }
                transcript.text(part.get("text").and_then(Value::as_str).unwrap_or_default());
            }
            ("reasoning", Some(part)) => {
                transcript.thinking(part.get("text").and_then(Value::as_str).unwrap_or_default());
            }
            ("tool_use", Some(part)) => read_tool(part, transcript),
            ("step_finish", Some(part)) => read_finish(part, transcript),
            ("error", None) if value.get("error").is_some_and(Value::is_object) => {
                transcript.error = value.get("error").map(read_error);
            }
            _ => return false,
        }
        transcript.expects_end = true;
        transcript.started(session, None);
        true
    }
}

fn read_tool(part: &Value<'_>, transcript: &mut OutputTranscript) {
    let field = |name: &str| part.get(name).and_then(Value::as_str).unwrap_or_default();
    let state = part.get("state").unwrap_or(&Value::Null);
    let input = state.get("input").map(Value::to_owned).unwrap_or_default();
    let status = state.get("status").and_then(Value::as_str).unwrap_or_default();
    transcript.tool_started(field("callID"), field("tool"), input);
    let output = ["output", "error"].iter().find_map(|name| state.get(name)?.as_str()).unwrap_or_default();
    let exit = state.get("metadata").and_then(|metadata| metadata.get("exit")).and_then(Value::as_i64).unwrap_or(0);
    transcript.tool_finished(field("callID"), output, status == "completed" && exit == 0);
    if status == "error" {
        transcript.tool_error = Some(output.to_owned());
    }
}

fn read_finish(part: &Value<'_>, transcript: &mut OutputTranscript) {
    let tokens =
        |path: &str| part.get("tokens").and_then(|tokens| tokens.pointer(path)).and_then(Value::as_u64).unwrap_or(0);
    let usage = transcript.usage.get_or_insert_default();
    *usage = Usage {
        input_tokens: sum(&[usage.input_tokens, tokens("/input"), tokens("/cache/read"), tokens("/cache/write")]),
        output_tokens: sum(&[usage.output_tokens, tokens("/output"), tokens("/reasoning")]),
        cached_tokens: sum(&[usage.cached_tokens, tokens("/cache/read")]),
        estimated: false,
    };
    match part.get("reason").and_then(Value::as_str) {
        Some("length") => transcript.finish = Some(Finish::Length),
        Some("content-filter") => transcript.finish = Some(Finish::ContentFilter),
        Some("stop") => {}
        Some(_) | None => return,
    }
    transcript.stopped = true;
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

fn read_error(error: &Value<'_>) -> ReportedError {
    let data = error.get("data").unwrap_or(&Value::Null);
    let text = data.get("message").or_else(|| error.get("message")).and_then(Value::as_str);
    let text = text.unwrap_or("opencode reported an error without a message");
    let body = data.get("responseBody").and_then(Value::as_str).and_then(nested_error);
    let inner = text.trim_start().starts_with('{').then(|| nested_error(text)).flatten();
    let kind = body.and_then(|body| body.kind).or_else(|| inner.as_ref()?.kind.clone());
    let name = error.get("name").and_then(Value::as_str).filter(|name| *name != "APIError" && *name != "UnknownError");
    ReportedError {
        text: inner.map_or_else(|| text.to_owned(), |inner| inner.text),
        status: data.get("statusCode").and_then(Value::as_u64),
        kind: kind.or_else(|| name.or_else(|| error.get("type")?.as_str()).map(str::to_owned)),
        retry_after: data.get("responseHeaders").and_then(waiting_time),
        resets_at: None,
        category: None,
        family: None,
    }
}

fn waiting_time(headers: &Value<'_>) -> Option<Duration> {
    let header = |name: &str| headers.get(name).and_then(Value::as_str);
    header("retry-after-ms")
        .and_then(|value| retry_after(&format!("retry-after-ms: {value}")))
        .or_else(|| retry_after(&format!("retry-after: {}", header("retry-after")?)))
}
