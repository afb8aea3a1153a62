//! Numbered requirements of exchangeable CLI backends, as far as they need a running CLI: the real binary, CLIs that note
//! their arguments, and a fake Discord on loopback. Requirements of the interface alone are unit tests next to its code.

use crate::discord::Bridge;
use crate::fake_discord::{CHANNEL, FakeDiscord, TOKEN, mention};
use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

const UUID: &str = "5e551011-0000-4000-8000-000000000001";

/// A fake backend: its name, a script that prints a complete answer, and the session id in that answer.
struct FakeBackend {
    name: &'static str,
    script: &'static str,
    session: &'static str,
}

/// Output as the real CLIs print it, with the number of the run in the answer.
const CLIS: [FakeBackend; 4] = [
    FakeBackend {
        name: "claude",
        script: r#"printf '[{"type":"system","subtype":"init","session_id":"%s"},{"type":"result","subtype":"success","is_error":false,"result":"answer %s","session_id":"%s"}]\n' "$id" "$run" "$id""#,
        session: UUID,
    },
    FakeBackend {
        name: "codex",
        script: r#"printf '{"type":"thread.started","thread_id":"%s"}\n' "$id"; codex_says "let me see"; codex_answers "answer $run""#,
        session: UUID,
    },
    FakeBackend {
        name: "gemini",
        script: r#"printf '{\n  "session_id": "%s",\n  "response": "answer %s",\n  "stats": {}\n}\n' "$id" "$run""#,
        session: UUID,
    },
    FakeBackend {
        name: "opencode",
        script: r#"for part in "let me see" "answer $run"; do
            printf '{"type":"step_start","sessionID":"%s","part":{"type":"step-start"}}\n' "$id"
            printf '{"type":"text","sessionID":"%s","part":{"type":"text","text":"%s"}}\n' "$id" "$part"
            printf '{"type":"step_finish","sessionID":"%s","part":{"type":"step-finish","reason":"stop"}}\n' "$id"
        done"#,
        session: "ses_e2357b722fferCG5KBEZ87L9LH",
    },
];

/// Recorded calls of a backend, from two turns in a channel.
struct RecordedCalls {
    first: Vec<String>,
    second: Vec<String>,
    stdin: String,
    repo: String,
    system: String,
}

impl RecordedCalls {
    /// Fails the test unless the arguments of each turn contain this sequence.
    #[track_caller]
    fn assert_always(&self, sequence: &[&str]) {
        for args in [&self.first, &self.second] {
            assert!(args.windows(sequence.len()).any(|row| row == sequence), "{sequence:?}: {args:?}");
        }
    }

    /// Fails the test unless only the second turn has these arguments, which resume a session.
    #[track_caller]
    fn assert_resumes_with(&self, sequence: &[&str]) {
        assert!(self.second.windows(sequence.len()).any(|row| row == sequence), "{sequence:?}: {:?}", self.second);
        assert!(!self.first.iter().any(|arg| sequence.contains(&arg.as_str())), "{:?}", self.first);
    }
}

/// Runs two turns with a backend. Each answer must be the last message that the backend printed.
fn record(name: &str, env: &[(&str, &str)]) -> RecordedCalls {
    let cli = CLIS.iter().find(|cli| cli.name == name).unwrap();
    let script = format!(
        r#"run=$(counted); id={}; note "$@"; cat "$seen/$cli.argv" >"$seen/argv.$run"
        for arg; do [ "$before" = --append-system-prompt-file ] && cat "$arg" >"$seen/system"; before=$arg; done
        {}"#,
        cli.session, cli.script
    );
    let mut gateway = TestGateway::new().cli(name, &script).env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", name);
    for (name, value) in env {
        gateway = gateway.env(name, *value);
    }
    let discord = FakeDiscord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once", "--system-prompt", "be brief"]);
    for turn in 1..=2 {
        let asked = discord.say(CHANNEL, &mention("the task"));
        let answer = discord.answered(asked, &format!("answer {turn}"));
        assert_eq!(answer.content, format!("answer {turn}"), "{name}");
    }
    let argv =
        |turn: u8| gateway.read_note(&format!("argv.{turn}")).split_terminator('\0').map(str::to_owned).collect();
    RecordedCalls {
        first: argv(1),
        second: argv(2),
        stdin: gateway.read_note(&format!("{name}.stdin")),
        repo: gateway.repo().display().to_string(),
        system: if name == "claude" { gateway.read_note("system") } else { String::new() },
    }
}

