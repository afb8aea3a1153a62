//! State of a decoder that the parsers of all formats write to, and the rules that they share.
//!
//! - Text is shown once. A complete message that repeats its own deltas adds nothing, even if its id differs from theirs
//!   ([`OutputTranscript::complete_block`]).
//! - Text that may turn out to be an error message is not shown until that is decided ([`OutputTranscript::withhold`]).

use std::time::Duration;

use serde_json::Map;

use crate::ansi::Ansi;
use crate::event::{Event, Finish, SessionId, ToolCall, Usage};
use crate::failure::Category;
use crate::parse::acp_calls::AcpProgress;
use crate::parse::json::Value;
use crate::phase::{Phase, Phases};

/// Longer answers end the turn.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Longer outputs of a tool are cut in its event.
const MAX_TOOL_OUTPUT_BYTES: usize = 64 * 1024;

/// Echoed user messages are kept up to this length.
const MAX_ECHO_BYTES: usize = 1024 * 1024;

/// Everything that was read from the output so far.
#[derive(Debug, Default)]
pub(super) struct OutputTranscript {
    pub(super) events: Vec<Event>,
    /// A JSON event was read: plain lines after it are noise.
    pub(super) saw_event: bool,
    pub(super) session: Option<SessionId>,
    model: Option<String>,
    pub(super) usage: Option<Usage>,
    /// Values that the provider reports about its answer.
    pub(super) metadata: Map<String, serde_json::Value>,
    pub(super) finish: Option<Finish>,
    /// Calls that the client has to make.
    pub(super) calls: Vec<ToolCall>,
    pub(super) phases: Phases,
    used_tools: bool,
    /// The current message.
    message: MessageDraft,
    /// Text of the message before it.
    previous: Option<String>,
    /// Whole answer as the CLI reported it. It takes precedence over messages.
    pub(super) answer: Option<String>,
    /// Shown text that the CLI retracted. Text that repeats it is not shown again.
    retracted: String,
    withheld: String,
    shown: bool,
    /// Error that ended the turn.
    pub(super) error: Option<ReportedError>,
    /// The last error that the CLI tried to recover from.
    pub(super) transient_error: Option<ReportedError>,
    /// The last error of a tool. It is not an error of the turn.
    pub(super) tool_error: Option<String>,
    /// Tokens of the messages so far, for a turn that ends without a total.
    pub(super) message_usage: Option<Usage>,
    /// An event of a known type was read.
    pub(super) saw_known_event: bool,
    /// The first event of an unknown type.
    pub(super) first_unknown_event: Option<serde_json::Value>,
    /// Number of events of unknown types.
    pub(super) unknown_events: usize,
    /// Unknown types that were not reported to the caller yet.
    pub(super) unknown_kinds: Vec<String>,
    /// The terminal event of a successful turn was read.
    pub(super) completed: bool,
    /// The last step finished by itself, in a format that has no terminal event.
    pub(super) stopped: bool,
    /// The exit status decides even after a successful terminal event.
    pub(super) exit_counts: bool,
    /// The output must follow the provider protocol: other output is not an answer.
    pub(super) strict: bool,
    /// The output violates that protocol; `error` has the reason.
    pub(super) malformed: bool,
    /// The format has a terminal event: without it the output is incomplete.
    pub(super) expects_end: bool,
    /// Number of retries that the CLI reported.
    pub(super) retries: u32,
    /// The CLI retries something that cannot succeed.
    pub(super) hopeless: bool,
    /// The answer is longer than [`MAX_ANSWER_BYTES`].
    pub(super) overflow: bool,
    /// Part of the output was not kept or not complete: without a terminal event it is not an answer.
    pub(super) cut_off: bool,
    /// The user's messages as the CLI echoed them.
    pub(super) echo: String,
    /// The latest timestamp in the output, in seconds since the epoch.
    pub(super) latest_time: Option<i64>,
    pub(super) acp: AcpProgress,
}

/// Message that is being read.
#[derive(Debug, Default)]
struct MessageDraft {
    id: Option<String>,
    text: Option<String>,
    /// Length of the text that complete blocks have repeated; the rest came in deltas.
    repeated: usize,
    ansi: Ansi,
    /// Nothing of the message was shown yet: a blank line goes before its text.
    needs_gap: bool,
}

/// Message that a complete block of text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextOwner<'a> {
    /// The message with this id; a new message if there is no id.
    Message(Option<&'a str>),
    /// The message of the block before it.
    Current,
}

/// Text of deltas that a complete block repeats.
#[derive(Debug, Clone, Copy)]
enum TextRepeat {
    /// The block repeats the next `written` bytes of the deltas; its text from `rest` on is new.
    Next { written: usize, rest: usize },
    /// The block repeats later deltas: some CLIs print complete blocks out of order.
    Later,
}

