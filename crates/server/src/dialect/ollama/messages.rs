//! Messages of a chat. Calls of tools have objects as arguments here, and often no ids: a result belongs to the first call of its
//! tool that has no result yet, and the call has the id under which it was sent.

use serde::Deserialize;
use serde_json::value::RawValue;
use trunkline_core::event::ToolCall;
use trunkline_core::turn::{Image, Message, Role};
use trunkline_wire::chat::BoundedList;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::{MAX_IMAGES, checked, image};

use super::sent_calls::ConversationCalls;

#[derive(Debug, Deserialize)]
pub(super) struct OllamaMessage {
    role: String,
    content: Option<String>,
    images: Option<BoundedList<String, MAX_IMAGES>>,
    tool_calls: Option<BoundedList<Object<OllamaCall>, 1024>>,
    /// In the message of a tool: its name.
    #[serde(alias = "name")]
    tool_name: Option<String>,
    /// In the message of a tool: the call that it answers.
    tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OllamaCall {
    id: Option<String>,
    function: Object<OllamaFunction>,
}

#[derive(Debug, Deserialize)]
struct OllamaFunction {
    name: String,
    arguments: Option<Box<RawValue>>,
}

/// First characters of the base64 of an image, and its media type.
const MAGIC_NUMBERS: [(&str, &str); 4] =
    [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];

/// A call without a result so far.
struct OpenCall {
    id: String,
    /// The id that the client gave it.
    given: Option<String>,
    name: String,
}

/// Converts the messages, and follows them in `sent`.
pub(super) fn convert(
    messages: Vec<Object<OllamaMessage>>,
    sent: &mut ConversationCalls,
) -> Result<Vec<Message>, ApiError> {
    let mut open = Vec::new();
    let convert = |(index, message): (usize, Object<OllamaMessage>)| {
        let message = message.0.convert(index, &mut open, sent)?;
        sent.follow(&message);
        Ok(message)
    };
    messages.into_iter().enumerate().map(convert).collect()
}

impl OllamaMessage {
    fn convert(self, index: usize, open: &mut Vec<OpenCall>, sent: &ConversationCalls) -> Result<Message, ApiError> {
        let path = format!("messages[{index}]");
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            _ => {
                let message = "unknown role: use system, user, assistant or tool";
                return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.role")));
            }
        };
        let text = checked(self.content.unwrap_or_default(), || format!("{path}.content"))?;
        let images = images(self.images.map(|images| images.0).unwrap_or_default(), &format!("{path}.images"))?;
        let mut calls = Vec::new();
        for (nth, call) in self.tool_calls.map(|calls| calls.0).unwrap_or_default().into_iter().enumerate() {
            let place = || format!("{path}.tool_calls[{nth}].function");
            let given = call.0.id.filter(|id| !id.is_empty());
            let id = given.clone().unwrap_or_else(|| format!("call_{index}_{nth}"));
            let name = checked(call.0.function.0.name, place)?;
            let arguments = checked(arguments(call.0.function.0.arguments.as_deref()), place)?;
            let mut call = ToolCall { id, name, arguments };
            if let Some(id) = sent.id(nth, &call) {
                call.id = id;
            }
            open.push(OpenCall { id: call.id.clone(), given, name: call.name.clone() });
            calls.push(call);
        }
        let call_id = (role == Role::Tool).then(|| answered(open, self.tool_call_id, self.tool_name.as_deref()));
        Ok(Message { images, calls, call_id: call_id.flatten(), ..Message::new(role, text) })
    }
}

/// The id of the call that a result belongs to.
fn answered(open: &mut Vec<OpenCall>, id: Option<String>, name: Option<&str>) -> Option<String> {
    let at = match &id {
        Some(id) => open.iter().position(|call| call.given.as_ref() == Some(id) || call.id == *id),
        None => open.iter().position(|call| name == Some(&call.name)).or((!open.is_empty()).then_some(0)),
    };
    at.map(|at| open.remove(at).id).or(id)
}

/// The arguments of a call as a string of JSON. Some clients send such a string instead of an object.
fn arguments(given: Option<&RawValue>) -> String {
    let json = given.map_or("{}", RawValue::get);
    if json.starts_with('"') { serde_json::from_str(json).unwrap_or_default() } else { json.to_owned() }
}

