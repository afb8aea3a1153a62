//! Calls that the client has to make. Their arguments are objects here, and JSON text everywhere else.

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use trunkline_core::event::ToolCall;

#[derive(Serialize)]
pub(super) struct CallObject<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    index: usize,
    name: &'a str,
    arguments: Box<RawValue>,
}

pub(super) fn call_objects(calls: &[ToolCall]) -> Vec<CallObject<'_>> {
    calls.iter().enumerate().map(|(index, call)| call_object(index, call)).collect()
}

fn call_object(index: usize, call: &ToolCall) -> CallObject<'_> {
    // A line break in valid JSON is only ever between its values. Here it would end the line.
    let line = call.arguments.replace(['\n', '\r'], " ");
    let arguments = RawValue::from_string(line.trim().to_owned()).ok();
    // Clients expect an object. A model may have written something else.
    let arguments = arguments.filter(|arguments| arguments.get().starts_with('{')).unwrap_or_else(|| {
        let members = if call.arguments.trim().is_empty() { json!({}) } else { json!({"input": call.arguments}) };
        to_raw_value(&members).expect("strings always serialise")
    });
    CallObject { id: &call.id, function: CalledFunction { index, name: &call.name, arguments } }
}