/// Error as the CLI reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReportedError {
    pub(super) text: String,
    /// Category, if the event determines it.
    pub(super) category: Option<Category>,
    pub(super) status: Option<u64>,
    /// Name of the error that the CLI or the service uses.
    pub(super) kind: Option<String>,
    /// The service's name for the group of such errors, which is less specific.
    pub(super) family: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// End of a rate limit, in seconds since the epoch.
    pub(super) resets_at: Option<i64>,
}

impl OutputTranscript {
    pub(super) fn ended(&self) -> bool {
        (self.completed && !self.exit_counts) || self.error.is_some() || self.hopeless || self.overflow
    }

    /// Records the type of an unknown event.
    pub(super) fn note_unknown_kind(&mut self, kind: &str) {
        const MAX_KINDS: usize = 64;
        const MAX_KIND_BYTES: usize = 100;
        if self.unknown_kinds.len() < MAX_KINDS {
            self.unknown_kinds.push(bounded(kind, MAX_KIND_BYTES).to_owned());
        }
    }

    /// Ends the turn because the executable printed too much that is not an answer.
    pub(super) fn fail_flooded(&mut self, what: &str) {
        let text = format!("it printed {what}");
        self.error.get_or_insert(ReportedError { text, category: Some(Category::Server), ..ReportedError::default() });
    }

    /// Ends the turn because a line violates the provider protocol.
    pub(super) fn fail_malformed(&mut self, wrong: &str) {
        let text = format!("it printed a line that is not of the protocol: {wrong}");
        self.malformed = true;
        self.error = Some(ReportedError { text, category: Some(Category::Unknown), ..ReportedError::default() });
    }

    /// Records the session and the model, if they are new.
    pub(super) fn started(&mut self, session: Option<&str>, model: Option<&str>) {
        let new_session =
            session.filter(|id| !id.is_empty() && self.session.as_ref().is_none_or(|known| *known.0 != **id));
        let new_model = model.filter(|name| self.model.as_deref() != Some(*name));
        if new_session.is_none() && new_model.is_none() {
            return;
        }
        if let Some(id) = new_session {
            self.session = Some(SessionId(id.into()));
        }
        if let Some(name) = new_model {
            self.model = Some(name.to_owned());
        }
        self.events.push(Event::Started { session: self.session.clone(), model: self.model.clone() });
    }

    /// Begins a new message, unless `id` is the id of the current one.
    pub(super) fn begin_message(&mut self, id: Option<&str>) {
        if id.is_some() && self.message.id.as_deref() == id {
            return;
        }
        if let Some(text) = self.message.text.take() {
            self.previous = Some(text);
        }
        // A message that repeats retracted text continues it without a gap.
        let needs_gap = self.retracted.is_empty();
        self.message = MessageDraft { id: id.map(str::to_owned), needs_gap, ..MessageDraft::default() };
    }

    /// Adds a complete block of text, except for the part that came in deltas.
    ///
    /// Deltas are recognised by their text, not by their id: some CLIs give the complete block another id than its deltas, or
    /// none, and some do not print the start of a message.
    pub(super) fn complete_block(&mut self, owner: TextOwner<'_>, text: &str) {
        let text = crate::ansi::strip(text);
        let repeat = self.repeat_of(&text);
        if let TextOwner::Message(id) = owner
            && (id.is_none() || self.message.id.as_deref() != id)
        {
            match repeat {
                Some(TextRepeat::Next { .. }) => self.split_message(id),
                Some(TextRepeat::Later) => {}
                None => self.begin_message(id),
            }
        }
        let rest = match repeat {
            Some(TextRepeat::Next { written, rest }) => {
                self.message.repeated += written;
                rest
            }
            Some(TextRepeat::Later) => return,
            None => 0,
        };
        if repeat.is_none() || rest < text.len() {
            self.text(&text[rest..]);
            self.message.repeated = self.mark();
        }
    }

    /// Whether there is text from deltas that no complete block has repeated yet.
    pub(super) fn awaits_block(&self) -> bool {
        self.mark() > self.message.repeated
    }

    /// Returns which text of the current message a complete block repeats.
    fn repeat_of(&self, block: &str) -> Option<TextRepeat> {
        let written = self.message.text.as_deref().unwrap_or_default();
        let streamed = written.get(self.message.repeated..)?;
        if streamed.is_empty() || block.is_empty() {
            None
        } else if streamed.starts_with(block) {
            Some(TextRepeat::Next { written: block.len(), rest: block.len() })
        } else if block.starts_with(streamed) {
            Some(TextRepeat::Next { written: streamed.len(), rest: streamed.len() })
        } else if streamed.trim() == block.trim() {
            Some(TextRepeat::Next { written: streamed.len(), rest: block.len() })
        } else {
            streamed.ends_with(block).then_some(TextRepeat::Later)
        }
    }

    /// Turns the text that no complete block has repeated yet into a message of its own, because a new message begins there.
    fn split_message(&mut self, id: Option<&str>) {
        let start = std::mem::take(&mut self.message.repeated);
        if let Some(text) = &mut self.message.text
            && start > 0
        {
            let own = text.split_off(start);
            self.previous = Some(std::mem::replace(text, own));
        }
        self.message.id = id.map(str::to_owned);
    }

