//! The CLIs as data: how each is pointed at the mock, what its home holds, and what it is known not to do.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::world::Way;

pub(crate) struct Cli {
    pub(crate) name: &'static str,
    /// On npm.
    pub(crate) package: &'static str,
    /// Points a model at this base URL; the rest of the model is the case's.
    upstream: fn(base: &str) -> Value,
    /// Files of its home, by path.
    pub(crate) home: &'static [(&'static str, &'static str)],
    /// How long a run may take before a stall is cut: more than it needs to ask its first question.
    pub(crate) stall_limit: &'static str,
    /// Cases it cannot pass by its nature, and why.
    pub(crate) cannot: &'static [(&'static str, &'static str)],
    /// The same for its processes that are up before the turn.
    pub(crate) cannot_warm: &'static [(&'static str, &'static str)],
}

const WHOLE_MESSAGES: &[(&str, &str)] = &[("deltas", "This CLI prints a message when it is complete.")];

/// Retries are cut to none wherever a CLI lets us: they take minutes, and what we want to see is the failure.
pub(crate) const ALL: [Cli; 5] = [
    Cli {
        name: "claude",
        package: "@anthropic-ai/claude-code",
        upstream: |base| {
            json!({"model": "claude-sonnet-5-5", "env": {
                "ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": base, "CLAUDE_CODE_MAX_RETRIES": "0",
                // Else it refuses to skip permissions as root, which is who runs in a container.
                "IS_SANDBOX": "1",
            }})
        },
        home: &[],
        stall_limit: "12s",
        cannot: &[],
        cannot_warm: &[],
    },
    Cli {
        name: "codex",
        package: "@openai/codex",
        upstream: |base| {
            let provider = |setting: &str| format!("model_providers.mock.{setting}");
            json!({"model": "gpt-5.5", "env": {"MOCK_KEY": "x"}, "args": [
                "-c", "model_provider=\"mock\"",
                "-c", provider("name=\"mock\""),
                "-c", provider(&format!("base_url=\"{base}/v1\"")),
                "-c", provider("env_key=\"MOCK_KEY\""),
                "-c", provider("wire_api=\"responses\""),
                "-c", provider("request_max_retries=0"),
                "-c", provider("stream_max_retries=0"),
            ]})
        },
        home: &[],
        stall_limit: "8s",
        cannot: WHOLE_MESSAGES,
        cannot_warm: &[],
    },
    Cli {
        name: "gemini",
        package: "@google/gemini-cli",
        upstream: |base| json!({"model": "gemini-2.5-flash", "env": {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": base}}),
        home: &[(
            ".gemini/settings.json",
            r#"{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 1, "retryFetchErrors": false}, "privacy": {"usageStatisticsEnabled": false}}"#,
        )],
        stall_limit: "25s",
        cannot: &[],
        cannot_warm: &[],
    },
    Cli {
        name: "qwen",
        package: "@qwen-code/qwen-code",
        upstream: |base| {
            json!({"model": "mock-model", "env": {
                "OPENAI_API_KEY": "x", "OPENAI_BASE_URL": format!("{base}/v1"), "OPENAI_MODEL": "mock-model",
            }})
        },
        home: &[(
            ".qwen/settings.json",
            r#"{"model": {"generationConfig": {"maxRetries": 0}}, "privacy": {"usageStatisticsEnabled": false}}"#,
        )],
        stall_limit: "25s",
        cannot: &[],
        cannot_warm: &[],
    },
    Cli {
        name: "opencode",
        package: "opencode-ai",
        upstream: |base| {
            let config = json!({
                "provider": {"mock": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": format!("{base}/v1"), "apiKey": "x"},
                    "models": {"mock-model": {"limit": {"context": 400_000, "output": 8_000}}},
                }},
                "share": "disabled", "autoupdate": false, "snapshot": false,
            });
            json!({"model": "mock/mock-model", "env": {
                "OPENCODE_CONFIG_CONTENT": config.to_string(),
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            }})
        },
        home: &[],
        stall_limit: "40s",
        cannot: WHOLE_MESSAGES,
        cannot_warm: &[("usage", "On this way it counts its last call only.")],
    },
];

impl Cli {
    /// A model of `models.json` that runs this CLI against a tap, with what a case wants beside.
    pub(crate) fn model(&self, tap: SocketAddr, marker: &str, wanted: &Value) -> Value {
        let mut model = (self.upstream)(&format!("http://{tap}"));
        model["driver"] = self.name.into();
        // Whatever the CLI starts inherits it, and so can be found.
        model["env"][super::look::MARKER] = marker.into();
        for (key, value) in wanted.as_object().into_iter().flatten() {
            model[key] = value.clone();
        }
        model
    }

    pub(crate) fn why_not(&self, way: Way, case: &str) -> Option<&'static str> {
        let cannot = match way {
            Way::Cold => self.cannot,
            Way::Warm => self.cannot_warm,
        };
        cannot.iter().find(|(name, _)| *name == case).map(|(_, why)| *why)
    }
}
