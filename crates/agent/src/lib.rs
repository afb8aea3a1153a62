//! The built-in coding agent: an LLM, a loop and four tools.
//!
//! [`AgentTurn`] is one turn: it calls the model, runs the tools that the model requests, and reports both as events, like
//! every other provider. [`steps`] decides what to do next and does no I/O. [`transcript`] keeps the messages in an order
//! that LLM services accept, even after an interrupt. [`transcript_file`] stores them on disk. [`tools`] contains the four
//! tools.

mod agent_turn;
pub mod steps;
pub mod tools;
pub mod transcript;
pub mod transcript_file;

pub use agent_turn::{AgentConfig, AgentTurn};

/// Default system prompt.
pub const SYSTEM_PROMPT: &str = "\
You are a coding assistant. You help the user by reading, writing, and editing files, and running shell commands.

When editing files, use edit_file with the exact string to replace - include enough context to make the match unique.

Be concise. Execute tasks directly without asking for confirmation.";
