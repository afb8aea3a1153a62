//! An estimate of the tokens of a request. No provider is asked: a CLI cannot tell, and each model counts differently.

use trunkline_core::turn::Turn;

/// Bytes of text that count as one token.
const BYTES_PER_TOKEN: usize = 4;

/// Tokens of an image: about the count of the vendors for a large one.
const TOKENS_PER_IMAGE: usize = 1600;

/// Estimates the input tokens of a turn: its messages, images and tools.
pub(crate) fn input_tokens(turn: &Turn) -> usize {
    let texts = turn.messages.iter().map(|message| {
        let calls = message.calls.iter().map(|call| call.name.len() + call.arguments.len());
        message.text.len() + calls.sum::<usize>()
    });
    let tools = turn.options.tools.as_ref().map_or(0, |tools| tools.as_str().len());
    (texts.sum::<usize>() + tools).div_ceil(BYTES_PER_TOKEN) + turn.images().count() * TOKENS_PER_IMAGE
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trunkline_core::event::ToolCall;
    use trunkline_core::turn::{Image, Message, Options, Role};

    use super::*;

    #[test]
    fn text_calls_images_and_tools_are_counted() {
        let call = ToolCall { id: "not counted".into(), name: "ls".into(), arguments: "{}".into() };
        let turn = Turn {
            messages: vec![
                Message::new(Role::System, "1234"),
                Message {
                    images: vec![Image { extension: "png", bytes: vec![0] }],
                    ..Message::new(Role::User, "12345")
                },
                Message { calls: vec![call], ..Message::new(Role::Assistant, "") },
            ],
            options: Options { tools: Some((&json!([])).into()), ..Options::default() },
            ..Turn::default()
        };
        assert_eq!(input_tokens(&turn), (4 + 5 + 4 + 2_usize).div_ceil(4) + TOKENS_PER_IMAGE);
        assert_eq!(input_tokens(&Turn::default()), 0);
    }
}
