//! Members of a request that may have no effect: options of a model, and members that no provider gets.
//!
//! A dialect has a table of its members. Every member that is not in it is unknown, and has no effect anywhere. The engine
//! decides which of the others have one, because that depends on the model that answers.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use trunkline_core::turn::RequestMember;

/// Maximum number of members that are listed, and of the length of each name.
const MAX_LISTED: usize = 64;
const MAX_NAME_CHARS: usize = 100;

/// The members of a dialect's requests. Members of objects have a path, such as `text.format`.
pub(crate) struct MemberTable {
    /// Places of the schema of an answer, for error messages. The first one in a request counts.
    pub(crate) schema: &'static [&'static str],
    /// Members that the gateway uses, and members that have no effect on an answer by their nature, such as `user`.
    pub(crate) handled: &'static [&'static str],
    /// Options for a model, with their names in chat completions.
    pub(crate) options: &'static [(&'static str, &'static str)],
    /// Objects whose members are looked at one by one, in camel case.
    pub(crate) objects: &'static [&'static str],
}

impl MemberTable {
    /// Lists the members of a body that is known to be valid.
    pub(crate) fn read(&self, body: &[u8]) -> Vec<RequestMember> {
        let mut found = Vec::new();
        let Ok(Members(members)) = serde_json::from_slice::<Members<'_>>(body) else { return found };
        for (name, value) in members {
            if !self.objects.contains(&camel_case(&name).as_str()) {
                self.add(&mut found, name, value);
                continue;
            }
            let Ok(Members(inner)) = serde_json::from_str::<Members<'_>>(value.get()) else { continue };
            for (inner_name, value) in inner {
                self.add(&mut found, format!("{name}.{inner_name}"), value);
            }
        }
        found
    }

    /// Place of the schema in a request with these members.
    pub(crate) fn schema_place(&self, members: &[RequestMember]) -> &'static str {
        let is_sent = |place: &&&str| members.iter().any(|member| camel_case(&member.name) == **place);
        let sent = self.schema.iter().find(is_sent);
        sent.or_else(|| self.schema.last()).copied().unwrap_or_default()
    }

    fn add(&self, found: &mut Vec<RequestMember>, name: String, value: &RawValue) {
        let camel_case = camel_case(&name);
        let is = |known: &str| known == name || known == camel_case;
        if found.len() == MAX_LISTED || is_default(value.get()) || self.handled.iter().any(|known| is(known)) {
            return;
        }
        let option = self.options.iter().find(|(known, _)| is(known)).map(|(_, option)| *option);
        if option.is_some_and(|option| is_usual_choice(option, value.get())) {
            return;
        }
        found.push(RequestMember { name: name.chars().take(MAX_NAME_CHARS).collect(), option });
    }
}

/// Whether a value asks for nothing: many clients send every member they know.
fn is_default(value: &str) -> bool {
    matches!(value, "null" | "false" | "[]" | "{}" | "\"\"")
}

/// Whether an option has the value that it has when it is absent.
fn is_usual_choice(option: &str, value: &str) -> bool {
    match option {
        "response_format" => {
            #[derive(Deserialize)]
            struct Kind<'a> {
                #[serde(rename = "type")]
                kind: &'a str,
            }
            value == "\"text/plain\""
                || serde_json::from_str::<Kind<'_>>(value).is_ok_and(|format| format.kind == "text")
        }
        "tool_choice" | "function_call" | "service_tier" => matches!(value, "\"auto\"" | "\"default\""),
        "parallel_tool_calls" => value == "true",
        "presence_penalty" | "frequency_penalty" => matches!(value, "0" | "0.0"),
        _ => false,
    }
}

/// Returns a path with each of its names in camel case: Google's clients may send both.
fn camel_case(path: &str) -> String {
    let mut upper = false;
    let mut converted = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '_' => upper = true,
            c if std::mem::take(&mut upper) => converted.extend(c.to_uppercase()),
            c => converted.push(c),
        }
    }
    converted
}

