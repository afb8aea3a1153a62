//! Agent Client Protocol (ACP), for kept processes of Gemini CLI, Qwen Code and OpenCode. It is JSON-RPC: the steps of the
//! agent are `session/update` notifications, and the end of a turn is the answer to `session/prompt`.
//!
//! A tool call is announced while the model still writes its arguments. It becomes an event when it runs or when the agent
//! asks for permission, with the arguments known at that time.

use serde_json::json;

use crate::event::{Finish, Usage};
use crate::failure::Category;
use crate::live::PERMISSION_REFUSED;
use crate::parse::acp_calls::{AcpCallState, AcpToolCall};
use crate::parse::fields::{nested_error, text_of, usage};
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError};

/// Beginning of a text by which Gemini CLI reports a change of mode.
const MODE_UPDATE: &str = "[MODE_UPDATE]";

/// Maximum number of tool calls that are tracked. The oldest is dropped when there are more.
const MAX_TRACKED_CALLS: usize = 256;

pub(super) fn read_event(value: &Value<'_>, transcript: &mut OutputTranscript) -> bool {
    if value.get("jsonrpc").is_none() {
        return false;
    }
    transcript.expects_end = true;
    let method = value.get("method").and_then(Value::as_str).unwrap_or_default();
    let params = value.get("params").unwrap_or(&Value::Null);
    if let Some(error) = value.get("error") {
        transcript.error = Some(rpc_error(error));
    } else if let Some(result) = value.get("result") {
        read_result(result, transcript);
    } else if method == "session/update" {
        transcript.started(params.get("sessionId").and_then(Value::as_str), None);
        read_update(params.get("update").unwrap_or(&Value::Null), transcript);
    } else if method == "session/request_permission" {
        let call = params.get("toolCall").unwrap_or(&Value::Null);
        transcript.notice(format!("asks for permission: {}", title(call)));
        announce(call, transcript);
        run(call, transcript);
        transcript.begin_message(None);
    } else if method == PERMISSION_REFUSED {
        let call = params.get("toolCall").unwrap_or(&Value::Null);
        transcript.acp.refused = Some(title(call).to_owned());
        finish(call, "permission was refused", false, transcript);
    }
    true
}

fn read_update(update: &Value<'_>, transcript: &mut OutputTranscript) {
    let field = |name: &str| update.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = || update.pointer("/content/text").and_then(Value::as_str).unwrap_or_default();
    if let Some(call) = update.pointer("/_meta/usage").and_then(counted) {
        // Qwen counts each model call separately.
        transcript.usage = Some(transcript.usage.unwrap_or_default().plus(call));
    }
    match field("sessionUpdate") {
        "agent_message_chunk" if !text().starts_with(MODE_UPDATE) => {
            transcript.completed = false;
            if !text().trim().is_empty() {
                transcript.acp.refused = None;
            }
            transcript.text(text());
        }
        "agent_thought_chunk" => {
            transcript.acp.thought_chars += text().chars().count() as u64;
            transcript.thinking(text());
        }
        "user_message_chunk" => transcript.echo(text()),
        "tool_call" | "tool_call_update" => {
            if field("sessionUpdate") == "tool_call" {
                // A finished id that is announced again is another call.
                transcript.acp.calls.retain(|call| call.id != id(update) || call.state != AcpCallState::Finished);
            }
            announce(update, transcript);
            match field("status") {
                "completed" | "failed" => {
                    let output: Vec<String> = update
                        .get("content")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .filter_map(|part| part.get("content")?.get("text").and_then(text_of))
                        .collect();
                    run(update, transcript);
                    finish(update, &output.concat(), field("status") == "completed", transcript);
                    transcript.begin_message(None);
                }
                // The model still writes the arguments.
                "pending" => {}
                // The status is optional in an update. The arguments are complete, so the call runs.
                _ => run(update, transcript),
            }
        }
        _ => {}
    }
}

fn id<'v>(call: &'v Value<'_>) -> &'v str {
    call.get("toolCallId").and_then(Value::as_str).unwrap_or_default()
}

fn title<'v>(call: &'v Value<'_>) -> &'v str {
    call.get("title").and_then(Value::as_str).unwrap_or("a tool")
}

/// Records a tool call, or more of its arguments.
fn announce(call: &Value<'_>, transcript: &mut OutputTranscript) {
    let calls = &mut transcript.acp.calls;
    let known = calls.iter_mut().find(|known| known.id == id(call));
    let input = arguments(call);
    match known {
        Some(known) if known.state == AcpCallState::Announced => {
            known.input = input.unwrap_or_else(|| known.input.take())
        }
        Some(_) => {}
        None => {
            if calls.len() >= MAX_TRACKED_CALLS {
                calls.remove(0);
            }
            let name = call.pointer("/_meta/toolName").and_then(Value::as_str).unwrap_or_else(|| title(call));
            let input = input.unwrap_or_default();
            calls.push(AcpToolCall {
                id: id(call).to_owned(),
                name: name.to_owned(),
                input,
                state: AcpCallState::Announced,
            });
        }
    }
}

