//! The prompt as the CLI receives it.

use serde_json::json;

use crate::test_gateway::TestGateway;

fn codex() -> TestGateway {
    TestGateway::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .model("codex-repo", json!({"driver": "codex"}))
}

#[test]
fn agents_md_stands_above_the_task() {
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
fn agents_md_is_left_to_the_cli_when_it_reads_it_by_itself_and_none_is_named() {
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
fn without_agents_md_the_prompt_begins_at_the_task() {
    let gateway = codex().start();
    gateway.chat("Extract data").send().content();
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nExtract data");
}

#[test]
fn a_repository_whose_agents_md_forces_an_answer_gets_it() {
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
fn case_32_an_agent_file_that_leads_out_of_the_repository_is_refused() {
    let gateway = codex().model("sly", json!({"driver": "codex", "agentFile": "../home/secret"})).start();
    std::fs::write(gateway.path("home/secret"), "secret").unwrap();
    let error = gateway.chat("hi").model("sly").send().error(500);
    assert!(error["detail"].as_str().unwrap().contains("out of the repository"), "{error}");
}

#[test]
fn a_conversation_is_labelled() {
    let gateway = codex().start();
    gateway.chat("and 3+3?").preceded_by("user", "2+2?").preceded_by("assistant", "4").send().content();
    assert_eq!(
        gateway.read_note("codex.stdin"),
        "--- USER TASK ---\n[User]\n2+2?\n\n[Assistant]\n4\n\n[User]\nand 3+3?"
    );
}

#[test]
fn a_prompt_of_a_megabyte_arrives_whole() {
    let gateway = codex().start();
    let text: String = (0..).map(|number| format!("{number} 你好\n")).take(100_000).collect();
    assert!(text.len() > 1_000_000);
    gateway.chat(&text).send().content();
    assert!(gateway.read_note("codex.stdin") == format!("--- USER TASK ---\n{text}"), "not what was sent");
}

#[test]
fn case_49_a_prompt_that_looks_like_a_flag_is_text() {
    let line =
        codex().cli("ax-glm", "note \"$@\"; replay ax/glm_prompt").model("glm", json!({"driver": "ax-glm"})).start();
    line.chat("--help").send().content();
    assert_eq!(line.read_note("codex.stdin"), "--- USER TASK ---\n--help");
    line.chat("--help").model("glm").send().content();
    assert_eq!(line.argv("ax-glm"), ["--prompt", "\n--- USER TASK ---\n--help"]);
}

#[test]
fn case_49_commands_and_files_in_a_message_are_text_to_gemini() {
    let gateway = TestGateway::new()
        .cli("gemini", "note \"$@\"; replay gemini/ansi-stream-json")
        .model("gemini", json!({"driver": "gemini"}))
        .start();
    gateway.chat("/init @/etc/passwd").send().content();
    assert_eq!(gateway.read_note("gemini.stdin"), "--- USER TASK ---\n/init \\@/etc/passwd");
}

#[test]
fn case_49_a_prompt_too_long_for_an_argument_is_refused_clearly() {
    let gateway = TestGateway::new().cli("ax-glm", "tell ran").model("glm", json!({"driver": "ax-glm"})).start();
    let error = gateway.chat(&"x".repeat(128 * 1024)).send().error(400);
    assert!(error["message"].as_str().unwrap().contains("the prompt is too long for glm"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("stdin"), "{error}");
    assert!(!gateway.path("seen/ran").exists());
}
