//! Conversion of messages with blocks into ours, or into an error that names the invalid member.
//!
//! A message of the user may have results of tools and text. The results become messages of their own, before the text.

use serde_json::value::RawValue;
use trunkline_core::event::ToolCall;
use trunkline_core::turn::{Image, Message, Role};
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::{checked, decode_data_url, image, missing, typed_image};

use super::blocks::{Block, Content, Source, WireMessage};

/// First words of a system block that Claude Code adds for Anthropic's accounting. It is no part of the prompt, and it differs
/// between requests of one conversation, whose session could then not be found by its history.
const BILLING_BLOCK: &str = "x-anthropic-billing-header:";

/// Depth of documents and results inside of each other.
const MAX_DEPTH: usize = 4;

/// The system prompt, if there is one.
pub(super) fn system(content: Content) -> Result<Option<Message>, ApiError> {
    let text = match content {
        Content::Text(text) => checked(text, || "system".to_owned())?,
        Content::List(blocks) => {
            let mut texts = Vec::new();
            for (index, block) in blocks.into_iter().enumerate() {
                let path = format!("system[{index}]");
                if block.kind != "text" {
                    return Err(unknown_type(&block.kind, &path, "text"));
                }
                let text = block.text.ok_or_else(|| missing(&format!("{path}.text")))?;
                if !text.starts_with(BILLING_BLOCK) {
                    texts.push(checked(text, || format!("{path}.text"))?);
                }
            }
            texts.join("\n")
        }
    };
    Ok((!text.is_empty()).then(|| Message::new(Role::System, text)))
}

/// Appends one message of the request, or the several that it consists of. `path` is its place.
pub(super) fn append(messages: &mut Vec<Message>, given: WireMessage, path: &str) -> Result<(), ApiError> {
    let content = given.content.ok_or_else(|| missing(&format!("{path}.content")))?;
    match given.role.as_deref() {
        Some("user") => append_user(messages, content, path),
        Some("assistant") => {
            messages.push(assistant(content, path)?);
            Ok(())
        }
        Some("system") => {
            let Parts { texts, images } = parts(content, &format!("{path}.content"), 0)?;
            messages.push(Message { images, ..Message::new(Role::System, texts.join("\n")) });
            Ok(())
        }
        Some(_) => {
            let message = "unknown role: use user or assistant";
            Err(ApiError::invalid("invalid_value", message).about(format!("{path}.role")))
        }
        None => Err(missing(&format!("{path}.role"))),
    }
}

fn append_user(messages: &mut Vec<Message>, content: Content, path: &str) -> Result<(), ApiError> {
    let blocks = match content {
        Content::Text(text) => {
            messages.push(Message::new(Role::User, checked(text, || format!("{path}.content"))?));
            return Ok(());
        }
        Content::List(blocks) => blocks,
    };
    let (mut said, mut results) = (Parts::default(), 0);
    let is_said = |block: &Block| block.kind != "tool_result";
    let says = blocks.is_empty() || blocks.iter().any(is_said);
    for (index, block) in blocks.into_iter().enumerate() {
        let path = format!("{path}.content[{index}]");
        if is_said(&block) {
            said.take(block, &path, 0)?;
        } else {
            messages.push(result(block, &path)?);
            results += 1;
        }
    }
    if says || results == 0 {
        messages.push(Message { images: said.images, ..Message::new(Role::User, said.texts.join("\n")) });
    }
    Ok(())
}

/// The result of a tool that the client ran.
fn result(block: Block, path: &str) -> Result<Message, ApiError> {
    let call_id = Some(block.tool_use_id.ok_or_else(|| missing(&format!("{path}.tool_use_id")))?);
    let Parts { texts, images } = match block.content {
        Some(content) => nested(&content, &format!("{path}.content"), 1)?,
        None => Parts::default(),
    };
    let mut text = texts.join("\n");
    if block.is_error == Some(true) {
        text.insert_str(0, "Error: ");
    }
    Ok(Message { images, call_id, ..Message::new(Role::Tool, text) })
}

/// A message of the assistant. Its texts are put together as they were streamed, so that its session is found by it.
fn assistant(content: Content, path: &str) -> Result<Message, ApiError> {
    let blocks = match content {
        Content::Text(text) => return Ok(Message::new(Role::Assistant, checked(text, || format!("{path}.content"))?)),
        Content::List(blocks) => blocks,
    };
    let mut message = Message::new(Role::Assistant, "");
    for (index, block) in blocks.into_iter().enumerate() {
        let path = format!("{path}.content[{index}]");
        match block.kind.as_str() {
            "text" => {
                let text = block.text.ok_or_else(|| missing(&format!("{path}.text")))?;
                // Our own blocks keep the blank line with which a stream separates them.
                if !message.text.is_empty() && !text.is_empty() && !text.starts_with('\n') {
                    message.text.push_str("\n\n");
                }
                message.text.push_str(&checked(text, || format!("{path}.text"))?);
            }
            "tool_use" => message.calls.push(call(block, &path)?),
            // The provider has its own, or none.
            "thinking" | "redacted_thinking" => {}
            kind => return Err(unknown_type(kind, &path, "text, tool_use or thinking")),
        }
    }
    Ok(message)
}

