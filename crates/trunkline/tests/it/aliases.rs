//! Aliases of `models.json` and `router.yaml`: which model answers, what clients see, and errors in the files.

use std::fs;

use serde_json::{Value, json};

use crate::http::Reply;
use crate::observe::until;
use crate::test_gateway::TestGateway;

/// Two models and these aliases, in this order.
fn models(gateway: &TestGateway, aliases: &str) -> String {
    let repo = gateway.repo();
    let entry = |driver: &str| json!({"driver": driver, "repoPath": repo}).to_string();
    format!("{{\n\"aliases\": {aliases},\n\"claude-shop\": {}, \"codex-shop\": {}}}", entry("claude"), entry("codex"))
}

fn with_aliases(aliases: &str) -> TestGateway {
    let gateway = TestGateway::new()
        .cli("claude", "cat >/dev/null; replay claude/tool_streamjson_partial")
        .cli("codex", "note \"$@\"; codex_answers codex");
    let text = models(&gateway, aliases);
    gateway.config("models.json", &text)
}

/// The names of `GET /v1/models`.
fn listed(gateway: &TestGateway) -> Vec<String> {
    let list = gateway.get("/v1/models").json();
    list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

fn provider(reply: &Reply) -> &str {
    reply.header("x-trunkline-provider").unwrap_or_else(|| panic!("{reply:?}"))
}

#[test]
fn client_with_a_fixed_model_name_is_answered_by_the_model_of_the_first_matching_alias() {
    let aliases =
        r#"{"gpt-5-mini": "claude-shop", "gpt-*": "codex-shop", "gpt-5*": "claude-shop", "default": "gpt-9"}"#;
    let gateway = with_aliases(aliases).start();
    for (name, expected) in
        [("gpt-5-mini", "claude"), ("gpt-5.2-codex", "codex"), ("default", "codex"), ("codex-shop", "codex")]
    {
        let reply = gateway.chat("hi").model(name).send();
        assert_eq!(
            (reply.status, reply.json()["model"].as_str()),
            (200, Some(name)),
            "the name that was asked: {reply:?}"
        );
        assert_eq!(provider(&reply), expected, "{name}");
    }
    let stream = gateway.chat("hi").model("gpt-5.2-codex").streamed().send();
    assert!(stream.frames().iter().all(|frame| frame["model"] == "gpt-5.2-codex"), "{}", stream.body);
    let runs = gateway.get("/v1/runs").json();
    assert_eq!(runs["data"][0]["model"], "codex-shop", "everything after the request sees the model: {runs}");
    assert_eq!(gateway.chat("hi").model("gpt").send().error(400)["message"], "Unknown model");
    assert!(
        gateway.log().contains("alias \"gpt-5*\" of models.json is never used: \"gpt-*\" of models.json comes first")
    );
}

#[test]
fn alias_applies_to_idempotent_and_background_requests_too() {
    let gateway = with_aliases(r#"{"gpt-*": "codex-shop"}"#).start();
    let keyed = || gateway.chat("hi").model("gpt-5").header("idempotency-key", "k").send();
    let (first, second) = (keyed(), keyed());
    assert_eq!((first.content(), second.content()), ("codex".to_owned(), "codex".to_owned()));
    assert_eq!(first.header("x-trunkline-run"), second.header("x-trunkline-run"));
    let accepted = gateway.chat("hi").model("gpt-5").header("prefer", "respond-async").send();
    let run = accepted.header("x-trunkline-run").unwrap();
    assert_eq!(
        (accepted.status, gateway.get(&format!("/v1/runs/{run}")).json()["model"].as_str()),
        (202, Some("codex-shop"))
    );
}

#[test]
fn history_continues_its_session_whichever_name_is_asked_for() {
    let gateway = with_aliases(r#"{"gpt-*": "codex-shop"}"#).start();
    let first = gateway.chat("hi").model("gpt-5").send();
    let history = vec![
        json!({"role": "user", "content": "hi"}),
        json!({"role": "assistant", "content": first.content()}),
        json!({"role": "user", "content": "again"}),
    ];
    let second = gateway.chat("").model("codex-shop").with_messages(history).send();
    assert_eq!(second.json()["trunkline"]["session_id"], first.json()["trunkline"]["session_id"], "{second:?}");
}

#[test]
fn list_has_the_aliases_without_wildcards() {
    let gateway = with_aliases(r#"{"gpt-*": "codex-shop", "fast": "codex-shop", "claude-shop": "codex-shop"}"#).start();
    assert_eq!(listed(&gateway), ["claude-shop", "codex-shop", "agent", "fast"]);
    assert_eq!(gateway.get("/v1/models/gpt-5").json()["id"], "gpt-5");
    let shown = gateway.run(&["models"]).exits(0).stdout;
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["fast", "alias", "of", "codex-shop"])), "{shown}");
    assert!(gateway.log().contains("alias \"claude-shop\" of models.json is never used: a model has this name"));
}

#[test]
fn route_and_check_show_what_an_alias_leads_to() {
    let router = "providers: [{name: p, type: cli, config: {path: p}, models: {capable: large}}]\n\
                  aliases: {'gpt-5*': 'claude-shop', 'o?': 'auto:capable'}\n";
    let gateway =
        with_aliases(r#"{"gpt-5*": "o3"}"#).cli("p", "answers \"$1\" done").config("router.yaml", router).start();
    let route: Value = gateway.get("/v1/route?model=gpt-5.2").json();
    assert_eq!(route["alias"], json!({"pattern": "gpt-5*", "target": "auto:capable", "file": "models.json"}));
    assert_eq!((&route["model"], &route["candidates"][0]["model"]), (&json!("gpt-5.2"), &json!("p/large")));
    assert!(gateway.get("/v1/route?model=auto").json().get("alias").is_none());
    assert_eq!(provider(&gateway.chat("hi").model("gpt-5.2").send()), "p", "models.json comes before router.yaml");
    let shown = gateway.run(&["check", "--route", "o3"]).exits(0).stdout;
    assert!(
        shown.starts_with(
            "o3 is an alias of auto:capable (o? in router.yaml), which would be tried in this order:\n\n1. p/large"
        ),
        "{shown}"
    );
    let shown = gateway.run(&["check"]).stdout;
    let rows = "\naliases, the first that matches is used\n  gpt-5*  → auto:capable  (models.json)\n  gpt-5*  → claude-shop  (router.yaml)\n  o?      → auto:capable  (router.yaml)\n";
    assert!(shown.contains(rows), "{shown}");
    assert!(shown.contains("warning: alias \"gpt-5*\" of router.yaml is never used"), "{shown}");
}

#[test]
fn alias_that_leads_to_no_model_is_an_error_with_its_place_and_the_models() {
    for (aliases, expected) in [
        (
            "{\n  \"gpt-5*\": \"codex-shp\"}",
            "models.json:3:13: alias \"gpt-5*\" leads to \"codex-shp\", which is not a model (did you mean codex-shop? models: claude-shop, codex-shop, agent)",
        ),
        (
            r#"{"a": "b", "b": "a"}"#,
            "models.json:2:18: alias \"a\" leads back to itself: a → b → a (models: claude-shop, codex-shop, agent)",
        ),
    ] {
        let gateway = with_aliases(aliases);
        for args in [&["check"][..], &["serve", "--port", "0"]] {
            let ran = gateway.run(args).exits(3);
            assert!(ran.stderr.contains(expected), "{args:?} {ran:?}");
        }
    }
    let router = "providers: []\naliases:\n  x: nowhere\n";
    let ran = with_aliases("{}").config("router.yaml", router).run(&["check"]).exits(3);
    assert!(ran.stderr.contains("router.yaml:3:3: alias \"x\" leads to \"nowhere\", which is not a model"), "{ran:?}");
}

#[test]
fn aliases_are_reloaded_unless_one_leads_to_no_model() {
    let gateway = with_aliases(r#"{"a": "codex-shop"}"#).start();
    let path = gateway.path("config/models.json");
    fs::write(&path, models(&gateway, r#"{"b": "codex-shop"}"#)).unwrap();
    until("the new alias is there", || listed(&gateway).contains(&"b".to_owned()));
    assert!(gateway.log().contains("configuration reloaded: aliases changed"), "{}", gateway.log());
    fs::write(&path, models(&gateway, r#"{"c": "ghost"}"#)).unwrap();
    until("the error is logged", || gateway.log().contains("configuration not reloaded, the last good one stays"));
    assert!(gateway.log().contains("alias \"c\" leads to \"ghost\", which is not a model"), "{}", gateway.log());
    assert_eq!(listed(&gateway), ["claude-shop", "codex-shop", "agent", "b"]);
}

#[test]
fn clis_on_the_path_are_models_when_the_file_has_only_aliases() {
    let gateway = TestGateway::new()
        .cli("codex", "codex_answers done")
        .config("models.json", r#"{"aliases": {"gpt-5*": "codex"}}"#)
        .start();
    assert_eq!(listed(&gateway), ["codex", "agent"]);
    assert_eq!(gateway.chat("hi").model("gpt-5.2").send().content(), "done");
}

#[test]
fn terminal_accepts_an_alias() {
    let gateway = with_aliases(r#"{"gpt-*": "codex-shop"}"#);
    let ran = gateway.run(&["run", "--model", "gpt-5", "hi"]).exits(0);
    assert!(ran.stdout.contains("codex"), "{ran:?}");
}
