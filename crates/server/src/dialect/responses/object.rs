//! The response object: what a whole answer is, and what the lifecycle events of a stream carry.

use serde::Serialize;
use serde_json::value::RawValue;
use trunkline_core::event::{Finish, Usage};
use trunkline_wire::chat::Extension;
use trunkline_wire::error::{ApiError, Repeat};

use super::{echo, ids};
use crate::dialect::RunHead;
use crate::dialect::json::{json, member};

/// Status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// How a response ended.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) status: Status,
    pub(super) error: Option<ResponseError>,
    pub(super) incomplete_details: Option<IncompleteDetails>,
    pub(super) usage: Option<TokenCounts>,
    /// Seconds since 1970.
    pub(super) completed_at: Option<u64>,
    pub(super) trunkline: Option<Extension>,
}

/// Why a response failed, in OpenAI's codes: clients decide by them whether to ask again.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ResponseError {
    pub(super) code: &'static str,
    pub(super) message: Box<str>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct TokenCounts {
    input_tokens: u64,
    input_tokens_details: CachedTokens,
    output_tokens: u64,
    output_tokens_details: ReasoningTokens,
    total_tokens: u64,
}

#[derive(Debug, Clone, Serialize)]
struct CachedTokens {
    cached_tokens: u64,
}

/// Included in the output, and not counted apart.
#[derive(Debug, Clone, Serialize)]
struct ReasoningTokens {
    reasoning_tokens: u64,
}

impl Outcome {
    /// A response that has not ended.
    pub(super) fn open(status: Status) -> Self {
        Self { status, error: None, incomplete_details: None, usage: None, completed_at: None, trunkline: None }
    }

    pub(super) fn finished(finish: Finish, usage: Usage) -> Self {
        let reason = match finish {
            Finish::Stop | Finish::ToolCalls => None,
            Finish::Length => Some("max_output_tokens"),
            Finish::ContentFilter => Some("content_filter"),
        };
        Self {
            incomplete_details: reason.map(|reason| IncompleteDetails { reason }),
            usage: Some(usage.into()),
            ..Self::open(if reason.is_some() { Status::Incomplete } else { Status::Completed })
        }
    }

    pub(super) fn failed(error: &ApiError) -> Self {
        if error.code == "cancelled" {
            return Self::open(Status::Cancelled);
        }
        Self { error: Some(ResponseError::of(error)), ..Self::open(Status::Failed) }
    }
}

impl ResponseError {
    pub(super) fn of(error: &ApiError) -> Self {
        let code = match (error.code, error.repeat) {
            ("rate_limit" | "rate_limit_exceeded", _) => "rate_limit_exceeded",
            ("quota", _) => "insufficient_quota",
            // Codex takes every other code for a reason to run the agent again.
            (_, Repeat::Never) => "invalid_prompt",
            (_, Repeat::ByStatus) => "server_error",
        };
        Self { code, message: error.message.clone() }
    }
}

impl From<Usage> for TokenCounts {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            input_tokens_details: CachedTokens { cached_tokens: usage.cached_tokens },
            output_tokens: usage.output_tokens,
            output_tokens_details: ReasoningTokens { reasoning_tokens: 0 },
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        }
    }
}

/// Appends the JSON of a response. `given` has the members that the request gives, `output` the JSON of the items.
pub(super) fn write<'a>(
    out: &mut Vec<u8>,
    run: &RunHead,
    given: &RawValue,
    outcome: &Outcome,
    output: impl Iterator<Item = &'a str>,
) {
    out.extend_from_slice(b"{\"id\":");
    json(out, &ids::response(&run.id));
    out.extend_from_slice(b",\"object\":\"response\"");
    member(out, "created_at", &run.created);
    member(out, "status", &outcome.status);
    member(out, "completed_at", &outcome.completed_at);
    member(out, "error", &outcome.error);
    member(out, "incomplete_details", &outcome.incomplete_details);
    out.extend_from_slice(b",\"output\":[");
    for (index, item) in output.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_bytes());
    }
    out.push(b']');
    member(out, "usage", &outcome.usage);
    echo::append(out, given);
    if let Some(trunkline) = &outcome.trunkline {
        member(out, "trunkline", trunkline);
    }
    out.push(b'}');
}
