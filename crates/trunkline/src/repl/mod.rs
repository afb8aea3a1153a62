//! The REPL of `trunkline agent`: asks for a line, has the model answer it, and shows the answer as it comes.
//!
//! Like every surface it enters at `Turn` and leaves at `Event`, and so drives any model on the line. What a line means
//! is decided in [`command`], how a turn looks in [`show`], what is kept of it in [`talk`].

mod blocks;
mod command;
mod dialogue;
mod editor;
mod index;
mod markdown;
pub(crate) mod plain;
mod private;
mod reader;
mod recall;
mod show;
mod style;
mod table;
mod talk;
mod terminal;
pub(crate) mod tool;
mod transcript;

pub(crate) use dialogue::Repl;
pub(crate) use index::{Entry, Index, Named};
pub(crate) use talk::Talk;
