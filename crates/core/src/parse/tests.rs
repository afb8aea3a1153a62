//! Each recording against its snapshot, the shapes output comes in, and what must hold for any bytes.

mod any_bytes;
mod invariants;
mod protocol;
mod recordings;
mod repeated;
mod shapes;

use super::Format;

/// Those of agents: whatever one prints may be the answer.
fn agent_formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Protocol)
}