/// Decodes images: base64 alone, or as a `data:` URL. The media type of base64 alone is seen from its beginning.
pub(super) fn images(given: Vec<String>, path: &str) -> Result<Vec<Image>, ApiError> {
    let decode = |(index, data): (usize, String)| {
        let place = format!("{path}[{index}]");
        if data.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
            return image(&data, &place);
        }
        match MAGIC_NUMBERS.iter().find(|(start, _)| data.starts_with(start)) {
            Some((_, kind)) => image(&format!("data:{kind};base64,{data}"), &place),
            None => {
                let message = "an image is the base64 of a png, jpeg, gif or webp file";
                Err(ApiError::invalid("invalid_value", message).about(place))
            }
        }
    };
    given.into_iter().enumerate().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::ollama::sent_calls::SentCalls;
    use serde_json::{Value, json};
    use trunkline_core::turn::ClientId;

    fn converted(messages: Value) -> Result<Vec<Message>, ApiError> {
        converted_after(&SentCalls::default(), messages)
    }

    fn converted_after(sent: &SentCalls, messages: Value) -> Result<Vec<Message>, ApiError> {
        convert(serde_json::from_str(&messages.to_string()).unwrap(), &mut sent.of(&ClientId::named("a")))
    }

    #[test]
    fn calls_have_the_ids_under_which_they_were_sent() {
        let sent = SentCalls::default();
        let mut conversation = sent.of(&ClientId::named("a"));
        conversation.follow(&Message::new(Role::User, "hi".to_owned()));
        let ours = ToolCall { id: "ours".to_owned(), name: "f".to_owned(), arguments: "{\"a\":1}".to_owned() };
        conversation.remember(&[ours]);
        for (call_id, result_id) in [(json!(null), json!(null)), (json!("theirs"), json!("theirs"))] {
            let messages = converted_after(
                &sent,
                json!([
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "", "tool_calls": [
                        {"id": call_id, "function": {"name": "f", "arguments": {"a": 1}}}]},
                    {"role": "tool", "content": "3", "tool_call_id": result_id},
                ]),
            )
            .unwrap();
            assert_eq!((messages[1].calls[0].id.as_str(), messages[2].call_id.as_deref()), ("ours", Some("ours")));
        }
    }

    #[test]
    fn result_belongs_to_the_first_open_call_of_its_tool() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"a": 1}}});
        let messages = converted(json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("f"), call("g"),
                {"id": "mine", "function": {"name": "h", "arguments": "{\"b\":2}"}}]},
            {"role": "tool", "content": "3", "tool_call_id": "mine"},
            {"role": "tool", "content": "2", "tool_name": "g"},
            {"role": "tool", "content": "1"},
            {"role": "tool", "content": "nothing is open", "name": "f"},
        ]))
        .unwrap();
        let calls: Vec<(&str, &str)> =
            messages[1].calls.iter().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, [("call_1_0", "{\"a\":1}"), ("call_1_1", "{\"a\":1}"), ("mine", "{\"b\":2}")]);
        let ids: Vec<Option<&str>> = messages[2..].iter().map(|message| message.call_id.as_deref()).collect();
        assert_eq!(ids, [Some("mine"), Some("call_1_1"), Some("call_1_0"), None]);
    }

    #[test]
    fn images_are_recognised_by_their_beginning() {
        for (data, extension) in [
            ("iVBORw0KGgo=", Some("png")),
            ("/9j/4AAQ", Some("jpeg")),
            ("R0lGODlh", Some("gif")),
            ("UklGRgAA", Some("webp")),
            ("data:image/png;base64,iVBORw0KGgo=", Some("png")),
            ("aGVsbG8=", None),
            ("iVBORw0KGgo!", None),
            ("", None),
        ] {
            let decoded = images(vec![data.to_owned()], "images");
            assert_eq!(decoded.as_ref().ok().map(|images| images[0].extension), extension, "{data}");
            if let Err(error) = decoded {
                assert_eq!(error.param.as_deref(), Some("images[0]"), "{data}");
            }
        }
    }

    #[test]
    fn unknown_role_is_refused() {
        let error = converted(json!([{"role": "robot", "content": "hi"}])).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages[0].role"));
    }
}
