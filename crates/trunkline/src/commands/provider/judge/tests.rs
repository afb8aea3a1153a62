//! Tables of outputs and the findings about them.

use std::time::Duration;

use trunkline_process::ProcessExit;

use super::{ExecutionEnd, ExpectedOutcome, FindingSeverity, Observation, ProtocolFinding, StdoutForm, judge};

const GOOD: &str = r#"{"content":"OK","tokens_used":41,"input_tokens":32,"output_tokens":9,"model":"m","latency":4000000,"finish_reason":"stop","error":"","provider":"p"}"#;
const TIME: &str = "2025-01-07T10:30:00Z";

fn seen(stdout: impl AsRef<[u8]>, exit: i32) -> Observation {
    let elapsed = Duration::from_millis(20);
    Observation {
        ended: ExecutionEnd::Exit(ProcessExit::Code(exit)),
        stdout: stdout.as_ref().to_vec(),
        stderr: String::new(),
        elapsed,
        first_output: Some(elapsed),
    }
}

/// Severity, line, field: what a finding is about.
type FindingSummary = (FindingSeverity, Option<usize>, Option<&'static str>);

fn about(findings: &[ProtocolFinding]) -> Vec<FindingSummary> {
    findings.iter().map(|finding| (finding.severity, finding.line, finding.field)).collect()
}

const fn fail(line: usize, field: &'static str) -> FindingSummary {
    (FindingSeverity::Fail, Some(line), Some(field))
}

const fn warn(line: usize, field: &'static str) -> FindingSummary {
    (FindingSeverity::Warn, Some(line), Some(field))
}

/// An answer like [`GOOD`] with one member changed or left out.
fn with(member: &str, value: Option<&str>) -> String {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(GOOD).unwrap();
    match value {
        Some(value) => object.insert(member.to_owned(), serde_json::from_str(value).unwrap()),
        None => object.remove(member),
    };
    serde_json::Value::Object(object).to_string()
}

#[test]
fn checks_every_member_of_an_answer() {
    let good = [
        ("error", Some("null")),
        ("error", None),
        ("error", Some("\"\"")),
        ("input_tokens", None),
        ("output_tokens", Some("null")),
        ("tokens_used", Some("100")),
        ("latency", Some("0")),
        ("latency", Some("20000000")),
        ("latency", Some("1000000000")),
        ("finish_reason", Some("\"length\"")),
        ("finish_reason", Some("\"tool_use\"")),
        ("something_else", Some("[1]")),
    ];
    for (member, value) in good {
        let findings = judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(with(member, value), 0));
        assert_eq!(findings, [], "{member}: {value:?}");
    }
    let bad = [
        ("content", None, fail(1, "content")),
        ("content", Some("null"), fail(1, "content")),
        ("content", Some("[\"OK\"]"), fail(1, "content")),
        ("content", Some("\" \""), warn(1, "content")),
        ("tokens_used", None, fail(1, "tokens_used")),
        ("tokens_used", Some("\"41\""), fail(1, "tokens_used")),
        ("tokens_used", Some("41.5"), fail(1, "tokens_used")),
        ("tokens_used", Some("-1"), fail(1, "tokens_used")),
        ("tokens_used", Some("40"), warn(1, "tokens_used")),
        ("input_tokens", Some("\"32\""), fail(1, "input_tokens")),
        ("output_tokens", Some("-9"), fail(1, "output_tokens")),
        ("model", None, fail(1, "model")),
        ("model", Some("\"\""), fail(1, "model")),
        ("latency", None, fail(1, "latency")),
        ("latency", Some("\"4ms\""), fail(1, "latency")),
        ("latency", Some("0.004"), fail(1, "latency")),
        ("latency", Some("4"), warn(1, "latency")),
        ("latency", Some("20"), warn(1, "latency")),
        ("latency", Some("2000000000"), warn(1, "latency")),
        ("finish_reason", None, fail(1, "finish_reason")),
        ("finish_reason", Some("\"end_turn\""), fail(1, "finish_reason")),
        ("provider", None, fail(1, "provider")),
        ("provider", Some("7"), fail(1, "provider")),
        ("error", Some("false"), fail(1, "error")),
        ("error", Some("{\"message\":\"x\"}"), fail(1, "error")),
    ];
    for (member, value, expected) in bad {
        let findings = judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(with(member, value), 0));
        assert_eq!(about(&findings), [expected], "{member}: {value:?}: {findings:?}");
        assert!(!findings[0].fix.is_empty() && !findings[0].expected.is_empty(), "{findings:?}");
    }
}

