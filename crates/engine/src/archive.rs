//! Every turn goes into the archive, by whatever door it came: what was asked, what was done, what came of it.
//!
//! Nobody waits for it: records go into a bounded queue, and a disk that is too slow for them costs records, not time.
//! Secrets are masked here, over whole texts: the pieces they come in may cut a secret in two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::event::{Event, SessionId, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::prompt;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{self, Turn};
use trunkline_store::{Outcome, Record, SessionKey, Store, Surface, Time, TurnBegun, TurnEnded, Writer};

use crate::session::whose;

/// A text that is longer than this goes on in another record.
const PIECE: usize = 16 * 1024;

/// The most that is kept of a turn's text as it came, of its prompt and of its answer: a CLI may print without end.
const TEXT: usize = 1024 * 1024;

/// The most that is kept of any other text of an event.
const DETAIL: usize = 64 * 1024;

/// The way into the archive, once there is one.
#[derive(Default)]
pub(crate) struct Archive {
    writer: OnceLock<Writer>,
    lost: Arc<AtomicU64>,
    stop: CancellationToken,
    keeping: TaskTracker,
}

impl Archive {
    /// Opens it. What is sent from now on is kept.
    pub(crate) fn open(&self, store: &Store) {
        let (writer, keeping) = store.writer();
        if self.writer.set(writer).is_ok() {
            self.keeping.spawn(keeping.run(self.stop.clone()));
        }
    }

    /// Waits until what was sent so far can be read.
    pub(crate) async fn flush(&self) {
        if let Some(writer) = self.writer.get() {
            // What was lost was said.
            let _lost = writer.flush().await;
        }
    }

    /// Waits until everything is kept.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.keeping.close();
        self.keeping.wait().await;
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            tracing::error!(lost, "records of turns were lost: the disk was too slow for them");
        }
    }

    /// Begins the record of a turn.
    pub(crate) fn record(&self, begun: Begun<'_>, secrets: &Secrets) -> Recorder {
        let recorder = Recorder {
            writer: self.writer.get().cloned(),
            lost: Arc::clone(&self.lost),
            secrets: secrets.clone(),
            run: begun.run.to_owned(),
            began: Instant::now(),
            events: 0,
            piece: None,
            room: TEXT,
            usage: Usage::default(),
            ended: false,
        };
        if recorder.writer.is_some() {
            let turn = begun.turn;
            recorder.send(Record::Begun(TurnBegun {
                run: begun.run.to_owned(),
                session: begun.session.map(|session| SessionKey(session.0.clone())),
                owner: whose(&turn.owner),
                surface: surface(turn.surface),
                place: begun.place,
                model: turn.model.clone(),
                prompt: secrets.mask(head(&prompt::told(turn), TEXT)),
                time: Time::now(),
            }));
        }
        recorder
    }
}

/// A turn that is about to run.
pub(crate) struct Begun<'a> {
    pub(crate) run: &'a str,
    /// One that is in the store already.
    pub(crate) session: Option<&'a SessionId>,
    /// Where it works.
    pub(crate) place: String,
    pub(crate) turn: &'a Turn,
}

/// The record of one turn. One that is dropped before its end was given up.
pub(crate) struct Recorder {
    writer: Option<Writer>,
    lost: Arc<AtomicU64>,
    secrets: Secrets,
    run: String,
    began: Instant,
    events: u64,
    /// A text that may go on.
    piece: Option<Event>,
    /// How much more text is kept.
    room: usize,
    usage: Usage,
    ended: bool,
}

