//! Builds the reply to a request: the response of the script step, with tool calls translated for the client.

use trunkline_core::event::Usage;

use crate::dialect::{MockReply, MockRequest};
use crate::script::{ScriptedCall, ScriptedResponse};
use crate::tools::{CallArguments, MockCall, translate};

/// Builds the reply for the response of a step. `model` is the requested one, `id` comes from [`request_id`], `created`
/// is in seconds since 1970.
pub(crate) fn build_reply(
    request: &MockRequest,
    response: ScriptedResponse,
    model: String,
    id: u64,
    created: u64,
) -> MockReply {
    let calls: Vec<MockCall> =
        response.tool_calls.into_iter().enumerate().map(|(index, scripted)| call(request, scripted, index)).collect();
    let output: String = response
        .content
        .iter()
        .map(String::as_str)
        .chain(calls.iter().flat_map(|call| {
            let (CallArguments::Json(text) | CallArguments::Freeform(text)) = &call.arguments;
            [call.name.as_str(), text.as_str()]
        }))
        .collect();
    MockReply {
        id,
        created,
        model,
        text: response.content,
        calls,
        input_tokens: request.history.tokens(),
        output_tokens: Usage::estimate("", &output).output_tokens.max(1),
        include_usage: request.include_usage,
    }
}

fn call(request: &MockRequest, scripted: ScriptedCall, index: usize) -> MockCall {
    let id = scripted.id.unwrap_or_else(|| format!("call_{}_{index}", request.history.result_count()));
    // A scenario can run twice in one conversation, but ids must be unique: clients match results to calls by id.
    let id = match request.history.call_count(&id) {
        0 => id,
        before => format!("{id}_{}", before + 1),
    };
    let function = scripted.function;
    let (name, arguments) = translate(&function.name, &function.arguments, &request.tools, request.history.folder());
    MockCall { id, name, arguments }
}

/// Returns the id of a request: the FNV-1a hash of its bytes, which is the same in every build.
pub(crate) fn request_id(body: &[u8]) -> u64 {
    // Shortened to 53 bits: clients may parse the id as a JavaScript number.
    body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
        >> 11
}