#[test]
fn finding_has_the_line_of_its_member() {
    let spread = with("latency", Some("\"4ms\"")).replace(",\"", ",\n  \"");
    let findings = judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(&spread, 0));
    let line = 1 + spread.lines().position(|line| line.contains("latency")).unwrap();
    assert_eq!(about(&findings), [fail(line, "latency")]);
    assert!(line > 1, "{spread}");
    assert_eq!(
        findings[0].to_string(),
        format!("stdout line {line}, latency: is \"4ms\"; expected a whole number of nanoseconds")
    );
}

#[test]
fn accepts_one_object_and_nothing_else() {
    let table: [(Vec<u8>, Option<usize>, &str); 9] = [
        (b"".to_vec(), None, "stdout is empty"),
        (b"\n \n".to_vec(), None, "stdout is empty"),
        (format!("loading…\n{GOOD}\n").into_bytes(), Some(1), "is not JSON: loading…"),
        (format!("{GOOD}\n\nbye\n").into_bytes(), Some(3), "more after the object: bye"),
        (format!("{GOOD}\n{GOOD}\n").into_bytes(), Some(2), "more after the object: {"),
        (b"[1]".to_vec(), Some(1), "is [1]"),
        (b"{\n\"content\": \"a\nb\"}".to_vec(), Some(3), "is not JSON"),
        (GOOD.as_bytes()[..30].to_vec(), Some(1), "the JSON is incomplete"),
        (b"{\"content\":\n\"\xff\"}".to_vec(), Some(2), "the bytes are not UTF-8"),
    ];
    for (stdout, line, expected) in table {
        let shown = String::from_utf8_lossy(&stdout).into_owned();
        let findings = judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(stdout, 0));
        assert_eq!(about(&findings), [(FindingSeverity::Fail, line, None)], "{shown:?}: {findings:?}");
        assert!(findings[0].found.starts_with(expected), "{shown:?}: {findings:?}");
    }
    let spread = format!("\n{}\n\n", GOOD.replace(',', ",\n"));
    assert_eq!(
        judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(spread, 0)),
        [],
        "spread over lines is still one object"
    );
}

#[test]
fn exit_status_and_error_must_agree() {
    let error = r#"{"error":"model not found"}"#;
    let refused = about(&judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(error, 1)));
    assert_eq!(refused, [fail(1, "error")]);
    let both = about(&judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(error, 0)));
    assert_eq!(both, [fail(1, "error"), (FindingSeverity::Fail, None, None)]);
    let mute = judge(ExpectedOutcome::Answer, StdoutForm::Object, &seen(GOOD, 3));
    assert_eq!(about(&mute), [(FindingSeverity::Fail, None, None)]);
    assert_eq!(mute[0].found, "exit status 3, and no error on stdout");
    let in_order = about(&judge(ExpectedOutcome::AnswerOrRefusal, StdoutForm::Object, &seen(error, 1)));
    assert_eq!(in_order, [warn(1, "error")]);
    let in_disorder = about(&judge(ExpectedOutcome::AnswerOrRefusal, StdoutForm::Object, &seen("Traceback", 1)));
    assert!(in_disorder.iter().all(|(severity, ..)| *severity == FindingSeverity::Fail), "{in_disorder:?}");
    assert_eq!(judge(ExpectedOutcome::AnswerOrRefusal, StdoutForm::Object, &seen(GOOD, 0)), []);
}

