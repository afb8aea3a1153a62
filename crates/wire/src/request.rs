//! Conversion of a chat request into a [`Turn`], or into an error that names the invalid member.
//!
//! No agent accepts an image by URL, so only `data:` URLs are decoded; nothing is fetched. Tool calls in the message
//! history are calls that the client itself executed.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::value::RawValue;
use trunkline_core::event::{SessionId, ToolCall};
use trunkline_core::turn::{AnswerTiming, Image, Json, Message, OnDisconnect, Options, Role, Turn};

use crate::body;
use crate::chat::{BoundedList, ChatMessage, ChatRequest, Content, ContentPart, Function};
use crate::error::ApiError;
use crate::upstream;

/// Maximum number of images in a request.
pub const MAX_IMAGES: usize = 16;
const INVALID_IMAGE: &str = "invalid_image_url";
const MAX_IMAGE_BYTES: usize = 20 * 1024 * 1024;
const MAX_SESSION_BYTES: usize = 256;
const MAX_USER_BYTES: usize = 1024;
const MAX_MODEL_BYTES: usize = 256;
const MAX_TOOLS: usize = 4096;
const MAX_CHOICES: u32 = 128;

/// Accepts base64 with and without padding, because clients differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl ChatRequest {
    /// Parses a body. The error names the path of the member, the line and the column.
    pub fn parse(text: &[u8]) -> Result<Self, ApiError> {
        body::parse(text)
    }

    /// Converts the request, or returns an error that names the invalid member.
    pub fn into_turn(mut self) -> Result<Turn, ApiError> {
        self.reject_unsupported_options()?;
        let shown = if self.stream == Some(true) { AnswerTiming::AsItComes } else { AnswerTiming::AtTheEnd };
        let options = self.take_options();
        let session = match self.session_id {
            Some(id) => session_member(&id, "session_id")?,
            None => match self.metadata.and_then(|metadata| metadata.session_id) {
                Some(id) => session_member(&id, "metadata.session_id")?,
                None => None,
            },
        };
        let model = self.model.ok_or_else(|| missing("model"))?;
        if !may_name_a_model(&model) {
            return Err(ApiError::unknown_model(&[]));
        }
        let messages = self.messages.ok_or_else(|| missing("messages"))?.0;
        let messages: Vec<Message> = messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| convert(message.0, &format!("messages[{index}]")))
            .collect::<Result<_, _>>()?;
        let has_content = |message: &Message| {
            message.role == Role::User && (!message.text.trim().is_empty() || !message.images.is_empty())
        };
        if !messages.iter().any(has_content) {
            return Err(ApiError::invalid("invalid_value", "there is no user message to answer").about("messages"));
        }
        let on_disconnect = self.trunkline.and_then(|gateway_options| gateway_options.0.on_disconnect);
        let turn = Turn { model, messages, session, options, shown, on_disconnect, ..Turn::default() };
        if turn.images().count() > MAX_IMAGES {
            return Err(ApiError::invalid("invalid_value", format!("more than {MAX_IMAGES} images")).about("messages"));
        }
        Ok(turn)
    }

    fn take_options(&mut self) -> Options {
        let more = [
            ("tool_choice", self.tool_choice.take()),
            ("parallel_tool_calls", self.parallel_tool_calls.take()),
            ("response_format", self.response_format.take()),
            ("stop", self.stop.take()),
            ("seed", self.seed.take()),
            ("presence_penalty", self.presence_penalty.take()),
            ("frequency_penalty", self.frequency_penalty.take()),
            ("logit_bias", self.logit_bias.take()),
            ("reasoning_effort", self.reasoning_effort.take()),
            ("verbosity", self.verbosity.take()),
            ("service_tier", self.service_tier.take()),
            ("prompt_cache_key", self.prompt_cache_key.take()),
            ("top_k", self.top_k.take()),
            ("min_p", self.min_p.take()),
            ("repetition_penalty", self.repetition_penalty.take()),
            ("logprobs", self.logprobs.take()),
            ("top_logprobs", self.top_logprobs.take()),
            ("store", self.store.take()),
            (upstream::FUNCTIONS, self.functions.take()),
            ("function_call", self.function_call.take()),
            ("user", self.user.as_ref().and_then(|user| serde_json::value::to_raw_value(user).ok())),
            // The newer name of `max_tokens`: newer models accept no other.
            (upstream::NEWER_LIMIT, self.max_completion_tokens.and_then(|n| serde_json::value::to_raw_value(&n).ok())),
        ];
        Options {
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            temperature: self.temperature.take(),
            top_p: self.top_p.take(),
            tools: self.tools.take().map(Json::from),
            choices: self.n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 1),
            metadata: self.metadata.as_mut().map(|metadata| std::mem::take(&mut metadata.entries)).unwrap_or_default(),
            more: more.into_iter().filter_map(|(name, raw)| Some((name, raw?.into()))).collect(),
        }
    }

    fn reject_unsupported_options(&self) -> Result<(), ApiError> {
        if self.n.is_some_and(|n| n < 1 || n > MAX_CHOICES.into()) {
            let message = format!("`n` is a number from 1 to {MAX_CHOICES}");
            return Err(ApiError::invalid("invalid_value", message).about("n"));
        }
        if self.modalities.as_ref().is_some_and(|wanted| wanted.0.iter().any(|modality| modality != "text")) {
            return Err(ApiError::unsupported("modalities", "agents answer in text only"));
        }
        if self.audio.is_some() {
            return Err(ApiError::unsupported("audio", "agents answer in text only"));
        }
        if self.tools.as_ref().is_some_and(|tools| !is_list_of_objects(tools)) {
            return Err(ApiError::invalid("invalid_value", "`tools` is an array of objects").about("tools"));
        }
        if self.functions.as_ref().is_some_and(|functions| !is_list_of_objects(functions)) {
            return Err(ApiError::invalid("invalid_value", "`functions` is an array of objects").about("functions"));
        }
        if self.user.as_ref().is_some_and(|user| user.len() > MAX_USER_BYTES) {
            let message = format!("`user` is longer than {MAX_USER_BYTES} bytes");
            return Err(ApiError::invalid("invalid_value", message).about("user"));
        }
        Ok(())
    }
}

