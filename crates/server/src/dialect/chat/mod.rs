//! OpenAI's chat completions: `POST /v1/chat/completions`, and the list of models.

pub(crate) mod models;

use std::sync::Arc;

use http::request::Parts;
use trunkline_core::event::Answer;
use trunkline_core::secret::Secrets;
use trunkline_wire::chat::{CallFormat, ChatRequest};
use trunkline_wire::error::ApiError;
use trunkline_wire::response::{self, Head, Trace};
use trunkline_wire::stream::{Chunks, UsageChunk};

use super::{AnswerFormat, Asked, Delivery, Dialect, RunHead};
use crate::answer::WholeAnswer;
use crate::app::App;
use crate::dialect::members::{self, MemberTable};
use crate::door::Door;

pub(crate) struct Chat;

/// A completion of the chat.
pub(crate) struct Completion {
    model: String,
    usage: UsageChunk,
    calls: CallFormat,
}

impl Dialect for Chat {
    type Format = Completion;
    const MEMBERS: &'static MemberTable = &members::CHAT;

    async fn read<D: Door>(app: &App<D>, _head: &Parts, body: &[u8]) -> Result<Asked<Completion>, ApiError> {
        let mut chat = ChatRequest::parse(body)?;
        if chat.model.as_deref().is_some_and(|model| !app.door.keeps_sessions(model)) {
            chat.ignore_session();
        }
        let usage = if chat.include_usage() { UsageChunk::Wanted } else { UsageChunk::No };
        let delivery = if chat.stream == Some(true) { Delivery::Streamed } else { Delivery::Whole };
        let calls = chat.call_format();
        let turn = chat.into_turn()?;
        if turn.options.choices.is_some() && !app.door.gives_choices(&turn.model) {
            let message = "an agent gives one answer: only HTTP upstreams take `n` greater than 1";
            return Err(ApiError::unsupported("n", message).hint("send the request n times"));
        }
        let format = Completion { model: turn.model.clone(), usage, calls };
        Ok(Asked { turn, delivery, format })
    }
}

impl AnswerFormat for Completion {
    type Frames = Chunks;
    type Whole = Head;

    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> Chunks {
        Chunks::new(head(run, self.model, self.calls), self.usage, secrets)
    }

    fn whole(self, run: &RunHead) -> Head {
        head(run, self.model, self.calls)
    }
}

impl WholeAnswer for Head {
    fn finish(self, trace: &Trace, answer: Answer) -> Vec<u8> {
        let whole = response::whole(self, trace, answer);
        serde_json::to_vec(&whole).expect("our own types have string keys and finite numbers")
    }
}

fn head(run: &RunHead, model: String, calls: CallFormat) -> Head {
    Head { id: ["cmpl-", &run.id].concat(), created: run.created, model, calls }
}