#[test]
fn invalid_requests_must_fail() {
    let error = r#"{"error":"invalid request"}"#;
    let nothing: &[FindingSeverity] = &[];
    let table = [
        (ExpectedOutcome::Failure, error, 1, nothing),
        (ExpectedOutcome::Failure, error, 0, &[FindingSeverity::Warn]),
        (ExpectedOutcome::Failure, "", 1, &[FindingSeverity::Warn]),
        (ExpectedOutcome::Failure, "Traceback", 1, &[FindingSeverity::Warn]),
        (ExpectedOutcome::Failure, GOOD, 0, &[FindingSeverity::Fail]),
        (ExpectedOutcome::Failure, "", 0, &[FindingSeverity::Fail]),
        (ExpectedOutcome::Misuse, "", 2, nothing),
        (ExpectedOutcome::Misuse, "usage: …", 64, nothing),
        (ExpectedOutcome::Misuse, error, 0, &[FindingSeverity::Warn]),
        (ExpectedOutcome::Misuse, GOOD, 0, &[FindingSeverity::Fail]),
        (ExpectedOutcome::Misuse, "", 0, &[FindingSeverity::Fail]),
    ];
    for (expect, stdout, exit, expected) in table {
        for form in [StdoutForm::Object, StdoutForm::Lines] {
            let findings = judge(expect, form, &seen(stdout, exit));
            let severities: Vec<FindingSeverity> = findings.iter().map(|finding| finding.severity).collect();
            assert_eq!(severities, expected, "{expect:?} {form:?} {stdout:?} {exit}: {findings:?}");
        }
    }
}

