//! What was said and done: every turn with its events, by whatever door it came in.

mod bound;
mod export;
mod journal;
mod keeping;
mod merge;
mod read;
mod record;
mod row;
mod sessions;
mod statement;
mod weight;
mod write;
mod writer;

pub use export::Selection;
pub(crate) use journal::recover;
pub use keeping::{Keeping, Kept};
pub use read::EventRow;
pub use record::Record;
pub use writer::{NotQueued, OnItsWay, Writer};
