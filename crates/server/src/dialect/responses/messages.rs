//! Conversion of items into messages, or into an error that names the invalid member.
//!
//! Items are finer than messages: a message of the assistant and its calls are several items. Neighbouring items of the assistant
//! become one message, so that a history has the same messages in every dialect.

use trunkline_core::event::ToolCall;
use trunkline_core::turn::{Image, Message, Role};
use trunkline_wire::error::ApiError;
use trunkline_wire::request::{checked, decode_data_url, image, missing};

use super::items::{Content, InputItem, Part};

/// Prefix of our own kinds of items, which a client may send back.
const OWN_PREFIX: &str = "trunkline:";

/// Appends the messages of some items. `path` is their place in the request.
pub(super) fn append(messages: &mut Vec<Message>, items: Vec<InputItem>, path: &str) -> Result<(), ApiError> {
    for (index, item) in items.into_iter().enumerate() {
        append_item(messages, item, &format!("{path}[{index}]"))?;
    }
    Ok(())
}

fn append_item(messages: &mut Vec<Message>, item: InputItem, path: &str) -> Result<(), ApiError> {
    match item.kind() {
        "message" => append_message(messages, item, path),
        "function_call" | "custom_tool_call" => {
            let call = ToolCall {
                id: item.call_id.ok_or_else(|| missing(&format!("{path}.call_id")))?,
                name: checked(item.name.ok_or_else(|| missing(&format!("{path}.name")))?, || format!("{path}.name"))?,
                arguments: checked(item.arguments.or(item.input).unwrap_or_default(), || format!("{path}.arguments"))?,
            };
            assistant(messages).calls.push(call);
            Ok(())
        }
        "function_call_output" | "custom_tool_call_output" => {
            let call_id = Some(item.call_id.ok_or_else(|| missing(&format!("{path}.call_id")))?);
            let output = item.output.ok_or_else(|| missing(&format!("{path}.output")))?;
            let (text, images) = content(output, &format!("{path}.output"))?;
            messages.push(Message { images, call_id, ..Message::new(Role::Tool, text) });
            Ok(())
        }
        // The provider has its own, or none.
        "reasoning" => Ok(()),
        kind if kind.starts_with(OWN_PREFIX) => Ok(()),
        kind => {
            let message = format!(
                "unknown type of item {:?}: use message, function_call, function_call_output, reasoning or item_reference",
                kind.chars().take(100).collect::<String>()
            );
            Err(ApiError::invalid("invalid_value", message).about(format!("{path}.type")))
        }
    }
}

fn append_message(messages: &mut Vec<Message>, item: InputItem, path: &str) -> Result<(), ApiError> {
    let role = match item.role.as_deref() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) => {
            let message = "unknown role: use system, developer, user or assistant";
            return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.role")));
        }
        None => return Err(missing(&format!("{path}.role"))),
    };
    let given = item.content.ok_or_else(|| missing(&format!("{path}.content")))?;
    let (text, images) = content(given, &format!("{path}.content"))?;
    if role != Role::Assistant {
        messages.push(Message { images, ..Message::new(role, text) });
        return Ok(());
    }
    let message = assistant(messages);
    // Our own items keep the blank line with which a stream separates them.
    if !message.text.is_empty() && !text.starts_with('\n') {
        message.text.push_str("\n\n");
    }
    message.text.push_str(&text);
    Ok(())
}

/// The message of the assistant at the end, possibly a new one.
fn assistant(messages: &mut Vec<Message>) -> &mut Message {
    if messages.last().is_none_or(|last| last.role != Role::Assistant) {
        messages.push(Message::new(Role::Assistant, ""));
    }
    messages.last_mut().expect("there is one now")
}

fn content(content: Content, path: &str) -> Result<(String, Vec<Image>), ApiError> {
    let parts = match content {
        Content::Text(text) => return Ok((checked(text, || path.to_owned())?, Vec::new())),
        Content::List(parts) => parts,
    };
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for (index, part) in parts.into_iter().enumerate() {
        take_part(part, &format!("{path}[{index}]"), &mut texts, &mut images)?;
    }
    Ok((texts.join("\n"), images))
}

fn take_part(part: Part, path: &str, texts: &mut Vec<String>, images: &mut Vec<Image>) -> Result<(), ApiError> {
    match part.kind.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            let text = part.text.ok_or_else(|| missing(&format!("{path}.text")))?;
            texts.push(checked(text, || format!("{path}.text"))?);
        }
        "refusal" => texts.push(checked(part.refusal.unwrap_or_default(), || format!("{path}.refusal"))?),
        "input_image" => match part.image_url {
            Some(url) => images.push(image(&url, &format!("{path}.image_url"))?),
            None => return Err(stored_elsewhere(path, "image", "image_url")),
        },
        "input_file" => match part.file_data {
            Some(data) => take_file(&data, part.filename, path, texts, images)?,
            None => return Err(stored_elsewhere(path, "file", "file_data")),
        },
        "input_audio" => return Err(ApiError::unsupported(path, "agents take text, images and text files, not audio")),
        _ => {
            let message = "unknown type of content: use input_text, output_text, input_image or input_file";
            return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.type")));
        }
    }
    Ok(())
}

/// Adds a file: a text file as text with its name, an image as an image.
fn take_file(
    data: &str,
    name: Option<String>,
    path: &str,
    texts: &mut Vec<String>,
    images: &mut Vec<Image>,
) -> Result<(), ApiError> {
    let param = format!("{path}.file_data");
    if data.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("data:image/")) {
        images.push(image(data, &param)?);
        return Ok(());
    }
    let bytes = decode_data_url(data, &param)?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(ApiError::unsupported(param, "agents take text files and images, not other files"));
    };
    let name = checked(name.unwrap_or_else(|| "file".to_owned()), || format!("{path}.filename"))?;
    texts.push(format!("[File: {name}]\n{}", checked(text, || param)?));
    Ok(())
}

/// An image or a file that is not in the request.
fn stored_elsewhere(path: &str, what: &str, member: &str) -> ApiError {
    let message = format!("{what}s are not fetched and not stored: send the {what} itself as `{member}`, a data: URL");
    ApiError::invalid("invalid_value", message).about(path)
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