/// 2.1 to 2.6. 2.4 is checked by the answer itself, which is inside an array.
#[test]
fn r2_1_r2_2_r2_3_r2_4_r2_5_r2_6_claude() {
    let claude = record("claude", &[("ALLOWED_TOOLS", "Read,Bash(git log:*)")]);
    for sequence in [
        &["-p", "--output-format", "json", "--dangerously-skip-permissions"][..],
        &["--append-system-prompt-file"],
        &["--allowedTools=Read", "--allowedTools=Bash(git log:*)"],
        &["--max-turns", "25"],
    ] {
        claude.assert_always(sequence);
    }
    assert!(claude.system.contains("be brief"), "{}", claude.system);
    claude.assert_resumes_with(&["--resume", UUID]);
    assert_eq!(claude.first.len(), 10, "nothing else: {:?}", claude.first);
}

/// 3.1 to 3.7. 3.6 is checked by the answer itself, which is the last of two messages.
#[test]
fn r3_1_r3_2_r3_3_r3_4_r3_5_r3_6_r3_7_codex() {
    let codex = record("codex", &[]);
    assert_eq!((codex.first[0].as_str(), codex.second[0].as_str()), ("exec", "exec"));
    codex.assert_always(&["--json"]);
    codex.assert_always(&["--dangerously-bypass-approvals-and-sandbox"]);
    codex.assert_always(&["--cd", &codex.repo]);
    codex.assert_resumes_with(&["resume", UUID]);
}

/// 4.1 to 4.6. The prompt of 4.2 is passed on stdin, where it cannot be mistaken for a flag and its length is not limited.
/// With a prompt on stdin the CLI also answers once and exits.
#[test]
fn r4_1_r4_2_r4_3_r4_4_r4_5_r4_6_gemini() {
    let gemini = record("gemini", &[]);
    assert_eq!(gemini.first, ["--output-format", "json", "--approval-mode", "yolo"]);
    assert!(gemini.stdin.ends_with("the task"), "{}", gemini.stdin);
    gemini.assert_always(&["--output-format", "json"]);
    gemini.assert_always(&["--approval-mode", "yolo"]);
    gemini.assert_resumes_with(&["--resume", UUID]);
}

/// 5.1 to 5.6. 5.6 is checked by the answer itself, which is the last of two texts.
#[test]
fn r5_1_r5_2_r5_3_r5_4_r5_5_r5_6_opencode() {
    let opencode = record("opencode", &[("BACKEND_MODEL", "mock/mock-model")]);
    assert_eq!((opencode.first[0].as_str(), opencode.second[0].as_str()), ("run", "run"));
    opencode.assert_always(&["--format", "json"]);
    opencode.assert_always(&["--model", "mock/mock-model"]);
    opencode.assert_resumes_with(&["--session", "ses_e2357b722fferCG5KBEZ87L9LH", "--continue"]);
    let plain = record("opencode", &[]);
    assert!(!plain.first.iter().any(|arg| arg == "--model"), "{:?}", plain.first);
}

/// Runs a command that must fail to start, and returns its stderr.
fn startup_error(gateway: &TestGateway, surface: &[&str]) -> String {
    gateway.run(surface).exits(3).stderr
}

const BRIDGE: [&str; 3] = ["discord", "--allow-user", "1"];
const GATEWAY: [&str; 3] = ["serve", "--port", "0"];

