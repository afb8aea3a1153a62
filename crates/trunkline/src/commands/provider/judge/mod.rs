//! Judges an execution by the protocol. Pure: bytes and an exit status in, findings out.

mod finding;
mod members;
mod object;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Duration;

use trunkline_process::ProcessExit;

use finding::merge_repeated;
pub(super) use finding::{FindingSeverity, ProtocolFinding};
use members::{JsonObject, check, error_of, excerpt};
use stream::OutputObject;

/// Record of one execution of the provider.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) ended: ExecutionEnd,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) elapsed: Duration,
    /// Time of the first byte of stdout.
    pub(super) first_output: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecutionEnd {
    Exit(ProcessExit),
    TimedOut(Duration),
    /// It printed more than the limit.
    TooLong,
}

/// Expected form of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdoutForm {
    /// Anything: `health`.
    Free,
    /// One object: `generate`.
    Object,
    /// One object per line: `stream`.
    Lines,
}

/// Expected outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedOutcome {
    Healthy,
    Answer,
    /// An answer, or a failure that is reported as the protocol says: not every model accepts every request.
    AnswerOrRefusal,
    /// A failure, reported in `error`.
    Failure,
    /// A failure, reported in any way.
    Misuse,
}

/// All findings about one execution, in the order of stdout.
pub(super) fn judge(expect: ExpectedOutcome, form: StdoutForm, seen: &Observation) -> Vec<ProtocolFinding> {
    let exit = match seen.ended {
        ExecutionEnd::Exit(exit) => exit,
        ExecutionEnd::TimedOut(limit) => {
            let fix = "exit after the answer; read stdin to its end, and wait for nothing else; a slow model needs a longer --timeout";
            return vec![ProtocolFinding::fail(format!("still running after {limit:?}"), "an end", fix)];
        }
        ExecutionEnd::TooLong => {
            let fix = "stop after the answer; for a stream, one line for each piece of it";
            return vec![ProtocolFinding::fail("more than 8 MiB on stdout", "an answer of reasonable size", fix)];
        }
    };
    let findings = match (expect, form) {
        (ExpectedOutcome::Healthy, _) | (_, StdoutForm::Free) => healthy(exit, seen),
        (ExpectedOutcome::Answer | ExpectedOutcome::AnswerOrRefusal, _) => answered(expect, form, exit, seen),
        (ExpectedOutcome::Failure | ExpectedOutcome::Misuse, _) => failed(expect, form, exit, seen),
    };
    merge_repeated(findings)
}

fn healthy(exit: ProcessExit, seen: &Observation) -> Vec<ProtocolFinding> {
    if exit.success() {
        return Vec::new();
    }
    let stdout = String::from_utf8_lossy(&seen.stdout);
    let printed = stdout.lines().chain(seen.stderr.lines()).find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let found = format!("{}, and it printed: {}", exit_text(exit), excerpt(printed));
    vec![ProtocolFinding::fail(
        found,
        "exit status 0",
        "exit 0 when the provider can answer; if it cannot, fix that first",
    )]
}

fn answered(expect: ExpectedOutcome, form: StdoutForm, exit: ProcessExit, seen: &Observation) -> Vec<ProtocolFinding> {
    let (chunks, mut findings) = read(form, &seen.stdout);
    let mut error = None;
    for chunk in &chunks {
        match error_of(&chunk.object) {
            Ok(text) => error = error.or(text.map(|text| (chunk.line, text))),
            Err(finding) => findings.push(finding.line(chunk.line)),
        }
    }
    if let Some((line, error)) = error {
        let found = format!("is {:?}", excerpt(error));
        let fix = "this is the provider's own message: fix what it names, or pass --model and what it needs";
        let refusal = match expect {
            ExpectedOutcome::AnswerOrRefusal => {
                ProtocolFinding::warn(found, "an answer", "none needed, if the model cannot do this")
            }
            ExpectedOutcome::Answer | ExpectedOutcome::Healthy | ExpectedOutcome::Failure | ExpectedOutcome::Misuse => {
                ProtocolFinding::fail(found, "an answer", fix)
            }
        };
        findings.push(refusal.line(line).field("error"));
        if exit.success() {
            let fix = "exit 1 when you set error";
            findings.push(ProtocolFinding::fail("exit status 0 although error is set", "another exit status", fix));
        }
        return findings;
    }
    if !exit.success() {
        let fix = "exit 0 after an answer; after a failure, print the reason in error, and exit 1";
        findings.push(ProtocolFinding::fail(
            format!("{}, and no error on stdout", exit_text(exit)),
            "exit status 0",
            fix,
        ));
    }
    match (form, chunks.first()) {
        (StdoutForm::Object, Some(OutputObject { object, .. })) => {
            let members = check(object, &members::RESPONSE).into_iter().chain(implausible(object, seen.elapsed));
            findings.extend(members.map(|finding| {
                let line = object::line_of(&seen.stdout, finding.field.unwrap_or_default());
                finding.line(line)
            }));
        }
        (StdoutForm::Lines, Some(_)) => {
            findings.extend(stream::answer(&chunks));
            findings.extend(buffered(chunks.len(), seen));
        }
        (StdoutForm::Free, _) | (_, None) => {}
    }
    findings
}