/// Whether a value is an array of objects. The objects themselves are passed to the provider unchecked.
pub fn is_list_of_objects(value: &RawValue) -> bool {
    let list = serde_json::from_str::<BoundedList<&RawValue, MAX_TOOLS>>(value.get());
    list.is_ok_and(|list| list.0.iter().all(|element| element.get().starts_with('{')))
}

/// Parses what happens to a run when its client disconnects.
pub fn on_disconnect(value: &str, param: &str) -> Result<OnDisconnect, ApiError> {
    match value {
        "cancel" => Ok(OnDisconnect::Cancel),
        "detach" => Ok(OnDisconnect::Detach),
        _ => Err(ApiError::invalid("invalid_value", format!("{param} is cancel or detach")).about(param)),
    }
}

/// Whether a name is acceptable as a model name. It may be passed to a CLI as an argument and is echoed in every answer.
#[must_use]
pub fn may_name_a_model(name: &str) -> bool {
    name.len() <= MAX_MODEL_BYTES && !name.chars().any(char::is_control)
}

fn session_member(id: &RawValue, param: &str) -> Result<Option<SessionId>, ApiError> {
    let id: String = serde_json::from_str(id.get())
        .map_err(|_| ApiError::invalid("invalid_value", format!("`{param}` is a string")).about(param))?;
    session(&id, param)
}

/// Checks a session id, which may be passed to a CLI as an argument. An empty id means no session.
pub fn session(id: &str, param: &str) -> Result<Option<SessionId>, ApiError> {
    if id.is_empty() {
        return Ok(None);
    }
    if id.len() > MAX_SESSION_BYTES || id.starts_with('-') || id.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(ApiError::invalid("invalid_value", "not a valid session id").about(param));
    }
    Ok(Some(SessionId(id.into())))
}

fn convert(message: ChatMessage, path: &str) -> Result<Message, ApiError> {
    let role = match message.role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        _ => {
            let message = "unknown role: use system, developer, user, assistant or tool";
            return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.role")));
        }
    };
    let mut images = Vec::new();
    let mut texts = match message.content {
        None => Vec::new(),
        Some(Content::Text(text)) => vec![checked(text, || format!("{path}.content"))?],
        Some(Content::Parts(parts)) => {
            let mut texts = Vec::new();
            for (index, part) in parts.0.into_iter().enumerate() {
                take_part(part.0, &format!("{path}.content[{index}]"), &mut texts, &mut images)?;
            }
            texts
        }
    };
    if let Some(refusal) = message.refusal {
        texts.push(checked(refusal, || format!("{path}.refusal"))?);
    }
    let mut calls = Vec::new();
    for (index, call) in message.tool_calls.map(|calls| calls.0).unwrap_or_default().into_iter().enumerate() {
        calls.push(convert_call(call.0.id, call.0.function, &format!("{path}.tool_calls[{index}]"))?);
    }
    if let Some(function) = message.function_call {
        calls.push(convert_call(String::new(), function.0, &format!("{path}.function_call"))?);
    }
    let name = message
        .name
        .filter(|name| !name.is_empty())
        .map(|name| checked(name, || format!("{path}.name")))
        .transpose()?;
    Ok(Message { role, text: texts.join("\n"), images, calls, call_id: message.tool_call_id, name })
}

