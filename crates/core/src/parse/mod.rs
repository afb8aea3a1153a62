//! What a CLI prints, as events.
//!
//! A decoder is pure and cannot fail: bytes in, events out, and at the end a [`Conclusion`] that says how it went. It
//! never knows who feeds it: a process, a recording, a test. The shape is recognised as it comes: JSON lines, one
//! object over many lines, an array; if no JSON event was seen, the whole output is the answer.

mod acp;
mod acp_calls;
mod app_server;
mod ax;
mod claude;
mod codex;
mod conclusion;
mod dialect;
mod fields;
mod format;
mod gemini;
mod opencode;
mod protocol;
mod text;
mod transcript;
mod verdict;

use crate::ansi;
use crate::event::Event;
use crate::failure::Category;
use crate::lines::{Lines, OutputLine};
use crate::phase::Phase;
use crate::vocabulary::OutputForm;
pub use conclusion::{Conclusion, Context, Ending};
use dialect::DialectParser;
pub use format::Format;
pub use transcript::MAX_ANSWER;
use transcript::OutputTranscript;

/// The most that is read of a protocol executable before its first word of the protocol.
const MAX_NOISE: usize = 8 * 1024 * 1024;

/// Reads what one process prints.
#[derive(Debug)]
pub struct Decoder {
    context: Context,
    transcript: OutputTranscript,
    source: DecoderSource,
}

#[derive(Debug)]
enum DecoderSource {
    Text(text::TextParser),
    Lines { lines: Lines, dialect: DialectParser, plain: Vec<String>, plain_bytes: usize },
}

impl Decoder {
    #[must_use]
    pub fn new(format: Format, context: Context) -> Self {
        let source = match DialectParser::of(format) {
            None => DecoderSource::Text(text::TextParser::new(context.normalize)),
            Some(dialect) => {
                DecoderSource::Lines { lines: Lines::default(), dialect, plain: Vec::new(), plain_bytes: 0 }
            }
        };
        let mut transcript = OutputTranscript::default();
        transcript.strict = format == Format::Protocol;
        transcript.exit_counts = transcript.strict || context.form == OutputForm::Whole;
        Self { context, transcript, source }
    }

    /// Takes the next bytes, cut anywhere, and returns the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        if !bytes.is_empty() {
            self.transcript.phases.heard();
        }
        match &mut self.source {
            DecoderSource::Text(text) => text.push(bytes, &mut self.transcript),
            DecoderSource::Lines { lines, .. } => {
                let mut complete = Vec::new();
                lines.push(bytes, |line| complete.push(line));
                let overflows = lines.overflows();
                for line in complete {
                    self.line(line);
                }
                if overflows && self.transcript.strict {
                    self.transcript.flooded("a line of more than 16 MiB");
                }
            }
        }
        std::mem::take(&mut self.transcript.events)
    }

    /// Whether the turn is over although the process may not be.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.transcript.ended()
    }

    /// Whether all has been said and only the exit status is awaited.
    #[must_use]
    pub fn awaits_exit(&self) -> bool {
        self.transcript.exit_counts && self.transcript.completed
    }

    /// Whether it is over only because the CLI keeps trying what cannot succeed: why, stderr may say.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.transcript.hopeless && !self.transcript.completed && self.transcript.fault.is_none()
    }

    /// The types of events that nobody knows, since the last time this was asked: the CLI has changed its words.
    pub fn take_strangers(&mut self) -> Vec<String> {
        std::mem::take(&mut self.transcript.strange_kinds)
    }

    /// How often the CLI has tried again by itself: who does so as well multiplies it.
    #[must_use]
    pub fn own_retries(&self) -> u32 {
        self.transcript.retries
    }

    /// What it struggles with, if it tries again and has said nothing else yet.
    #[must_use]
    pub fn trouble(&self, stderr: &str) -> Option<Category> {
        let struggles = self.transcript.retries > 0 && !self.transcript.has_message() && !self.transcript.ended();
        struggles.then(|| verdict::trouble(&self.transcript, &self.context, stderr))
    }

    /// Whether an executable that has failed may only lack the command it was given.
    #[must_use]
    pub fn may_lack_command(&self, stderr: &str) -> bool {
        let plain = match &self.source {
            DecoderSource::Text(_) => String::new(),
            DecoderSource::Lines { plain, .. } => plain.join("\n"),
        };
        verdict::may_lack_command(&self.transcript, &self.context, stderr, &plain)
    }

    /// It is not waited for any longer.
    pub fn give_up(&mut self) {
        self.transcript.hopeless = true;
    }

    /// What it is doing: silence does not always mean the same.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.ended() { Phase::Ended } else { self.transcript.phases.now() }
    }

    /// The end of the output. `prompt` is what was asked, for an estimate of its tokens.
    pub fn conclude(&mut self, ending: Ending<'_>, stderr: &str, prompt: &str) -> Conclusion {
        let last = match &mut self.source {
            DecoderSource::Text(_) => None,
            DecoderSource::Lines { lines, .. } => lines.finish(),
        };
        if let Some(line) = last {
            self.line(line);
        }
        let plain = self.plain_output();
        verdict::conclude(&mut self.transcript, &self.context, ending, stderr, plain, prompt)
    }

    fn line(&mut self, line: OutputLine) {
        let DecoderSource::Lines { dialect, plain, plain_bytes, .. } = &mut self.source else { return };
        let line = match line {
            OutputLine::Whole(line) => line,
            OutputLine::Overlong { head, bytes } => {
                if self.transcript.strict {
                    self.transcript.flooded("a line of more than 16 MiB");
                }
                let line = format!("{head}… [a line of {bytes} bytes was left out]");
                self.transcript.cut_off = true;
                self.transcript.events.push(Event::Unknown { line });
                return;
            }
        };
        let line = ansi::strip(&line);
        if dialect.whole_only() || !dialect.json(&line, &mut self.transcript) {
            if self.transcript.seen {
                if !line.trim().is_empty() {
                    self.transcript.events.push(Event::Unknown { line });
                }
            } else if self.transcript.strict && *plain_bytes > MAX_NOISE && !is_document(plain) {
                self.transcript.flooded("more than 8 MiB that is no answer");
            } else if *plain_bytes + line.len() <= MAX_ANSWER {
                *plain_bytes += line.len() + 1;
                plain.push(line);
            } else {
                self.transcript.overflow = true;
            }
        } else if !plain.is_empty() {
            let noise = plain.drain(..).filter(|line| !line.trim().is_empty()).map(|line| Event::Unknown { line });
            let at = 0;
            self.transcript.events.splice(at..at, noise);
        }
    }

    /// What was printed outside of events: a document in one piece, or plain text.
    fn plain_output(&mut self) -> String {
        // One event of a type nobody knows, and nothing else: somebody's response.
        if !self.transcript.known
            && self.transcript.strangers == 1
            && let Some(value) = self.transcript.stranger.take()
        {
            fields::whole(&value, &mut self.transcript);
        }
        match &mut self.source {
            DecoderSource::Text(text) => text.finish(&mut self.transcript),
            DecoderSource::Lines { dialect, plain, .. } => {
                let output = std::mem::take(plain).join("\n");
                if !self.transcript.seen && dialect.document(&output, &mut self.transcript) {
                    return String::new();
                }
                text::normalized(output, self.context.normalize)
            }
        }
    }
}

/// Whether plain lines are those of one JSON value, printed over many.
fn is_document(lines: &[String]) -> bool {
    lines.iter().find(|line| !line.trim().is_empty()).is_some_and(|line| line.trim_start().starts_with(['{', '[']))
}

#[cfg(test)]
mod tests;
