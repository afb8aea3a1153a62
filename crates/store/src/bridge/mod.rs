//! State of a bridge to a chat service: read cursors, messages to be answered, and the session of each channel.
//!
//! The log does not have it, so it is in a file of its own, which the index can be rebuilt without. A *place* is a channel
//! of the service.

mod database;
mod move_out;
mod rows;

pub use database::BridgeDatabase;
pub(crate) use move_out::copy_to_own_file;
pub use rows::{Binding, InboxRow, InboxState};
