//! Each recording against its snapshot, the shapes output comes in, and what must hold for any bytes.

mod any_bytes;
mod invariants;
mod protocol;
mod recordings;
mod repeated;
mod shapes;

use super::Format;

/// Those of agents: whatever one prints may be the answer.
const FORMATS: [Format; 9] = [
    Format::Claude,
    Format::Codex,
    Format::Gemini,
    Format::Qwen,
    Format::Opencode,
    Format::Ax,
    Format::Text,
    Format::Json,
    Format::StreamJson,
];
