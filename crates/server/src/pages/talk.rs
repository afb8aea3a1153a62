//! One conversation: its messages, its transcript, and at most one answer in progress.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use trunkline_core::conversation::Conversation;
use trunkline_core::event::Event;
use trunkline_core::failure::Category;
use trunkline_core::turn::Turn;
use trunkline_wire::error::ApiError;
use trunkline_wire::page::PageEvent;
use uuid::Uuid;

use super::chats::Chats;
use super::cookie::ChatId;
use super::transcript::{ChatTranscript, Item};

/// Maximum length of a conversation in bytes: all of it may have to be sent to a model again.
const MAX_CONVERSATION_BYTES: usize = 2 * 1024 * 1024;

/// The part of a conversation that is saved.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct SavedChat {
    /// Id of the conversation, assigned with its first message. A cleared conversation gets a new one.
    #[serde(default)]
    id: Option<String>,
    conversation: Conversation,
    items: ChatTranscript,
    /// Total length of the messages, in bytes.
    said: usize,
}

impl SavedChat {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.items().is_empty()
    }

    /// Marks an answer without an end as interrupted: the gateway was killed.
    pub(crate) fn settled(mut self) -> Self {
        if !self.items.is_settled() {
            self.items.interrupt();
        }
        self
    }

    fn interrupt(&mut self) {
        self.conversation.interrupt();
        self.items.interrupt();
    }
}

/// A conversation in the form that the page loads.
#[derive(Debug, Serialize)]
pub(crate) struct ChatView {
    /// Changes with a clear, so that a page with the old messages knows that they are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    items: Vec<Item>,
    running: bool,
}

pub(crate) struct Chat {
    pub(crate) id: ChatId,
    state: Mutex<ChatState>,
}

struct ChatState {
    kept: SavedChat,
    /// The answer in progress, by number.
    answer: Option<(u64, CancellationToken)>,
    answers: u64,
    changes: u64,
    /// Number of the last change that is on disk.
    saved: u64,
}

impl Chat {
    pub(crate) fn new(id: ChatId, kept: SavedChat) -> Self {
        Self { id, state: Mutex::new(ChatState { kept, answer: None, answers: 0, changes: 0, saved: 0 }) }
    }

    pub(crate) fn shown(&self) -> ChatView {
        let state = self.state();
        let id = state.kept.id.clone().filter(|_| !state.kept.is_empty());
        ChatView { id, items: state.kept.items.items().to_vec(), running: state.answer.is_some() }
    }

    /// Adds a message, unless an answer is in progress.
    pub(crate) fn ask(
        self: Arc<Self>,
        chats: &Arc<Chats>,
        model: &str,
        text: &str,
    ) -> Result<(Turn, Answering), ApiError> {
        let (turn, number, stop) = {
            let mut state = self.state();
            if state.answer.is_some() {
                let error = ApiError::conflict("answer_running", "an answer is still running in this conversation");
                return Err(error.hint("wait for its end, or stop it with POST /stop"));
            }
            if state.kept.said + text.len() > MAX_CONVERSATION_BYTES {
                let error = ApiError::invalid("conversation_too_long", "this conversation has become too long");
                return Err(error.hint("begin a new one: POST /clear"));
            }
            state.kept.id.get_or_insert_with(|| Uuid::new_v4().to_string());
            let turn = state.kept.conversation.ask(model, text);
            state.kept.items.ask(text, model);
            state.kept.said += text.len();
            state.answers += 1;
            let (number, stop) = (state.answers, CancellationToken::new());
            state.answer = Some((number, stop.clone()));
            state.changes += 1;
            (turn, number, stop)
        };
        chats.changed(&self);
        Ok((turn, Answering { chats: Arc::clone(chats), chat: self, number, stop, asked: text.len() }))
    }

    /// Stops the answer in progress. Its visible part stays.
    pub(crate) fn stop(self: &Arc<Self>, chats: &Chats) {
        let stopped = {
            let mut state = self.state();
            let Some((_, stop)) = state.answer.take() else { return };
            state.kept.interrupt();
            state.changes += 1;
            stop
        };
        stopped.cancel();
        chats.changed(self);
    }

    /// Clears the conversation, and stops the answer in progress.
    pub(crate) fn clear(self: &Arc<Self>, chats: &Chats) {
        let stopped = {
            let mut state = self.state();
            state.kept = SavedChat::default();
            state.changes += 1;
            state.answer.take()
        };
        if let Some((_, stop)) = stopped {
            stop.cancel();
        }
        chats.changed(self);
    }

    /// Whether everything is saved and no answer is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.answer.is_none() && state.saved == state.changes
    }

    /// The state to save, and the number of its last change.
    pub(crate) fn unsaved(&self) -> (u64, SavedChat) {
        let state = self.state();
        (state.changes, state.kept.clone())
    }

    pub(crate) fn saved(&self, changes: u64) {
        self.state().saved = changes;
    }

    fn state(&self) -> MutexGuard<'_, ChatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer in progress. Dropping it before its end marks it as interrupted.
pub(crate) struct Answering {
    chats: Arc<Chats>,
    chat: Arc<Chat>,
    number: u64,
    stop: CancellationToken,
    /// Length of the message.
    asked: usize,
}

impl Answering {
    /// Returns when the user stops or clears the conversation. Cancel safe.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Records an event and its visible form.
    pub(crate) fn hear(&self, event: &Event, words: &[PageEvent]) {
        let worth_saving = matches!(event, Event::ToolFinished { .. } | Event::Finished(_) | Event::Failed(_));
        self.change(|state| {
            state.kept.conversation.hear(event);
            words.iter().for_each(|word| state.kept.items.add(word));
            if let Event::Finished(answer) = event {
                state.kept.said += answer.content.len();
            }
            if matches!(event, Event::Finished(_) | Event::Failed(_)) {
                state.answer = None;
            }
        });
        if worth_saving {
            self.chats.changed(&self.chat);
        } else if !words.is_empty() {
            self.chats.grows(&self.chat);
        }
    }

    /// Ends the answer with an error that is not an event of its run: the server stops, or the run did not start.
    pub(crate) fn fail(&self, words: &[PageEvent], began: bool, why: Category) {
        self.change(|state| {
            if began {
                state.kept.conversation.interrupt();
            } else {
                state.kept.conversation.withdraw(why);
                state.kept.said -= self.asked;
            }
            words.iter().for_each(|word| state.kept.items.add(word));
            state.answer = None;
        });
        self.chats.changed(&self.chat);
    }

    /// Removes a message that was refused. The page offers it again.
    pub(crate) fn withdraw(&self, why: Category) {
        self.change(|state| {
            state.kept.conversation.withdraw(why);
            state.kept.items.withdraw();
            state.kept.said -= self.asked;
            state.answer = None;
        });
        self.chats.changed(&self.chat);
    }

    /// Changes the conversation, unless another answer has replaced this one.
    fn change(&self, change: impl FnOnce(&mut ChatState)) -> bool {
        let mut state = self.chat.state();
        let current = state.answer.as_ref().is_some_and(|(number, _)| *number == self.number);
        if current {
            change(&mut state);
            state.changes += 1;
        }
        current
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let interrupted = self.change(|state| {
            state.kept.interrupt();
            state.answer = None;
        });
        if interrupted {
            self.chats.changed(&self.chat);
        }
    }
}
