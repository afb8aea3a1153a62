//! Decides the result of a turn at the end of its output: the answer, or the failure and its category.

use std::time::Duration;

use crate::ansi;
use crate::event::{Event, Finish, SessionId, Usage};
use crate::failure::{Category, Failure, classify, classify_session, retry_after};
use crate::parse::conclusion::{Conclusion, Context, Ending};
use crate::parse::fields;
use crate::parse::json::Value;
use crate::parse::transcript::{OutputTranscript, ReportedError, bounded};

/// Answer of a CLI that prints nothing and succeeds.
const NO_OUTPUT: &str = "No output from CLI.";

/// Wait after a rate limit that names no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// Hint for an executable that does not follow the protocol.
const PROVIDER_CHECK_HINT: &str = "trunkline provider check shows what is wrong with what it prints";

/// Longer messages of a CLI are cut.
const MAX_MESSAGE_BYTES: usize = 4000;

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
        transcript.session = session_in(&stderr.text).map(|id| SessionId(id.into()));
    }
    let failure =
        failure(transcript, context, ending, &stderr, &plain).map(|failure| with_message(failure, context, &stderr));
    if failure.is_none() {
        transcript.release_withheld();
        settle_plain_answer(transcript, plain);
    } else if !transcript.saw_event && transcript.answer.is_none() && (!stderr.text.is_empty() || was_stopped(ending)) {
        transcript.answer = Some(plain);
    } else if !transcript.saw_event {
        // The output is the message of the failure.
        transcript.answer = Some(String::new());
    }
    let content = transcript.content();
    if failure.is_none() && !transcript.shown() && !content.is_empty() {
        transcript.events.push(Event::Text { delta: content.clone() });
    }
    let question = if prompt.is_empty() { transcript.echo.as_str() } else { prompt };
    Conclusion {
        usage: transcript.usage.or(transcript.message_usage).unwrap_or_else(|| Usage::estimate(question, &content)),
        finish: transcript.finish.unwrap_or(Finish::Stop),
        session: transcript.session.clone(),
        events: std::mem::take(&mut transcript.events),
        metadata: std::mem::take(&mut transcript.metadata),
        calls: std::mem::take(&mut transcript.calls),
        content,
        failure,
    }
}

/// Gives a failure without a message the text of stderr, or a general message.
fn with_message(failure: Failure, context: &Context, stderr: &Stderr) -> Failure {
    if !failure.message.is_empty() {
        return failure;
    }
    let message = match bounded(&stderr.text, MAX_MESSAGE_BYTES) {
        "" => format!("{} failed without an error message", context.program),
        text => text.to_owned(),
    };
    Failure { message, ..failure }
}

/// Category of the failure if the output ended now.
pub(super) fn trouble(transcript: &OutputTranscript, context: &Context, stderr: &str) -> Category {
    without_event(transcript, context, &Stderr::read(stderr, &context.noise), "").category
}

/// Whether an executable may have failed only because it does not know the subcommand: its error says so, or it printed
/// nothing of the protocol and nothing about the service.
pub(super) fn may_lack_command(transcript: &OutputTranscript, context: &Context, stderr: &str, plain: &str) -> bool {
    if !transcript.strict || transcript.overflow || transcript.has_message() {
        return false;
    }
    if let Some(reported) = &transcript.error {
        return !transcript.malformed && refuses_command(&reported.text);
    }
    let failure = without_event(transcript, context, &Stderr::read(stderr, &context.noise), plain);
    match failure.category {
        Category::Unknown | Category::Validation | Category::NotFound | Category::Configuration => {
            !transcript.saw_event
        }
        Category::Quota
        | Category::RateLimit
        | Category::Authentication
        | Category::Network
        | Category::Server
        | Category::Timeout
        | Category::SchemaMismatch
        | Category::Cancelled => false,
    }
}

/// Whether an error is about the subcommand and not about the request.
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

/// Without events, the output is the answer. An empty output gets a fixed text.
fn settle_plain_answer(transcript: &mut OutputTranscript, plain: String) {
    if transcript.saw_event {
        return;
    }
    transcript.answer = Some(if plain.trim().is_empty() { NO_OUTPUT.to_owned() } else { plain });
}

