//! Requests of the provider protocol: one JSON object for the stdin of an executable. [`crate::parse`] reads the answers.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::prompt::message_text;
use crate::turn::{Json, Message, Options, Role};

/// Subcommands of an executable.
pub(crate) const GENERATE: &str = "generate";
pub(crate) const STREAM: &str = "stream";
pub(crate) const HEALTH: &str = "health";

/// Request to an executable. Absent options are not sent; 0, false and an empty list are.
#[derive(Debug, Serialize)]
struct ExecutableRequest<'a> {
    prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<&'a serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    context: Vec<ContextMessage>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    config: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
}

/// Earlier message of the conversation.
#[derive(Debug, Serialize)]
struct ContextMessage {
    role: &'static str,
    content: String,
}

/// Returns the request for a turn: the last message is the prompt, the messages before it are the context.
#[must_use]
pub fn request(messages: &[Message], options: &Options, model: Option<&str>, config: &Map<String, Value>) -> String {
    let system: Vec<&str> = messages
        .iter()
        .filter(|message| message.role == Role::System && !message.text.is_empty())
        .map(|message| message.text.as_str())
        .collect();
    let mut dialogue = messages.iter().filter(|message| message.role != Role::System && !message.is_empty());
    let prompt = dialogue.next_back().map(message_text).unwrap_or_default();
    let context =
        dialogue.map(|message| ContextMessage { role: role(message.role), content: message_text(message) }).collect();
    let mut config = config.clone();
    if let Some(model) = model {
        config.insert("model".to_owned(), model.into());
    }
    let metadata = options.metadata.iter().filter_map(|(name, json)| {
        let value = serde_json::from_str(json.as_str()).ok()?;
        Some((name.clone(), value))
    });
    let request = ExecutableRequest {
        prompt,
        system_prompt: (!system.is_empty()).then(|| system.join("\n\n")),
        max_tokens: options.max_tokens,
        temperature: options.temperature.as_ref(),
        top_p: options.top_p.as_ref(),
        tools: options.tools.as_ref(),
        context,
        config,
        metadata: metadata.collect(),
    };
    serde_json::to_string(&request).expect("strings, numbers and checked JSON can be serialized")
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(json: &Value) -> Json {
        serde_json::value::RawValue::from_string(json.to_string()).unwrap().into()
    }

    fn sent(messages: &[(Role, &str)], options: &Options, model: Option<&str>, config: &Value) -> Value {
        let messages: Vec<Message> = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
        serde_json::from_str(&request(&messages, options, model, config.as_object().unwrap())).unwrap()
    }

    #[test]
    fn sends_every_field_of_the_protocol() {
        let options = Options {
            max_tokens: Some(1000),
            temperature: serde_json::Number::from_f64(0.7),
            top_p: serde_json::Number::from_f64(0.9),
            tools: Some(raw(&json!([]))),
            choices: None,
            metadata: vec![("task_id".into(), raw(&json!("abc123"))), ("user_id".into(), raw(&json!("user456")))],
            more: Vec::new(),
        };
        let messages = [
            (Role::System, "You are a helpful assistant."),
            (Role::User, "Previous message"),
            (Role::Assistant, "Previous response"),
            (Role::User, "What is 2+2?"),
        ];
        let expected = json!({
            "prompt": "What is 2+2?",
            "system_prompt": "You are a helpful assistant.",
            "max_tokens": 1000, "temperature": 0.7, "top_p": 0.9, "tools": [],
            "context": [
                {"role": "user", "content": "Previous message"},
                {"role": "assistant", "content": "Previous response"},
            ],
            "config": {"model": "llama3.2:latest", "custom_option": "value"},
            "metadata": {"task_id": "abc123", "user_id": "user456"},
        });
        assert_eq!(sent(&messages, &options, Some("llama3.2:latest"), &json!({"custom_option": "value"})), expected);
    }

    #[test]
    fn sends_zero_and_false_but_no_absent_options() {
        let messages = [(Role::User, "hi")];
        assert_eq!(sent(&messages, &Options::default(), None, &json!({})), json!({"prompt": "hi"}));
        let options = Options { max_tokens: Some(0), temperature: Some(0.into()), ..Options::default() };
        assert_eq!(
            sent(&messages, &options, None, &json!({"think": false})),
            json!({"prompt": "hi", "max_tokens": 0, "temperature": 0, "config": {"think": false}})
        );
    }
}
