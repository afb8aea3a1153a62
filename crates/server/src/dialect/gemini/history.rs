//! Conversion of contents into messages, or into an error that names the invalid member.
//!
//! Clients keep each frame of a stream as a content of its own. Neighbouring contents of the model become one message, with
//! their texts put together as they were streamed, so that the session is found by it.

use std::borrow::Cow;

use trunkline_core::event::ToolCall;
use trunkline_core::turn::{Image, Message, Role};
use trunkline_wire::error::ApiError;
use trunkline_wire::request::{checked, decode_data_url, missing, typed_image};

use super::contents::{Content, FunctionCall, FunctionResponse, InlineData, Part};

/// Messages so far.
#[derive(Debug, Default)]
pub(super) struct History {
    messages: Vec<Message>,
    /// Ids and names of calls that have no response yet.
    unanswered: Vec<(String, String)>,
}

impl History {
    pub(super) fn into_messages(self) -> Vec<Message> {
        self.messages
    }

    /// Appends the system instruction.
    pub(super) fn instruct(&mut self, content: Content) -> Result<(), ApiError> {
        self.append_with(Role::System, content, "systemInstruction")
    }

    /// Appends a content. `path` is its place in the request.
    pub(super) fn append(&mut self, content: Content, path: &str) -> Result<(), ApiError> {
        let role = match content.role.as_deref() {
            None | Some("" | "user" | "function" | "tool") => Role::User,
            Some("model" | "assistant") => Role::Assistant,
            Some("system") => Role::System,
            Some(_) => {
                let message = "unknown role: use user, model or function";
                return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.role")));
            }
        };
        self.append_with(role, content, path)
    }

    fn append_with(&mut self, role: Role, content: Content, path: &str) -> Result<(), ApiError> {
        let parts = content.parts.ok_or_else(|| missing(&format!("{path}.parts")))?.0;
        let (mut texts, mut images, mut responses) = (Vec::new(), Vec::new(), 0);
        let count = parts.len();
        for (index, part) in parts.into_iter().enumerate() {
            let path = format!("{path}.parts[{index}]");
            // The provider has its own thoughts, or none.
            if part.thought == Some(true) {
                continue;
            }
            match part {
                Part { text: Some(text), .. } => texts.push(checked(text, || format!("{path}.text"))?),
                Part { function_call: Some(call), .. } if role == Role::Assistant => {
                    let call = convert_call(call.0, &path)?;
                    self.unanswered.push((call.id.clone(), call.name.clone()));
                    self.assistant().calls.push(call);
                }
                Part { function_response: Some(response), .. } if role == Role::User => {
                    let response = self.convert_response(response.0, &path)?;
                    self.messages.push(response);
                    responses += 1;
                }
                Part { inline_data: Some(data), .. } => take_data(data.0, &path, &mut texts, &mut images)?,
                Part { file_data: Some(_), .. } => {
                    let message = "files are not fetched and not stored: send the file itself as `inlineData`";
                    return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.fileData")));
                }
                _ => {
                    let message = "unsupported part: use text, inlineData, functionCall (of the model) or \
                                   functionResponse (of the user)";
                    return Err(ApiError::invalid("invalid_value", message).about(path));
                }
            }
        }
        match role {
            Role::Assistant => {
                let message = self.assistant();
                message.text.extend(texts);
                message.images.append(&mut images);
            }
            // A content of responses alone has no text of the user.
            Role::User if responses > 0 && responses == count => {}
            Role::User | Role::System | Role::Tool => {
                self.messages.push(Message { images, ..Message::new(role, texts.join("\n")) });
            }
        }
        Ok(())
    }

    /// The message of the assistant at the end, possibly a new one.
    fn assistant(&mut self) -> &mut Message {
        if self.messages.last().is_none_or(|last| last.role != Role::Assistant) {
            self.messages.push(Message::new(Role::Assistant, ""));
        }
        self.messages.last_mut().expect("there is one now")
    }

    /// The response of a function. Most clients leave out the id of the call, so the call is found by its name.
    fn convert_response(&mut self, response: FunctionResponse, path: &str) -> Result<Message, ApiError> {
        let name = response.name.ok_or_else(|| missing(&format!("{path}.functionResponse.name")))?;
        let is_its_call = |(id, called): &(String, String)| match &response.id {
            Some(given) => given == id,
            None => *called == name,
        };
        let call = self.unanswered.iter().position(is_its_call).map(|at| self.unanswered.remove(at).0);
        let call_id = response.id.or(call).filter(|id| !id.is_empty());
        let text = response.response.map_or_else(|| "{}".to_owned(), |response| response.get().to_owned());
        Ok(Message { call_id, ..Message::new(Role::Tool, text) })
    }
}

fn convert_call(call: FunctionCall, path: &str) -> Result<ToolCall, ApiError> {
    let param = || format!("{path}.functionCall.name");
    Ok(ToolCall {
        id: call.id.unwrap_or_default(),
        name: checked(call.name.ok_or_else(|| missing(&param()))?, param)?,
        arguments: call.args.map_or_else(|| "{}".to_owned(), |args| args.get().to_owned()),
    })
}

/// Adds data: an image as an image, a text file as text with its name.
fn take_data(data: InlineData, path: &str, texts: &mut Vec<String>, images: &mut Vec<Image>) -> Result<(), ApiError> {
    let media_type = data.mime_type.ok_or_else(|| missing(&format!("{path}.inlineData.mimeType")))?;
    let param = format!("{path}.inlineData.data");
    let encoded = data.data.ok_or_else(|| missing(&param))?;
    let encoded = standard_base64(&encoded);
    if media_type.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("image/")) {
        images.push(typed_image(&media_type, &encoded, &param)?);
        return Ok(());
    }
    let text = String::from_utf8(decode_data_url(&encoded, &param)?).ok();
    let Some(text) = text.filter(|_| media_type != "application/pdf") else {
        return Err(ApiError::unsupported(param, "agents take images and text files, not other files"));
    };
    let name = checked(data.display_name.unwrap_or_else(|| "file".to_owned()), || path.to_owned())?;
    texts.push(format!("[File: {name}]\n{}", checked(text, || param)?));
    Ok(())
}

/// Google's clients use the alphabet for URLs.
fn standard_base64(data: &str) -> Cow<'_, str> {
    if data.contains(['-', '_']) { data.replace('-', "+").replace('_', "/").into() } else { data.into() }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