/// The members of an object, unparsed.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// `POST /v1/chat/completions`.
pub(crate) const CHAT: MemberTable = MemberTable {
    schema: &["response_format.json_schema.schema"],
    handled: &[
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "user",
        "modalities",
        "audio",
        "session_id",
        "trunkline",
        "metadata",
        "store",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    ],
    options: &[
        ("max_tokens", "max_tokens"),
        ("max_completion_tokens", "max_completion_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("tools", "tools"),
        ("tool_choice", "tool_choice"),
        ("parallel_tool_calls", "parallel_tool_calls"),
        ("response_format", "response_format"),
        ("stop", "stop"),
        ("seed", "seed"),
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("logit_bias", "logit_bias"),
        ("reasoning_effort", "reasoning_effort"),
        ("verbosity", "verbosity"),
        ("service_tier", "service_tier"),
        ("top_k", "top_k"),
        ("min_p", "min_p"),
        ("repetition_penalty", "repetition_penalty"),
        ("logprobs", "logprobs"),
        ("top_logprobs", "top_logprobs"),
        ("functions", "functions"),
        ("function_call", "function_call"),
    ],
    objects: &[],
};

/// `POST /v1/completions`.
pub(crate) const COMPLETIONS: MemberTable = MemberTable {
    schema: &["response_format"],
    handled: &[
        "model",
        "prompt",
        "suffix",
        "stream",
        "stream_options",
        "echo",
        "n",
        "best_of",
        "user",
        "logprobs",
        "trunkline",
        "session_id",
    ],
    options: &[
        ("max_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("stop", "stop"),
        ("seed", "seed"),
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("logit_bias", "logit_bias"),
    ],
    objects: &[],
};

/// `POST /v1/responses`.
pub(crate) const RESPONSES: MemberTable = MemberTable {
    schema: &["text.format.schema"],
    handled: &[
        "model",
        "input",
        "instructions",
        "previous_response_id",
        "store",
        "background",
        "stream",
        "stream_options",
        "metadata",
        "client_metadata",
        "include",
        "truncation",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "conversation",
        "prompt",
        "trunkline",
        "reasoning.summary",
    ],
    options: &[
        ("max_output_tokens", "max_completion_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("tools", "tools"),
        ("tool_choice", "tool_choice"),
        ("parallel_tool_calls", "parallel_tool_calls"),
        ("text.format", "response_format"),
        ("text.verbosity", "verbosity"),
        ("reasoning.effort", "reasoning_effort"),
        ("service_tier", "service_tier"),
    ],
    objects: &["text", "reasoning"],
};

/// `POST /v1/messages`. `max_tokens` is required there, so it says nothing about the client's wishes.
pub(crate) const MESSAGES: MemberTable = MemberTable {
    schema: &["output_config.format.schema"],
    handled: &[
        "model",
        "messages",
        "system",
        "max_tokens",
        "stream",
        "metadata",
        "thinking",
        "cache_control",
        "trunkline",
    ],
    options: &[
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("stop_sequences", "stop"),
        ("tools", "tools"),
        ("tool_choice", "tool_choice"),
        ("output_config.format", "response_format"),
        ("output_format", "response_format"),
    ],
    objects: &["outputConfig"],
};

/// `POST /api/chat` and `POST /api/generate`.
pub(crate) const OLLAMA: MemberTable = MemberTable {
    schema: &["format"],
    handled: &["model", "messages", "prompt", "system", "images", "raw", "stream", "think", "keep_alive"],
    options: &[
        ("format", "response_format"),
        ("tools", "tools"),
        ("logprobs", "logprobs"),
        ("top_logprobs", "top_logprobs"),
        ("options.num_predict", "max_tokens"),
        ("options.temperature", "temperature"),
        ("options.top_p", "top_p"),
        ("options.top_k", "top_k"),
        ("options.min_p", "min_p"),
        ("options.stop", "stop"),
        ("options.seed", "seed"),
        ("options.repeat_penalty", "repetition_penalty"),
        ("options.presence_penalty", "presence_penalty"),
        ("options.frequency_penalty", "frequency_penalty"),
    ],
    objects: &["options"],
};

/// `:generateContent` and `:streamGenerateContent`.
pub(crate) const GEMINI: MemberTable = MemberTable {
    schema: &["generationConfig.responseJsonSchema", "generationConfig.responseSchema"],
    handled: &[
        "contents",
        "systemInstruction",
        "cachedContent",
        "model",
        "labels",
        "trunkline",
        "generationConfig.candidateCount",
        "generationConfig.responseModalities",
        "generationConfig.thinkingConfig",
    ],
    options: &[
        ("tools", "tools"),
        ("toolConfig", "tool_choice"),
        ("generationConfig.responseMimeType", "response_format"),
        ("generationConfig.responseSchema", "response_format"),
        ("generationConfig.responseJsonSchema", "response_format"),
        ("generationConfig.maxOutputTokens", "max_completion_tokens"),
        ("generationConfig.temperature", "temperature"),
        ("generationConfig.topP", "top_p"),
        ("generationConfig.topK", "top_k"),
        ("generationConfig.seed", "seed"),
        ("generationConfig.stopSequences", "stop"),
        ("generationConfig.presencePenalty", "presence_penalty"),
        ("generationConfig.frequencyPenalty", "frequency_penalty"),
    ],
    objects: &["generationConfig"],
};

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn listed(table: &MemberTable, body: &Value) -> Vec<String> {
        let members = table.read(body.to_string().as_bytes());
        members.into_iter().map(|member| format!("{}={}", member.name, member.option.unwrap_or("-"))).collect()
    }

    #[test]
    fn options_and_unknown_members_are_listed_under_the_names_of_the_client() {
        for (table, body, expected) in [
            (&CHAT, json!({"model": "m", "user": "u", "seed": 7, "made_up": 1}), vec!["made_up=-", "seed=seed"]),
            (&COMPLETIONS, json!({"prompt": "p", "temperature": 0}), vec!["temperature=temperature"]),
            (
                &RESPONSES,
                json!({"text": {"format": {"type": "json_object"}, "other": 1}, "reasoning": {"effort": "low"}}),
                vec!["reasoning.effort=reasoning_effort", "text.format=response_format", "text.other=-"],
            ),
            (
                &MESSAGES,
                json!({"max_tokens": 9, "stop_sequences": ["x"], "output_config": {"effort": "high"}}),
                vec!["output_config.effort=-", "stop_sequences=stop"],
            ),
            (&OLLAMA, json!({"options": {"num_ctx": 1, "top_k": 2}}), vec!["options.num_ctx=-", "options.top_k=top_k"]),
            (
                &GEMINI,
                json!({"generation_config": {"top_p": 0.5}, "generationConfig": {"topK": 4}, "safetySettings": [1]}),
                vec!["generationConfig.topK=top_k", "generation_config.top_p=top_p", "safetySettings=-"],
            ),
        ] {
            let mut found = listed(table, &body);
            found.sort();
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn values_that_ask_for_nothing_are_not_listed() {
        let body = json!({
            "logprobs": false, "stop": null, "logit_bias": {}, "tools": [], "tool_choice": "auto",
            "presence_penalty": 0, "frequency_penalty": 0.0, "parallel_tool_calls": true, "service_tier": "default",
            "response_format": {"type": "text"},
        });
        assert_eq!(listed(&CHAT, &body), Vec::<String>::new());
        assert_eq!(listed(&CHAT, &json!([])), Vec::<String>::new());
        let many: serde_json::Map<_, _> = (0..200).map(|n| (format!("m{n}"), json!(1))).collect();
        assert_eq!(listed(&CHAT, &many.into()).len(), MAX_LISTED);
    }
}
