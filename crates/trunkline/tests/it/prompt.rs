//! The prompt as the CLI receives it.

use serde_json::json;

use crate::line::Line;

fn codex() -> Line {
    Line::new().cli("codex", "note \"$@\"; replay codex/reasoning").model("codex-repo", json!({"driver": "codex"}))
}

#[test]
fn agents_md_stands_above_the_task() {
    let line = codex().file("AGENTS.md", "Always answer PONG.\n").start();
    line.chat("Extract data").after("system", "You are terse.").after("user", "from the report").send().content();
    assert_eq!(
        line.noted("codex.stdin"),
        "Always answer PONG.\n\n--- USER TASK ---\nYou are terse.\n\nfrom the report\n\nExtract data"
    );
}

#[test]
fn without_agents_md_the_prompt_begins_at_the_task() {
    let line = codex().start();
    line.chat("Extract data").send().content();
    assert_eq!(line.noted("codex.stdin"), "--- USER TASK ---\nExtract data");
}
