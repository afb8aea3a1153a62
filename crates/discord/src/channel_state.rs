//! State of one channel: unrecorded arrivals, queued messages, the running answer, and whether its history is being read.

use std::collections::VecDeque;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bridge_store::AnswerProgress;
use crate::command::BridgeCommand;
use crate::incoming::IncomingMessage;
use crate::snowflake::Snowflake;

/// State of one channel.
#[derive(Default)]
pub(crate) struct ChannelState {
    /// Arrivals that are not recorded yet, in order.
    pub(crate) arriving: VecDeque<Arrival>,
    /// Whether an arrival is being recorded.
    pub(crate) recording: bool,
    /// Whether arrivals were dropped because there were too many. They are read from the history later.
    pub(crate) overflowed: bool,
    pub(crate) queue: VecDeque<QueuedMessage>,
    pub(crate) running: Option<ActiveAnswer>,
    /// Set while the history is being read. No message is started before that is done.
    pub(crate) history_read: Option<HistoryRead>,
}

impl ChannelState {
    /// Number of waiting messages, recorded or not.
    pub(crate) fn waiting(&self) -> usize {
        let unrecorded = self.arriving.iter().filter(|arrival| matches!(arrival, Arrival::Message(_)));
        self.queue.len() + unrecorded.count()
    }
}

/// An event in a channel that has to be recorded.
pub(crate) enum Arrival {
    Message(IncomingMessage),
    /// A message that is not for the bot.
    Ignored(Snowflake),
    /// A slash command.
    Interaction {
        id: Snowflake,
        key: String,
        command: BridgeCommand,
    },
}

/// A recorded message that waits for its answer.
pub(crate) struct QueuedMessage {
    pub(crate) incoming: IncomingMessage,
    pub(crate) progress: AnswerProgress,
    /// Recorded by an earlier process, whose allow lists may have been different.
    pub(crate) from_earlier_process: bool,
}

/// The answer that is being written.
pub(crate) struct ActiveAnswer {
    pub(crate) stop: CancellationToken,
    pub(crate) since: Instant,
}

/// A read of a channel's history in progress.
#[derive(Default)]
pub(crate) struct HistoryRead {
    /// Messages that arrived in the meantime.
    pub(crate) held: Vec<IncomingMessage>,
    /// Whether the history has to be read once more.
    pub(crate) again: bool,
}
