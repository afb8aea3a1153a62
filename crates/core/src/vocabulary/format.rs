//! What a CLI prints in one turn, and what a process that is kept speaks.

use serde::{Deserialize, Serialize};

/// A dialect: what a CLI's standard output looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    Claude,
    Codex,
    Gemini,
    Qwen,
    Opencode,
    Ax,
    /// Plain text: the whole output is the answer.
    Text,
    /// One JSON object with the answer in a well-known field.
    Json,
    /// JSON lines of the common event types.
    StreamJson,
    /// What an executable of the provider protocol prints.
    Protocol,
}

impl Format {
    pub const ALL: [Self; 10] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Qwen,
        Self::Opencode,
        Self::Ax,
        Self::Text,
        Self::Json,
        Self::StreamJson,
        Self::Protocol,
    ];

    /// Its name in a recipe.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::Opencode => "opencode",
            Self::Ax => "ax",
            Self::Text => "text",
            Self::Json => "json",
            Self::StreamJson => "stream-json",
            Self::Protocol => "protocol",
        }
    }

    /// Whether its decoder understands a process that is kept and speaks this protocol.
    #[must_use]
    pub const fn reads(self, protocol: LiveProtocol) -> bool {
        match (protocol, self) {
            (LiveProtocol::Claude, Self::Claude | Self::Qwen | Self::StreamJson)
            | (LiveProtocol::AppServer, Self::Codex)
            | (
                LiveProtocol::Acp,
                Self::Claude | Self::Codex | Self::Gemini | Self::Qwen | Self::Opencode | Self::Ax | Self::StreamJson,
            ) => true,
            (
                LiveProtocol::Claude,
                Self::Codex | Self::Gemini | Self::Opencode | Self::Ax | Self::Text | Self::Json | Self::Protocol,
            )
            | (
                LiveProtocol::AppServer,
                Self::Claude
                | Self::Gemini
                | Self::Qwen
                | Self::Opencode
                | Self::Ax
                | Self::Text
                | Self::Json
                | Self::StreamJson
                | Self::Protocol,
            )
            | (LiveProtocol::Acp, Self::Text | Self::Json | Self::Protocol) => false,
        }
    }
}

/// What is spoken over a process's stdio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveProtocol {
    /// Claude Code's `--input-format stream-json`.
    Claude,
    /// Codex's `app-server`.
    AppServer,
    /// The Agent Client Protocol.
    Acp,
}

impl LiveProtocol {
    /// Its name in a recipe.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::AppServer => "app-server",
            Self::Acp => "acp",
        }
    }
}
