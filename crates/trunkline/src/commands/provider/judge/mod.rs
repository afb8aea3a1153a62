//! Whether what a provider did is what the protocol says. Pure: bytes and an exit status in, findings out.

mod finding;
mod members;
mod object;
mod stream;
#[cfg(test)]
mod tests;

use std::time::Duration;

use trunkline_process::Exit;

use finding::once_each;
pub(super) use finding::{Finding, Severity};
use members::{Object, check, error_of, excerpt};
use stream::Chunk;

/// What one run of the provider came to.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) ended: Ended,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) elapsed: Duration,
    /// When the first byte of stdout came.
    pub(super) first_output: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Exit(Exit),
    TimedOut(Duration),
    /// It printed without end.
    TooLong,
}

/// What stdout should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Whatever it likes: `health`.
    Free,
    /// One object: `generate`.
    Object,
    /// An object a line: `stream`.
    Lines,
}

/// What a case should come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Healthy,
    Answer,
    /// An answer, or a failure told in good order: not every model takes everything.
    AnswerOrRefusal,
    /// A failure, told in `error`.
    Failure,
    /// A failure, told in any way.
    Misuse,
}

/// Everything that is wrong with one run, in the order of stdout.
pub(super) fn judge(expect: Expect, form: Form, seen: &Observation) -> Vec<Finding> {
    let exit = match seen.ended {
        Ended::Exit(exit) => exit,
        Ended::TimedOut(limit) => {
            let fix = "exit after the answer; read stdin to its end, which comes, and wait for nothing else; \
                a slow model needs a longer --timeout";
            return vec![Finding::fail(format!("still running after {limit:?}"), "an end", fix)];
        }
        Ended::TooLong => {
            let fix = "stop after the answer; for a stream, one line for each piece of it";
            return vec![Finding::fail("more than 8 MiB on stdout", "an answer of reasonable size", fix)];
        }
    };
    let findings = match (expect, form) {
        (Expect::Healthy, _) | (_, Form::Free) => healthy(exit, seen),
        (Expect::Answer | Expect::AnswerOrRefusal, _) => answered(expect, form, exit, seen),
        (Expect::Failure | Expect::Misuse, _) => failed(expect, form, exit, seen),
    };
    once_each(findings)
}

fn healthy(exit: Exit, seen: &Observation) -> Vec<Finding> {
    if exit.success() {
        return Vec::new();
    }
    let said = String::from_utf8_lossy(&seen.stdout);
    let said = said.lines().chain(seen.stderr.lines()).find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let found = format!("{}, and it said: {}", worded(exit), excerpt(said));
    vec![Finding::fail(
        found,
        "exit status 0",
        "exit 0 when the provider can answer; if it cannot now, mend that first",
    )]
}

fn answered(expect: Expect, form: Form, exit: Exit, seen: &Observation) -> Vec<Finding> {
    let (chunks, mut findings) = read(form, &seen.stdout);
    let mut error = None;
    for chunk in &chunks {
        match error_of(&chunk.object) {
            Ok(told) => error = error.or(told.map(|told| (chunk.line, told))),
            Err(finding) => findings.push(finding.line(chunk.line)),
        }
    }
    if let Some((line, error)) = error {
        let found = format!("is {:?}", excerpt(error));
        let fix = "this is the provider's own word: mend what it names, or check with --model and what it needs";
        let refusal = match expect {
            Expect::AnswerOrRefusal => Finding::warn(found, "an answer", "nothing, if the model cannot do this"),
            Expect::Answer | Expect::Healthy | Expect::Failure | Expect::Misuse => {
                Finding::fail(found, "an answer", fix)
            }
        };
        findings.push(refusal.line(line).field("error"));
        if exit.success() {
            let fix = "exit 1 when you set error";
            findings.push(Finding::fail("exit status 0 although error is set", "another exit status", fix));
        }
        return findings;
    }
    if !exit.success() {
        let fix = "exit 0 after an answer; when something went wrong, say what in error, and exit 1";
        findings.push(Finding::fail(format!("{}, and no error on stdout", worded(exit)), "exit status 0", fix));
    }
    match (form, chunks.first()) {
        (Form::Object, Some(Chunk { object, .. })) => {
            let members = check(object, &members::RESPONSE).into_iter().chain(doubts(object, seen.elapsed));
            findings.extend(members.map(|finding| {
                let line = object::line_of(&seen.stdout, finding.field.unwrap_or_default());
                finding.line(line)
            }));
        }
        (Form::Lines, Some(_)) => {
            findings.extend(stream::answer(&chunks));
            findings.extend(buffered(chunks.len(), seen));
        }
        (Form::Free, _) | (_, None) => {}
    }
    findings
}

