//! The exact command line of each driver, as its CLI receives it.

use serde_json::json;
use trunkline_process::Landlock;

use crate::test_gateway::TestGateway;

/// A gateway whose CLI records its arguments and replays a recording; one request was sent to it.
fn gateway(cli: &str, recording: &str, entry: serde_json::Value) -> TestGateway {
    let gateway = TestGateway::new().cli(cli, &format!("note \"$@\"; replay {recording}")).model("m", entry).start();
    gateway.chat("hi").send().content();
    gateway
}

const CODEX_FIXED: [&str; 12] = [
    "--json",
    "--skip-git-repo-check",
    "-c",
    "analytics.enabled=false",
    "-c",
    "features.plugins=false",
    "-c",
    "features.apps=false",
    "-c",
    "features.shell_snapshot=false",
    "-c",
    "features.unbounded_connection_retries=false",
];

#[test]
fn claude() {
    let recording = "claude/slow_streamjson_partial";
    let fixed = ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"];
    let plain = gateway("claude", recording, json!({"driver": "claude", "sandbox": "off"}));
    assert_eq!(plain.argv("claude"), [&fixed[..], &["--permission-mode", "acceptEdits"]].concat());
    assert_eq!(plain.read_note("claude.stdin"), "--- USER TASK ---\nhi");
    let full = gateway(
        "claude",
        recording,
        json!({"driver": "claude-code", "model": "opus", "permissions": "full", "maxTurns": 3,
            "allowedTools": ["Read", "Bash(git log:*)"], "args": ["--debug"]}),
    );
    let chosen = [
        "--dangerously-skip-permissions",
        "--model",
        "opus",
        "--allowedTools=Read",
        "--allowedTools=Bash(git log:*)",
        "--max-turns",
        "3",
        "--debug",
    ];
    assert_eq!(full.argv("claude"), [&fixed[..], &chosen].concat());
}

#[test]
fn codex() {
    let plain = gateway("codex", "codex/reasoning", json!({"driver": "codex"}));
    let repo = plain.repo().display().to_string();
    let chosen = ["--cd", &repo, "-s", "workspace-write", "-"];
    assert_eq!(plain.argv("codex"), [&["exec"], &CODEX_FIXED[..], &chosen].concat());
    assert_eq!(plain.read_note("codex.stdin"), "--- USER TASK ---\nhi");
    let read = gateway("codex", "codex/reasoning", json!({"driver": "codex", "model": "gpt-5", "permissions": "read"}));
    let repo = read.repo().display().to_string();
    let chosen = ["-m", "gpt-5", "--cd", &repo, "-s", "read-only", "-"];
    assert_eq!(read.argv("codex"), [&["exec"], &CODEX_FIXED[..], &chosen].concat());
}

#[test]
fn gemini() {
    let gateway =
        gateway("gemini", "gemini/ansi-stream-json", json!({"driver": "gemini", "model": "flash", "sandbox": "off"}));
    assert_eq!(gateway.argv("gemini"), ["-o", "stream-json", "--approval-mode", "auto_edit", "-m", "flash"]);
    assert_eq!(gateway.read_note("gemini.stdin"), "--- USER TASK ---\nhi");
}

#[test]
fn qwen() {
    let entry = json!({"driver": "qwen", "maxTurns": 7, "sandbox": "off"});
    let gateway = gateway("qwen", "qwen/slow-stream-json-partial", entry);
    let expected = [
        "-o",
        "stream-json",
        "--include-partial-messages",
        "--approval-mode",
        "auto-edit",
        "--exclude-tools=run_shell_command,monitor",
        "--max-session-turns",
        "7",
    ];
    assert_eq!(gateway.argv("qwen"), expected);
    assert_eq!(gateway.read_note("qwen.stdin"), "--- USER TASK ---\nhi");
}

#[test]
fn opencode() {
    let entry = json!({"driver": "opencode", "model": "a/b", "sandbox": "off"});
    let gateway = gateway("opencode", "opencode/reasoning_thinking", entry);
    assert_eq!(gateway.argv("opencode"), ["run", "--format", "json", "--model", "a/b", "--title", "trunkline"]);
    assert_eq!(gateway.read_note("opencode.stdin"), "--- USER TASK ---\nhi");
}

#[test]
fn edit_lets_the_cli_run_commands_when_the_kernel_confines_it() {
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    for (cli, recording, flags) in [
        ("claude", "claude/slow_streamjson_partial", &["acceptEdits", "--allowedTools=Bash"][..]),
        ("gemini", "gemini/ansi-stream-json", &["--approval-mode", "yolo"]),
        ("qwen", "qwen/slow-stream-json-partial", &["--approval-mode", "yolo"]),
        ("opencode", "opencode/reasoning_thinking", &["--auto"]),
    ] {
        let argv = gateway(cli, recording, json!({"driver": cli, "sandbox": "on"})).argv(cli);
        assert!(argv.windows(flags.len()).any(|part| part == flags), "{cli}: {argv:?}");
    }
}

#[test]
fn ax_glm_and_ax_grok() {
    for (cli, recording) in [("ax-glm", "ax/glm_prompt"), ("ax-grok", "ax/grok_prompt")] {
        let gateway = gateway(cli, recording, json!({"driver": cli, "model": "m-1", "maxTurns": 2}));
        let prompt = "\n--- USER TASK ---\nhi";
        assert_eq!(gateway.argv(cli), ["-m", "m-1", "--max-tool-rounds", "2", "--prompt", prompt]);
        assert_eq!(gateway.read_note(&format!("{cli}.stdin")), "");
    }
}

#[test]
fn custom_command_gets_its_arguments_with_the_prompt_at_its_placeholder() {
    let entry = json!({"driver": "text", "command": "ask", "args": ["--quiet", "--prompt={prompt}"]});
    let gateway = TestGateway::new().cli("ask", "note \"$@\"; echo done").model("m", entry).start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    assert_eq!(gateway.argv("ask"), ["--quiet", "--prompt=--- USER TASK ---\nhi"]);
}
