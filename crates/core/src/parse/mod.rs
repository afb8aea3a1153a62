//! Decoders: they turn the output of a CLI into events.
//!
//! A [`Decoder`] is pure and cannot fail. It takes bytes and returns events, and at the end a [`Conclusion`] with the result
//! of the turn. The bytes may come from a process, a recording or a test. The decoder recognises the shape of the output:
//! JSON lines, one object over many lines, or an array. If there was no JSON event, the whole output is the answer.

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
mod json;
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
pub use transcript::MAX_ANSWER_BYTES;
use transcript::OutputTranscript;

/// Output of a protocol executable that is accepted before its first message of the protocol.
const MAX_NOISE_BYTES: usize = 8 * 1024 * 1024;

/// Reads the output of one turn.
#[derive(Debug)]
pub struct Decoder {
    context: Context,
    transcript: OutputTranscript,
    source: DecoderSource,
}

/// Splitter of the output, with its parser.
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

    /// Takes the next bytes, split anywhere, and returns the events that they complete.
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
                    self.read_line(line);
                }
                if overflows && self.transcript.strict {
                    self.transcript.fail_flooded("a line of more than 16 MiB");
                }
            }
        }
        std::mem::take(&mut self.transcript.events)
    }

    /// Whether the turn is over. The process may still run.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.transcript.ended()
    }

    /// Whether the output is complete and only the exit status is missing.
    #[must_use]
    pub fn awaits_exit(&self) -> bool {
        self.transcript.exit_counts && self.transcript.completed
    }

    /// Whether the turn is over only because the CLI retries something that cannot succeed. Stderr may have the reason.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.transcript.hopeless && !self.transcript.completed && self.transcript.error.is_none()
    }

    /// Returns the unknown event types since the last call. They mean that the CLI has changed its format.
    pub fn take_strangers(&mut self) -> Vec<String> {
        std::mem::take(&mut self.transcript.unknown_kinds)
    }

    /// Number of retries by the CLI itself. Retries of the caller multiply them.
    #[must_use]
    pub fn own_retries(&self) -> u32 {
        self.transcript.retries
    }

    /// Category of the error that the CLI retries, if it has not begun to answer yet.
    #[must_use]
    pub fn trouble(&self, stderr: &str) -> Option<Category> {
        let retrying = self.transcript.retries > 0 && !self.transcript.has_message() && !self.transcript.ended();
        retrying.then(|| verdict::trouble(&self.transcript, &self.context, stderr))
    }

    /// Whether an executable may have failed only because it does not have the subcommand.
    #[must_use]
    pub fn may_lack_command(&self, stderr: &str) -> bool {
        let plain = match &self.source {
            DecoderSource::Text(_) => String::new(),
            DecoderSource::Lines { plain, .. } => plain.join("\n"),
        };
        verdict::may_lack_command(&self.transcript, &self.context, stderr, &plain)
    }

    /// Ends the turn because the caller stops waiting.
    pub fn give_up(&mut self) {
        self.transcript.hopeless = true;
    }

    /// Current phase of the turn, which determines how long it may be silent.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.ended() { Phase::Ended } else { self.transcript.phases.now() }
    }

    /// Ends the output and returns the result of the turn. The tokens of `prompt` are estimated if the CLI counts none.
    pub fn conclude(&mut self, ending: Ending<'_>, stderr: &str, prompt: &str) -> Conclusion {
        let last = match &mut self.source {
            DecoderSource::Text(_) => None,
            DecoderSource::Lines { lines, .. } => lines.finish(),
        };
        if let Some(line) = last {
            self.read_line(line);
        }
        let plain = self.plain_output();
        verdict::conclude(&mut self.transcript, &self.context, ending, stderr, plain, prompt)
    }

    fn read_line(&mut self, line: OutputLine) {
        let DecoderSource::Lines { dialect, plain, plain_bytes, .. } = &mut self.source else { return };
        let line = match line {
            OutputLine::Whole(line) => line,
            OutputLine::Overlong { head, bytes } => {
                if self.transcript.strict {
                    self.transcript.fail_flooded("a line of more than 16 MiB");
                }
                let line = format!("{head}… [a line of {bytes} bytes was left out]");
                self.transcript.cut_off = true;
                self.transcript.events.push(Event::Unknown { line });
                return;
            }
        };
        let line = if line.contains('\u{1b}') { ansi::strip(&line) } else { line };
        if dialect.whole_only() || !dialect.read_line(&line, &mut self.transcript) {
            if self.transcript.saw_event {
                if !line.trim().is_empty() {
                    self.transcript.events.push(Event::Unknown { line });
                }
            } else if self.transcript.strict && *plain_bytes > MAX_NOISE_BYTES && !is_document(plain) {
                self.transcript.fail_flooded("more than 8 MiB that is not an answer");
            } else if *plain_bytes + line.len() <= MAX_ANSWER_BYTES {
                *plain_bytes += line.len() + 1;
                plain.push(line);
            } else {
                self.transcript.overflow = true;
            }
        } else if !plain.is_empty() {
            let noise = plain.drain(..).filter(|line| !line.trim().is_empty()).map(|line| Event::Unknown { line });
            self.transcript.events.splice(0..0, noise);
        }
    }

    /// Returns the output outside of events as plain text, unless it is one JSON document.
    fn plain_output(&mut self) -> String {
        // A single event of an unknown type, and nothing else, may be a whole response.
        if !self.transcript.saw_known_event
            && self.transcript.unknown_events == 1
            && let Some(value) = self.transcript.first_unknown_event.take()
        {
            fields::whole_response(&(&value).into(), &mut self.transcript);
        }
        match &mut self.source {
            DecoderSource::Text(text) => text.finish(&mut self.transcript),
            DecoderSource::Lines { dialect, plain, .. } => {
                let output = std::mem::take(plain).join("\n");
                if !self.transcript.saw_event && dialect.read_document(&output, &mut self.transcript) {
                    return String::new();
                }
                text::normalized(output, self.context.normalize)
            }
        }
    }
}

/// Whether plain lines may be one JSON value over many lines.
fn is_document(lines: &[String]) -> bool {
    lines.iter().find(|line| !line.trim().is_empty()).is_some_and(|line| line.trim_start().starts_with(['{', '[']))
}

#[cfg(test)]
mod tests;