fn failed(expect: ExpectedOutcome, form: StdoutForm, exit: ProcessExit, seen: &Observation) -> Vec<ProtocolFinding> {
    let (chunks, _) = read(form, &seen.stdout);
    let reported = chunks.iter().any(|chunk| error_of(&chunk.object).is_ok_and(|error| error.is_some()));
    if exit.success() && !reported {
        let fix = match expect {
            ExpectedOutcome::Misuse => "exit 2 for a command you do not know",
            ExpectedOutcome::Failure
            | ExpectedOutcome::Healthy
            | ExpectedOutcome::Answer
            | ExpectedOutcome::AnswerOrRefusal => {
                "check that stdin is a JSON object with a prompt; if not, print {\"error\": \"…\"} and exit 1"
            }
        };
        return vec![ProtocolFinding::fail("exit status 0 and no error, as after a success", "a failure", fix)];
    }
    let mut findings = Vec::new();
    if let ProcessExit::Signal(_) = exit {
        let fix = "handle the error, print it in error, and exit 1";
        findings.push(ProtocolFinding::warn(exit_text(exit), "a normal exit", fix));
    }
    if reported && exit.success() {
        let fix = "exit 1 when you set error";
        findings.push(ProtocolFinding::warn("exit status 0 although error is set", "another exit status", fix));
    }
    if !reported && expect == ExpectedOutcome::Failure {
        let fix = "print {\"error\": \"what went wrong\"} on stdout as well: callers see it, stderr is only for logs";
        findings.push(ProtocolFinding::warn(
            format!("{} without a reason in error", exit_text(exit)),
            "the reason in error",
            fix,
        ));
    }
    findings
}

/// The objects on stdout, and findings about anything else there.
fn read(form: StdoutForm, stdout: &[u8]) -> (Vec<OutputObject>, Vec<ProtocolFinding>) {
    match form {
        StdoutForm::Lines => stream::read(stdout),
        StdoutForm::Object | StdoutForm::Free => {
            let (object, findings) = object::read(stdout);
            let chunk = object.map(|object| OutputObject { line: object::line_of(stdout, "error"), object });
            (chunk.into_iter().collect(), findings)
        }
    }
}

/// Findings about values of the right type that are implausible.
fn implausible(object: &JsonObject, elapsed: Duration) -> Vec<ProtocolFinding> {
    /// Precision of a clock that counts whole seconds, as a script may use.
    const CLOCK_PRECISION_NANOS: u128 = 1_000_000_000;
    let mut findings = Vec::new();
    let number = |name: &str| object.get(name).and_then(serde_json::Value::as_u64);
    if let Some(latency) = number("latency") {
        let (latency, elapsed) = (u128::from(latency), elapsed.as_nanos());
        let fix = "latency is in nanoseconds: 1 ms is 1000000, 1 s is 1000000000";
        let expected = "nanoseconds";
        if latency > 0 && latency * 1_000_000 <= elapsed {
            let found = format!("is {latency}: that looks like milliseconds or seconds");
            findings.push(ProtocolFinding::warn(found, expected, fix).field("latency"));
        } else if latency > elapsed * 2 + CLOCK_PRECISION_NANOS {
            let found = format!("is {latency}, but the execution took only {elapsed}");
            findings.push(ProtocolFinding::warn(found, expected, fix).field("latency"));
        }
    }
    if let (Some(total), Some(input), Some(output)) =
        (number("tokens_used"), number("input_tokens"), number("output_tokens"))
        && input.saturating_add(output) > total
    {
        let found = format!("is {total}, with {input} in and {output} out");
        let fix = "tokens_used is the total: input_tokens and output_tokens together";
        findings.push(ProtocolFinding::warn(found, "at least both together", fix).field("tokens_used"));
    }
    if object.get("content").and_then(|content| content.as_str()).is_some_and(|content| content.trim().is_empty()) {
        let fix = "print the model's text; if there is none, print the reason in error";
        findings.push(ProtocolFinding::warn("is empty", "some text", fix).field("content"));
    }
    findings
}

/// Warns about a stream of several lines that all arrive at the end: it was buffered.
fn buffered(lines: usize, seen: &Observation) -> Option<ProtocolFinding> {
    const MIN_ELAPSED: Duration = Duration::from_secs(2);
    let first = seen.first_output?;
    let is_buffered = lines > 2 && seen.elapsed > MIN_ELAPSED && first > seen.elapsed.mul_f64(0.97);
    is_buffered.then(|| {
        let found = format!("all {lines} lines arrived at once, after {:.1} s", first.as_secs_f64());
        ProtocolFinding::warn(found, "each line as soon as it is available", "flush stdout after each line")
    })
}

fn exit_text(exit: ProcessExit) -> String {
    match exit {
        ProcessExit::Code(code) => format!("exit status {code}"),
        ProcessExit::Signal(signal) => format!("ended by signal {signal}"),
    }
}
