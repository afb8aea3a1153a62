//! The CLIs as data: how each one is configured for the mock LLM, the files in its home, and its known limitations.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::by_hand::ByHandArgs;
use super::world::ConformanceMode;

/// Content of the user's memory file.
pub(crate) const MEMORY: &str = "The keeper wants every lamp to be green.";

/// The user's MCP server, configured in the settings of each CLI.
pub(crate) const SERVER: &[(&str, &str)] = &[("mcp_server.py", include_str!("../../../conformance/mcp_server.py"))];

pub(crate) struct CliUnderTest {
    pub(crate) name: &'static str,
    /// Name of the npm package.
    pub(crate) package: &'static str,
    /// Returns model settings that make the CLI use this base URL. The case adds the rest of the model.
    upstream: fn(base: &str) -> Value,
    /// Files in the home folder: path and content.
    pub(crate) home: &'static [(&'static str, &'static str)],
    /// The user's own files in the home folder: a memory file, an MCP server. The gateway must not hide them.
    pub(crate) user: &'static [(&'static str, &'static str)],
    pub(crate) by_hand: ByHandArgs,
    /// Whether the CLI's own file tools stay in the workspace with the permission `edit`, without the kernel sandbox.
    pub(crate) stays_inside: bool,
    /// Tools that the CLI sometimes offers and sometimes not, depending on the timing of its start.
    pub(crate) uncertain: &'static [&'static str],
    pub(crate) client_calls: ClientCalls,
    pub(crate) large_result: LargeResult,
    /// How the model gets the schema of an answer from a process for one turn.
    pub(crate) schemas_cold: SchemaDelivery,
    /// … from a warm process, and from one with tools of the client.
    pub(crate) schemas_live: SchemaDelivery,
    /// Tools that the CLI offers even if its own tools are off.
    pub(crate) own_tools_left: &'static [&'static str],
    /// Timeout of the model in the case `stall`: longer than the CLI needs for its first call of the model.
    pub(crate) stall_limit: &'static str,
    /// Cases that the CLI cannot pass by design, with the reason.
    pub(crate) cannot: &'static [(&'static str, &'static str)],
    /// The same for its warm processes.
    pub(crate) cannot_warm: &'static [(&'static str, &'static str)],
}

/// Calls of client tools in one response of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCalls {
    /// The client receives them in one answer.
    Together,
    /// The CLI makes a call only after the result of the one before it.
    OneByOne,
}

/// Result of a client tool, of 200 kB, as the model receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LargeResult {
    Whole,
    /// Beginning and end.
    Cut,
    /// The path of a file with the whole text.
    File,
}

/// How a model gets the schema of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaDelivery {
    /// In the prompt.
    Instruction,
    /// As the format of the answer, in the request to the model.
    Format,
    /// As a tool of the CLI, with this name.
    Tool(&'static str),
}

const WHOLE_MESSAGES: &[(&str, &str)] = &[("deltas", "This CLI prints a message only when it is complete.")];

const ONE_CALL_AT_A_TIME: &[(&str, &str)] =
    &[("tool-split", "This CLI makes one call at a time, so its client never has to send two results.")];

/// Limits of Gemini CLI.
const GEMINI_LIMITS: &[(&str, &str)] = &[
    ONE_CALL_AT_A_TIME[0],
    ("mcp-resume", "This CLI does not load the sessions of its earlier processes over ACP: the session starts over."),
];

/// Retries are off wherever a CLI allows it: they take minutes, and the cases check the failure.
pub(crate) const ALL: [CliUnderTest; 5] = [
    CliUnderTest {
        name: "claude",
        package: "@anthropic-ai/claude-code",
        upstream: |base| {
            json!({"model": "claude-sonnet-5-5", "env": {
                "ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": base, "CLAUDE_CODE_MAX_RETRIES": "0",
                // Otherwise claude refuses to skip permission checks as root, the usual user in a container.
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
        by_hand: ByHandArgs { before: &["-p"], model: "--model", after: &[] },
        stays_inside: true,
        uncertain: &[],
        client_calls: ClientCalls::Together,
        large_result: LargeResult::File,
        schemas_cold: SchemaDelivery::Tool("StructuredOutput"),
        schemas_live: SchemaDelivery::Instruction,
        own_tools_left: &["DeferredToolPlaceholder"],
        stall_limit: "12s",
        cannot: &[],
        cannot_warm: &[],
    },
    CliUnderTest {
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
        by_hand: ByHandArgs { before: &["exec", "--skip-git-repo-check"], model: "-m", after: &["-"] },
        stays_inside: true,
        uncertain: &["create_goal", "get_goal", "update_goal"],
        client_calls: ClientCalls::Together,
        large_result: LargeResult::Cut,
        schemas_cold: SchemaDelivery::Format,
        schemas_live: SchemaDelivery::Format,
        own_tools_left: &["apply_patch", "request_user_input", "view_image"],
        stall_limit: "8s",
        cannot: WHOLE_MESSAGES,
        cannot_warm: &[],
    },
    CliUnderTest {
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
        by_hand: ByHandArgs { before: &["--skip-trust"], model: "-m", after: &[] },
        stays_inside: true,
        uncertain: &[],
        client_calls: ClientCalls::OneByOne,
        large_result: LargeResult::Whole,
        schemas_cold: SchemaDelivery::Instruction,
        schemas_live: SchemaDelivery::Instruction,
        own_tools_left: &[],
        stall_limit: "25s",
        cannot: GEMINI_LIMITS,
        cannot_warm: ONE_CALL_AT_A_TIME,
    },
    CliUnderTest {
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
        by_hand: ByHandArgs { before: &[], model: "--model", after: &[] },
        stays_inside: false,
        uncertain: &[],
        client_calls: ClientCalls::OneByOne,
        large_result: LargeResult::File,
        schemas_cold: SchemaDelivery::Tool("structured_output"),
        schemas_live: SchemaDelivery::Instruction,
        own_tools_left: &[],
        stall_limit: "25s",
        cannot: ONE_CALL_AT_A_TIME,
        cannot_warm: ONE_CALL_AT_A_TIME,
    },
    CliUnderTest {
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
        by_hand: ByHandArgs { before: &["run"], model: "--model", after: &[] },
        stays_inside: true,
        uncertain: &[],
        client_calls: ClientCalls::Together,
        large_result: LargeResult::File,
        schemas_cold: SchemaDelivery::Instruction,
        schemas_live: SchemaDelivery::Instruction,
        own_tools_left: &[],
        stall_limit: "40s",
        cannot: WHOLE_MESSAGES,
        cannot_warm: &[("usage", "As a warm process, this CLI reports the usage of its last call only.")],
    },
];

impl CliUnderTest {
    /// A model of `models.json` that runs this CLI against a tap, with the settings of a case.
    pub(crate) fn model(&self, tap: SocketAddr, marker: &str, settings: &Value) -> Value {
        let mut model = (self.upstream)(&format!("http://{tap}"));
        model["driver"] = self.name.into();
        // Child processes of the CLI inherit the marker and can be found by it.
        model["env"][super::observe::MARKER] = marker.into();
        for (key, value) in settings.as_object().into_iter().flatten() {
            model[key] = value.clone();
        }
        model
    }

    /// Reason why this CLI cannot pass a case.
    pub(crate) fn why_not(&self, mode: ConformanceMode, case: &str) -> Option<&'static str> {
        let cannot = match mode {
            ConformanceMode::Cold => self.cannot,
            ConformanceMode::Warm => self.cannot_warm,
        };
        cannot.iter().find(|(name, _)| *name == case).map(|(_, why)| *why)
    }
}
