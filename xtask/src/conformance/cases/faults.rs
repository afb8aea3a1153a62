//! Cases about what goes wrong at the service: the client gets an error of the right kind, and never an answer.

use anyhow::Result;

use crate::conformance::scene::{Scene, equal, holds};

pub(super) fn wrong_key(scene: &Scene<'_>) -> Result<()> {
    let headers = fails(scene, "Open with a wrong key.", 500, "authentication")?;
    equal("x-should-retry", headers.should_retry.as_deref(), Some("false"))?;
    holds("the service was asked", !scene.tap.calls().is_empty())
}

pub(super) fn rate_limit(scene: &Scene<'_>) -> Result<()> {
    let headers = fails(scene, "Ask too often.", 429, "rate_limit")?;
    holds("there is a Retry-After", headers.retry_after.is_some_and(|seconds| seconds >= 1))?;
    holds("the service was asked", !scene.tap.calls().is_empty())
}

pub(super) fn server_error(scene: &Scene<'_>) -> Result<()> {
    fails(scene, "Wake the broken server.", 500, "server")?;
    holds("the service was asked", !scene.tap.calls().is_empty())
}

pub(super) fn refused(scene: &Scene<'_>) -> Result<()> {
    fails(scene, "How tall is the lighthouse?", 500, "network").map(|_| ())
}

pub(super) fn stall(scene: &Scene<'_>) -> Result<()> {
    fails(scene, "Wait for the fog to lift.", 504, "timeout")?;
    holds("the service was asked before the time was up", !scene.tap.calls().is_empty())
}

/// The headers of an error that tell a client what to do.
struct Advice {
    should_retry: Option<String>,
    retry_after: Option<u64>,
}

fn fails(scene: &Scene<'_>, prompt: &str, status: u16, category: &str) -> Result<Advice> {
    let reply = scene.ask(prompt)?;
    let error = &reply.json()["error"];
    equal("status and code", (reply.status(), error["code"].as_str()), (status, Some(category)))?;
    let message = error["message"].as_str().unwrap_or_default();
    holds(
        "the message says why",
        message.strip_prefix("CLI failed: ").is_some_and(|reason| !reason.trim().is_empty()),
    )?;
    holds("the detail says something", error["detail"].as_str().is_some_and(|detail| !detail.trim().is_empty()))?;
    Ok(Advice {
        should_retry: reply.header("x-should-retry").map(str::to_owned),
        retry_after: reply.header("retry-after").and_then(|seconds| seconds.parse().ok()),
    })
}