/// Returns the failure of the turn, if it failed.
fn failure(
    transcript: &OutputTranscript,
    context: &Context,
    ending: Ending<'_>,
    stderr: &Stderr,
    plain: &str,
) -> Option<Failure> {
    if let Some(reported) = &transcript.error {
        let failure = from_reported(reported, transcript, context, stderr);
        return Some(if transcript.malformed { failure.hint(PROVIDER_CHECK_HINT) } else { failure });
    }
    if transcript.overflow {
        return Some(Failure::new(Category::Server, "the answer is larger than 64 MiB"));
    }
    let exit_failed = match ending {
        Ending::Code(code) => code != 0,
        Ending::Signal(_) => true,
        Ending::TimedOut(_) | Ending::Cancelled | Ending::Open => false,
    };
    if transcript.completed && !(transcript.exit_counts && exit_failed) {
        return None;
    }
    // Without events, stdout may be the error message, unless the process was stopped from outside.
    let stdout = match (transcript.saw_event, was_stopped(ending)) {
        (true, _) => transcript.withheld(),
        (false, true) => "",
        (false, false) => plain,
    };
    match ending {
        Ending::TimedOut(limit) => Some(Failure::timed_out().hint(limit)),
        Ending::Cancelled => Some(Failure::new(Category::Cancelled, "cancelled")),
        Ending::Code(0) if transcript.strict && !transcript.saw_event => {
            let failure = without_event(transcript, context, stderr, plain);
            let printed = failure.message.lines().next().map(|line| format!(", but: {line}")).unwrap_or_default();
            let message = format!("{} printed no response{printed}", context.program);
            Some(Failure { message, ..failure }.hint(PROVIDER_CHECK_HINT))
        }
        Ending::Code(0) if transcript.saw_event || transcript.cut_off => cut_short(transcript, context, stderr),
        Ending::Code(0) => None,
        Ending::Open if transcript.hopeless => Some(without_event(transcript, context, stderr, "")),
        Ending::Open => cut_short(transcript, context, stderr),
        Ending::Code(code) => {
            // A shell reports the signal that ended a process as its status.
            let signal = if (129..=143).contains(&code) { known_signal(code - 128) } else { None };
            let signal = signal.map(|name| format!(" ({name})")).unwrap_or_default();
            let ended = format!("{} ended with exit status {code}{signal}", context.program);
            Some(without_event(transcript, context, stderr, stdout).or_message(ended))
        }
        Ending::Signal(signal) => {
            let killed = format!("{} was killed by {}", context.program, signal_name(signal));
            Some(without_event(transcript, context, stderr, stdout).or_message(killed))
        }
    }
}

/// Returns the failure of a turn that ended without its terminal event, although the exit was successful.
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
    let last_error =
        transcript.transient_error.as_ref().map(|reported| &reported.text).or(transcript.tool_error.as_ref());
    let last_error = last_error.map(|text| format!("; its last error: {text}")).unwrap_or_default();
    let failure = Failure { message: message + &last_error, ..known };
    Some(if transcript.strict { failure.hint(PROVIDER_CHECK_HINT) } else { failure })
}

/// Returns the failure for a reported error. Its own text is classified first, stderr last.
fn from_reported(
    reported: &ReportedError,
    transcript: &OutputTranscript,
    context: &Context,
    stderr: &Stderr,
) -> Failure {
    let text = with_status_and_kind(reported);
    // In the provider protocol errors have their own member, so that stderr is only a log.
    let silent = Stderr::default();
    let stderr = if transcript.strict { &silent } else { stderr };
    let failure = judge(&[&text, reported.family.as_deref().unwrap_or_default()], stderr, context);
    let category = reported.category.unwrap_or(failure.category);
    let limited = matches!(category, Category::Quota | Category::RateLimit);
    let wait = reported.retry_after.or_else(|| {
        let (reset, now) = (reported.resets_at.filter(|_| limited)?, transcript.latest_time?);
        u64::try_from(reset - now).ok().map(Duration::from_secs)
    });
    let message = bounded(ansi::strip(&reported.text).trim(), MAX_MESSAGE_BYTES).to_owned();
    let wait_in_stderr = || limited.then(|| retry_after(&stderr.text)).flatten();
    let wait = wait.or(failure.retry_after).or_else(wait_in_stderr).or_else(|| default_wait(category));
    Failure { category, message, retry_after: wait, ..failure }
}

/// Returns the failure of a process that failed without an error event.
fn without_event(transcript: &OutputTranscript, context: &Context, stderr: &Stderr, stdout: &str) -> Failure {
    if let Some(reported) = error_in(&stderr.text) {
        return from_reported(&reported, transcript, context, stderr);
    }
    let transient = transcript.transient_error.as_ref().map(with_status_and_kind).unwrap_or_default();
    let message = match (&transcript.transient_error, stderr.text.is_empty()) {
        (Some(reported), true) => reported.text.clone(),
        (_, false) => stderr.text.clone(),
        (None, true) => stdout.to_owned(),
    };
    let failure = judge(&[&transient], stderr, context);
    let failure = if failure.category == Category::Unknown { judge(&[stdout], stderr, context) } else { failure };
    let wait = failure.retry_after.or_else(|| retry_after(&stderr.text)).or_else(|| default_wait(failure.category));
    Failure { message: bounded(message.trim(), MAX_MESSAGE_BYTES).to_owned(), retry_after: wait, ..failure }
}

