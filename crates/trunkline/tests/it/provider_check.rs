//! `trunkline provider check`: the examples conform, and the report names each rule that a provider breaks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use trunkline_core::failure::{Category, classify, retry_after};

use crate::observe::until_gone;
use crate::test_gateway::{CommandOutput, TestGateway, which};

/// A provider that follows every rule. The tests break one rule at a time.
const GOOD: &str = r#"#!/bin/sh
now=2025-01-07T10:30:00Z
fail() { echo "{\"error\":\"$1\"}"; exit 1; }
case $1 in
health) exit 0 ;;
generate | stream) ;;
*) fail 'unknown command' ;;
esac
request=$(cat)
case $request in '{'*'"prompt":'*'}') ;; *) fail 'invalid request' ;; esac
if [ "$1" = generate ]; then
    echo '{"content":"OK","tokens_used":2,"model":"m","latency":0,"finish_reason":"stop","provider":"p"}'
else
    echo '{"content":"O","delta":"O","done":false,"timestamp":"'$now'"}'
    echo '{"content":"OK","delta":"K","done":true,"tokens_used":2,"timestamp":"'$now'"}'
fi
"#;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/providers").join(name).canonicalize().unwrap()
}

/// Runs the check on a provider with this script.
fn check(gateway: &TestGateway, script: &str, args: &[&str]) -> CommandOutput {
    let program = gateway.path("provider");
    gateway.write_program(&program, script);
    gateway.run(&[&["provider", "check", program.to_str().unwrap()], args].concat())
}

/// [`GOOD`] with one replacement.
#[track_caller]
fn broken(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from}");
    GOOD.replace(from, to)
}

/// The lines of the report about one case.
fn about<'a>(report: &'a str, case: &str) -> Vec<&'a str> {
    let named = |line: &&str| line.get(6..).is_some_and(|rest| rest.trim_start().starts_with(case));
    let mut lines = report.lines().skip_while(|line| line.starts_with(' ') || !named(line));
    let first = lines.next().unwrap_or_else(|| panic!("nothing about {case}:\n{report}"));
    [first].into_iter().chain(lines.take_while(|line| line.starts_with(' '))).map(str::trim).collect()
}

/// Fails the test unless the report has this verdict and these texts for the case.
#[track_caller]
fn assert_verdict(ran: &CommandOutput, case: &str, verdict: &str, texts: &[&str]) {
    let lines = about(&ran.stdout, case);
    assert!(lines[0].starts_with(verdict), "{case} should be {verdict}:\n{}", ran.stdout);
    for text in texts {
        assert!(lines.iter().any(|line| line.contains(text)), "no {text:?} about {case}:\n{}", ran.stdout);
    }
}

#[test]
fn examples_conform() {
    let gateway = TestGateway::new();
    let system = Path::new("/usr/bin/python3");
    let python = if system.exists() { system.to_owned() } else { which("python3") };
    symlink(python, gateway.path("tools/python3")).unwrap();
    symlink(which("jq"), gateway.path("tools/jq")).unwrap();
    for name in ["echo.sh", "echo.py"] {
        let ran = gateway.run(&["provider", "check", example(name).to_str().unwrap()]).exits(0);
        assert!(ran.stdout.ends_with("\nconforms: 17 passed, 0 with warnings, 0 failed\n"), "{name}:\n{}", ran.stdout);
    }
    // An interpreter on the search path, with the script as its argument.
    gateway.run(&["provider", "check", "python3", example("echo.py").to_str().unwrap()]).exits(0);
}

fn guide() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PROVIDERS.md")).unwrap()
}

#[test]
fn guide_contains_the_examples_verbatim() {
    let guide = guide();
    for (name, language) in [("echo.sh", "sh"), ("echo.py", "python")] {
        let shown = format!("```{language}\n{}```\n", fs::read_to_string(example(name)).unwrap());
        assert!(guide.contains(&shown), "docs/PROVIDERS.md does not show examples/providers/{name} as it is");
    }
}

#[test]
fn failure_messages_in_the_guide_are_classified_as_documented() {
    let guide = guide();
    let rows = guide.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | `"));
    let mut kinds = Vec::new();
    for (kind, rest) in rows {
        let Some(category) = Category::ALL.into_iter().find(|category| category.name() == kind) else { continue };
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        let message = cells[0].trim_end_matches('`');
        assert_eq!(classify(message, &[]), category, "{message}");
        let policy = category.policy();
        assert_eq!((cells[1].starts_with("yes"), cells[2] == "yes"), (policy.retry, policy.fallback), "{kind}");
        kinds.push(kind);
        if category == Category::RateLimit {
            assert_eq!(retry_after(message), Some(Duration::from_secs(30)));
        }
    }
    assert_eq!(kinds.len(), Category::ALL.len() - 3, "all but unknown, schema_mismatch and cancelled: {kinds:?}");
}

