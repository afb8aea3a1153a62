//! The backend profile: one CLI chosen by the environment, for every model name.

use crate::test_gateway::TestGateway;

#[test]
fn error_lists_the_valid_backends_when_the_backend_is_unknown() {
    let gateway = TestGateway::new().env("AGENT_BACKEND", "clyde");
    let ran = gateway.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("unknown backend \"clyde\""), "{ran:?}");
    assert!(ran.stderr.contains("valid ones: claude, codex, gemini, opencode, glm, grok, qwen"), "{ran:?}");
}

#[test]
fn error_names_the_path_when_the_backend_is_not_installed() {
    let gateway = TestGateway::new().env("AGENT_BACKEND", "gemini");
    let ran = gateway.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("backend gemini at gemini:"), "{ran:?}");
    let gateway = TestGateway::new().env("AGENT_BACKEND", "gemini").env("BACKEND_CLI_PATH", "/no/such/gemini");
    let ran = gateway.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("backend gemini at /no/such/gemini:"), "{ran:?}");
}

#[test]
fn max_turns_is_an_error_when_it_is_not_a_number() {
    let gateway = TestGateway::new().cli("claude", "").env("AGENT_BACKEND", "claude").env("BACKEND_MAX_TURNS", "many");
    let ran = gateway.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("BACKEND_MAX_TURNS"), "{ran:?}");
}

#[test]
fn backend_answers_for_every_model_name_with_full_permissions() {
    let gateway = TestGateway::new()
        .cli("claude", "note \"$@\"; replay claude/slow_streamjson_partial")
        .env("AGENT_BACKEND", "claude")
        .env("BACKEND_MODEL", "opus")
        .env("ALLOWED_TOOLS", "Read, Edit")
        .start();
    assert_eq!(gateway.chat("hi").model("whatever").send().content(), "Hello from the mock.");
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
    assert_eq!(gateway.argv("claude"), [&fixed[..], &chosen].concat());
}

#[test]
fn max_turns_of_the_backend_can_be_set() {
    let gateway = TestGateway::new()
        .cli("agent", "note \"$@\"; replay claude/slow_streamjson_partial")
        .env("AGENT_BACKEND", "claude")
        .env("BACKEND_MAX_TURNS", "7");
    let path = gateway.path("bin/agent").display().to_string();
    let gateway = gateway.env("BACKEND_CLI_PATH", path).start();
    gateway.chat("hi").model("x").send().content();
    assert!(gateway.argv("agent").ends_with(&["--max-turns".into(), "7".into()]), "{:?}", gateway.argv("agent"));
}

#[test]
fn warning_names_the_settings_that_the_backend_cannot_honour() {
    let gateway = TestGateway::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .env("AGENT_BACKEND", "codex")
        .env("ALLOWED_TOOLS", "Read")
        .env("BACKEND_MAX_TURNS", "3")
        .start();
    gateway.chat("hi").model("x").send().content();
    assert!(gateway.argv("codex").contains(&"--dangerously-bypass-approvals-and-sandbox".to_owned()));
    assert_eq!(
        gateway.log().matches("codex cannot honour maxTurns, allowedTools; ignored").count(),
        1,
        "{}",
        gateway.log()
    );
}
