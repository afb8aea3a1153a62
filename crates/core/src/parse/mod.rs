//! What a CLI prints, as events.
//!
//! A decoder is pure and cannot fail: bytes in, events out, and at the end one [`Event`] that says how it went. It never
//! knows who feeds it: a process, a recording, a test.

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
}