    /// Adds a piece of text to the current message.
    pub(super) fn text(&mut self, piece: &str) {
        let plain = self.message.ansi.push(piece);
        self.phases.spoke();
        let text = self.message.text.get_or_insert_default();
        if text.len() + plain.len() > MAX_ANSWER_BYTES {
            self.overflow = true;
            return;
        }
        text.push_str(&plain);
        if self.retracted.is_empty() {
            self.show(plain);
            return;
        }
        let now = text.clone();
        if self.retracted.starts_with(&now) {
            return;
        }
        let retracted = std::mem::take(&mut self.retracted);
        match now.strip_prefix(&retracted) {
            Some(rest) => self.show(rest.to_owned()),
            None => self.show(format!("\n\n{now}")),
        }
    }

    fn show(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        let gap = self.message.needs_gap && self.shown;
        self.message.needs_gap = false;
        self.shown = true;
        self.events.push(Event::Text { delta: if gap { format!("\n\n{text}") } else { text } });
    }

    /// Length of the current message, as a position for [`OutputTranscript::retract`].
    pub(super) fn mark(&self) -> usize {
        self.message.text.as_ref().map_or(0, String::len)
    }

    /// Retracts the text after the mark, because the CLI starts the message again.
    pub(super) fn retract(&mut self, mark: usize) {
        if let Some(text) = &mut self.message.text {
            let mark = mark.min(text.len());
            self.retracted = text.split_off(mark);
            if text.is_empty() {
                self.message.text = None;
            }
        }
        self.begin_message(None);
    }

    /// Holds back text that may be an error message. It is shown only if the turn succeeds.
    pub(super) fn withhold(&mut self, text: &str) {
        self.withheld.push_str(bounded(text, MAX_ANSWER_BYTES.saturating_sub(self.withheld.len())));
    }

    /// Text that was held back.
    pub(super) fn withheld(&self) -> &str {
        &self.withheld
    }

    /// Records a message of the user, for the estimate of its tokens.
    pub(super) fn echo(&mut self, text: &str) {
        self.echo.push_str(bounded(text, MAX_ECHO_BYTES.saturating_sub(self.echo.len())));
    }

    /// Adds the withheld text to the answer, after the turn succeeded.
    pub(super) fn release_withheld(&mut self) {
        let text = std::mem::take(&mut self.withheld);
        if !text.is_empty() {
            self.text(&text);
        }
    }

    pub(super) fn thinking(&mut self, delta: &str) {
        if !delta.is_empty() {
            self.phases.thought();
            self.events.push(Event::Thinking { delta: crate::ansi::strip(delta) });
        }
    }

    pub(super) fn used_tools(&self) -> bool {
        self.used_tools
    }

    pub(super) fn tool_started(&mut self, id: &str, name: &str, input: serde_json::Value) {
        self.phases.tool_started(id, name);
        self.used_tools = true;
        self.events.push(Event::ToolStarted { id: id.to_owned(), name: name.to_owned(), input });
    }

    pub(super) fn tool_finished(&mut self, id: &str, output: &str, ok: bool) {
        self.phases.tool_finished(id);
        let output = crate::ansi::strip(bounded(output, MAX_TOOL_OUTPUT_BYTES));
        self.events.push(Event::ToolFinished { id: id.to_owned(), output, ok });
    }

    /// The CLI began or ended compacting its context.
    pub(super) fn compacting(&mut self, begins: bool) {
        if begins && self.phases.now() != Phase::Compacting {
            self.notice("compacting its context");
        }
        self.phases.compacting(begins);
    }

    /// The CLI retries by itself after this delay.
    pub(super) fn retrying(&mut self, wait: Duration) {
        self.retries += 1;
        self.phases.retrying(wait);
    }

    pub(super) fn notice(&mut self, message: impl Into<String>) {
        self.events.push(Event::Notice { message: crate::ansi::strip(&message.into()) });
    }

    /// The final message so far.
    pub(super) fn content(&self) -> String {
        self.answer.clone().or_else(|| self.message.text.clone()).or_else(|| self.previous.clone()).unwrap_or_default()
    }

    /// Whether there was a message, even an empty one.
    pub(super) fn has_message(&self) -> bool {
        self.answer.is_some() || self.message.text.is_some() || self.previous.is_some() || !self.withheld.is_empty()
    }

    /// Whether part of the answer was shown.
    pub(super) fn shown(&self) -> bool {
        self.shown
    }

    /// Records the timestamp of an event.
    pub(super) fn note_time(&mut self, value: &Value<'_>) {
        if let Some(stamp) = value.get("timestamp").and_then(Value::as_str)
            && let Ok(time) = stamp.parse::<jiff::Timestamp>()
        {
            self.latest_time = Some(time.as_second());
        }
    }
}

/// Returns the beginning of `text`, at most `limit` bytes, without splitting a character.
pub(super) fn bounded(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
