//! Cases about failures of the model service: the client gets an error of the right category, and never an answer.

use anyhow::Result;

use crate::conformance::context::{CaseContext, equal, holds};

pub(super) fn wrong_key(context: &CaseContext<'_>) -> Result<()> {
    let headers = fails(context, "Open with a wrong key.", 500, "authentication")?;
    equal("x-should-retry", headers.should_retry.as_deref(), Some("false"))?;
    holds("the service received a request", !context.tap.calls().is_empty())
}

pub(super) fn rate_limit(context: &CaseContext<'_>) -> Result<()> {
    let headers = fails(context, "Ask too often.", 429, "rate_limit")?;
    holds("there is a Retry-After", headers.retry_after.is_some_and(|seconds| seconds >= 1))?;
    holds("the service received a request", !context.tap.calls().is_empty())
}

pub(super) fn server_error(context: &CaseContext<'_>) -> Result<()> {
    fails(context, "Wake the broken server.", 500, "server")?;
    holds("the service received a request", !context.tap.calls().is_empty())
}

pub(super) fn refused(context: &CaseContext<'_>) -> Result<()> {
    fails(context, "How tall is the lighthouse?", 500, "network").map(|_| ())
}

pub(super) fn stall(context: &CaseContext<'_>) -> Result<()> {
    fails(context, "Wait for the fog to lift.", 504, "timeout")?;
    holds("the service received a request before the timeout", !context.tap.calls().is_empty())
}

/// Headers of an error that tell a client whether and when to retry.
struct RetryHeaders {
    should_retry: Option<String>,
    retry_after: Option<u64>,
}

fn fails(context: &CaseContext<'_>, prompt: &str, status: u16, category: &str) -> Result<RetryHeaders> {
    let reply = context.ask(prompt)?;
    let error = &reply.json()["error"];
    equal("status and code", (reply.status(), error["code"].as_str()), (status, Some(category)))?;
    let message = error["message"].as_str().unwrap_or_default();
    holds(
        "the message has a reason",
        message.strip_prefix("CLI failed: ").is_some_and(|reason| !reason.trim().is_empty()),
    )?;
    holds("there is a detail", error["detail"].as_str().is_some_and(|detail| !detail.trim().is_empty()))?;
    Ok(RetryHeaders {
        should_retry: reply.header("x-should-retry").map(str::to_owned),
        retry_after: reply.header("retry-after").and_then(|seconds| seconds.parse().ok()),
    })
}
