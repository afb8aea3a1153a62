//! How a turn went, when all has been said: the answer, or the failure and its category.

use std::time::Duration;

use serde_json::Value;

use crate::ansi;
use crate::event::{Event, Finish, SessionId, Usage};
use crate::failure::{Category, Failure, classify, classify_session, retry_after};
use crate::parse::conclusion::{Conclusion, Context, Ending};
use crate::parse::fields;
use crate::parse::transcript::{OutputTranscript, ReportedError, bounded};

/// What a CLI that prints nothing and succeeds is said to have answered.
const NO_OUTPUT: &str = "No output from CLI.";

/// The wait after a rate limit that names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// What to do about an executable that does not speak the protocol.
const CHECK_IT: &str = "trunkline provider check shows what is wrong with what it prints";

/// The most of a CLI's words that a failure carries.
const MAX_MESSAGE: usize = 4000;

pub(super) fn conclude(
    transcript: &mut OutputTranscript,
    context: &Context,
    ending: Ending<'_>,
    stderr: &str,
    plain: String,
    prompt: &str,
) -> Conclusion {
    let stderr = Stderr::read(stderr, &context.noise);
    if transcript.session.is_none() {
        transcript.session = session_on(&stderr.said).map(SessionId);
    }
    let failure =
        failure(transcript, context, ending, &stderr, &plain).map(|failure| worded(failure, context, &stderr));
    if failure.is_none() {
        transcript.release_withheld();
        settle_plain_answer(transcript, plain);
    } else if !transcript.seen && transcript.answer.is_none() && (!stderr.said.is_empty() || was_ended(ending)) {
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
        usage: transcript.usage.or(transcript.counted).unwrap_or_else(|| Usage::estimate(asked, &content)),
        finish: transcript.finish.unwrap_or(Finish::Stop),
        session: transcript.session.clone(),
        events: std::mem::take(&mut transcript.events),
        metadata: std::mem::take(&mut transcript.metadata),
        calls: std::mem::take(&mut transcript.calls),
        content,
        failure,
    }
}

/// A failure that says something: an error may come without a word, and what stands on stderr must do.
fn worded(failure: Failure, context: &Context, stderr: &Stderr) -> Failure {
    if !failure.message.is_empty() {
        return failure;
    }
    let message = match bounded(&stderr.said, MAX_MESSAGE) {
        "" => format!("{} failed and did not say why", context.program),
        said => said.to_owned(),
    };
    Failure { message, ..failure }
}

/// What an end now would be put down to.
pub(super) fn trouble(transcript: &OutputTranscript, context: &Context, stderr: &str) -> Category {
    without_event(transcript, context, &Stderr::read(stderr, &context.noise), "").category
}

/// Whether an executable's failed run may only mean that it does not know the command: it says so, or it said nothing of
/// the protocol and nothing that speaks of the service.
pub(super) fn may_lack_command(transcript: &OutputTranscript, context: &Context, stderr: &str, plain: &str) -> bool {
    if !transcript.strict || transcript.overflow || transcript.has_message() {
        return false;
    }
    if let Some(fault) = &transcript.fault {
        return !transcript.malformed && refuses_command(&fault.text);
    }
    let failure = without_event(transcript, context, &Stderr::read(stderr, &context.noise), plain);
    match failure.category {
        Category::Unknown | Category::Validation | Category::NotFound | Category::Configuration => !transcript.seen,
        Category::Quota
        | Category::RateLimit
        | Category::Authentication
        | Category::Network
        | Category::Server
        | Category::Timeout
        | Category::Cancelled => false,
    }
}

/// Whether an error is about the command and not about the request.
fn refuses_command(text: &str) -> bool {
    const REFUSALS: [&str; 8] = [
        "unknown",
        "unsupported",
        "not supported",
        "unrecognized",
        "unrecognised",
        "not implemented",
        "unimplemented",
        "invalid command",
    ];
    let text = text.to_lowercase();
    (text.contains("command") || text.contains("stream")) && REFUSALS.iter().any(|refusal| text.contains(refusal))
}

/// Without events the output itself is the answer, and an empty one has a wording of its own.
fn settle_plain_answer(transcript: &mut OutputTranscript, plain: String) {
    if transcript.seen {
        return;
    }
    transcript.answer = Some(if plain.trim().is_empty() { NO_OUTPUT.to_owned() } else { plain });
}

