//! The requirements of exchangeable CLI backends, by their numbers, where a CLI is run for them: the real binary, CLIs that
//! note how they were called, and a Discord on loopback. Those of the interface alone are tested beside it.

use crate::discord::Bridge;
use crate::fake_discord::{CHANNEL, Discord, TOKEN, mention};
use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

const UUID: &str = "5e551011-0000-4000-8000-000000000001";

/// A backend, what it prints in its whole form, and the answer in it.
struct Cli {
    name: &'static str,
    prints: &'static str,
    session: &'static str,
}

/// As the real ones print it, with the number of the run in the answer.
const CLIS: [Cli; 4] = [
    Cli {
        name: "claude",
        prints: r#"printf '[{"type":"system","subtype":"init","session_id":"%s"},{"type":"result","subtype":"success","is_error":false,"result":"answer %s","session_id":"%s"}]\n' "$id" "$run" "$id""#,
        session: UUID,
    },
    Cli {
        name: "codex",
        prints: r#"printf '{"type":"thread.started","thread_id":"%s"}\n' "$id"; codex_says "let me see"; codex_answers "answer $run""#,
        session: UUID,
    },
    Cli {
        name: "gemini",
        prints: r#"printf '{\n  "session_id": "%s",\n  "response": "answer %s",\n  "stats": {}\n}\n' "$id" "$run""#,
        session: UUID,
    },
    Cli {
        name: "opencode",
        prints: r#"for part in "let me see" "answer $run"; do
            printf '{"type":"step_start","sessionID":"%s","part":{"type":"step-start"}}\n' "$id"
            printf '{"type":"text","sessionID":"%s","part":{"type":"text","text":"%s"}}\n' "$id" "$part"
            printf '{"type":"step_finish","sessionID":"%s","part":{"type":"step-finish","reason":"stop"}}\n' "$id"
        done"#,
        session: "ses_e2357b722fferCG5KBEZ87L9LH",
    },
];

/// How a backend was called, in two turns of a channel.
struct Called {
    first: Vec<String>,
    second: Vec<String>,
    stdin: String,
    repo: String,
    system: String,
}

impl Called {
    /// Whether these stand in a row in each turn.
    #[track_caller]
    fn always(&self, words: &[&str]) {
        for args in [&self.first, &self.second] {
            assert!(args.windows(words.len()).any(|row| row == words), "{words:?}: {args:?}");
        }
    }

    /// Only the second turn has a session.
    #[track_caller]
    fn resumes_with(&self, words: &[&str]) {
        assert!(self.second.windows(words.len()).any(|row| row == words), "{words:?}: {:?}", self.second);
        assert!(!self.first.iter().any(|arg| words.contains(&arg.as_str())), "{:?}", self.first);
    }
}

/// Two turns with a backend; each must be answered with what it printed last.
fn called(name: &str, env: &[(&str, &str)]) -> Called {
    let cli = CLIS.iter().find(|cli| cli.name == name).unwrap();
    let script = format!(
        r#"run=$(counted); id={}; note "$@"; cat "$seen/$cli.argv" >"$seen/argv.$run"
        for arg; do [ "$before" = --append-system-prompt-file ] && cat "$arg" >"$seen/system"; before=$arg; done
        {}"#,
        cli.session, cli.prints
    );
    let mut gateway = TestGateway::new().cli(name, &script).env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", name);
    for (name, value) in env {
        gateway = gateway.env(name, *value);
    }
    let discord = Discord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once", "--system-prompt", "be brief"]);
    for turn in 1..=2 {
        let asked = discord.say(CHANNEL, &mention("the task"));
        let answer = discord.answered(asked, &format!("answer {turn}"));
        assert_eq!(answer.content, format!("answer {turn}"), "{name}");
    }
    let argv =
        |turn: u8| gateway.read_note(&format!("argv.{turn}")).split_terminator('\0').map(str::to_owned).collect();
    Called {
        first: argv(1),
        second: argv(2),
        stdin: gateway.read_note(&format!("{name}.stdin")),
        repo: gateway.repo().display().to_string(),
        system: if name == "claude" { gateway.read_note("system") } else { String::new() },
    }
}

/// 2.1 to 2.6; 2.4 is the answer itself, which stands in an array.
#[test]
fn r2_1_r2_2_r2_3_r2_4_r2_5_r2_6_claude() {
    let claude = called("claude", &[("ALLOWED_TOOLS", "Read,Bash(git log:*)")]);
    for words in [
        &["-p", "--output-format", "json", "--dangerously-skip-permissions"][..],
        &["--append-system-prompt-file"],
        &["--allowedTools=Read", "--allowedTools=Bash(git log:*)"],
        &["--max-turns", "25"],
    ] {
        claude.always(words);
    }
    assert!(claude.system.contains("be brief"), "{}", claude.system);
    claude.resumes_with(&["--resume", UUID]);
    assert_eq!(claude.first.len(), 10, "nothing else: {:?}", claude.first);
}

