//! What real CLIs were told and said, replayed; and what must hold whatever they say.

mod any_bytes;
mod permission;
mod recordings;

use super::exchange::words;
use super::*;
use crate::event::Event;
use crate::parse::{Conclusion, Decoder, Ending};
use crate::provider;
use crate::vocabulary::{Normalize, OutputForm, Permissions};

/// The decoder of a provider's turn.
fn decoder(provider: &str) -> Decoder {
    provider::built_in()[provider].decoder(Normalize::None, OutputForm::Streamed)
}

/// How a turn that is over went.
fn concluded(decoder: &mut Decoder, events: &mut Vec<Event>) -> Conclusion {
    let mut conclusion = decoder.conclude(Ending::Open, "", "");
    events.append(&mut conclusion.events);
    conclusion
}
