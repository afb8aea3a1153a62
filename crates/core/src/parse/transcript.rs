//! What has been understood so far: the state every dialect writes to, and the rules all of them share.
//!
//! Two rules live here. Text is shown once: a whole message that repeats its own deltas adds nothing, whatever ids both
//! carry ([`OutputTranscript::whole`]). And text that turns out to be an error's wording is never shown: dialects hand it to
//! [`OutputTranscript::withhold`].

use std::time::Duration;

use serde_json::{Map, Value};

use crate::ansi::Ansi;
use crate::event::{Event, Finish, SessionId, ToolCall, Usage};
use crate::failure::Category;
use crate::parse::acp_calls::AcpProgress;
use crate::phase::{Phase, Phases};

/// The longest answer that is kept.
pub const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// The most of a tool's output that an event carries.
const MAX_TOOL_OUTPUT: usize = 64 * 1024;

/// The most of a user's echoed words that is kept.
const MAX_ECHO: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct OutputTranscript {
    pub(super) events: Vec<Event>,
    /// A JSON event was seen: from here on plain lines are noise.
    pub(super) seen: bool,
    pub(super) session: Option<SessionId>,
    model: Option<String>,
    pub(super) usage: Option<Usage>,
    /// What the provider says about its answer.
    pub(super) metadata: Map<String, Value>,
    pub(super) finish: Option<Finish>,
    /// Calls that the client is asked to make.
    pub(super) calls: Vec<ToolCall>,
    pub(super) phases: Phases,
    tools: bool,
    /// The message that is being written.
    message: MessageDraft,
    /// The last message before it.
    previous: Option<String>,
    /// The CLI's own word for the whole answer: wins over messages.
    pub(super) answer: Option<String>,
    /// AnswerTiming text that the CLI took back: what repeats it is not shown again.
    retracted: String,
    withheld: String,
    shown: bool,
    /// The error that ended the turn.
    pub(super) fault: Option<ReportedError>,
    /// The last error the CLI meant to get over.
    pub(super) transient: Option<ReportedError>,
    /// The last error of a tool: what it says is about the tool.
    pub(super) tool_error: Option<String>,
    /// Tokens of the messages so far, for an end without a sum.
    pub(super) counted: Option<Usage>,
    /// An event that some dialect knows was seen.
    pub(super) known: bool,
    /// The first event of a type nobody knows, and how many there were.
    pub(super) stranger: Option<Value>,
    pub(super) strangers: usize,
    /// Their types, since they were last asked for.
    pub(super) strange_kinds: Vec<String>,
    /// The terminal event of a turn that went well.
    pub(super) completed: bool,
    /// The last step stopped by itself, in a dialect whose end is the end of the output.
    pub(super) stopped: bool,
    /// A bad exit status undoes a good end.
    pub(super) exit_counts: bool,
    /// It speaks the provider protocol: nothing else that it prints is an answer.
    pub(super) strict: bool,
    /// It broke that protocol, and the fault says how.
    pub(super) malformed: bool,
    /// The dialect ends its turns with an event; without one the output is cut off.
    pub(super) expects_end: bool,
    /// How often the CLI has said that it tries again by itself.
    pub(super) retries: u32,
    /// The CLI keeps trying what cannot succeed.
    pub(super) hopeless: bool,
    pub(super) overflow: bool,
    /// Something was printed that could not be kept or was not whole: without an end, it is no answer.
    pub(super) cut_off: bool,
    /// The user's own words as the CLI echoed them.
    pub(super) echo: String,
    /// The latest time stamp the CLI printed, in seconds since the epoch.
    pub(super) now: Option<i64>,
    pub(super) acp: AcpProgress,
}

#[derive(Debug, Default)]
struct MessageDraft {
    id: Option<String>,
    text: Option<String>,
    /// Length of the text that a whole message has repeated; deltas wrote the rest.
    repeated: usize,
    ansi: Ansi,
    fresh: bool,
}

/// The message that a whole block of text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextOwner<'a> {
    /// The message with this id; without one, a message of its own.
    Message(Option<&'a str>),
    /// The message that the block before it belongs to.
    Present,
}

