//! What was heard is written down before anything comes of it: for each channel one after the other, in its order, however
//! long the store takes for it. Other channels, and what runs, do not wait for that.

use std::sync::Arc;

use super::{Bridge, Done, HELD};
use crate::command::Command;
use crate::desk::{Arrival, Waiting};
use crate::incoming::Incoming;
use crate::ledger::Progress;
use crate::snowflake::Snowflake;

impl Bridge {
    /// Something happens in a channel just now. What is too much to keep in mind is read in its history later; so is what
    /// comes after it, lest it be taken for read.
    pub(super) fn hear_live(&mut self, channel: Snowflake, arrival: Arrival) {
        let desk = self.desks.entry(channel).or_default();
        desk.overheard |= desk.arriving.len() >= HELD;
        if !desk.overheard {
            self.arrive(channel, arrival);
        }
    }

    pub(super) fn arrive(&mut self, channel: Snowflake, arrival: Arrival) {
        let desk = self.desks.entry(channel).or_default();
        match (desk.arriving.back_mut(), &arrival) {
            // The later one says it all.
            (Some(Arrival::Passing(last)), Arrival::Passing(later)) => *last = *later,
            _ => desk.arriving.push_back(arrival),
        }
        self.note_next(channel);
    }

    fn note_next(&mut self, channel: Snowflake) {
        let Some(desk) = self.desks.get_mut(&channel) else { return };
        if desk.noting {
            return;
        }
        let Some(arrival) = desk.arriving.pop_front() else {
            if std::mem::take(&mut desk.overheard) {
                self.catch_up(channel);
            }
            return;
        };
        desk.noting = true;
        let shared = Arc::clone(&self.shared);
        let nothing = Done::Noted(channel, None);
        match arrival {
            Arrival::Message(incoming) => self.start(nothing, async move {
                let new = shared.ledger.add(&incoming).await == Some(true);
                Done::Noted(channel, new.then_some(incoming))
            }),
            Arrival::Passing(message) => self.start(nothing, async move {
                shared.ledger.set_cursor(channel, message).await;
                Done::Noted(channel, None)
            }),
            Arrival::Interaction { id, key, command } => {
                let doing = self.doing(channel);
                self.start(nothing, async move {
                    if let Some(said) = shared.obey(channel, command, &doing).await {
                        shared.respond(id, &key, &said).await;
                    }
                    Done::Noted(channel, None)
                });
            }
        }
    }

    /// Something was written down: the next may be. A message that is new waits for its turn from now on.
    pub(super) fn noted(&mut self, channel: Snowflake, new: Option<Incoming>) {
        let desk = self.desks.entry(channel).or_default();
        desk.noting = false;
        if let Some(incoming) = new {
            if let Some(command) = command_in(&incoming) {
                return self.obey(incoming, command);
            }
            let waiting = desk.waiting.len();
            if waiting >= self.shared.settings.queue {
                return self.refuse(&incoming, waiting);
            }
            desk.waiting.push_back(Waiting { incoming, progress: Progress::default(), old: false });
            self.begin(channel);
        }
        self.note_next(channel);
    }

    /// Does what a message commands. What is said after it counts from there.
    fn obey(&mut self, incoming: Incoming, command: Command) {
        let (channel, doing) = (incoming.channel, self.doing(incoming.channel));
        self.occupy(channel);
        let shared = Arc::clone(&self.shared);
        self.start(Done::Noted(channel, None), async move {
            shared.obey_message(&incoming, command, &doing).await;
            Done::Noted(channel, None)
        });
    }

    fn refuse(&mut self, incoming: &Incoming, waiting: usize) {
        let (id, channel) = (incoming.id, incoming.channel);
        let said = format!("{waiting} messages are waiting here already. Ask again when they are answered.");
        self.occupy(channel);
        let shared = Arc::clone(&self.shared);
        self.start(Done::Noted(channel, None), async move {
            if shared.ledger.failed(id, "too many were waiting").await.is_some() {
                shared.say(channel, id, &said).await;
            }
            Done::Noted(channel, None)
        });
    }

    fn occupy(&mut self, channel: Snowflake) {
        self.desks.entry(channel).or_default().noting = true;
    }
}

/// A message that is nothing but a command.
pub(super) fn command_in(incoming: &Incoming) -> Option<Command> {
    Command::parse(&incoming.text).filter(|_| incoming.attachments.is_empty())
}
