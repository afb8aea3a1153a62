//! Bodies of `POST /api/chat` and `POST /api/generate`. Members that only a local model needs (`keep_alive`, `context`, `template`,
//! `suffix`) are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;
use trunkline_core::turn::{Message, Role};
use trunkline_wire::chat::BoundedList;
use trunkline_wire::error::ApiError;
use trunkline_wire::object::Object;
use trunkline_wire::request::{MAX_IMAGES, checked};

use super::messages::{OllamaMessage, images};
use super::settings::{ModelOptions, Settings, Think};

#[derive(Debug, Deserialize)]
pub(super) struct ChatBody {
    pub(super) model: Option<String>,
    pub(super) messages: Option<BoundedList<Object<OllamaMessage>, 16_384>>,
    pub(super) tools: Option<Box<RawValue>>,
    stream: Option<bool>,
    format: Option<Box<RawValue>>,
    options: Option<Object<ModelOptions>>,
    think: Option<Think>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GenerateBody {
    pub(super) model: Option<String>,
    prompt: Option<String>,
    system: Option<String>,
    images: Option<BoundedList<String, MAX_IMAGES>>,
    /// Whether the prompt is complete as it is: nothing is put before it.
    raw: Option<bool>,
    stream: Option<bool>,
    format: Option<Box<RawValue>>,
    options: Option<Object<ModelOptions>>,
    think: Option<Think>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
}

impl ChatBody {
    pub(super) fn settings(&mut self) -> Settings {
        let settings = Settings::new(self.stream, self.think.take(), self.format.take(), self.options.take());
        settings.with_logprobs(self.logprobs, self.top_logprobs)
    }
}

impl GenerateBody {
    pub(super) fn settings(&mut self) -> Settings {
        let settings = Settings::new(self.stream, self.think.take(), self.format.take(), self.options.take());
        settings.with_logprobs(self.logprobs, self.top_logprobs)
    }

    /// The prompt as a conversation.
    pub(super) fn messages(self) -> Result<Vec<Message>, ApiError> {
        let mut messages = Vec::new();
        let system = self.system.filter(|system| !system.is_empty() && self.raw != Some(true));
        if let Some(system) = system {
            messages.push(Message::new(Role::System, checked(system, || "system".to_owned())?));
        }
        let prompt = checked(self.prompt.unwrap_or_default(), || "prompt".to_owned())?;
        let images = images(self.images.map(|images| images.0).unwrap_or_default(), "images")?;
        messages.push(Message { images, ..Message::new(Role::User, prompt) });
        Ok(messages)
    }
}
