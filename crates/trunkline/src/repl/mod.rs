//! The REPL of `trunkline agent`: reads a line, sends it to the model, and shows the answer as it arrives.
//!
//! Like every surface it sends a `Turn` and receives `Event`s, so it works with any model. [`command`] parses a line,
//! [`view`] renders a turn, and [`conversation`] keeps the history, the index and the transcript.

mod blocks;
mod command;
mod conversation;
mod editor;
mod index;
mod input_loop;
mod markdown;
pub(crate) mod plain;
mod private_file;
mod reader;
mod recall;
mod style;
mod table;
mod terminal;
pub(crate) mod tool;
mod transcript;
mod view;

pub(crate) use conversation::ReplConversation;
pub(crate) use index::{ConversationIndex, IndexMatch, SavedConversation};
pub(crate) use input_loop::Repl;
