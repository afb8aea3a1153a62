//! The rows of `trunkline doctor`, and its exit status.

use std::fs;

use crate::test_gateway::TestGateway;

/// The row of a provider.
fn row(shown: &str, name: &str) -> String {
    let rows = shown.lines().filter(|row| row.get(4..).or(row.get(2..)).is_some());
    rows.filter(|row| row.split_whitespace().nth(1) == Some(name)).map(str::to_owned).collect()
}

#[test]
fn exit_status_is_0_when_only_the_built_in_agent_answers() {
    let ran = TestGateway::new().run(&["doctor"]).exits(0);
    assert!(ran.stdout.contains("no agent CLI was found") && row(&ran.stdout, "agent").starts_with('✓'), "{ran:?}");
}

#[test]
fn exit_status_is_4_when_no_provider_can_answer() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = TestGateway::new().env("LLM_BASE_URL", format!("http://{closed}/v1")).run(&["doctor"]).exits(4);
    assert!(row(&ran.stdout, "agent").starts_with('✗'), "{ran:?}");
}

#[test]
fn cli_is_shown_as_not_logged_in_when_it_has_no_credentials() {
    let clis = ["claude", "codex", "gemini", "qwen", "opencode"];
    let gateway =
        clis.iter().fold(TestGateway::new(), |gateway, cli| gateway.cli(cli, "tell ran.$cli \"$*\"; echo 1.0"));
    let shown = gateway.run(&["doctor"]).exits(0).stdout;
    for cli in clis {
        let row = row(&shown, cli);
        assert!(row.starts_with("! ") && row.contains("1.0, installed, not logged in: "), "{cli}: {shown}");
        assert_eq!(gateway.read_note(&format!("ran.{cli}")).trim(), "--version", "it was started for nothing else");
    }
    for (file, text) in [
        (".claude/.credentials.json", "{\"claudeAiOauth\":{}}"),
        (".codex/auth.json", "{\"tokens\":{}}"),
        (".gemini/oauth_creds.json", "{\"access_token\":\"t\"}"),
        (".qwen/oauth_creds.json", "{\"access_token\":\"t\"}"),
        (".local/share/opencode/auth.json", "{\"anthropic\":{}}"),
    ] {
        let path = gateway.path("home").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let shown = gateway.run(&["doctor"]).exits(0).stdout;
    for cli in clis {
        let row = row(&shown, cli);
        assert!(row.starts_with("✓ ") && !row.contains("logged in"), "{cli}: {shown}");
    }
}

#[test]
fn cli_is_shown_as_logged_in_when_its_key_variable_is_set() {
    let gateway = TestGateway::new().cli("claude", "echo 1.0").cli("codex", "echo 1.0");
    let gateway = gateway.env("ANTHROPIC_API_KEY", "k").env("OPENAI_API_KEY", "k");
    let shown = gateway.run(&["doctor"]).exits(0).stdout;
    assert!(row(&shown, "claude").starts_with("✓ "), "{shown}");
    assert!(row(&shown, "codex").starts_with("! "), "codex does not use this variable: {shown}");
}

#[test]
fn health_reports_whether_a_cli_is_logged_in() {
    let gateway = TestGateway::new().cli("codex", "echo 1.0").start();
    let health = gateway.get("/health/providers").json();
    let codex = health["providers"].as_array().unwrap().iter().find(|provider| provider["name"] == "codex").unwrap();
    assert_eq!((&codex["logged_in"], &codex["healthy"]), (&false.into(), &true.into()), "{health}");
}