fn call(block: Block, path: &str) -> Result<ToolCall, ApiError> {
    let arguments = block.input.map_or_else(|| "{}".to_owned(), |input| input.get().to_owned());
    Ok(ToolCall {
        id: block.id.ok_or_else(|| missing(&format!("{path}.id")))?,
        name: checked(block.name.ok_or_else(|| missing(&format!("{path}.name")))?, || format!("{path}.name"))?,
        arguments,
    })
}

/// Texts and images of a content.
#[derive(Debug, Default)]
struct Parts {
    texts: Vec<String>,
    images: Vec<Image>,
}

fn parts(content: Content, path: &str, depth: usize) -> Result<Parts, ApiError> {
    let mut parts = Parts::default();
    match content {
        Content::Text(text) => parts.texts.push(checked(text, || path.to_owned())?),
        Content::List(blocks) => {
            for (index, block) in blocks.into_iter().enumerate() {
                parts.take(block, &format!("{path}[{index}]"), depth)?;
            }
        }
    }
    Ok(parts)
}

/// The content of a block.
fn nested(content: &RawValue, path: &str, depth: usize) -> Result<Parts, ApiError> {
    if depth > MAX_DEPTH {
        return Err(ApiError::invalid("invalid_value", "too many blocks inside of each other").about(path));
    }
    let content = serde_json::from_str(content.get()).map_err(|error| invalid(path, &error))?;
    parts(content, path, depth)
}

impl Parts {
    fn take(&mut self, block: Block, path: &str, depth: usize) -> Result<(), ApiError> {
        match block.kind.as_str() {
            "text" => {
                let text = block.text.ok_or_else(|| missing(&format!("{path}.text")))?;
                self.texts.push(checked(text, || format!("{path}.text"))?);
            }
            "image" => {
                let raw = block.source.ok_or_else(|| missing(&format!("{path}.source")))?;
                self.images.push(source_image(&source(&raw, path)?, path)?);
            }
            "document" => self.document(block, path, depth)?,
            "thinking" | "redacted_thinking" => {}
            kind => return Err(unknown_type(kind, path, "text, image, document or tool_result")),
        }
        Ok(())
    }

    /// Adds a document: as text with its title.
    fn document(&mut self, block: Block, path: &str, depth: usize) -> Result<(), ApiError> {
        let raw = block.source.ok_or_else(|| missing(&format!("{path}.source")))?;
        let source = source(&raw, path)?;
        let data = || source.data.as_deref().ok_or_else(|| missing(&format!("{path}.source.data")));
        let text = match source.kind.as_str() {
            "text" => data()?.to_owned(),
            "base64" => {
                let param = format!("{path}.source.data");
                let text = String::from_utf8(decode_data_url(data()?, &param)?).ok();
                let text = text.filter(|_| source.media_type.as_deref() != Some("application/pdf"));
                text.ok_or_else(|| {
                    ApiError::unsupported(path, "agents take text and images, not PDF or other binary documents")
                })?
            }
            "content" => {
                let content = source.content.ok_or_else(|| missing(&format!("{path}.source.content")))?;
                let mut inner = nested(content, &format!("{path}.source.content"), depth + 1)?;
                self.images.append(&mut inner.images);
                inner.texts.join("\n")
            }
            kind => return Err(stored_elsewhere(kind, path)),
        };
        let text = checked(text, || format!("{path}.source.data"))?;
        let title = checked(block.title.unwrap_or_else(|| "document".to_owned()), || format!("{path}.title"))?;
        self.texts.push(format!("[File: {title}]\n{text}"));
        Ok(())
    }
}

fn source<'a>(raw: &'a RawValue, path: &str) -> Result<Source<'a>, ApiError> {
    let source: Object<Source<'a>> =
        serde_json::from_str(raw.get()).map_err(|error| invalid(&format!("{path}.source"), &error))?;
    Ok(source.0)
}

fn source_image(source: &Source<'_>, path: &str) -> Result<Image, ApiError> {
    match source.kind.as_str() {
        "base64" => {
            let media_type = source.media_type.as_deref();
            let media_type = media_type.ok_or_else(|| missing(&format!("{path}.source.media_type")))?;
            let data = source.data.as_deref().ok_or_else(|| missing(&format!("{path}.source.data")))?;
            typed_image(media_type, data, &format!("{path}.source.data"))
        }
        "url" => {
            let url = source.url.as_deref().ok_or_else(|| missing(&format!("{path}.source.url")))?;
            image(url, &format!("{path}.source.url"))
        }
        kind => Err(stored_elsewhere(kind, path)),
    }
}

/// An image or a document that is not in the request.
fn stored_elsewhere(kind: &str, path: &str) -> ApiError {
    let message = format!(
        "unsupported source {:?}: nothing is fetched or stored here, so send the content itself",
        kind.chars().take(100).collect::<String>()
    );
    ApiError::invalid("invalid_value", message).about(format!("{path}.source.type"))
}

fn unknown_type(kind: &str, path: &str, known: &str) -> ApiError {
    let message = format!("unsupported block type {:?}: use {known}", kind.chars().take(100).collect::<String>());
    ApiError::invalid("invalid_value", message).about(format!("{path}.type"))
}

fn invalid(path: &str, error: &serde_json::Error) -> ApiError {
    // The reason may quote a value from the request.
    let reason: String = error.to_string().chars().take(300).collect();
    ApiError::invalid("invalid_value", format!("invalid `{path}`: {reason}")).about(path)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
