//! Records arrivals before they are processed: for each channel one after the other, in order. A slow store delays only the
//! channel, not other channels or running answers.

use std::sync::Arc;

use super::{Bridge, BridgeTaskResult, MAX_HELD_MESSAGES};
use crate::bridge_store::AnswerProgress;
use crate::channel_state::{Arrival, QueuedMessage};
use crate::command::BridgeCommand;
use crate::incoming::IncomingMessage;
use crate::snowflake::Snowflake;

impl Bridge {
    /// Enqueues a live event. If there are too many, it is dropped and read from the history later. Then later events must be
    /// dropped, too: recording them would move the cursor past the dropped ones.
    pub(super) fn enqueue_live(&mut self, channel: Snowflake, arrival: Arrival) {
        let state = self.channels.entry(channel).or_default();
        state.overflowed |= state.arriving.len() >= MAX_HELD_MESSAGES;
        if !state.overflowed {
            self.enqueue(channel, arrival);
        }
    }

    pub(super) fn enqueue(&mut self, channel: Snowflake, arrival: Arrival) {
        let state = self.channels.entry(channel).or_default();
        match (state.arriving.back_mut(), &arrival) {
            // Only the last cursor position matters.
            (Some(Arrival::Ignored(last)), Arrival::Ignored(later)) => *last = *later,
            _ => state.arriving.push_back(arrival),
        }
        self.record_next(channel);
    }

    fn record_next(&mut self, channel: Snowflake) {
        let Some(state) = self.channels.get_mut(&channel) else { return };
        if state.recording {
            return;
        }
        let Some(arrival) = state.arriving.pop_front() else {
            if std::mem::take(&mut state.overflowed) {
                self.catch_up(channel);
            }
            return;
        };
        state.recording = true;
        let shared = Arc::clone(&self.shared);
        let fallback = BridgeTaskResult::Recorded(channel, None);
        match arrival {
            Arrival::Message(incoming) => self.spawn(fallback, async move {
                let new = shared.store.add(&incoming).await == Some(true);
                BridgeTaskResult::Recorded(channel, new.then_some(incoming))
            }),
            Arrival::Ignored(message) => self.spawn(fallback, async move {
                shared.store.set_cursor(channel, message).await;
                BridgeTaskResult::Recorded(channel, None)
            }),
            Arrival::Interaction { id, key, command } => {
                let activity = self.activity(channel);
                self.spawn(fallback, async move {
                    if let Some(response) = shared.execute(channel, command, &activity).await {
                        shared.respond(id, &key, &response).await;
                    }
                    BridgeTaskResult::Recorded(channel, None)
                });
            }
        }
    }

    /// Continues after an arrival was recorded. A new message is queued, and the next arrival is recorded.
    pub(super) fn recorded(&mut self, channel: Snowflake, new: Option<IncomingMessage>) {
        let state = self.channels.entry(channel).or_default();
        state.recording = false;
        if let Some(incoming) = new {
            if let Some(command) = command_in(&incoming) {
                return self.execute(incoming, command);
            }
            let waiting = state.queue.len();
            if waiting >= self.shared.settings.queue {
                return self.refuse(&incoming, waiting);
            }
            let progress = AnswerProgress::default();
            state.queue.push_back(QueuedMessage { incoming, progress, from_earlier_process: false });
            self.start_next(channel);
        }
        self.record_next(channel);
    }

    /// Executes a command that was sent as a message. Later messages wait for it.
    fn execute(&mut self, incoming: IncomingMessage, command: BridgeCommand) {
        let (channel, activity) = (incoming.channel, self.activity(incoming.channel));
        self.block_recording(channel);
        let shared = Arc::clone(&self.shared);
        self.spawn(BridgeTaskResult::Recorded(channel, None), async move {
            shared.execute_message(&incoming, command, &activity).await;
            BridgeTaskResult::Recorded(channel, None)
        });
    }

    fn refuse(&mut self, incoming: &IncomingMessage, waiting: usize) {
        let (id, channel) = (incoming.id, incoming.channel);
        let response = format!("{waiting} messages are waiting here already. Try again when they are answered.");
        self.block_recording(channel);
        let shared = Arc::clone(&self.shared);
        self.spawn(BridgeTaskResult::Recorded(channel, None), async move {
            if shared.store.mark_failed(id, "too many were waiting").await.is_some() {
                shared.reply(channel, id, &response).await;
            }
            BridgeTaskResult::Recorded(channel, None)
        });
    }

    fn block_recording(&mut self, channel: Snowflake) {
        self.channels.entry(channel).or_default().recording = true;
    }
}

/// BridgeCommand of a message without other text or attachments.
pub(super) fn command_in(incoming: &IncomingMessage) -> Option<BridgeCommand> {
    BridgeCommand::parse(&incoming.text).filter(|_| incoming.attachments.is_empty())
}