/// How a whole block of text relates to what deltas wrote.
#[derive(Debug, Clone, Copy)]
enum TextRepeat {
    /// It repeats this many bytes of what comes next, and has something new from `rest` on.
    Next { written: usize, rest: usize },
    /// It repeats a later block: some wholes come out of order.
    Later,
}

/// An error as the CLI reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReportedError {
    pub(super) text: String,
    /// What it means, where the CLI says so itself.
    pub(super) category: Option<Category>,
    pub(super) status: Option<u64>,
    /// The CLI's or the service's own name for it.
    pub(super) kind: Option<String>,
    /// The service's name for the family of such errors, which says less.
    pub(super) family: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// When the limit ends, in seconds since the epoch.
    pub(super) resets_at: Option<i64>,
}

impl OutputTranscript {
    pub(super) fn ended(&self) -> bool {
        (self.completed && !self.exit_counts) || self.fault.is_some() || self.hopeless || self.overflow
    }

    /// An event of a type that nobody knows.
    pub(super) fn strange(&mut self, kind: &str) {
        const MANY: usize = 64;
        if self.strange_kinds.len() < MANY {
            self.strange_kinds.push(bounded(kind, 100).to_owned());
        }
    }

    /// It printed what no answer is: nobody waits for the rest.
    pub(super) fn flooded(&mut self, what: &str) {
        let text = format!("it printed {what}");
        self.fault.get_or_insert(ReportedError { text, category: Some(Category::Server), ..ReportedError::default() });
    }

    /// A line breaks the provider protocol: the answer is not to be trusted.
    pub(super) fn malformed(&mut self, wrong: &str) {
        let text = format!("it printed a line that is not of the protocol: {wrong}");
        self.malformed = true;
        self.fault = Some(ReportedError { text, category: Some(Category::Unknown), ..ReportedError::default() });
    }

    pub(super) fn started(&mut self, session: Option<&str>, model: Option<&str>) {
        let new_session =
            session.filter(|id| !id.is_empty() && self.session.as_ref().is_none_or(|known| known.0 != **id));
        let new_model = model.filter(|name| self.model.as_deref() != Some(*name));
        if new_session.is_none() && new_model.is_none() {
            return;
        }
        if let Some(id) = new_session {
            self.session = Some(SessionId(id.to_owned()));
        }
        if let Some(name) = new_model {
            self.model = Some(name.to_owned());
        }
        self.events.push(Event::Started { session: self.session.clone(), model: self.model.clone() });
    }

    /// A new message begins, unless `id` is the one being written.
    pub(super) fn begin_message(&mut self, id: Option<&str>) {
        if id.is_some() && self.message.id.as_deref() == id {
            return;
        }
        if let Some(text) = self.message.text.take() {
            self.previous = Some(text);
        }
        // A message that repeats what was taken back goes on with it: no gap between them.
        let fresh = self.retracted.is_empty();
        self.message = MessageDraft { id: id.map(str::to_owned), fresh, ..MessageDraft::default() };
    }