#[test]
fn r6_1_r6_2_every_backend_can_be_selected() {
    for cli in &CLIS {
        let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name);
        for surface in [BRIDGE, GATEWAY] {
            let stderr = startup_error(&gateway, &surface);
            assert!(stderr.contains(&format!("backend {0} at {0}:", cli.name)), "{stderr}");
        }
    }
}

#[test]
fn r6_3_claude_is_the_default() {
    let stderr = startup_error(&TestGateway::new().env("DISCORD_TOKEN", TOKEN), &BRIDGE);
    assert!(stderr.contains("backend claude at claude:"), "{stderr}");
}

#[test]
fn r6_4_binary_path_can_be_configured() {
    for cli in &CLIS {
        let gateway =
            TestGateway::new().cli("elsewhere", &format!("run=1; id={}; note \"$@\"; {}", cli.session, cli.script));
        let path = gateway.path("bin/elsewhere").display().to_string();
        let gateway = gateway.env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name).env("BACKEND_CLI_PATH", path);
        let discord = FakeDiscord::start();
        let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        discord.answered(asked, "answer 1");
        assert!(!gateway.argv("elsewhere").is_empty());
    }
}

#[test]
fn r6_5_error_lists_valid_backends_when_backend_is_unknown() {
    let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", "clyde");
    for surface in [BRIDGE, GATEWAY] {
        let stderr = startup_error(&gateway, &surface);
        assert!(stderr.contains("unknown backend \"clyde\"; valid ones: claude, codex, gemini, opencode"), "{stderr}");
    }
}

#[test]
fn r7_1_r7_2_r7_4_model_max_turns_and_tools_are_passed_to_the_cli() {
    for (name, flag) in [("claude", "--model"), ("codex", "-m"), ("gemini", "-m"), ("opencode", "--model")] {
        record(name, &[("BACKEND_MODEL", "a/b")]).assert_always(&[flag, "a/b"]);
    }
    let claude = record("claude", &[("BACKEND_MAX_TURNS", "7"), ("ALLOWED_TOOLS", "Read, Edit")]);
    claude.assert_always(&["--max-turns", "7"]);
    claude.assert_always(&["--allowedTools=Read", "--allowedTools=Edit"]);
}

#[test]
fn r7_3_option_is_ignored_with_a_warning_when_backend_does_not_support_it() {
    for name in ["codex", "gemini", "opencode"] {
        let cli = CLIS.iter().find(|cli| cli.name == name).unwrap();
        let script = format!("run=1; id={}; note \"$@\"; {}", cli.session, cli.script);
        let gateway = TestGateway::new()
            .cli(name, &script)
            .env("DISCORD_TOKEN", TOKEN)
            .env("AGENT_BACKEND", name)
            .env("ALLOWED_TOOLS", "Read")
            .env("BACKEND_MAX_TURNS", "3");
        let discord = FakeDiscord::start();
        let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        discord.answered(asked, "answer 1");
        let warned = format!("{name} cannot honour maxTurns, allowedTools; ignored");
        assert_eq!(gateway.log().matches(&warned).count(), 1, "{}", gateway.log());
        assert!(!gateway.argv(name).iter().any(|arg| arg == "Read" || arg == "3"), "{:?}", gateway.argv(name));
    }
}

/// 8.2, whether or not there is an answer on stdout.
#[test]
fn r8_2_reply_has_stderr_when_exit_status_is_not_zero() {
    for cli in &CLIS {
        for before in ["", cli.script] {
            let script = format!("run=1; id={}; note \"$@\"; {before}\necho 'it fell over' >&2; exit 3", cli.session);
            let gateway =
                TestGateway::new().cli(cli.name, &script).env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name);
            let discord = FakeDiscord::start();
            let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
            let asked = discord.say(CHANNEL, &mention("hi"));
            let reply = discord.answered(asked, &format!("{} failed", cli.name));
            assert!(reply.content.contains("it fell over"), "{reply:?}");
        }
    }
}