fn failed(expect: Expect, form: Form, exit: Exit, seen: &Observation) -> Vec<Finding> {
    let (chunks, _) = read(form, &seen.stdout);
    let told = chunks.iter().any(|chunk| error_of(&chunk.object).is_ok_and(|error| error.is_some()));
    if exit.success() && !told {
        let fix = match expect {
            Expect::Misuse => "exit 2 for a command you do not know",
            Expect::Failure | Expect::Healthy | Expect::Answer | Expect::AnswerOrRefusal => {
                "check that stdin is a JSON object with a prompt; if not, print {\"error\": \"…\"} and exit 1"
            }
        };
        return vec![Finding::fail("exit status 0 and no error, as if all were well", "a failure", fix)];
    }
    let mut findings = Vec::new();
    if let Exit::Signal(_) = exit {
        let fix = "catch the mistake, say what it is in error, and exit 1";
        findings.push(Finding::warn(worded(exit), "an exit by itself", fix));
    }
    if told && exit.success() {
        let fix = "exit 1 when you set error";
        findings.push(Finding::warn("exit status 0 although error is set", "another exit status", fix));
    }
    if !told && expect == Expect::Failure {
        let fix = "print {\"error\": \"what went wrong\"} on stdout as well: callers see it, stderr is only for logs";
        findings.push(Finding::warn(format!("{} without a word in error", worded(exit)), "the reason in error", fix));
    }
    findings
}

/// The objects on stdout, whichever form it should have, and what is there beside them.
fn read(form: Form, stdout: &[u8]) -> (Vec<Chunk>, Vec<Finding>) {
    match form {
        Form::Lines => stream::read(stdout),
        Form::Object | Form::Free => {
            let (object, findings) = object::read(stdout);
            let chunk = object.map(|object| Chunk { line: object::line_of(stdout, "error"), object });
            (chunk.into_iter().collect(), findings)
        }
    }
}

/// What is of the right type and yet looks wrong.
fn doubts(object: &Object, elapsed: Duration) -> Vec<Finding> {
    /// A script may only have whole seconds: one can pass between two looks at such a clock at any time.
    const CLOCK_OF_SECONDS: u128 = 1_000_000_000;
    let mut findings = Vec::new();
    let number = |name: &str| object.get(name).and_then(serde_json::Value::as_u64);
    if let Some(latency) = number("latency") {
        let (latency, elapsed) = (u128::from(latency), elapsed.as_nanos());
        let fix = "latency is in nanoseconds: 1 ms is 1000000, 1 s is 1000000000";
        let expected = "nanoseconds";
        if latency > 0 && latency * 1_000_000 <= elapsed {
            let found = format!("is {latency}: that looks like milliseconds or seconds");
            findings.push(Finding::warn(found, expected, fix).field("latency"));
        } else if latency > elapsed * 2 + CLOCK_OF_SECONDS {
            let found = format!("is {latency}, but the whole run took only {elapsed}");
            findings.push(Finding::warn(found, expected, fix).field("latency"));
        }
    }
    if let (Some(total), Some(input), Some(output)) =
        (number("tokens_used"), number("input_tokens"), number("output_tokens"))
        && input.saturating_add(output) > total
    {
        let found = format!("is {total}, with {input} in and {output} out");
        let fix = "tokens_used is the total: input_tokens and output_tokens together";
        findings.push(Finding::warn(found, "at least both together", fix).field("tokens_used"));
    }
    if object.get("content").and_then(|content| content.as_str()).is_some_and(|content| content.trim().is_empty()) {
        let fix = "print the model's text; when there is none, say why in error";
        findings.push(Finding::warn("is empty", "some text", fix).field("content"));
    }
    findings
}

/// A stream of several lines that all come at the end of a long silence was held back somewhere.
fn buffered(lines: usize, seen: &Observation) -> Option<Finding> {
    const LONG: Duration = Duration::from_secs(2);
    let first = seen.first_output?;
    let held_back = lines > 2 && seen.elapsed > LONG && first > seen.elapsed.mul_f64(0.97);
    held_back.then(|| {
        let found = format!("all {lines} lines came at once, after {:.1} s", first.as_secs_f64());
        Finding::warn(found, "each line as soon as it is known", "flush stdout after each line")
    })
}

fn worded(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit status {code}"),
        Exit::Signal(signal) => format!("ended by signal {signal}"),
    }
}
