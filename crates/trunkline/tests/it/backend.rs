//! The backend profile: one CLI chosen by the environment, for every model name.

use crate::line::Line;

#[test]
fn an_unknown_backend_lists_the_valid_ones() {
    let line = Line::new().env("AGENT_BACKEND", "clyde");
    let ran = line.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("unknown backend \"clyde\""), "{ran:?}");
    assert!(ran.stderr.contains("valid ones: claude, codex, gemini, opencode, glm, grok, qwen"), "{ran:?}");
}

#[test]
fn a_backend_that_is_not_installed_is_named_with_its_path() {
    let line = Line::new().env("AGENT_BACKEND", "gemini");
    let ran = line.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("backend gemini at gemini:"), "{ran:?}");
    let line = Line::new().env("AGENT_BACKEND", "gemini").env("BACKEND_CLI_PATH", "/no/such/gemini");
    let ran = line.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("backend gemini at /no/such/gemini:"), "{ran:?}");
}

#[test]
fn a_number_of_turns_that_is_none_is_an_error() {
    let line = Line::new().cli("claude", "").env("AGENT_BACKEND", "claude").env("BACKEND_MAX_TURNS", "many");
    let ran = line.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("BACKEND_MAX_TURNS"), "{ran:?}");
}

#[test]
fn the_backend_answers_for_every_name_with_full_permissions() {
    let line = Line::new()
        .cli("claude", "note \"$@\"; replay claude/slow_streamjson_partial")
        .env("AGENT_BACKEND", "claude")
        .env("BACKEND_MODEL", "opus")
        .env("ALLOWED_TOOLS", "Read, Edit")
        .start();
    assert_eq!(line.chat("hi").model("whatever").send().content(), "Hello from the mock.");
    let fixed = ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"];
    let chosen = [
        "--dangerously-skip-permissions",
        "--model",
        "opus",
        "--allowedTools=Read",
        "--allowedTools=Edit",
        "--max-turns",
        "25",
    ];
    assert_eq!(line.argv("claude"), [&fixed[..], &chosen].concat());
}

#[test]
fn the_backends_turns_can_be_set() {
    let line = Line::new()
        .cli("agent", "note \"$@\"; replay claude/slow_streamjson_partial")
        .env("AGENT_BACKEND", "claude")
        .env("BACKEND_MAX_TURNS", "7");
    let path = line.path("bin/agent").display().to_string();
    let line = line.env("BACKEND_CLI_PATH", path).start();
    line.chat("hi").model("x").send().content();
    assert!(line.argv("agent").ends_with(&["--max-turns".into(), "7".into()]), "{:?}", line.argv("agent"));
}

#[test]
fn what_a_backend_cannot_honour_is_warned_about() {
    let line = Line::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .env("AGENT_BACKEND", "codex")
        .env("ALLOWED_TOOLS", "Read")
        .env("BACKEND_MAX_TURNS", "3")
        .start();
    line.chat("hi").model("x").send().content();
    assert!(line.argv("codex").contains(&"--dangerously-bypass-approvals-and-sandbox".to_owned()));
    assert_eq!(line.log().matches("codex cannot honour maxTurns, allowedTools; ignored").count(), 1, "{}", line.log());
}