/// 8.3, for the bridge's own timeout and for the model's.
#[test]
fn r8_3_cli_is_killed_and_reply_says_so_when_query_times_out() {
    for cli in &CLIS {
        let gateway = TestGateway::new().cli(cli.name, "tell hanging $$; hang").env("DISCORD_TOKEN", TOKEN);
        let gateway = gateway.env("AGENT_BACKEND", cli.name);
        let discord = FakeDiscord::start();
        let _bridge = Bridge::start(&gateway, &discord, &["--at-once", "--timeout", "1s"]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        let reply = discord.answered(asked, "failed");
        let first = reply.content.lines().next().unwrap();
        assert_eq!(first, format!("⚠️ {} failed: Query timed out", cli.name));
        until_gone(&[gateway.wait_for_pid("hanging")]);
    }
    let entry = serde_json::json!({"driver": "claude", "timeout": "1s"});
    let gateway =
        TestGateway::new().cli("claude", "tell hanging $$; hang").model("m", entry).env("DISCORD_TOKEN", TOKEN);
    let discord = FakeDiscord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once", "--model", "m"]);
    let asked = discord.say(CHANNEL, &mention("hi"));
    let reply = discord.answered(asked, "failed");
    assert_eq!(reply.content.lines().next(), Some("⚠️ m failed: Query timed out"));
    until_gone(&[gateway.wait_for_pid("hanging")]);
}

/// The CLI may have changed files without reporting it, so neither the same CLI nor another one is run again.
#[test]
fn failed_turn_is_not_retried_when_output_is_not_streamed() {
    let script = r#"run=$(counted); note "$@"; echo work >>work; echo "API Error: 529 overloaded" >&2; exit 1"#;
    let gateway = TestGateway::new().cli("claude", script).env("DISCORD_TOKEN", TOKEN);
    let discord = FakeDiscord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
    let asked = discord.say(CHANNEL, &mention("hi"));
    let reply = discord.answered(asked, "claude failed: API Error: 529");
    assert!(reply.content.contains("not retried"), "{reply:?}");
    assert_eq!(gateway.read_note("claude.runs").lines().count(), 1);
}

/// A CLI that reports an unknown session has changed nothing, so it is run again with the whole history.
#[test]
fn turn_is_retried_with_whole_history_when_session_is_unknown() {
    let script = format!(
        r#"run=$(counted); id={UUID}; note "$@"
        case "$run" in 2) echo "No conversation found with session ID: $id" >&2; exit 1 ;; esac
        {}"#,
        CLIS[0].script
    );
    let gateway = TestGateway::new().cli("claude", &script).env("DISCORD_TOKEN", TOKEN);
    let discord = FakeDiscord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
    for (message, answer) in [("one", "answer 1"), ("two", "answer 3")] {
        let asked = discord.say(CHANNEL, &mention(message));
        discord.answered(asked, answer);
    }
    let prompt = gateway.read_note("claude.stdin");
    assert!(prompt.contains("one") && prompt.contains("answer 1") && prompt.contains("two"), "{prompt}");
    assert!(!gateway.argv("claude").iter().any(|arg| arg == "--resume"));
}

#[test]
fn r9_1_r9_2_r9_3_error_names_backend_and_path_when_it_cannot_be_executed() {
    let gateway = TestGateway::new();
    let path = gateway.path("not-a-program");
    std::fs::write(&path, "text").unwrap();
    let path = path.display().to_string();
    for cli in &CLIS {
        for missing in [path.as_str(), "/no/such/program"] {
            let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name);
            let gateway = gateway.env("BACKEND_CLI_PATH", missing);
            for surface in [BRIDGE, GATEWAY] {
                let stderr = startup_error(&gateway, &surface);
                assert!(stderr.contains(&format!("backend {} at {missing}:", cli.name)), "{stderr}");
            }
        }
    }
}
