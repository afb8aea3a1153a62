//! Models from `models.json`: lookup, listing and errors.

use serde_json::json;

use crate::test_gateway::TestGateway;

#[test]
fn model_has_driver_repository_and_agent_file() {
    let gateway = TestGateway::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .file("RULES.md", "Be brief.")
        .model("codex-repoX", json!({"driver": "codex", "agentFile": "RULES.md"}))
        .start();
    let repo = gateway.repo().display().to_string();
    let listed = gateway.run(&["models"]).exits(0).stdout;
    assert!(listed.starts_with(&format!("codex-repoX  codex in {repo}\n")), "{listed}");
    let check = gateway.run(&["check", "codex-repoX"]).exits(0).stdout;
    assert!(check.contains("\ncodex-repoX\n") && check.contains(&format!("  cwd     {repo}\n")), "{check}");
    gateway.chat("hi").model("codex-repoX").send().content();
    assert_eq!(gateway.read_note("codex.stdin"), "Be brief.\n\n--- USER TASK ---\nhi");
    assert_eq!(gateway.read_note("codex.cwd").trim_end(), repo);
}

#[test]
fn models_are_listed_in_openai_shape() {
    let gateway = TestGateway::new()
        .cli("codex", "")
        .cli("qwen", "")
        .model("codex-repoX", json!({"driver": "codex"}))
        .model("qwen-repoY", json!({"driver": "qwen-code"}))
        .start();
    let list = gateway.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["codex-repoX", "qwen-repoY", "agent"]);
    assert_eq!(gateway.get("/v1/models/qwen-repoY").json()["object"], "model");
    assert_eq!(gateway.get("/v1/models/nobody").error(404)["code"], "model_not_found");
    assert_eq!(gateway.get("/health").status, 200);
}

#[test]
fn error_suggests_similar_names_when_model_is_unknown() {
    let gateway = TestGateway::new().cli("codex", "").model("codex-repoX", json!({"driver": "codex"})).start();
    let error = gateway.chat("hi").model("codex-repo").send().error(400);
    assert_eq!((error["message"].as_str(), error["param"].as_str()), (Some("Unknown model"), Some("model")));
    assert!(error["detail"].as_str().unwrap().contains("codex-repoX"), "{error}");
}

#[test]
fn error_explains_and_lists_models_when_model_is_a_cli_that_is_not_installed() {
    let gateway = TestGateway::new().cli("codex", "codex_answers done").start();
    for name in ["claude", "claude/opus"] {
        let error = gateway.chat("hi").model(name).send().error(400);
        let message = "Unknown model: claude is not installed: there is no program claude on the gateway's PATH";
        assert_eq!((error["message"].as_str(), error["code"].as_str()), (Some(message), Some("model_not_found")));
        assert!(error["detail"].as_str().unwrap().contains("npm install -g @anthropic-ai/claude-code"), "{error}");
        assert_eq!(error["hint"], "models here: codex, agent");
    }
    let made_up = gateway.chat("hi").model("made-up").send().error(400);
    assert_eq!((&made_up["message"], &made_up["hint"]), (&json!("Unknown model"), &json!("models here: codex, agent")));
    let ran = gateway.run(&["run", "-m", "claude", "hi"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("claude is not installed"), "{ran:?}");
}

#[test]
fn error_explains_how_to_add_model_when_its_cli_is_installed_but_not_configured() {
    let gateway = TestGateway::new()
        .cli("codex", "codex_answers done")
        .cli("gemini", "exit 1")
        .model("m", json!({"driver": "codex"}))
        .start();
    let error = gateway.chat("hi").model("gemini").send().error(400);
    assert_eq!(error["message"], "Unknown model: gemini is installed, but no configured model uses it");
    assert!(error["detail"].as_str().unwrap().contains("\"driver\": \"gemini\""), "{error}");
}

#[test]
fn error_explains_how_to_install_the_cli_when_it_is_missing() {
    let gateway = TestGateway::new().model("gemini-repoZ", json!({"driver": "gemini"})).start();
    let error = gateway.chat("hi").send().error(500);
    let message = "CLI failed: cannot start gemini: command not found: gemini";
    assert_eq!((error["message"].as_str(), error["code"].as_str()), (Some(message), Some("not_found")));
    assert!(error["hint"].as_str().unwrap().contains("npm install -g @google/gemini-cli"), "{error}");
    let check = gateway.run(&["check"]).exits(3);
    assert!(check.stdout.contains("command not found: gemini"), "{check:?}");
}