fn failure(
    transcript: &OutputTranscript,
    context: &Context,
    ending: Ending<'_>,
    stderr: &Stderr,
    plain: &str,
) -> Option<Failure> {
    if let Some(fault) = &transcript.fault {
        let failure = from_fault(fault, transcript, context, stderr);
        return Some(if transcript.malformed { failure.hint(CHECK_IT) } else { failure });
    }
    if transcript.overflow {
        return Some(Failure::new(Category::Server, "the answer is larger than 64 MiB"));
    }
    let ended_badly = match ending {
        Ending::Code(code) => code != 0,
        Ending::Signal(_) => true,
        Ending::TimedOut(_) | Ending::Cancelled | Ending::Open => false,
    };
    if transcript.completed && !(transcript.exit_counts && ended_badly) {
        return None;
    }
    // Without events, what stands on stdout may be the error; not so if somebody else ended it.
    let said = match (transcript.seen, was_ended(ending)) {
        (true, _) => transcript.withheld(),
        (false, true) => "",
        (false, false) => plain,
    };
    match ending {
        Ending::TimedOut(limit) => Some(Failure::timed_out().hint(limit)),
        Ending::Cancelled => Some(Failure::new(Category::Cancelled, "cancelled")),
        Ending::Code(0) if transcript.strict && !transcript.seen => {
            let failure = without_event(transcript, context, stderr, plain);
            let words = failure.message.lines().next().map(|line| format!(", but: {line}")).unwrap_or_default();
            let message = format!("{} printed no response{words}", context.program);
            Some(Failure { message, ..failure }.hint(CHECK_IT))
        }
        Ending::Code(0) if transcript.seen || transcript.cut_off => cut_short(transcript, context, stderr),
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
fn cut_short(transcript: &OutputTranscript, context: &Context, stderr: &Stderr) -> Option<Failure> {
    if !transcript.expects_end && !transcript.strict && !transcript.cut_off && transcript.has_message() {
        return None;
    }
    if transcript.stopped && transcript.has_message() {
        return None;
    }
    let program = &context.program;
    let message = if transcript.stopped {
        format!("{program} ended without an answer")
    } else if transcript.cut_off {
        format!("the output of {program} was cut off")
    } else {
        format!("{program} ended without its final event")
    };
    let known = without_event(transcript, context, stderr, "");
    if known.category != Category::Unknown {
        return Some(known);
    }
    let last_error = transcript.transient.as_ref().map(|fault| &fault.text).or(transcript.tool_error.as_ref());
    let last_error = last_error.map(|text| format!("; its last error: {text}")).unwrap_or_default();
    let failure = Failure { message: message + &last_error, ..known };
    Some(if transcript.strict { failure.hint(CHECK_IT) } else { failure })
}

/// The failure an error event speaks of. Its own words first, all of stderr last.
fn from_fault(fault: &ReportedError, transcript: &OutputTranscript, context: &Context, stderr: &Stderr) -> Failure {
    let text = described(fault);
    // Where an error has a place of its own, stderr is a log.
    let silent = Stderr::default();
    let stderr = if transcript.strict { &silent } else { stderr };
    let failure = judge(&[&text, fault.family.as_deref().unwrap_or_default()], stderr, context);
    let category = fault.category.unwrap_or(failure.category);
    let limited = matches!(category, Category::Quota | Category::RateLimit);
    let wait = fault.retry_after.or_else(|| {
        let (reset, now) = (fault.resets_at.filter(|_| limited)?, transcript.now?);
        u64::try_from(reset - now).ok().map(Duration::from_secs)
    });
    let message = bounded(ansi::strip(&fault.text).trim(), MAX_MESSAGE).to_owned();
    let said = || limited.then(|| retry_after(&stderr.said)).flatten();
    let wait = wait.or(failure.retry_after).or_else(said).or_else(|| default_wait(category));
    Failure { category, message, retry_after: wait, ..failure }
}

/// The failure of a process that ended badly without an event for it.
fn without_event(transcript: &OutputTranscript, context: &Context, stderr: &Stderr, stdout: &str) -> Failure {
    if let Some(fault) = reported_on(&stderr.said) {
        return from_fault(&fault, transcript, context, stderr);
    }
    let transient = transcript.transient.as_ref().map(described).unwrap_or_default();
    let message = match (&transcript.transient, stderr.said.is_empty()) {
        (Some(fault), true) => fault.text.clone(),
        (_, false) => stderr.said.clone(),
        (None, true) => stdout.to_owned(),
    };
    let failure = judge(&[&transient], stderr, context);
    let failure = if failure.category == Category::Unknown { judge(&[stdout], stderr, context) } else { failure };
    let wait = failure.retry_after.or_else(|| retry_after(&stderr.said)).or_else(|| default_wait(failure.category));
    Failure { message: bounded(message.trim(), MAX_MESSAGE).to_owned(), retry_after: wait, ..failure }
}

/// What the first words that mean anything mean, and how long they ask to wait: the given ones, then the line of stderr
/// that names the error, then all of it, then its log.
fn judge(words: &[&str], stderr: &Stderr, context: &Context) -> Failure {
    let named = error_line(&stderr.said).unwrap_or_default();
    for text in words.iter().copied().chain([named.as_str(), &stderr.said]) {
        let (category, session_lost) = classify_session(text, &context.rules);
        if category != Category::Unknown || session_lost {
            let wait = retry_after(text).or_else(|| words.iter().find_map(|words| retry_after(words)));
            return Failure { session_lost, ..Failure::new(category, "").retry_after(wait) };
        }
    }
    // A log tells of much that does not matter; only what speaks of the service is taken from it.
    let category = match classify(&stderr.log, &context.rules) {
        category @ (Category::Quota
        | Category::RateLimit
        | Category::Authentication
        | Category::Network
        | Category::Server
        | Category::Timeout) => category,
        Category::Validation
        | Category::NotFound
        | Category::Configuration
        | Category::Unknown
        | Category::Cancelled => Category::Unknown,
    };
    Failure::new(category, "").retry_after(words.iter().find_map(|text| retry_after(text)))
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
fn described(fault: &ReportedError) -> String {
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

/// What stderr says about a failure: without escapes, known noise and stack frames, its log apart.
#[derive(Default)]
struct Stderr {
    said: String,
    log: String,
}

impl Stderr {
    fn read(stderr: &str, noise: &[String]) -> Self {
        let plain = ansi::strip(stderr);
        let (log, said): (Vec<&str>, Vec<&str>) = plain
            .lines()
            .map(str::trim_end)
            .filter(|line| !noise.iter().any(|start| line.trim_start().starts_with(start.as_str())))
            .filter(|line| !line.trim_start().starts_with("at "))
            .partition(|line| is_log_line(line));
        Self { said: said.join("\n").trim().to_owned(), log: log.join("\n") }
    }
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

/// Whether it was stopped from outside, so that what it printed is no word about an error.
fn was_ended(ending: Ending<'_>) -> bool {
    match ending {
        Ending::Signal(_) | Ending::TimedOut(_) | Ending::Cancelled => true,
        Ending::Code(code) => (129..=143).contains(&code) && known_signal(code - 128).is_some(),
        Ending::Open => false,
    }
}

/// The session that stderr names, in an object of its own or after its label.
fn session_on(stderr: &str) -> Option<String> {
    let labelled = stderr.lines().find_map(|line| line.strip_prefix("session id: "));
    let plain = |id: &&str| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let reported = || {
        objects_on(stderr)
            .filter(|value| value.get("error").is_some())
            .find_map(|value| value.get("session_id").and_then(Value::as_str).map(str::to_owned))
    };
    labelled.map(str::trim).filter(plain).map(str::to_owned).or_else(reported)
}

/// The JSON objects that stand in a text.
fn objects_on(text: &str) -> impl Iterator<Item = Value> {
    text.match_indices('{')
        .filter(|(at, _)| text[at + 1..].trim_start().starts_with('"'))
        .filter_map(|(at, _)| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok())
}

/// A JSON object with an error that stands in stderr, alone or after the words of a line, as some CLIs print it there.
fn reported_on(stderr: &str) -> Option<ReportedError> {
    objects_on(stderr).find_map(|value| fields::error(&value))
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
