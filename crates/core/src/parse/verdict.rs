//! How a turn went, when all has been said: the answer, or the failure and its category.

use std::time::Duration;

use serde_json::Value;

use crate::ansi;
use crate::event::{Event, Finish, Usage};
use crate::failure::{Category, Failure, classify, retry_after};
use crate::parse::transcript::{Fault, Transcript, bounded};
use crate::parse::{Conclusion, Context, Ending, fields};

/// What a CLI that prints nothing and succeeds is said to have answered.
const NO_OUTPUT: &str = "No output from CLI.";

/// The wait after a rate limit that names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// The most of a CLI's words that a failure carries.
const MAX_MESSAGE: usize = 4000;

pub(super) fn conclude(
    transcript: &mut Transcript,
    context: &Context,
    ending: Ending,
    stderr: &str,
    plain: String,
    prompt: &str,
) -> Conclusion {
    let stderr = meaningful(stderr, &context.noise);
    let failure = failure(transcript, context, ending, &stderr, &plain);
    if failure.is_none() {
        transcript.release_withheld();
        settle_plain_answer(transcript, plain);
    } else if !transcript.seen && transcript.answer.is_none() && !stderr.is_empty() {
        transcript.answer = Some(plain);
    } else if !transcript.seen {
        // The only words there were are the failure's.
        transcript.answer = Some(String::new());
    }
    let content = transcript.content();
    if failure.is_none() && !transcript.shown() && !content.is_empty() {
        transcript.events.push(Event::Text { delta: content.clone() });
    }
    let asked = if prompt.is_empty() { transcript.echo.as_str() } else { prompt };
    Conclusion {
        usage: transcript.usage.unwrap_or_else(|| Usage::estimate(asked, &content)),
        finish: transcript.finish.unwrap_or(Finish::Stop),
        session: transcript.session.clone(),
        events: std::mem::take(&mut transcript.events),
        content,
        failure,
    }
}

/// Without events the output itself is the answer, and an empty one has a wording of its own.
fn settle_plain_answer(transcript: &mut Transcript, plain: String) {
    if transcript.seen {
        return;
    }
    transcript.answer = Some(if plain.trim().is_empty() { NO_OUTPUT.to_owned() } else { plain });
}

fn failure(transcript: &Transcript, context: &Context, ending: Ending, stderr: &str, plain: &str) -> Option<Failure> {
    if let Some(fault) = &transcript.fault {
        return Some(from_fault(fault, transcript, context, stderr));
    }
    if transcript.overflow {
        return Some(Failure::new(Category::Validation, "the answer is larger than 64 MiB"));
    }
    if transcript.completed {
        return None;
    }
    // Without events, what stands on stdout may be the error.
    let said = if transcript.seen { "" } else { plain };
    match ending {
        Ending::TimedOut(limit) => Some(Failure::timed_out().hint(limit)),
        Ending::Cancelled => Some(Failure::new(Category::Cancelled, "cancelled")),
        Ending::Code(0) if transcript.seen => cut_short(transcript, context, stderr),
        Ending::Code(0) => None,
        Ending::Open if transcript.hopeless => Some(without_event(transcript, context, stderr, "")),
        Ending::Open => cut_short(transcript, context, stderr),
        Ending::Code(code) => {
            // A shell's way of saying that a signal ended it.
            let signal = if (129..=143).contains(&code) { known_signal(code - 128) } else { None };
            let signal = signal.map(|name| format!(" ({name})")).unwrap_or_default();
            let ended = format!("{} ended with exit status {code}{signal}", context.program);
            Some(without_event(transcript, context, stderr, said).or_say(ended))
        }
        Ending::Signal(signal) => {
            let killed = format!("{} was killed by {}", context.program, signal_name(signal));
            Some(without_event(transcript, context, stderr, said).or_say(killed))
        }
    }
}

/// A successful exit after events: a failure if the last of them never came.
fn cut_short(transcript: &Transcript, context: &Context, stderr: &str) -> Option<Failure> {
    if !transcript.expects_end && transcript.has_message() {
        return None;
    }
    if transcript.stopped && transcript.has_message() {
        return None;
    }
    let program = &context.program;
    let message = if transcript.stopped {
        format!("{program} ended without an answer")
    } else {
        format!("{program} ended without its final event")
    };
    let known = without_event(transcript, context, stderr, "");
    if known.category != Category::Unknown {
        return Some(known);
    }
    let last_error = transcript.transient.as_ref().map(|fault| format!("; its last error: {}", fault.text));
    Some(Failure { message: message + &last_error.unwrap_or_default(), ..known })
}

