//! Cases about `tool_choice`: the model must call a tool, or one of them.

use anyhow::Result;
use serde_json::{Value, json};

use super::conversation::{Conversation, tool};
use crate::conformance::context::{CaseContext, equal, holds};

/// The model answers without a call, is told to call a tool, and obeys.
pub(super) fn required(context: &CaseContext<'_>) -> Result<()> {
    let talk = Conversation::new(context, instruments(), "Choose an instrument, or none.")?;
    let mut talk = talk.with(json!({"tool_choice": "required"}));
    let call = talk.call()?;
    call.is("barometer", &json!({"at": "noon"}))?;
    talk.give(&call, "falling");
    talk.ends("The barometer falls.", 3)?;
    talk.model_receives("falling")?;
    let offered = talk.offered()?;
    for name in ["barometer", "sextant"] {
        holds(&format!("{name} is offered: {offered:?}"), offered.iter().any(|offered| offered.ends_with(name)))?;
    }
    Ok(())
}

/// The model answers without a call twice.
pub(super) fn required_in_vain(context: &CaseContext<'_>) -> Result<()> {
    let talk = Conversation::new(context, one("chronometer"), "Choose no instrument at all.")?;
    let talk = talk.with(json!({"tool_choice": "required"}));
    let reply = talk.ask()?;
    equal("the status", reply.status(), 500)?;
    let message = reply.json()["error"].to_string();
    holds(&format!("the error names `tool_choice`: {message}"), message.contains("tool_choice"))?;
    talk.check_model_calls(2)
}

pub(super) fn named(context: &CaseContext<'_>) -> Result<()> {
    let choice = json!({"type": "function", "function": {"name": "sextant"}});
    let talk = Conversation::new(context, instruments(), "Choose the named instrument.")?;
    let mut talk = talk.with(json!({"tool_choice": choice}));
    let call = talk.call()?;
    call.is("sextant", &json!({"at": "dusk"}))?;
    talk.give(&call, "41 degrees");
    equal("the answer", crate::conformance::context::content(&talk.ask()?)?.as_str(), "It stands at 41 degrees.")?;
    talk.check_model_calls(2)?;
    talk.model_receives("41 degrees")?;
    let calls = context.tap.calls();
    let first = &calls[talk.calls_before];
    let offered = first.tools();
    holds(&format!("sextant is offered: {offered:?}"), offered.iter().any(|name| name.ends_with("sextant")))?;
    holds("barometer is not in the request", !first.request.text().contains("barometer"))?;
    holds("the model is told to call it", first.contains("Call the tool sextant before you answer."))
}

fn instruments() -> Value {
    json!([instrument("barometer"), instrument("sextant")])
}

fn one(name: &str) -> Value {
    json!([instrument(name)])
}

fn instrument(name: &str) -> Value {
    tool(name, &json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}))
}