fn take_part(part: ContentPart, path: &str, texts: &mut Vec<String>, images: &mut Vec<Image>) -> Result<(), ApiError> {
    match part.kind.as_str() {
        "text" | "input_text" | "output_text" => {
            let text = part.text.ok_or_else(|| missing(&format!("{path}.text")))?;
            texts.push(checked(text, || format!("{path}.text"))?);
        }
        "refusal" => texts.push(checked(part.refusal.unwrap_or_default(), || format!("{path}.refusal"))?),
        "image_url" => {
            let url = part.image_url.ok_or_else(|| missing(&format!("{path}.image_url")))?.0.url;
            if images.len() == MAX_IMAGES {
                return Err(ApiError::invalid("invalid_value", format!("more than {MAX_IMAGES} images")).about(path));
            }
            images.push(image(&url, &format!("{path}.image_url.url"))?);
        }
        "input_audio" => return Err(ApiError::unsupported(path, "agents take text and images, not audio")),
        "file" => return Err(ApiError::unsupported(path, "agents take text and images, not files")),
        _ => {
            let message = "unknown type of content: use text or image_url";
            return Err(ApiError::invalid("invalid_value", message).about(format!("{path}.type")));
        }
    }
    Ok(())
}

/// Decodes `data:image/png;base64,…`.
pub fn image(url: &str, param: &str) -> Result<Image, ApiError> {
    let invalid = |message: &str| ApiError::invalid(INVALID_IMAGE, message).about(param);
    let Some(rest) = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).map(|_| &url[5..]) else {
        return Err(invalid("images are not fetched: send the image itself as a data: URL"));
    };
    let (media, data) = rest.split_once(',').ok_or_else(|| invalid("a data: URL needs a comma"))?;
    let mut media = media.split(';').map(str::trim);
    let extension = image_extension(media.next().unwrap_or_default(), param)?;
    if !media.any(|parameter| parameter.eq_ignore_ascii_case("base64")) {
        return Err(invalid("an image must be base64: data:image/png;base64,…"));
    }
    decode_image(extension, data, param)
}

/// Decodes the base64 of an image whose media type stands apart from it.
pub fn typed_image(media_type: &str, data: &str, param: &str) -> Result<Image, ApiError> {
    decode_image(image_extension(media_type, param)?, data, param)
}

fn image_extension(media_type: &str, param: &str) -> Result<&'static str, ApiError> {
    match media_type.to_ascii_lowercase().as_str() {
        "image/png" => Ok("png"),
        "image/jpeg" | "image/jpg" => Ok("jpeg"),
        "image/gif" => Ok("gif"),
        "image/webp" => Ok("webp"),
        _ => {
            let message = "unsupported image type: use png, jpeg, gif or webp";
            Err(ApiError::invalid(INVALID_IMAGE, message).about(param))
        }
    }
}

fn decode_image(extension: &'static str, data: &str, param: &str) -> Result<Image, ApiError> {
    let invalid = |message: String| ApiError::invalid(INVALID_IMAGE, message).about(param);
    let too_large = || invalid(format!("the image is larger than {MAX_IMAGE_BYTES} bytes"));
    if data.len() / 4 > MAX_IMAGE_BYTES / 3 + 1 {
        return Err(too_large());
    }
    let bytes = BASE64.decode(data).map_err(|error| invalid(format!("the image is not base64: {error}")))?;
    if bytes.len() > MAX_IMAGE_BYTES {
        return Err(too_large());
    }
    if bytes.is_empty() {
        return Err(invalid("the image is empty".to_owned()));
    }
    Ok(Image { extension, bytes })
}

/// Decodes the bytes of a file: base64, alone or as a `data:` URL.
pub fn decode_data_url(url: &str, param: &str) -> Result<Vec<u8>, ApiError> {
    let invalid = |message: String| ApiError::invalid("invalid_value", message).about(param);
    let data = match url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        Some(_) => url.split_once(',').ok_or_else(|| invalid("a data: URL needs a comma".to_owned()))?.1,
        None => url,
    };
    BASE64.decode(data).map_err(|error| invalid(format!("the file is not base64: {error}")))
}

fn convert_call(id: String, function: Function, path: &str) -> Result<ToolCall, ApiError> {
    let name = checked(function.name, || format!("{path}.name"))?;
    let arguments = checked(function.arguments.unwrap_or_default(), || format!("{path}.arguments"))?;
    Ok(ToolCall { id, name, arguments })
}

/// Rejects NUL characters: an argument cannot contain one, and legitimate text never does.
pub fn checked(text: String, param: impl FnOnce() -> String) -> Result<String, ApiError> {
    if text.contains('\0') {
        return Err(ApiError::invalid("invalid_value", "text must not contain NUL characters").about(param()));
    }
    Ok(text)
}

/// The error of a request without a required member.
#[must_use]
pub fn missing(param: &str) -> ApiError {
    ApiError::invalid("missing_required_parameter", format!("`{param}` is missing")).about(param)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
