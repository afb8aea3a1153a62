//! The CLIs as data: how each is pointed at the mock, what its home holds, and what it is known not to do.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::by_hand::ByHand;
use super::world::Way;

/// What the user tells the CLI in every folder.
pub(crate) const MEMORY: &str = "The keeper wants every lamp to be green.";

/// The user's own MCP server, which each CLI's settings name.
pub(crate) const SERVER: &[(&str, &str)] = &[("mcp_server.py", include_str!("../../../conformance/mcp_server.py"))];

pub(crate) struct Cli {
    pub(crate) name: &'static str,
    /// On npm.
    pub(crate) package: &'static str,
    /// Points a model at this base URL; the rest of the model is the case's.
    upstream: fn(base: &str) -> Value,
    /// Files of its home, by path.
    pub(crate) home: &'static [(&'static str, &'static str)],
    /// The same for what a user may have besides: a memory file, an MCP server. The gateway must not hide it.
    pub(crate) user: &'static [(&'static str, &'static str)],
    pub(crate) by_hand: ByHand,
    /// Without the kernel, its own file tools stay in the workspace by the permission `edit`.
    pub(crate) stays_inside: bool,
    /// Tools that it offers or not as its own start goes, by hand as well.
    pub(crate) uncertain: &'static [&'static str],
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
        user: &[
            (".claude/CLAUDE.md", MEMORY),
            (
                ".claude.json",
                r#"{"mcpServers": {"lamp": {"type": "stdio", "command": "sh", "args": ["-c", "exec python3 \"$HOME/mcp_server.py\""]}}}"#,
            ),
        ],
        by_hand: ByHand { before: &["-p"], model: "--model", after: &[] },
        stays_inside: true,
        uncertain: &[],
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
        user: &[
            (".codex/AGENTS.md", MEMORY),
            (
                ".codex/config.toml",
                "[mcp_servers.lamp]\ncommand = \"sh\"\nargs = [\"-c\", 'exec python3 \"$HOME/mcp_server.py\"']\n",
            ),
        ],
        by_hand: ByHand { before: &["exec", "--skip-git-repo-check"], model: "-m", after: &["-"] },
        stays_inside: true,
        uncertain: &["create_goal", "get_goal", "update_goal"],
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
        user: &[
            (".gemini/GEMINI.md", MEMORY),
            (
                ".gemini/settings.json",
                r#"{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 1, "retryFetchErrors": false}, "privacy": {"usageStatisticsEnabled": false}, "mcpServers": {"lamp": {"command": "sh", "args": ["-c", "exec python3 \"$HOME/mcp_server.py\""]}}}"#,
            ),
        ],
        by_hand: ByHand { before: &["--skip-trust"], model: "-m", after: &[] },
        stays_inside: true,
        uncertain: &[],
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
        user: &[
            (".qwen/QWEN.md", MEMORY),
            (
                ".qwen/settings.json",
                r#"{"model": {"generationConfig": {"maxRetries": 0}}, "privacy": {"usageStatisticsEnabled": false}, "mcpServers": {"lamp": {"command": "sh", "args": ["-c", "exec python3 \"$HOME/mcp_server.py\""]}}}"#,
            ),
        ],
        by_hand: ByHand { before: &[], model: "--model", after: &[] },
        stays_inside: false,
        uncertain: &[],
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
        user: &[
            (".config/opencode/AGENTS.md", MEMORY),
            (
                ".config/opencode/opencode.json",
                r#"{"mcp": {"lamp": {"type": "local", "command": ["sh", "-c", "exec python3 \"$HOME/mcp_server.py\""]}}}"#,
            ),
        ],
        by_hand: ByHand { before: &["run"], model: "--model", after: &[] },
        stays_inside: true,
        uncertain: &[],
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
