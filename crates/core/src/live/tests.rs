//! Replays of conversations with real CLIs, and properties that hold for any input.

mod any_bytes;
mod permission;
mod recordings;
mod schema;
mod servers;

use super::exchange::to_line;
use super::*;
use crate::event::Event;
use crate::parse::{Conclusion, Decoder, Ending};
use crate::provider;
use crate::vocabulary::{Normalize, OutputForm, Permissions};

/// Creates the decoder of a provider.
fn decoder(provider: &str) -> Decoder {
    provider::built_in()[provider].decoder(Normalize::None, OutputForm::Streamed)
}

/// Concludes a turn that is over.
fn concluded(decoder: &mut Decoder, events: &mut Vec<Event>) -> Conclusion {
    let mut conclusion = decoder.conclude(Ending::Open, "", "");
    events.append(&mut conclusion.events);
    conclusion
}