/// A line of a stream.
fn chunk(content: &str, delta: &str, done: bool) -> String {
    format!(r#"{{"content":"{content}","delta":"{delta}","done":{done},"tokens_used":9,"timestamp":"{TIME}"}}"#)
}

#[test]
fn stream_grows_and_ends_once() {
    let [two, plus, four] = [chunk("2", "2", false), chunk("2 +", " +", false), chunk("2 + 2", " 2", true)];
    let good = [
        vec![two.clone(), plus.clone(), four.clone()],
        vec![two.clone(), chunk("2", "", false), plus.clone(), four.clone()],
        vec![chunk("2", "2", true)],
        vec![two.replace("\"tokens_used\":9,", "\"error\":null,"), chunk("2", "", true)],
        vec![two.replace(TIME, "2025-01-07T10:30:00.123456+02:00"), chunk("2", "", true)],
    ];
    for lines in good {
        let findings = judge(ExpectedOutcome::Answer, StdoutForm::Lines, &seen(lines.join("\n"), 0));
        assert_eq!(findings, [], "{lines:?}");
    }
    let bad = [
        (vec![two.clone(), plus.clone()], vec![fail(2, "done")]),
        (vec![two.clone(), four.clone()], vec![fail(2, "content")]),
        (vec![two.clone(), chunk(" +", " +", true)], vec![fail(2, "content")]),
        (vec![two.clone(), plus.clone(), four.clone(), four.clone()], vec![fail(4, "content"), fail(4, "done")]),
        (vec![two.clone(), plus.clone(), four.clone(), chunk("2 + 2", "", false)], vec![fail(4, "done")]),
        (vec![two.replace(TIME, "10:30"), plus.clone(), four.clone()], vec![fail(1, "timestamp")]),
        (vec![two.replace(TIME, "2025-01-07 10:30"), plus.clone(), four.clone()], vec![fail(1, "timestamp")]),
        (vec![two.replace(TIME, "20250107T103000Z"), plus.clone(), four.clone()], vec![fail(1, "timestamp")]),
        (vec![two.replace(TIME, "2025-01-07T10:30:00"), plus.clone(), four.clone()], vec![fail(1, "timestamp")]),
        (vec![two.replace("false", "\"false\""), plus.clone(), four.clone()], vec![fail(1, "done")]),
        (
            vec![two.clone(), plus.replace("\"delta\":\" +\",", ""), four.clone()],
            vec![fail(2, "delta"), fail(3, "content")],
        ),
        (
            vec![two.clone(), "thinking".to_owned(), plus.clone(), four.clone()],
            vec![(FindingSeverity::Fail, Some(2), None)],
        ),
        (vec![two.clone(), String::new(), plus.clone(), four.clone()], vec![(FindingSeverity::Warn, Some(2), None)]),
        (vec![two.clone(), plus.clone(), four.replace("\"tokens_used\":9,", "")], vec![warn(3, "tokens_used")]),
        (vec![chunk("", "", true)], vec![warn(1, "content")]),
        (vec![two.clone(), r#"{"content":"2","delta":"","done":true,"error":"overloaded"}"#.to_owned()], {
            vec![fail(2, "error"), (FindingSeverity::Fail, None, None)]
        }),
    ];
    for (lines, expected) in bad {
        let findings = judge(ExpectedOutcome::Answer, StdoutForm::Lines, &seen(lines.join("\n"), 0));
        assert_eq!(about(&findings), expected, "{lines:?}: {findings:?}");
    }
}

#[test]
fn finding_is_reported_once_when_every_line_has_it() {
    let lines: Vec<String> = (0..50).map(|_| chunk("x", "", false).replace(TIME, "now")).collect();
    let findings = judge(ExpectedOutcome::Answer, StdoutForm::Lines, &seen(lines.join("\n"), 0));
    let timestamp = findings.iter().find(|finding| finding.field == Some("timestamp")).unwrap();
    assert_eq!((timestamp.line, timestamp.again), (Some(1), 49));
    assert!(timestamp.to_string().ends_with("(and 49 times more)"), "{timestamp}");
    assert!(findings.len() < 5, "{findings:?}");
}

#[test]
fn warns_when_a_slow_stream_arrives_all_at_once() {
    let lines = [chunk("a", "a", false), chunk("ab", "b", false), chunk("ab", "", true)].join("\n");
    let timed = |first: u64, elapsed: u64| {
        let (first, elapsed) = (Duration::from_millis(first), Duration::from_millis(elapsed));
        judge(
            ExpectedOutcome::Answer,
            StdoutForm::Lines,
            &Observation { first_output: Some(first), elapsed, ..seen(&lines, 0) },
        )
    };
    assert_eq!(timed(1000, 4000), [], "it streams");
    assert_eq!(timed(199, 200), [], "too quick to tell");
    let findings = timed(3990, 4000);
    assert_eq!(about(&findings), [(FindingSeverity::Warn, None, None)]);
    assert_eq!(findings[0].fix, "flush stdout after each line");
}

#[test]
fn timeout_endless_output_and_crash_fail() {
    let after = |ended: ExecutionEnd| {
        judge(ExpectedOutcome::Answer, StdoutForm::Object, &Observation { ended, ..seen(GOOD, 0) })
    };
    let hung = after(ExecutionEnd::TimedOut(Duration::from_secs(30)));
    assert_eq!(hung[0].to_string(), "still running after 30s; expected an end");
    assert_eq!(after(ExecutionEnd::TooLong)[0].severity, FindingSeverity::Fail);
    let crashed = after(ExecutionEnd::Exit(ProcessExit::Signal(11)));
    assert_eq!(crashed[0].found, "ended by signal 11, and no error on stdout");
}

#[test]
fn health_is_judged_by_its_exit_status() {
    for (stdout, exit, healthy) in
        [("OK\n", 0, true), ("", 0, true), ("Error: no ollama\n", 1, false), ("OK\n", 1, false)]
    {
        let findings = judge(ExpectedOutcome::Healthy, StdoutForm::Free, &seen(stdout, exit));
        assert_eq!(findings.is_empty(), healthy, "{stdout:?} {exit}: {findings:?}");
    }
    let sick = judge(ExpectedOutcome::Healthy, StdoutForm::Free, &seen("Error: no ollama\n", 1));
    assert_eq!(sick[0].found, "exit status 1, and it printed: Error: no ollama");
}

proptest::proptest! {
    /// Any output is judged, and noise is never accepted as an answer.
    #[test]
    fn noise_is_never_accepted(stdout in proptest::collection::vec(proptest::num::u8::ANY, 0..200), exit in 0..3) {
        for form in [StdoutForm::Object, StdoutForm::Lines] {
            let findings = judge(ExpectedOutcome::Answer, form, &seen(&stdout, exit));
            proptest::prop_assert!(findings.iter().any(|finding| finding.severity == FindingSeverity::Fail));
        }
    }

    /// A stream cut into any pieces is a good one.
    #[test]
    fn any_split_of_an_answer_is_a_valid_stream(pieces in proptest::collection::vec("\\PC{0,8}", 1..12)) {
        let mut content = String::new();
        let mut lines = String::new();
        for (at, piece) in pieces.iter().enumerate() {
            content.push_str(piece);
            let line = serde_json::json!({"content": content, "delta": piece, "done": at + 1 == pieces.len(),
                "tokens_used": 1, "timestamp": TIME});
            lines.push_str(&format!("{line}\n"));
        }
        let findings = judge(ExpectedOutcome::Answer, StdoutForm::Lines, &seen(lines, 0));
        proptest::prop_assert!(findings.iter().all(|finding| finding.severity == FindingSeverity::Warn), "{findings:?}");
    }
}
