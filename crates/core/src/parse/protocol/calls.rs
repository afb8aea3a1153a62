//! `tool_calls` of a protocol executable: in OpenAI's form or flat, complete or in pieces, once or in every chunk.

use crate::event::{Event, ToolCall};
use crate::parse::json::Value;
use crate::parse::transcript::{MAX_ANSWER_BYTES, OutputTranscript};

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 128;

/// Reads calls into [`OutputTranscript::calls`].
#[derive(Debug, Default)]
pub(super) struct ToolCallReader {
    /// Length of all arguments so far.
    argument_bytes: usize,
}

impl ToolCallReader {
    /// Reads the calls of a response or chunk. The error names the wrong member.
    pub(super) fn read(&mut self, value: &Value<'_>, transcript: &mut OutputTranscript) -> Result<(), String> {
        let calls = match value.get("tool_calls") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(calls)) => calls,
            Some(other) => return Err(format!("`tool_calls` is {}, not an array", kind(other))),
        };
        for (position, call) in calls.iter().enumerate() {
            self.read_call(position, call, transcript)?;
        }
        Ok(())
    }

    fn read_call(
        &mut self,
        position: usize,
        call: &Value<'_>,
        transcript: &mut OutputTranscript,
    ) -> Result<(), String> {
        let path = format!("tool_calls[{position}]");
        if !call.is_object() {
            return Err(format!("`{path}` is {}, not an object", kind(call)));
        }
        let function = call.get("function").filter(|function| !function.is_null()).unwrap_or(call);
        let id = string(call, "id", &path)?.filter(|id| !id.is_empty());
        let name = string(function, "name", &path)?.filter(|name| !name.is_empty());
        let arguments = arguments(function, &path)?;
        let index = index_of(call, id, position, &transcript.calls, &path)?;
        self.argument_bytes = self.argument_bytes.saturating_add(arguments.len());
        if index >= MAX_CALLS || self.argument_bytes > MAX_ANSWER_BYTES {
            return Err(format!("`{path}` is one call too many, or too long"));
        }
        let Some(known) = transcript.calls.get_mut(index) else {
            let Some(name) = name else { return Err(format!("`{path}` has no name")) };
            let id = id.map_or_else(|| format!("call_{index}"), str::to_owned);
            let call = ToolCall { id: id.clone(), name: name.to_owned(), arguments: arguments.clone() };
            let index = transcript.calls.len() as u32;
            transcript.calls.push(call);
            transcript.events.push(Event::ToolCall { index, id: Some(id), name: Some(name.to_owned()), arguments });
            return Ok(());
        };
        // A call with a name is the complete call so far; without a name it is a piece of the arguments.
        let more = match name {
            Some(_) => arguments.strip_prefix(known.arguments.as_str()).unwrap_or_default().to_owned(),
            None => arguments,
        };
        if !more.is_empty() {
            known.arguments.push_str(&more);
            let index = index as u32;
            transcript.events.push(Event::ToolCall { index, id: None, name: None, arguments: more });
        }
        Ok(())
    }
}

/// Returns the index of a call: its own, else that of its id, else its position in the list.
fn index_of(
    call: &Value<'_>,
    id: Option<&str>,
    position: usize,
    known: &[ToolCall],
    path: &str,
) -> Result<usize, String> {
    match (call.get("index").filter(|index| !index.is_null()), id) {
        (Some(index), _) => {
            let Some(index) = index.as_u64() else {
                return Err(format!("`{path}.index` is {}, not a count", kind(index)));
            };
            Ok(usize::try_from(index).unwrap_or(usize::MAX))
        }
        (None, Some(id)) => Ok(known.iter().position(|call| call.id == id).unwrap_or(known.len())),
        (None, None) => Ok(position),
    }
}

fn string<'v>(value: &'v Value<'_>, name: &str, path: &str) -> Result<Option<&'v str>, String> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("`{path}.{name}` is {}, not a string", kind(other))),
    }
}

/// Returns the arguments as JSON text. They may also be an object.
fn arguments(function: &Value<'_>, path: &str) -> Result<String, String> {
    match function.get("arguments").or_else(|| function.get("input")) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone().into_owned()),
        Some(object @ Value::Object(_)) => Ok(object.to_string()),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_))) => {
            Err(format!("`{path}.arguments` is {}, not a string or an object", kind(other)))
        }
    }
}

/// Type of a JSON value, with an article.
pub(super) fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
