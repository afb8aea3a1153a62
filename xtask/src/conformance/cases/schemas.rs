//! Cases about answers with a schema: the CLI passes it to the model in its own way, or the prompt contains it. The gateway
//! checks every answer and asks once for a corrected one.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::conversation::{Conversation, user, weather};
use crate::conformance::clis::SchemaDelivery;
use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::http::HttpMessage;
use crate::conformance::tap::TappedCall;
use crate::conformance::world::ConformanceMode;

/// Beginning of the instruction in a prompt.
const INSTRUCTION: &str = "Answer with exactly one JSON value";

/// Beginning of the gateway's request for a corrected answer.
const CORRECTION: &str = "Your answer was not accepted";

/// The part of the script for one way in which the model gets a schema: the correction of an answer names the property.
struct SchemaScript {
    /// End of the prompts.
    way: &'static str,
    property: &'static str,
    value: u64,
    /// Property of the case in which the model never obeys.
    refused: &'static str,
}

impl SchemaScript {
    fn of(delivery: SchemaDelivery) -> Self {
        match delivery {
            SchemaDelivery::Instruction | SchemaDelivery::Format => {
                Self { way: "in writing", property: "metres", value: 41, refused: "fathoms" }
            }
            SchemaDelivery::Tool("StructuredOutput") => {
                Self { way: "with StructuredOutput", property: "feet", value: 134, refused: "leagues" }
            }
            SchemaDelivery::Tool(_) => {
                Self { way: "with structured_output", property: "yards", value: 45, refused: "cables" }
            }
        }
    }
}

pub(super) fn obeyed(context: &CaseContext<'_>) -> Result<()> {
    let (delivery, script) = script(context);
    let reply = ask(context, &format!("Measure the lighthouse {}.", script.way), script.property)?;
    equal("the answer", parsed(&reply)?, json!({script.property: script.value}))?;
    holds("there are no notes", reply.json()["trunkline"]["notes"].is_null())?;
    let calls = model_calls(context);
    equal("calls of the model", calls.len(), 1)?;
    delivered(&calls[0], delivery, script.property)
}

pub(super) fn repaired(context: &CaseContext<'_>) -> Result<()> {
    let (delivery, script) = script(context);
    let prompt = format!("Guess the height {}.", script.way);
    let reply = ask(context, &prompt, script.property)?;
    equal("the answer", parsed(&reply)?, json!({script.property: script.value}))?;
    let notes = reply.json()["trunkline"]["notes"].to_string();
    holds(&format!("a note says that the answer was repaired: {notes}"), notes.contains("repaired"))?;
    let calls = model_calls(context);
    delivered(calls.first().context("no call of the model")?, delivery, script.property)?;
    let last = calls.last().context("no call of the model")?;
    equal("prompts in the last request", last.count(&prompt), 1)?;
    equal("corrections in the last request", last.count(CORRECTION), 1)?;
    if let SchemaDelivery::Format | SchemaDelivery::Tool(_) = delivery {
        delivered(last, delivery, script.property)?;
    }
    if context.world.mode == ConformanceMode::Warm {
        let pids = context.pids();
        equal("turns", pids.len(), 2)?;
        equal("the process of the repair", pids[1], pids[0])?;
    }
    Ok(())
}

pub(super) fn never_obeyed(context: &CaseContext<'_>) -> Result<()> {
    let (_, script) = script(context);
    let reply = ask(context, &format!("Refuse to measure {}.", script.way), script.refused)?;
    equal("the status", reply.status(), 422)?;
    let error = reply.json()["error"].clone();
    equal("the code", error["code"].as_str(), Some("schema_mismatch"))?;
    let text = error.to_string();
    holds(&format!("the error names the place: {text}"), text.contains(&format!("/{}", script.refused)))?;
    holds(&format!("the error has the answer: {text}"), text.contains("many"))?;
    let corrections = model_calls(context).last().map(|call| call.count(CORRECTION));
    equal("corrections in the last request", corrections, Some(1))
}

/// Tools of the client and a schema in one request.
pub(super) fn with_tools(context: &CaseContext<'_>) -> Result<()> {
    let delivery = context.world.cli.schemas_live;
    let talk = Conversation::new(context, weather(), "Measure what the weather allows.")?;
    let mut talk = talk.with(json!({"response_format": response_format("metres")}));
    let call = talk.call()?;
    call.is("weather", &json!({"city": "Bergen"}))?;
    talk.give(&call, "clear sky");
    let reply = talk.ask()?;
    equal("the answer", parsed(&reply)?, json!({"metres": 41}))?;
    talk.check_model_calls(2)?;
    talk.model_receives("clear sky")?;
    let calls = context.tap.calls();
    delivered(&calls[talk.calls_before], delivery, "metres")
}

fn script(context: &CaseContext<'_>) -> (SchemaDelivery, SchemaScript) {
    let delivery = match context.world.mode {
        ConformanceMode::Cold => context.world.cli.schemas_cold,
        ConformanceMode::Warm => context.world.cli.schemas_live,
    };
    (delivery, SchemaScript::of(delivery))
}

fn ask(context: &CaseContext<'_>, prompt: &str, property: &str) -> Result<HttpMessage> {
    context.request(&json!({"messages": user(prompt), "response_format": response_format(property)}))
}

fn response_format(property: &str) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "height", "strict": true, "schema": schema(property)}})
}

fn schema(property: &str) -> Value {
    json!({
        "type": "object",
        "properties": {property: {"type": "integer"}},
        "required": [property],
        "additionalProperties": false,
    })
}

/// The answer as JSON.
fn parsed(reply: &HttpMessage) -> Result<Value> {
    let text = content(reply)?;
    serde_json::from_str(&text).with_context(|| format!("the answer is not bare JSON: {text}"))
}

/// Calls of the model, without those that a CLI makes on its own, such as for a title.
fn model_calls(context: &CaseContext<'_>) -> Vec<TappedCall> {
    context.tap.calls().into_iter().filter(|call| !call.tools().is_empty()).collect()
}

/// Fails unless a request to the model has the schema in this way, and in no other.
fn delivered(call: &TappedCall, delivery: SchemaDelivery, property: &str) -> Result<()> {
    let request = call.request.json();
    let in_prompt = call.contains(INSTRUCTION);
    let format = &request["text"]["format"];
    match delivery {
        SchemaDelivery::Instruction => {
            holds("the prompt has the instruction", in_prompt)?;
            holds("the request has no format", format.is_null())
        }
        SchemaDelivery::Format => {
            holds("the prompt has no instruction", !in_prompt)?;
            equal("the type of the format", format["type"].as_str(), Some("json_schema"))?;
            equal("the format is strict", format["strict"].as_bool(), Some(true))?;
            equal("the schema", format["schema"].clone(), schema(property))
        }
        SchemaDelivery::Tool(name) => {
            holds("the prompt has no instruction", !in_prompt)?;
            let tools = request["tools"].as_array().into_iter().flatten();
            let functions = tools.map(|tool| if tool["function"].is_object() { &tool["function"] } else { tool });
            let Some(function) = { functions }.find(|function| function["name"] == name) else {
                bail!("the model is not offered {name}");
            };
            let has_input = function["input_schema"].is_object();
            let parameters = if has_input { &function["input_schema"] } else { &function["parameters"] };
            equal("the property of the tool", parameters["properties"][property]["type"].as_str(), Some("integer"))
        }
    }
}