/// 3.1 to 3.7; 3.6 is the answer itself, which is the last of two messages.
#[test]
fn r3_1_r3_2_r3_3_r3_4_r3_5_r3_6_r3_7_codex() {
    let codex = called("codex", &[]);
    assert_eq!((codex.first[0].as_str(), codex.second[0].as_str()), ("exec", "exec"));
    codex.always(&["--json"]);
    codex.always(&["--dangerously-bypass-approvals-and-sandbox"]);
    codex.always(&["--cd", &codex.repo]);
    codex.resumes_with(&["resume", UUID]);
}

/// 4.1 to 4.6. The prompt of 4.2 is given on stdin, where it cannot be read as a flag and has no limit of length; that too
/// makes the CLI answer once and end.
#[test]
fn r4_1_r4_2_r4_3_r4_4_r4_5_r4_6_gemini() {
    let gemini = called("gemini", &[]);
    assert_eq!(gemini.first, ["--output-format", "json", "--approval-mode", "yolo"]);
    assert!(gemini.stdin.ends_with("the task"), "{}", gemini.stdin);
    gemini.always(&["--output-format", "json"]);
    gemini.always(&["--approval-mode", "yolo"]);
    gemini.resumes_with(&["--resume", UUID]);
}

/// 5.1 to 5.6; 5.6 is the answer itself, which is the last of two texts.
#[test]
fn r5_1_r5_2_r5_3_r5_4_r5_5_r5_6_opencode() {
    let opencode = called("opencode", &[("BACKEND_MODEL", "mock/mock-model")]);
    assert_eq!((opencode.first[0].as_str(), opencode.second[0].as_str()), ("run", "run"));
    opencode.always(&["--format", "json"]);
    opencode.always(&["--model", "mock/mock-model"]);
    opencode.resumes_with(&["--session", "ses_e2357b722fferCG5KBEZ87L9LH", "--continue"]);
    let plain = called("opencode", &[]);
    assert!(!plain.first.iter().any(|arg| arg == "--model"), "{:?}", plain.first);
}

/// The start of a gateway that cannot start; what it says.
fn refused(gateway: &TestGateway, surface: &[&str]) -> String {
    gateway.run(surface).exits(3).stderr
}

const BRIDGE: [&str; 3] = ["discord", "--allow-user", "1"];
const GATEWAY: [&str; 3] = ["serve", "--port", "0"];

#[test]
fn r6_1_r6_2_every_backend_can_be_chosen() {
    for cli in &CLIS {
        let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name);
        for surface in [BRIDGE, GATEWAY] {
            let said = refused(&gateway, &surface);
            assert!(said.contains(&format!("backend {0} at {0}:", cli.name)), "{said}");
        }
    }
}

#[test]
fn r6_3_claude_is_the_default() {
    let said = refused(&TestGateway::new().env("DISCORD_TOKEN", TOKEN), &BRIDGE);
    assert!(said.contains("backend claude at claude:"), "{said}");
}

#[test]
fn r6_4_the_binary_can_be_elsewhere() {
    for cli in &CLIS {
        let gateway =
            TestGateway::new().cli("elsewhere", &format!("run=1; id={}; note \"$@\"; {}", cli.session, cli.prints));
        let path = gateway.path("bin/elsewhere").display().to_string();
        let gateway = gateway.env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name).env("BACKEND_CLI_PATH", path);
        let discord = Discord::start();
        let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        discord.answered(asked, "answer 1");
        assert!(!gateway.argv("elsewhere").is_empty());
    }
}

#[test]
fn r6_5_an_unknown_backend_lists_the_valid_ones() {
    let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", "clyde");
    for surface in [BRIDGE, GATEWAY] {
        let said = refused(&gateway, &surface);
        assert!(said.contains("unknown backend \"clyde\"; valid ones: claude, codex, gemini, opencode"), "{said}");
    }
}

#[test]
fn r7_1_r7_2_r7_4_the_model_the_turns_and_the_tools_reach_the_cli() {
    for (name, flag) in [("claude", "--model"), ("codex", "-m"), ("gemini", "-m"), ("opencode", "--model")] {
        called(name, &[("BACKEND_MODEL", "a/b")]).always(&[flag, "a/b"]);
    }
    let claude = called("claude", &[("BACKEND_MAX_TURNS", "7"), ("ALLOWED_TOOLS", "Read, Edit")]);
    claude.always(&["--max-turns", "7"]);
    claude.always(&["--allowedTools=Read", "--allowedTools=Edit"]);
}

#[test]
fn r7_3_what_a_backend_cannot_do_is_warned_about_and_left_out() {
    for name in ["codex", "gemini", "opencode"] {
        let cli = CLIS.iter().find(|cli| cli.name == name).unwrap();
        let script = format!("run=1; id={}; note \"$@\"; {}", cli.session, cli.prints);
        let gateway = TestGateway::new()
            .cli(name, &script)
            .env("DISCORD_TOKEN", TOKEN)
            .env("AGENT_BACKEND", name)
            .env("ALLOWED_TOOLS", "Read")
            .env("BACKEND_MAX_TURNS", "3");
        let discord = Discord::start();
        let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        discord.answered(asked, "answer 1");
        let warned = format!("{name} cannot honour maxTurns, allowedTools; ignored");
        assert_eq!(gateway.log().matches(&warned).count(), 1, "{}", gateway.log());
        assert!(!gateway.argv(name).iter().any(|arg| arg == "Read" || arg == "3"), "{:?}", gateway.argv(name));
    }
}