/// The failure an error event speaks of. Its own words first, all of stderr last.
fn from_fault(fault: &Fault, transcript: &Transcript, context: &Context, stderr: &str) -> Failure {
    let text = described(fault);
    let mut category = fault.category.unwrap_or_else(|| classify(&text, &context.rules));
    if category == Category::Unknown {
        category = classify(&error_line(stderr).unwrap_or_default(), &context.rules);
    }
    let wait = fault
        .retry_after
        .or_else(|| {
            let (reset, now) = (fault.resets_at?, transcript.now?);
            u64::try_from(reset - now).ok().map(Duration::from_secs)
        })
        .or_else(|| retry_after(&text));
    let message = bounded(ansi::strip(&fault.text).trim(), MAX_MESSAGE).to_owned();
    Failure::new(category, message).retry_after(wait.or_else(|| default_wait(category)))
}

/// The failure of a process that ended badly without an event for it.
fn without_event(transcript: &Transcript, context: &Context, stderr: &str, stdout: &str) -> Failure {
    if let Some(fault) = reported_on(stderr) {
        return from_fault(&fault, transcript, context, stderr);
    }
    let transient = transcript.transient.as_ref().map(described);
    let message = match (&transcript.transient, stderr.is_empty()) {
        (Some(fault), true) => fault.text.clone(),
        (_, false) => stderr.to_owned(),
        (None, true) => stdout.to_owned(),
    };
    let texts = [transient, error_line(stderr), Some(stderr.to_owned()), Some(stdout.to_owned())];
    let texts: Vec<String> = texts.into_iter().flatten().collect();
    let category = texts
        .iter()
        .map(|text| classify(text, &context.rules))
        .find(|category| *category != Category::Unknown)
        .unwrap_or(Category::Unknown);
    let wait = texts.iter().find_map(|text| retry_after(text)).or_else(|| default_wait(category));
    Failure::new(category, bounded(message.trim(), MAX_MESSAGE)).retry_after(wait)
}

impl Failure {
    /// Gives a failure without words or meaning these.
    fn or_say(mut self, message: String) -> Self {
        if self.category == Category::Unknown {
            self.category = classify(&message, &[]);
        }
        if self.message.is_empty() {
            self.message = message;
        }
        self
    }
}

fn default_wait(category: Category) -> Option<Duration> {
    (category == Category::RateLimit).then_some(DEFAULT_WAIT)
}

/// A fault's text with its status and kind, as the patterns read them.
fn described(fault: &Fault) -> String {
    let mut text = ansi::strip(&fault.text);
    if let Some(status) = fault.status {
        text.push_str(&format!("\nstatus {status}"));
    }
    if let Some(kind) = &fault.kind {
        text.push('\n');
        text.push_str(kind);
    }
    text
}

/// What stderr says about a failure: without escapes, known noise, log lines and stack frames.
fn meaningful(stderr: &str, noise: &[String]) -> String {
    let plain = ansi::strip(stderr);
    let kept: Vec<&str> = plain
        .lines()
        .map(str::trim_end)
        .filter(|line| !noise.iter().any(|start| line.trim_start().starts_with(start.as_str())))
        .filter(|line| !line.trim_start().starts_with("at ") && !is_log_line(line))
        .collect();
    kept.join("\n").trim().to_owned()
}

/// `2026-11-15T00:37:10.808176Z ERROR module: …`: a log, whatever it says.
fn is_log_line(line: &str) -> bool {
    let stamp = line.split(' ').next().unwrap_or_default();
    stamp.len() >= 20 && stamp.as_bytes()[4] == b'-' && stamp.parse::<jiff::Timestamp>().is_ok()
}

/// The line of stderr that names the error.
fn error_line(stderr: &str) -> Option<String> {
    let named = |line: &&str| {
        let line = line.trim_start_matches(|c: char| !c.is_alphabetic()).to_lowercase();
        ["error", "fatal", "api error", "failed"].iter().any(|word| line.starts_with(word))
    };
    let inside = |line: &&str| line.to_lowercase().contains("error:");
    stderr.lines().find(named).or_else(|| stderr.lines().find(inside)).map(str::to_owned)
}

/// A JSON object with an error that stands in stderr, alone or after the words of a line, as some CLIs print it there.
fn reported_on(stderr: &str) -> Option<Fault> {
    stderr.match_indices('{').filter(|(at, _)| stderr[at + 1..].trim_start().starts_with('"')).find_map(|(at, _)| {
        let mut values = serde_json::Deserializer::from_str(&stderr[at..]).into_iter::<Value>();
        fields::error(&values.next()?.ok()?)
    })
}

fn signal_name(signal: i32) -> String {
    known_signal(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

fn known_signal(signal: i32) -> Option<&'static str> {
    match signal {
        1 => Some("SIGHUP"),
        2 => Some("SIGINT"),
        6 => Some("SIGABRT"),
        9 => Some("SIGKILL"),
        11 => Some("SIGSEGV"),
        15 => Some("SIGTERM"),
        _ => None,
    }
}
