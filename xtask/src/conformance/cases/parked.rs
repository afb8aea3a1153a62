//! Cases about a CLI that waits for results of the client's tools: for long, and while the gateway is restarted.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::conversation::{Conversation, weather};
use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::observe::{processes, wait_until};

/// Longer than the usual time limits of HTTP libraries and MCP clients.
const LONG_WAIT: Duration = Duration::from_secs(6 * 60);

/// Limit for the processes of a killed gateway to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn long_wait(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Look at the sky and take your time.")?;
    let call = talk.call()?;
    call.is("weather", &json!({"city": "Tromsø"}))?;
    thread::sleep(LONG_WAIT);
    talk.give(&call, "the sun is back");
    talk.ends("The sun is back.", 2)?;
    talk.model_receives("the sun is back")
}

/// The gateway is killed while a run is parked. The results reach the gateway after its restart and start a new turn.
pub(super) fn restarted_gateway(context: &CaseContext<'_>) -> Result<()> {
    let gateway = context.own_gateway()?;
    let mut talk = Conversation::cold(context, weather(), "Look at the sky before the power fails.");
    let reply = context.request_at(&gateway, &talk.request())?;
    let calls = talk.calls_of(&reply)?;
    equal("calls in the answer", calls.len(), 1)?;
    calls[0].is("weather", &json!({"city": "Bodø"}))?;
    drop(gateway);
    wait_until(STOP_TIMEOUT, "no process of the killed gateway is left", || {
        own_processes(context).is_empty().then_some(())
    })?;
    let model_calls = talk.model_calls();
    let gateway = context.own_gateway()?;
    talk.give(&calls[0], "northern lights over Bodø");
    let reply = context.request_at(&gateway, &talk.request())?;
    equal("the answer", content(&reply)?.as_str(), "There are northern lights.")?;
    let notes = reply.json()["trunkline"]["notes"].to_string();
    holds(&format!("a note says that a new turn was started: {notes}"), notes.contains("a new turn was started"))?;
    talk.check_model_calls(model_calls + 1)?;
    let all = context.tap.calls();
    let last = all.iter().rfind(|call| !call.tools().is_empty()).expect("the model was called");
    equal("prompts in the last request", last.count("before the power fails"), 1)?;
    equal("results in the last request", last.count("northern lights over Bodø"), 1)
}

/// Processes of the gateway that this case has started. In warm mode the shared gateway has processes with the same marker.
fn own_processes(context: &CaseContext<'_>) -> Vec<u32> {
    let marker = context.own_marker();
    processes(&marker).iter().map(|process| process.pid).collect()
}
