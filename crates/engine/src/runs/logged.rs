//! The events of a run as its log has them: secrets are masked, also a secret that is split between two deltas.

use std::borrow::Cow;

use trunkline_core::event::Event;
use trunkline_core::secret::Secrets;

use super::masking::masked_whole;

/// Turns the events of a run into those of its log. Text that may be the beginning of a secret is held back until the next
/// event. Events that are in the log already stay as they are.
pub struct LoggedEvents {
    secrets: Secrets,
    held: HeldText,
}

/// Text that may be the beginning of a secret.
#[derive(Default)]
struct HeldText {
    thinking: bool,
    text: String,
}

impl LoggedEvents {
    #[must_use]
    pub fn new(secrets: Secrets) -> Self {
        Self { secrets, held: HeldText::default() }
    }

    /// Calls `each` for every event that the log gets with this one.
    pub fn push(&mut self, event: &Event, each: &mut impl FnMut(&Event)) {
        let (delta, thinking) = match event {
            Event::Text { delta } => (delta, false),
            Event::Thinking { delta } => (delta, true),
            Event::Started { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_)
            | Event::Finished(_)
            | Event::Failed(_) => {
                self.release(each);
                each(&self.masked(event));
                return;
            }
        };
        if self.held.text.is_empty() && !self.secrets.may_continue(delta) {
            each(&self.masked(event));
            return;
        }
        if self.held.thinking != thinking {
            self.release(each);
        }
        self.held.text.push_str(delta);
        let mut masked = self.secrets.mask_beginning(&mut self.held.text);
        // The released text must not end like the beginning of a secret either: the log of these events would hold it back.
        while self.secrets.may_continue(&masked) {
            let shorter = self.secrets.mask_beginning(&mut masked);
            self.held.text.insert_str(0, &masked);
            masked = shorter;
        }
        let rest = std::mem::replace(&mut self.held, HeldText { thinking, text: masked });
        self.release(each);
        self.held = HeldText { thinking, text: rest.text };
    }

    /// Whether no text is held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.text.is_empty()
    }

    fn release(&mut self, each: &mut impl FnMut(&Event)) {
        if self.held.text.is_empty() {
            return;
        }
        let HeldText { thinking, text: delta } = std::mem::take(&mut self.held);
        each(&self.masked(&if thinking { Event::Thinking { delta } } else { Event::Text { delta } }));
    }

    fn masked<'a>(&self, event: &'a Event) -> Cow<'a, Event> {
        masked_whole(event, &self.secrets)
    }
}