    /// A whole block of text: adds what its deltas have not.
    ///
    /// Deltas are recognised by what they say, not by their id: some CLIs give the whole another id than the deltas, or
    /// none, and some print no start of a message.
    pub(super) fn whole(&mut self, of: TextOwner<'_>, text: &str) {
        let text = crate::ansi::strip(text);
        let repeat = self.repeat_of(&text);
        if let TextOwner::Message(id) = of
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

    /// Whether deltas have written text that no whole message has repeated yet.
    pub(super) fn awaits_whole(&self) -> bool {
        self.mark() > self.message.repeated
    }

    /// What a whole block repeats of the present message, if anything.
    fn repeat_of(&self, whole: &str) -> Option<TextRepeat> {
        let written = self.message.text.as_deref().unwrap_or_default();
        let streamed = written.get(self.message.repeated..)?;
        if streamed.is_empty() || whole.is_empty() {
            None
        } else if streamed.starts_with(whole) {
            Some(TextRepeat::Next { written: whole.len(), rest: whole.len() })
        } else if whole.starts_with(streamed) {
            Some(TextRepeat::Next { written: streamed.len(), rest: streamed.len() })
        } else if streamed.trim() == whole.trim() {
            Some(TextRepeat::Next { written: streamed.len(), rest: whole.len() })
        } else {
            streamed.ends_with(whole).then_some(TextRepeat::Later)
        }
    }

    /// Makes what no whole message has repeated yet a message of its own: a whole one says that it begins there.
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

    /// A piece of the present message.
    pub(super) fn text(&mut self, piece: &str) {
        let plain = self.message.ansi.push(piece);
        self.phases.spoke();
        let text = self.message.text.get_or_insert_default();
        if text.len() + plain.len() > MAX_ANSWER {
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
        let gap = self.message.fresh && self.shown;
        self.message.fresh = false;
        self.shown = true;
        self.events.push(Event::Text { delta: if gap { format!("\n\n{text}") } else { text } });
    }

    /// The length of the present message, to go back to with [`OutputTranscript::retract`].
    pub(super) fn mark(&self) -> usize {
        self.message.text.as_ref().map_or(0, String::len)
    }

    /// The CLI takes back what it wrote since the mark: the next try begins anew.
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

    /// Text that may turn out to be an error: shown only if the turn ends well.
    pub(super) fn withhold(&mut self, text: &str) {
        self.withheld.push_str(bounded(text, MAX_ANSWER.saturating_sub(self.withheld.len())));
    }

    /// What may be the error of a turn that ended badly.
    pub(super) fn withheld(&self) -> &str {
        &self.withheld
    }

    /// The user's own words, as far as an estimate of them needs.
    pub(super) fn echo(&mut self, text: &str) {
        self.echo.push_str(bounded(text, MAX_ECHO.saturating_sub(self.echo.len())));
    }

    /// The turn ended well: what was withheld was an answer after all.
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
        self.tools
    }

    pub(super) fn tool_started(&mut self, id: &str, name: &str, input: Value) {
        self.phases.tool_started(id, name);
        self.tools = true;
        self.events.push(Event::ToolStarted { id: id.to_owned(), name: name.to_owned(), input });
    }

    pub(super) fn tool_finished(&mut self, id: &str, output: &str, ok: bool) {
        self.phases.tool_finished(id);
        let output = crate::ansi::strip(bounded(output, MAX_TOOL_OUTPUT));
        self.events.push(Event::ToolFinished { id: id.to_owned(), output, ok });
    }

    /// It makes its context shorter, or has done so.
    pub(super) fn compacting(&mut self, begins: bool) {
        if begins && self.phases.now() != Phase::Compacting {
            self.notice("compacting its context");
        }
        self.phases.compacting(begins);
    }

    /// It tries again by itself, after this time.
    pub(super) fn retrying(&mut self, wait: Duration) {
        self.retries += 1;
        self.phases.retrying(wait);
    }

    pub(super) fn notice(&mut self, message: impl Into<String>) {
        self.events.push(Event::Notice { message: crate::ansi::strip(&message.into()) });
    }

    /// The final message as far as it is known.
    pub(super) fn content(&self) -> String {
        self.answer.clone().or_else(|| self.message.text.clone()).or_else(|| self.previous.clone()).unwrap_or_default()
    }

    /// Whether any message, even an empty one, was written.
    pub(super) fn has_message(&self) -> bool {
        self.answer.is_some() || self.message.text.is_some() || self.previous.is_some() || !self.withheld.is_empty()
    }

    /// Whether anything of the answer went out as it came.
    pub(super) fn shown(&self) -> bool {
        self.shown
    }

    /// Notes the time of an event that carries one.
    pub(super) fn at(&mut self, value: &Value) {
        if let Some(stamp) = value.get("timestamp").and_then(Value::as_str)
            && let Ok(time) = stamp.parse::<jiff::Timestamp>()
        {
            self.now = Some(time.as_second());
        }
    }
}

/// The beginning of `text`, at most `limit` bytes, never splitting a character.
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