/// 8.2: whatever stands on stdout, also an answer; of what stands on stderr, the words.
#[test]
fn r8_2_a_bad_exit_is_told_with_stderr() {
    for cli in &CLIS {
        for before in ["", cli.prints] {
            let script = format!("run=1; id={}; note \"$@\"; {before}\necho 'it fell over' >&2; exit 3", cli.session);
            let gateway =
                TestGateway::new().cli(cli.name, &script).env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name);
            let discord = Discord::start();
            let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
            let asked = discord.say(CHANNEL, &mention("hi"));
            let told = discord.answered(asked, &format!("{} failed", cli.name));
            assert!(told.content.contains("it fell over"), "{told:?}");
        }
    }
}

/// 8.3: the bridge's own limit, and the model's.
#[test]
fn r8_3_a_query_that_takes_too_long_is_ended_and_told_so() {
    for cli in &CLIS {
        let gateway = TestGateway::new().cli(cli.name, "tell hanging $$; hang").env("DISCORD_TOKEN", TOKEN);
        let gateway = gateway.env("AGENT_BACKEND", cli.name);
        let discord = Discord::start();
        let _bridge = Bridge::start(&gateway, &discord, &["--at-once", "--timeout", "1s"]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        let told = discord.answered(asked, "failed");
        let first = told.content.lines().next().unwrap();
        assert_eq!(first, format!("⚠️ {} failed: Query timed out", cli.name));
        until_gone(&[gateway.wait_for_pid("hanging")]);
    }
    let entry = serde_json::json!({"driver": "claude", "timeout": "1s"});
    let gateway =
        TestGateway::new().cli("claude", "tell hanging $$; hang").model("m", entry).env("DISCORD_TOKEN", TOKEN);
    let discord = Discord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once", "--model", "m"]);
    let asked = discord.say(CHANNEL, &mention("hi"));
    let told = discord.answered(asked, "failed");
    assert_eq!(told.content.lines().next(), Some("⚠️ m failed: Query timed out"));
    until_gone(&[gateway.wait_for_pid("hanging")]);
}

/// What was done unseen is not done again: neither by the same CLI nor by another.
#[test]
fn a_whole_turn_that_failed_is_not_tried_again() {
    let script = r#"run=$(counted); note "$@"; echo work >>work; echo "API Error: 529 overloaded" >&2; exit 1"#;
    let gateway = TestGateway::new().cli("claude", script).env("DISCORD_TOKEN", TOKEN);
    let discord = Discord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
    let asked = discord.say(CHANNEL, &mention("hi"));
    let told = discord.answered(asked, "claude failed: API Error: 529");
    assert!(told.content.contains("it was not tried again"), "{told:?}");
    assert_eq!(gateway.read_note("claude.runs").lines().count(), 1);
}

/// One that says that it does not know the session has done nothing, and is told everything.
#[test]
fn a_whole_turn_whose_session_is_forgotten_begins_anew() {
    let script = format!(
        r#"run=$(counted); id={UUID}; note "$@"
        case "$run" in 2) echo "No conversation found with session ID: $id" >&2; exit 1 ;; esac
        {}"#,
        CLIS[0].prints
    );
    let gateway = TestGateway::new().cli("claude", &script).env("DISCORD_TOKEN", TOKEN);
    let discord = Discord::start();
    let _bridge = Bridge::start(&gateway, &discord, &["--at-once"]);
    for (said, answer) in [("one", "answer 1"), ("two", "answer 3")] {
        let asked = discord.say(CHANNEL, &mention(said));
        discord.answered(asked, answer);
    }
    let told = gateway.read_note("claude.stdin");
    assert!(told.contains("one") && told.contains("answer 1") && told.contains("two"), "{told}");
    assert!(!gateway.argv("claude").iter().any(|arg| arg == "--resume"));
}

#[test]
fn r9_1_r9_2_r9_3_what_cannot_be_executed_is_named_with_its_path() {
    let gateway = TestGateway::new();
    let path = gateway.path("not-a-program");
    std::fs::write(&path, "text").unwrap();
    let path = path.display().to_string();
    for cli in &CLIS {
        for missing in [path.as_str(), "/no/such/program"] {
            let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN).env("AGENT_BACKEND", cli.name);
            let gateway = gateway.env("BACKEND_CLI_PATH", missing);
            for surface in [BRIDGE, GATEWAY] {
                let said = refused(&gateway, &surface);
                assert!(said.contains(&format!("backend {} at {missing}:", cli.name)), "{said}");
            }
        }
    }
}