/// Returns the arguments of a call. Gemini CLI does not send them, but only the paths of the files.
fn arguments(call: &Value<'_>) -> Option<serde_json::Value> {
    let raw = call.get("rawInput").filter(|raw| !raw.is_null() && raw.as_object().is_none_or(|raw| !raw.is_empty()));
    raw.map(Value::to_owned).or_else(|| {
        let places = call.get("locations").and_then(Value::as_array)?.iter();
        let paths: Vec<&str> = places.filter_map(|place| place.get("path").and_then(Value::as_str)).collect();
        (!paths.is_empty()).then(|| json!({ "paths": paths }))
    })
}

/// Starts an announced call: its arguments are complete.
fn run(call: &Value<'_>, transcript: &mut OutputTranscript) {
    let announced = |known: &&mut AcpToolCall| known.id == id(call) && known.state == AcpCallState::Announced;
    let Some(call) = transcript.acp.calls.iter_mut().find(announced) else { return };
    call.state = AcpCallState::Running;
    let (id, name, input) = (call.id.clone(), call.name.clone(), call.input.clone());
    transcript.tool_started(&id, &name, input);
}

/// Ends a running call. A second end is ignored.
fn finish(call: &Value<'_>, output: &str, ok: bool, transcript: &mut OutputTranscript) {
    let id = id(call);
    let running = |known: &&mut AcpToolCall| known.id == id && known.state == AcpCallState::Running;
    let Some(call) = transcript.acp.calls.iter_mut().find(running) else { return };
    call.state = AcpCallState::Finished;
    transcript.tool_finished(id, output, ok);
}

fn read_result(result: &Value<'_>, transcript: &mut OutputTranscript) {
    transcript.started(result.get("sessionId").and_then(Value::as_str), None);
    let Some(reason) = result.get("stopReason").and_then(Value::as_str) else { return };
    if let Some(sum) = result.pointer("/_meta/quota/token_count").and_then(usage) {
        transcript.usage = Some(with_thoughts(sum, transcript.acp.thought_chars));
    } else if let Some(last) = result.get("usage").and_then(counted) {
        // OpenCode counts only the last model call. If a tool was used, there were others.
        transcript.usage = Some(Usage { estimated: transcript.used_tools(), ..last });
    }
    let failed = |text: &str, category| ReportedError {
        text: text.to_owned(),
        category: Some(category),
        ..ReportedError::default()
    };
    transcript.error = match (reason, transcript.acp.refused.take()) {
        ("cancelled" | "end_turn", Some(refused)) => {
            let text = format!("the turn was cut short: permission for {refused:?} was refused");
            Some(failed(&text, Category::Configuration))
        }
        ("cancelled", None) => Some(failed("the turn was cancelled", Category::Cancelled)),
        ("refusal", _) => Some(failed("the model refused", Category::Validation)),
        ("max_turn_requests", _) => Some(failed("reached the maximum number of turns", Category::Unknown)),
        (_, _) => None,
    };
    transcript.finish = (reason == "max_tokens").then_some(Finish::Length);
    transcript.completed = transcript.error.is_none();
    transcript.begin_message(None);
}

/// Returns token counts that may have reasoning and cached input separate. If there is a total, they are included in it.
fn counted(count: &Value<'_>) -> Option<Usage> {
    let number = |name: &str| count.get(name).and_then(Value::as_u64).unwrap_or(0);
    let Usage { input_tokens, output_tokens, .. } = usage(count)?;
    let separate = number("totalTokens").saturating_sub(input_tokens.saturating_add(output_tokens));
    let thoughts = number("thoughtTokens").min(separate);
    Some(Usage {
        input_tokens: input_tokens.saturating_add(separate - thoughts),
        output_tokens: output_tokens.saturating_add(thoughts),
        cached_tokens: number("cachedReadTokens"),
        estimated: false,
    })
}

/// Adds the estimated tokens of the reasoning, which Gemini CLI shows but does not count over ACP.
fn with_thoughts(sum: Usage, chars: u64) -> Usage {
    let thoughts = chars.div_ceil(4);
    Usage { output_tokens: sum.output_tokens.saturating_add(thoughts), estimated: sum.estimated || thoughts > 0, ..sum }
}

/// Reads a JSON-RPC error. Gemini's code is the HTTP status, and its message may be the body of the service's response.
fn rpc_error(error: &Value<'_>) -> ReportedError {
    let text = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
    let details = error.pointer("/data/details").or_else(|| error.get("data")).and_then(Value::as_str);
    let status = error.get("code").and_then(Value::as_u64).filter(|code| (400..600).contains(code));
    let inner = nested_error(text);
    let text = match (&inner, details) {
        (Some(inner), _) => inner.text.clone(),
        (None, Some(details)) if text == "Internal error" => details.to_owned(),
        (None, _) => text.to_owned(),
    };
    ReportedError {
        status: status.or_else(|| inner.as_ref()?.status),
        kind: inner.and_then(|inner| inner.kind).or_else(|| details.map(str::to_owned)),
        text,
        ..ReportedError::default()
    }
}