#[test]
fn provider_that_the_other_tests_break_conforms() {
    let ran = check(&TestGateway::new(), GOOD, &[]).exits(0);
    assert!(ran.stdout.ends_with("\nconforms: 17 passed, 0 with warnings, 0 failed\n"), "{}", ran.stdout);
}

#[test]
fn report_names_the_rule_its_position_and_a_fix_when_a_rule_is_broken() {
    let gateway = TestGateway::new();
    let answer = r#"    echo '{"content":"OK","tokens_used":2,"model":"m","latency":0,"#;
    let table: [(&str, String, &str, &[&str]); 17] = [
        (
            "health",
            broken("health) exit 0", "health) echo 'no model'; exit 7"),
            "health",
            &[
                "exit status 7, and it printed: no model; expected exit status 0",
                "the following cases may fail for that reason",
            ],
        ),
        (
            "a type",
            broken("\"latency\":0", "\"latency\":\"3ms\""),
            "generate",
            &[
                "stdout line 1, latency: is \"3ms\"; expected a whole number of nanoseconds",
                "fix: measure the time and multiply",
            ],
        ),
        (
            "a member",
            broken("\"model\":\"m\",", ""),
            "generate",
            &["stdout line 1, model: is missing", "fix: print the member always"],
        ),
        (
            "a word",
            broken("\"stop\"", "\"end_turn\""),
            "generate",
            &["finish_reason: is \"end_turn\"; expected \"stop\", \"length\" or \"tool_use\""],
        ),
        (
            "noise before",
            broken(answer, &format!("echo loading\n{answer}")),
            "generate",
            &["stdout line 1: is not JSON: loading", "fix: print one JSON object on stdout and nothing else; logs"],
        ),
        (
            "noise after",
            broken("\"provider\":\"p\"}'", "\"provider\":\"p\"}'; echo bye"),
            "generate",
            &["stdout line 2: more after the object: bye"],
        ),
        (
            "the exit status",
            broken("\"provider\":\"p\"}'", "\"provider\":\"p\"}'; echo oops >&2; exit 3"),
            "generate",
            &["exit status 3, and no error on stdout; expected exit status 0", "stderr: oops"],
        ),
        (
            "an error",
            broken(answer, &format!("echo '{{\"error\":\"rate limit\"}}'; exit\n{answer}")),
            "generate",
            &["stdout line 1, error: is \"rate limit\"; expected an answer", "exit status 0 although error is set"],
        ),
        (
            "no done",
            broken("\"done\":true", "\"done\":false"),
            "stream",
            &["stdout line 2, done: no line has \"done\": true", "without it the stream counts as cut off"],
        ),
        (
            "after done",
            broken("\"done\":false", "\"done\":true"),
            "stream",
            &["stdout line 2, done: a line after \"done\": true, which was on line 1"],
        ),
        (
            "content",
            broken("{\"content\":\"OK\",\"delta\"", "{\"content\":\"K\",\"delta\""),
            "stream",
            &[
                "stdout line 2, content: is \"K\" after \"O\" and delta \"K\"",
                "fix: content is the complete answer so far",
            ],
        ),
        (
            "timestamp",
            broken("now=2025-01-07T10:30:00Z", "now=1736245800"),
            "stream",
            &["stdout line 1, timestamp: is \"1736245800\"; expected an RFC 3339 time", "(and once more)"],
        ),
        (
            "a line",
            broken("else\n", "else\n    echo thinking\n"),
            "stream",
            &["stdout line 1: is not a JSON object: thinking"],
        ),
        (
            "broken JSON",
            broken("'{'*'\"prompt\":'*'}')", "*'rompt'*)"),
            "generate, broken JSON",
            &[
                "exit status 0 and no error, as after a success; expected a failure",
                "fix: check that stdin is a JSON object",
            ],
        ),
        (
            "empty stdin",
            broken("'{'*'\"prompt\":'*'}')", "'' | '{'*'\"prompt\":'*'}')"),
            "stream, empty stdin",
            &["as after a success"],
        ),
        (
            "unknown command",
            broken("*) fail 'unknown command'", "*) exit 0"),
            "unknown command",
            &["fix: exit 2 for a command you do not know"],
        ),
        (
            "strict",
            broken("case $request in ", "case $request in *another*) fail 'unknown member' ;; "),
            "generate, unknown members",
            &["error: is \"unknown member\"; expected an answer"],
        ),
    ];
    for (what, script, case, texts) in table {
        let ran = check(&gateway, &script, &[]).exits(4);
        eprintln!("{what}:");
        assert_verdict(&ran, case, "FAIL", texts);
        assert!(ran.stdout.contains("does not conform: "), "{ran:?}");
    }
}

