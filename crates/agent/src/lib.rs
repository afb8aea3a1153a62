//! The built-in coding agent: an LLM, a loop and four tools.

pub mod tools;
