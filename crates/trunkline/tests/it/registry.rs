//! `models.json` as the gateway understands it.

use serde_json::json;

use crate::line::Line;

#[test]
fn a_model_has_its_driver_its_repository_and_its_agent_file() {
    let line = Line::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .file("RULES.md", "Be brief.")
        .model("codex-repoX", json!({"driver": "codex", "agentFile": "RULES.md"}))
        .start();
    let repo = line.repo().display().to_string();
    let listed = line.run(&["models"]).exits(0).stdout;
    assert!(listed.starts_with(&format!("codex-repoX  codex in {repo}\n")), "{listed}");
    let check = line.run(&["check", "codex-repoX"]).exits(0).stdout;
    assert!(check.contains("\ncodex-repoX\n") && check.contains(&format!("  cwd     {repo}\n")), "{check}");
    line.chat("hi").model("codex-repoX").send().content();
    assert_eq!(line.noted("codex.stdin"), "Be brief.\n\n--- USER TASK ---\nhi");
    assert_eq!(line.noted("codex.cwd").trim_end(), repo);
}

#[test]
fn the_models_are_listed_in_openais_shape() {
    let line = Line::new()
        .cli("codex", "")
        .cli("qwen", "")
        .model("codex-repoX", json!({"driver": "codex"}))
        .model("qwen-repoY", json!({"driver": "qwen-code"}))
        .start();
    let list = line.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["codex-repoX", "qwen-repoY", "agent"]);
    assert_eq!(line.get("/v1/models/qwen-repoY").json()["object"], "model");
    assert_eq!(line.get("/v1/models/nobody").error(404)["code"], "model_not_found");
    assert_eq!(line.get("/health").status, 200);
}

#[test]
fn an_unknown_model_is_a_bad_request_that_names_near_ones() {
    let line = Line::new().cli("codex", "").model("codex-repoX", json!({"driver": "codex"})).start();
    let error = line.chat("hi").model("codex-repo").send().error(400);
    assert_eq!((error["message"].as_str(), error["param"].as_str()), (Some("Unknown model"), Some("model")));
    assert!(error["detail"].as_str().unwrap().contains("codex-repoX"), "{error}");
}

#[test]
fn a_model_whose_cli_is_not_installed_says_how_to_get_it() {
    let line = Line::new().model("gemini-repoZ", json!({"driver": "gemini"})).start();
    let error = line.chat("hi").send().error(500);
    assert_eq!((error["message"].as_str(), error["code"].as_str()), (Some("CLI failed"), Some("not_found")));
    assert!(error["hint"].as_str().unwrap().contains("npm install -g @google/gemini-cli"), "{error}");
    let check = line.run(&["check"]).exits(3);
    assert!(check.stdout.contains("command not found: gemini"), "{check:?}");
}