/// Classifies the failure by the first text that matches a rule, and reads from it how long to wait. The texts are tried in this
/// order: the given ones, the line of stderr with the error, all of stderr, the log of the CLI.
fn judge(texts: &[&str], stderr: &Stderr, context: &Context) -> Failure {
    let named = error_line(&stderr.text).unwrap_or_default();
    for text in texts.iter().copied().chain([named.as_str(), &stderr.text]) {
        let (category, session_lost) = classify_session(text, &context.rules);
        if category != Category::Unknown || session_lost {
            let wait = retry_after(text).or_else(|| texts.iter().find_map(|text| retry_after(text)));
            return Failure { session_lost, ..Failure::new(category, "").retry_after(wait) };
        }
    }
    // A log contains much that does not matter: only errors of the service are taken from it.
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
        | Category::SchemaMismatch
        | Category::Cancelled => Category::Unknown,
    };
    Failure::new(category, "").retry_after(texts.iter().find_map(|text| retry_after(text)))
}

impl Failure {
    /// Adds a message to a failure without one, and classifies it if the category is unknown.
    fn or_message(mut self, message: String) -> Self {
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

/// Returns the text of an error with its status and kind, for classification.
fn with_status_and_kind(reported: &ReportedError) -> String {
    let mut text = ansi::strip(&reported.text);
    if let Some(status) = reported.status {
        text.push_str(&format!("\nstatus {status}"));
    }
    if let Some(kind) = &reported.kind {
        text.push('\n');
        text.push_str(kind);
    }
    text
}

/// Text of stderr without escape sequences, known noise and stack frames. Log lines are separate.
#[derive(Default)]
struct Stderr {
    text: String,
    log: String,
}

impl Stderr {
    fn read(stderr: &str, noise: &[String]) -> Self {
        let plain = ansi::strip(stderr);
        let (log, text): (Vec<&str>, Vec<&str>) = plain
            .lines()
            .map(str::trim_end)
            .filter(|line| !noise.iter().any(|start| line.trim_start().starts_with(start.as_str())))
            .filter(|line| !line.trim_start().starts_with("at "))
            .partition(|line| is_log_line(line));
        Self { text: text.join("\n").trim().to_owned(), log: log.join("\n") }
    }
}

/// Whether a line begins with a timestamp, such as `2026-11-15T00:37:10.808176Z ERROR module: …`.
fn is_log_line(line: &str) -> bool {
    let stamp = line.split(' ').next().unwrap_or_default();
    stamp.len() >= 20 && stamp.as_bytes()[4] == b'-' && stamp.parse::<jiff::Timestamp>().is_ok()
}

/// Returns the line of stderr with the error.
fn error_line(stderr: &str) -> Option<String> {
    let named = |line: &&str| {
        let line = line.trim_start_matches(|c: char| !c.is_alphabetic()).to_lowercase();
        ["error", "fatal", "api error", "failed"].iter().any(|word| line.starts_with(word))
    };
    let inside = |line: &&str| line.to_lowercase().contains("error:");
    stderr.lines().find(named).or_else(|| stderr.lines().find(inside)).map(str::to_owned)
}

/// Whether the process was stopped from outside, so that its output is not an error message.
fn was_stopped(ending: Ending<'_>) -> bool {
    match ending {
        Ending::Signal(_) | Ending::TimedOut(_) | Ending::Cancelled => true,
        Ending::Code(code) => (129..=143).contains(&code) && known_signal(code - 128).is_some(),
        Ending::Open => false,
    }
}

/// Returns the session id in stderr, after its label or in a JSON object with an error.
fn session_in(stderr: &str) -> Option<String> {
    let labelled = stderr.lines().find_map(|line| line.strip_prefix("session id: "));
    let plain = |id: &&str| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let reported = || {
        objects_in(stderr)
            .filter(|value| value.get("error").is_some())
            .find_map(|value| value.get("session_id").and_then(Value::as_str).map(str::to_owned))
    };
    labelled.map(str::trim).filter(plain).map(str::to_owned).or_else(reported)
}

/// Returns the JSON objects in a text.
fn objects_in(text: &str) -> impl Iterator<Item = Value<'_>> {
    text.match_indices('{')
        .filter(|(at, _)| text[at + 1..].trim_start().starts_with('"'))
        .filter_map(|(at, _)| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value<'_>>().next()?.ok())
}

/// Returns the error in a JSON object in stderr, where some CLIs print it, alone or at the end of a line.
fn error_in(stderr: &str) -> Option<ReportedError> {
    objects_in(stderr).find_map(|value| fields::error(&value))
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