#[test]
fn exit_status_is_zero_when_there_are_only_warnings() {
    let gateway = TestGateway::new();
    let ran = check(&gateway, &broken("\"latency\":0", "\"latency\":9000000000000000"), &[]).exits(0);
    assert_verdict(
        &ran,
        "generate",
        "WARN",
        &["stdout line 1, latency: is 9000000000000000, but the execution took only "],
    );
    let ran = check(&gateway, &broken("'invalid request'", "'no'").replace("exit 1", "exit 0"), &[]).exits(0);
    assert_verdict(
        &ran,
        "generate, broken JSON",
        "WARN",
        &["exit status 0 although error is set", "fix: exit 1 when you set error"],
    );
    let ran = check(
        &gateway,
        &broken("case $request in ", "[ ${#request} -gt 9999 ] && fail 'too long'\ncase $request in "),
        &[],
    );
    assert_verdict(&ran.exits(0), "generate, a prompt of 300 kB", "WARN", &["error: is \"too long\""]);
}

#[test]
fn remaining_cases_are_skipped_when_provider_hangs() {
    let script = broken("request=$(cat)", "while :; do sleep 60; done");
    let ran = check(&TestGateway::new(), &script, &["--timeout", "300ms"]).exits(4);
    assert_verdict(&ran, "health", "PASS", &[]);
    assert_verdict(&ran, "generate", "FAIL", &["still running after 300ms; expected an end", "longer --timeout"]);
    assert_verdict(&ran, "generate, every member", "FAIL", &["still running after 300ms"]);
    assert_verdict(&ran, "stream", "SKIP", &[]);
    assert!(ran.stdout.ends_with("1 passed, 0 with warnings, 2 failed, 14 skipped\n"), "{}", ran.stdout);
}

#[test]
fn health_check_times_out_after_five_seconds_and_reports_progress() {
    let ran = check(&TestGateway::new(), &broken("health) exit 0", "health) sleep 600"), &[]).exits(4);
    assert_verdict(&ran, "health", "FAIL", &["still running after 5s"]);
    assert!(ran.stderr.contains("… health: 2 s so far, of at most 5s"), "{ran:?}");
    assert_verdict(&ran, "generate", "PASS", &[]);
}

#[test]
fn concurrent_case_runs_two_processes_at_once() {
    // The seventh and eighth process run concurrently: the seventh waits for the eighth and fails with a known error.
    let script = broken(
        "request=$(cat)",
        "request=$(cat); n=1; until mkdir \"$0.$n\" 2>/dev/null; do n=$((n + 1)); done\n\
         [ $n = 7 ] && { until [ -d \"$0.8\" ]; do sleep 0.01; done; fail 'another one runs'; }",
    );
    let ran = check(&TestGateway::new(), &script, &[]).exits(4);
    assert_verdict(&ran, "generate, two at once", "FAIL", &["error: is \"another one runs\""]);
    assert!(ran.stdout.contains("16 passed, 0 with warnings, 1 failed"), "{}", ran.stdout);
}

#[test]
fn arguments_and_model_are_passed_to_the_provider() {
    let gateway = TestGateway::new().cli("provider", "note \"$@\"; exit 1");
    let program = gateway.path("bin/provider");
    gateway.run(&["provider", "check", program.to_str().unwrap(), "first", "--model", "m7", "--", "--second"]).exits(4);
    assert_eq!(
        gateway.argv("provider"),
        ["first", "--second", "no-such-command"],
        "the last case is the unknown command"
    );
    let request: Value = serde_json::from_str(&gateway.read_note("provider.stdin")).unwrap();
    assert_eq!(request["config"]["model"], "m7");
}

#[test]
fn error_suggests_a_fix_when_provider_cannot_be_started() {
    let gateway = TestGateway::new();
    gateway.write_program(&gateway.path("no-interpreter"), "#!/no/such/shell\n");
    gateway.write_program(&gateway.path("no-first-line"), "echo hello\n");
    fs::write(gateway.path("plain"), GOOD).unwrap();
    let table = [
        ("./no-such-file", "no-such-file\": not found; is the path right?"),
        ("no-such-name", "\"no-such-name\": not found"),
        ("../plain", "plain\": not executable; chmod +x it"),
        ("../repo", "repo\": not executable"),
        ("../no-interpreter", "the file exists, but not the interpreter in its first line (#!)"),
        ("../no-first-line", "a script also needs a first line such as #!/bin/sh"),
    ];
    for (path, message) in table {
        let ran = gateway.run(&["provider", "check", path]).exits(4);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(message), "{path}: {ran:?}");
    }
    gateway.run(&["provider", "check"]).exits(2);
    gateway.run(&["provider", "check", "x", "--timeout", "5 parsecs"]).exits(2);
    let help = gateway.run(&["provider", "check", "--help"]).exits(0).stdout;
    assert!(help.contains("trunkline provider check ./my-provider") && help.contains("300 kB"), "{help}");
}

#[test]
fn no_process_is_left_when_the_check_is_interrupted() {
    let gateway = TestGateway::new().cli("provider", "tell pid $$; hang");
    let program = gateway.path("bin/provider");
    gateway.signalled_after_note(&["provider", "check", program.to_str().unwrap()], "pid", Signal::INT).exits(130);
    until_gone(&[gateway.wait_for_pid("pid")]);
}
