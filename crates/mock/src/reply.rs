//! From what is asked to what is answered: the script's step, with the calls in the client's words.

use trunkline_core::event::Usage;

use crate::dialect::{Asked, Reply};
use crate::script::{Response, ScriptedCall};
use crate::tools::{Arguments, Call, translate};

/// Makes the answer of a step. `model` is the one asked for, `id` that of the request, `created` in seconds since 1970.
pub(crate) fn reply(asked: &Asked, response: Response, model: String, id: u64, created: u64) -> Reply {
    let calls: Vec<Call> =
        response.tool_calls.into_iter().enumerate().map(|(index, scripted)| call(asked, scripted, index)).collect();
    let spoken: String = response
        .content
        .iter()
        .map(String::as_str)
        .chain(calls.iter().flat_map(|call| {
            let (Arguments::Json(text) | Arguments::Freeform(text)) = &call.arguments;
            [call.name.as_str(), text.as_str()]
        }))
        .collect();
    Reply {
        id,
        created,
        model,
        text: response.content,
        calls,
        input_tokens: asked.history.tokens(),
        output_tokens: Usage::estimate("", &spoken).output_tokens.max(1),
        include_usage: asked.include_usage,
    }
}

fn call(asked: &Asked, scripted: ScriptedCall, index: usize) -> Call {
    let id = scripted.id.unwrap_or_else(|| format!("call_{}_{index}", asked.history.results()));
    // The same scenario may be played twice in one conversation, and clients find results by id.
    let id = match asked.history.calls_of(&id) {
        0 => id,
        before => format!("{id}_{}", before + 1),
    };
    let function = scripted.function;
    let (name, arguments) = translate(&function.name, &function.arguments, &asked.tools, asked.history.folder());
    Call { id, name, arguments }
}

/// The id of a request: FNV-1a of its bytes, because it is the same in every build.
pub(crate) fn id_of(body: &[u8]) -> u64 {
    // JavaScript's numbers hold 53 bits, and somebody will read it as one.
    body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
        >> 11
}
