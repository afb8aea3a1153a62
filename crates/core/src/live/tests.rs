//! What real CLIs were told and said, replayed; and what must hold whatever they say.

mod any_bytes;
mod recordings;

use super::*;
use crate::event::Event;
use crate::model::Normalize;
use crate::parse::{Conclusion, Context, Decoder, Ending};
use crate::provider::{self, Form};

/// The decoder of a provider's turn.
fn decoder(provider: &str) -> Decoder {
    let provider = &provider::built_in()[provider];
    let context = Context {
        program: provider.name.clone(),
        rules: provider.failures.clone(),
        noise: provider.noise.clone(),
        normalize: Normalize::None,
        form: Form::Streamed,
    };
    Decoder::new(provider.format, context)
}

/// How a turn that is over went.
fn concluded(decoder: &mut Decoder, events: &mut Vec<Event>) -> Conclusion {
    let mut conclusion = decoder.conclude(Ending::Open, "", "");
    events.append(&mut conclusion.events);
    conclusion
}
