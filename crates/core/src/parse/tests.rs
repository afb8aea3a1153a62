//! Recordings against their snapshots, shapes of output, and properties that hold for any bytes.

mod any_bytes;
mod invariants;
mod protocol;
mod recordings;
mod repeated;
mod shapes;

use super::Format;

/// Formats of agents, for which any output may be the answer.
fn agent_formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Protocol)
}
