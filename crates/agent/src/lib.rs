//! The built-in coding agent: an LLM, a loop and four tools.
//!
//! [`Work`] is one turn: it asks the model and runs its calls, and hands out what happens as events, like any other
//! provider. What is to be done next is decided by [`steps`], which does no I/O; [`transcript`] keeps the conversation
//! such that a service takes it, whatever interrupted it; [`record`] keeps it on disk; [`tools`] do the work.

pub mod record;
pub mod steps;
pub mod tools;
pub mod transcript;
mod work;

pub use work::{Agent, Work};

/// What the model is told about itself.
pub const SYSTEM_PROMPT: &str = "\
You are a coding assistant. You help the user by reading, writing, and editing files, and running shell commands.

When editing files, use edit_file with the exact string to replace - include enough context to make the match unique.

Be concise. Execute tasks directly without asking for confirmation.";