impl Recorder {
    pub(crate) fn hear(&mut self, event: &Event) {
        if self.writer.is_none() || !self.has_room(event) {
            return;
        }
        match (&mut self.piece, event) {
            (Some(Event::Text { delta: text }), Event::Text { delta })
            | (Some(Event::Thinking { delta: text }), Event::Thinking { delta })
                if text.len() < PIECE =>
            {
                text.push_str(delta);
                return;
            }
            _ => self.let_go(),
        }
        match event {
            Event::Text { .. } | Event::Thinking { .. } => self.piece = Some(event.clone()),
            // They are the end of the record itself.
            Event::Finished(_) | Event::Failed(_) => {}
            Event::Started { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => self.keep(event),
        }
    }

    /// Whether there is room for an event; only pieces of text take any.
    fn has_room(&mut self, event: &Event) -> bool {
        let (Event::Text { delta } | Event::Thinking { delta }) = event else { return true };
        let Some(left) = self.room.checked_sub(delta.len()) else {
            if std::mem::take(&mut self.room) > 0 {
                self.let_go();
                self.keep(&Event::Notice { message: "the rest of the text is not kept here".to_owned() });
            }
            return false;
        };
        self.room = left;
        true
    }

    /// The text so far is whole.
    fn let_go(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.keep(&piece);
        }
    }

    fn keep(&mut self, event: &Event) {
        let event = masked(event, &self.secrets);
        let sequence = self.events;
        self.events += 1;
        self.send(Record::Event { run: self.run.clone(), sequence, event });
    }

    /// The end, as the record to send: after that of its session, which it belongs to.
    pub(crate) fn end(mut self, end: End<'_>) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.ended(end);
        async move {
            if let Some((writer, ended)) = ended {
                let _closed_at_the_end = writer.send(ended).await;
            }
        }
    }

    fn ended(&mut self, end: End<'_>) -> Option<(Writer, Record)> {
        self.ended = true;
        self.let_go();
        let (outcome, text) = match end.result {
            Ok(answer) => {
                self.usage = answer.usage;
                (Outcome::Ok, &answer.content)
            }
            Err(failure) => (Outcome::Failed(failure.category), &failure.message),
        };
        let ended = TurnEnded {
            run: self.run.clone(),
            provider: end.provider.to_owned(),
            outcome,
            answer: self.secrets.mask(head(text, TEXT)),
            usage: self.usage,
            duration: self.began.elapsed(),
            session: end.session.map(|session| SessionKey(session.0.clone())),
        };
        Some((self.writer.take()?, Record::Ended(ended)))
    }

    fn send(&self, record: Record) {
        let Some(writer) = &self.writer else { return };
        if writer.try_send(record).is_err() && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!("the disk is too slow for the archive: records of turns are lost");
        }
    }
}

/// How a turn ended.
pub(crate) struct End<'a> {
    pub(crate) provider: &'a str,
    pub(crate) session: Option<&'a SessionId>,
    pub(crate) result: Result<&'a trunkline_core::event::Answer, &'a Failure>,
}

/// Nobody waited for the end.
pub(crate) fn given_up() -> Failure {
    Failure::new(Category::Cancelled, "given up by whoever asked")
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended
            && let Some((writer, ended)) = self.ended(End { provider: "", session: None, result: Err(&given_up()) })
        {
            let _full_is_full = writer.try_send(ended);
        }
    }
}

fn surface(surface: turn::Surface) -> Surface {
    match surface {
        turn::Surface::Http => Surface::Http,
        turn::Surface::Run => Surface::Run,
        turn::Surface::Repl => Surface::Repl,
        turn::Surface::Page => Surface::Page,
        turn::Surface::Discord => Surface::Discord,
    }
}

/// The beginning of a text.
fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The same event without secrets.
fn masked(event: &Event, secrets: &Secrets) -> Event {
    let mask = |value: Result<Value, serde_json::Error>| {
        let mut value = value?;
        mask_strings(&mut value, secrets);
        serde_json::from_value(value)
    };
    // What cannot be read back was changed where it must not be.
    mask(serde_json::to_value(event))
        .unwrap_or_else(|_| Event::Notice { message: "an event that holds a secret".to_owned() })
}

fn mask_strings(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.mask(head(text, DETAIL)),
        Value::Array(values) => values.iter_mut().for_each(|value| mask_strings(value, secrets)),
        Value::Object(members) => members.values_mut().for_each(|value| mask_strings(value, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
