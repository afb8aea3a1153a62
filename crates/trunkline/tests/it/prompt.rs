//! The prompt as the CLI receives it.

use serde_json::json;

use crate::test_gateway::TestGateway;

fn codex() -> TestGateway {
    TestGateway::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .model("codex-repo", json!({"driver": "codex"}))
}

#[test]
fn agents_md_comes_before_the_task() {
    let gateway = codex()
        .file("AGENTS.md", "Always answer PONG.\n")
        .model("codex-repo", json!({"driver": "codex", "agentFile": "AGENTS.md"}))
        .start();
    gateway
        .chat("Extract data")
        .preceded_by("system", "You are terse.")
        .preceded_by("user", "From the report:")
        .send()
        .content();
    assert_eq!(
        gateway.read_note("codex.stdin"),
        "Always answer PONG.\n\n--- USER TASK ---\nYou are terse.\n\nFrom the report:\n\nExtract data"
    );
}

#[test]
fn agents_md_is_omitted_when_the_cli_reads_it_itself_and_none_is_configured() {
    let gateway = codex()
        .cli("gemini", "note \"$@\"; replay gemini/json")
        .model("gemini-repo", json!({"driver": "gemini"}))
        .file("AGENTS.md", "Always answer PONG.\n")
        .start();
    gateway.chat("Extract data").send().content();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nExtract data");
    gateway.chat("Extract data").model("gemini-repo").send().content();
    assert_eq!(gateway.read_note("gemini.stdin"), "Always answer PONG.\n\n--- USER TASK ---\nExtract data");
}

#[test]
fn prompt_starts_with_the_task_when_there_is_no_agents_md() {
    let gateway = codex().start();
    gateway.chat("Extract data").send().content();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nExtract data");
}

#[test]
fn cli_follows_agents_md_unless_the_model_disables_it() {
    let obedient = "while read -r first second third _; do [ \"$first $second\" = 'Always answer' ] && word=$third; done; \
                    echo \"${word:-something}\"";
    let gateway = TestGateway::new()
        .cli("obedient", obedient)
        .file("AGENTS.md", "Always answer PONG\n")
        .model("forced", json!({"driver": "text", "command": "obedient"}))
        .model("free", json!({"driver": "text", "command": "obedient", "agentFile": ""}))
        .start();
    assert_eq!(gateway.chat("What do you say?").model("forced").send().content(), "PONG");
    assert_eq!(gateway.chat("What do you say?").model("free").send().content(), "something");
}

#[test]
fn case_32_request_fails_when_agent_file_is_outside_the_repository() {
    let gateway = codex().model("sly", json!({"driver": "codex", "agentFile": "../home/secret"})).start();
    std::fs::write(gateway.path("home/secret"), "secret").unwrap();
    let error = gateway.chat("hi").model("sly").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("out of the repository"), "{error}");
}

#[test]
fn messages_are_labelled_with_their_role_when_there_is_a_history() {
    let gateway = codex().start();
    gateway.chat("and 3+3?").preceded_by("user", "2+2?").preceded_by("assistant", "4").send().content();
    assert_eq!(
        gateway.read_note("codex.stdin"),
        "--- USER TASK ---\n[User]\n2+2?\n\n[Assistant]\n4\n\n[User]\nand 3+3?"
    );
}

#[test]
fn prompt_of_a_megabyte_arrives_complete() {
    let gateway = codex().start();
    let text: String = (0..).map(|number| format!("{number} 你好\n")).take(100_000).collect();
    assert!(text.len() > 1_000_000);
    gateway.chat(&text).send().content();
    assert!(gateway.read_note("codex.stdin") == format!("--- USER TASK ---\n{text}"), "the prompt was changed");
}

#[test]
fn case_49_prompt_is_passed_as_text_when_it_looks_like_a_flag() {
    let gateway =
        codex().cli("ax-glm", "note \"$@\"; replay ax/glm_prompt").model("glm", json!({"driver": "ax-glm"})).start();
    gateway.chat("--help").send().content();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\n--help");
    gateway.chat("--help").model("glm").send().content();
    assert_eq!(gateway.argv("ax-glm"), ["--prompt", "\n--- USER TASK ---\n--help"]);
}

#[test]
fn case_49_commands_and_file_references_are_passed_to_gemini_as_text() {
    let gateway = TestGateway::new()
        .cli("gemini", "note \"$@\"; replay gemini/ansi-stream-json")
        .model("gemini", json!({"driver": "gemini"}))
        .start();
    gateway.chat("/init @/etc/passwd").send().content();
    assert_eq!(gateway.read_note("gemini.stdin"), "--- USER TASK ---\n/init \\@/etc/passwd");
}

#[test]
fn case_49_request_is_rejected_when_prompt_is_too_long_for_an_argument() {
    let gateway = TestGateway::new().cli("ax-glm", "tell ran").model("glm", json!({"driver": "ax-glm"})).start();
    let error = gateway.chat(&"x".repeat(128 * 1024)).send().error(400);
    assert!(error["message"].as_str().unwrap().contains("the prompt is too long for glm"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("stdin"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}
