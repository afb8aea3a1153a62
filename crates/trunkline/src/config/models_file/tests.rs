use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline_core::model::Sandbox;
use trunkline_core::vocabulary::Permissions;

use super::*;

/// Loads a file with this text. The home folder is `/home/u`.
fn load_text(text: &str) -> Result<(Vec<Model>, Vec<String>), String> {
    load_file(text).map(|(file, warnings)| (file.models, warnings))
}

fn load_file(text: &str) -> Result<(ModelsFile, Vec<String>), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("models.json");
    std::fs::write(&path, text).unwrap();
    let environment = Environment { env: vec![("HOME".into(), "/home/u".into())], folder: "/elsewhere".into() };
    let providers = provider::built_in().into_iter().map(|(name, provider)| (name, Arc::new(provider))).collect();
    let mut warnings = Vec::new();
    match load(&path, &providers, &Models::default(), &environment, &mut warnings) {
        Ok(file) => Ok((file, warnings)),
        Err(error) => Err(error.to_string().replace(folder.path().to_str().unwrap(), "")),
    }
}

fn model(entry: Value) -> Model {
    let (mut models, _) = load_text(&json!({"m": entry}).to_string()).unwrap();
    models.pop().unwrap()
}

fn error_of(text: &str) -> String {
    load_text(text).unwrap_err()
}

#[test]
fn reads_the_example_of_the_specification() {
    let text = r#"{
        "codex-repoX": {"driver": "codex", "repoPath": "/home/marcus/projects/repoX", "agentFile": "AGENTS.md"},
        "qwen-repoY": {"driver": "qwen", "repoPath": "/home/marcus/projects/repoY", "agentFile": "AGENTS.md"},
        "gemini-repoZ": {"driver": "gemini", "repoPath": "/home/marcus/projects/repoZ", "agentFile": "AGENTS.md"}
    }"#;
    let (models, warnings) = load_text(text).unwrap();
    let read: Vec<_> = models.iter().map(|m| (m.name.as_str(), m.backend.name(), m.repo.to_str())).collect();
    let expected = [
        ("codex-repoX", "codex", Some("/home/marcus/projects/repoX")),
        ("qwen-repoY", "qwen", Some("/home/marcus/projects/repoY")),
        ("gemini-repoZ", "gemini", Some("/home/marcus/projects/repoZ")),
    ];
    assert_eq!(read, expected, "in the order of the file");
    assert!(models.iter().all(|m| m.agent_file.as_deref() == Some("AGENTS.md") && !m.worktree));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn reads_every_key() {
    let m = model(json!({
        "driver": "claude-code", "repoPath": "~/work", "agentFile": "RULES.md", "worktree": true, "keepWorktree": true,
        "model": "opus", "permissions": "full", "sandbox": "off", "writable": ["~/out", "more"], "timeout": "2m", "idleTimeout": 5, "maxTurns": 3,
        "allowedTools": ["Read"], "systemPrompt": "Be brief.", "env": {"A": "b"}, "command": "~/bin/claude",
        "args": ["--debug"], "normalize": "last_block", "policy": {"createHelpers": false, "commitHelpers": true},
    }));
    assert_eq!((m.backend.name(), m.repo.to_str().unwrap()), ("claude", "/home/u/work"));
    assert_eq!(m.agent_file.as_deref(), Some("RULES.md"));
    assert!(m.worktree && m.keep_worktree && m.log_helpers);
    assert_eq!((m.upstream.as_deref(), m.permissions), (Some("opus"), Permissions::Full));
    assert_eq!((m.sandbox, m.writable[0].to_str()), (Some(Sandbox::Off), Some("/home/u/out")));
    assert!(m.writable[1].is_absolute() && m.writable[1].ends_with("more"));
    assert_eq!((m.limits.total, m.limits.idle), (Duration::from_secs(120), Duration::from_secs(5)));
    assert_eq!((m.max_turns, &m.allowed_tools[..]), (Some(3), &["Read".to_owned()][..]));
    assert!(m.system_prompt.unwrap().starts_with("Be brief.\n\nDo not add helper scripts"));
    assert_eq!((m.env["A"].as_str(), m.command.as_deref()), ("b", Some("/home/u/bin/claude")));
    assert_eq!((&m.args[..], m.normalize), (&["--debug".to_owned()][..], Normalize::LastBlock));
}

#[test]
fn defaults_are_safe() {
    let m = model(json!({"driver": "codex", "repoPath": "/repo"}));
    assert_eq!((m.agent_file.as_deref(), m.permissions), (None, Permissions::Edit));
    assert!(!m.worktree && !m.keep_worktree && !m.log_helpers);
    assert_eq!((m.upstream, m.max_turns, m.system_prompt, m.command), (None, None, None, None));
    assert_eq!(m.normalize, Normalize::None);
    assert_eq!(model(json!({"driver": "codex", "repoPath": "/repo", "agentFile": ""})).agent_file, None);
}

#[test]
fn prompt_begins_with_agents_md_unless_the_cli_reads_it_by_itself() {
    for (driver, by_itself) in [
        ("claude", true),
        ("codex", true),
        ("qwen", true),
        ("opencode", true),
        ("gemini", false),
        ("ax-glm", false),
        ("ax-grok", false),
    ] {
        let unnamed = model(json!({"driver": driver, "repoPath": "/repo"})).agent_file;
        assert_eq!(unnamed.is_none(), by_itself, "{driver}");
        let named = model(json!({"driver": driver, "repoPath": "/repo", "agentFile": "AGENTS.md"})).agent_file;
        assert_eq!(named.as_deref(), Some("AGENTS.md"), "{driver}");
    }
}

#[test]
fn relative_path_is_relative_to_the_file() {
    let m = model(json!({"driver": "codex", "repoPath": "repo", "command": "bin/codex"}));
    assert!(m.repo.is_absolute() && m.repo.ends_with("repo") && !m.repo.starts_with("/elsewhere"), "{:?}", m.repo);
    assert!(m.command.unwrap().ends_with("/bin/codex"));
    assert_eq!(
        model(json!({"driver": "codex", "repoPath": "/", "command": "codex-2"})).command.as_deref(),
        Some("codex-2")
    );
}

#[test]
fn no_limit_exceeds_the_total() {
    let m = model(json!({"driver": "codex", "repoPath": "/", "timeout": "1s", "idleTimeout": "1h"}));
    assert_eq!((m.limits.idle, m.limits.startup), (Duration::from_secs(1), Duration::from_secs(1)));
}

#[test]
fn format_is_a_driver_for_a_custom_command() {
    let m = model(json!({"driver": "stream-json", "repoPath": "/", "command": "ask", "args": ["{prompt}"]}));
    let provider = m.backend.program().unwrap();
    assert_eq!((provider.program.as_str(), provider.format), ("ask", Format::StreamJson));
    assert!(
        provider.has_placeholder(trunkline_core::provider::Placeholder::Prompt) && m.args.is_empty(),
        "the arguments are the recipe"
    );
    assert!(error_of(r#"{"m": {"driver": "text", "repoPath": "/"}}"#).contains("needs a command"));
}

#[test]
fn errors_have_position_and_reason() {
    let entry = r#"{"driver": "codex", "repoPath": "/"}"#;
    for (text, at, why) in [
        (
            "{\n\"m\": {\"driver\": \"codex\", \"repoPath\": \"/\", \"worktre\": true}}",
            ":2:",
            "did you mean `worktree`",
        ),
        ("{\n\"m\": {\"driver\": \"codex\"}}", ":2:", "missing field `repoPath`"),
        ("{\"m\": {\n\"driver\": \"cladue\", \"repoPath\": \"/\"}}", ":2:", "did you mean \"claude\"?"),
        ("{\"m\": {\n\"driver\": \"zzzzzz\", \"repoPath\": \"/\"}}", ":2:", "known drivers: claude, codex, gemini"),
        (&format!("{{\"m\": {entry},\n\"m\": {entry}}}"), ":2:", "\"m\" appears twice"),
        (&format!("{{\n\"\": {entry}}}"), ":2:", "cannot be a model's name"),
        ("{\"m\": {\"driver\": \"codex\", \"repoPath\": \"/\",\n\"timeout\": \"soon\"}}", ":2:", "not a time"),
        ("{\"m\": {\"driver\": \"codex\", \"repoPath\": \"/\",\n\"timeout\": 0}}", ":2:", "not a time"),
        ("{\"m\": {\"driver\": \"codex\", \"repoPath\": \"/\",\n\"permissions\": \"root\"}}", ":2:", "unknown variant"),
        ("{\"m\": {\"driver\": \"codex\", \"repoPath\": \"/\",\n\"fallback\": [\"x\"]}}", ":2:", "fallback to \"x\""),
        ("[]", ":1:", "an object of models by name"),
        ("", ":1:", "EOF"),
    ] {
        let error = error_of(text);
        assert!(error.starts_with(&format!("/models.json{at}")) && error.contains(why), "{text}\n{error}");
    }
    assert!(
        error_of(r#"{"m": {"driver": "codex", "repoPath": "/", "fallback": ["m"]}}"#).contains("not another model")
    );
}

#[test]
fn warns_when_a_file_has_no_models() {
    let (models, warnings) = load_text(r#"{"$schema": "models.schema.json"}"#).unwrap();
    assert!(models.is_empty() && warnings[0].contains("names no model"), "{warnings:?}");
}

#[test]
fn aliases_and_server_are_not_models() {
    let text = r#"{
        "aliases": {"z-*": "m", "a": "auto:fast"},
        "m": {"driver": "codex", "repoPath": "/"},
        "server": {"allowOrigins": ["HTTP://localhost:*", "https://app.example.com:443"]}
    }"#;
    let (file, warnings) = load_file(text).unwrap();
    assert_eq!(file.models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["m"]);
    let aliases: Vec<_> =
        file.aliases.iter().map(|alias| (alias.pattern.as_str(), alias.target.as_str(), alias.position)).collect();
    assert_eq!(aliases, [("z-*", "m", (2, 28)), ("a", "auto:fast", (2, 38))], "in the order of the file");
    let origins: Vec<String> = file.server.allow_origins.iter().map(ToString::to_string).collect();
    assert_eq!(origins, ["http://localhost:*", "https://app.example.com"]);
    assert!(!file.has_only_sections() && warnings.is_empty(), "{warnings:?}");
    let (file, warnings) = load_file(r#"{"aliases": {"a": "b"}}"#).unwrap();
    assert!(file.has_only_sections() && warnings.is_empty(), "{warnings:?}");
}

#[test]
fn error_in_a_section_has_position_and_reason() {
    for (text, at, why) in [
        (r#"{"aliases": ["a"]}"#, ":1:13", "an object of aliases"),
        (r#"{"aliases": {"a": 1}}"#, ":1:19", "expected a string"),
        (r#"{"aliases": {"a": ""}}"#, ":1:19", "its target is empty"),
        (r#"{"aliases": {"": "a"}}"#, ":1:18", "its pattern is empty"),
        (r#"{"aliases": {"a": "b-*"}}"#, ":1:19", "without `*`"),
        (r#"{"aliases": {"a": "b", "a": "c"}}"#, ":1:26", "alias \"a\" appears twice"),
        (r#"{"aliases": {}, "aliases": {}}"#, ":1:", "`aliases` appears twice"),
        (r#"{"server": {"driver": "codex"}}"#, ":1:20", "`server` is a section of this file"),
        (r#"{"server": {"allowOrigins": "x"}}"#, ":1:", "expected a sequence"),
        (r#"{"server": {"sideRequests": 5}}"#, ":1:", "the name of a model, or false"),
        (r#"{"server": {"allowOrigins": ["*"]}}"#, ":1:30", "server.allowOrigins: `*` would let every web page"),
        (r#"{"server": {"allowOrigins": ["https://a", "null"]}}"#, ":1:43", "sandboxed frames"),
    ] {
        let error = error_of(text);
        assert!(error.starts_with(&format!("/models.json{at}")) && error.contains(why), "{text}\n{error}");
    }
}

#[test]
fn schema_and_loader_accept_the_same_sections() {
    let schema = include_str!("../../../../../schemas/models.schema.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let (mut accepted, mut rejected) = (0, 0);
    for (name, value) in [
        ("aliases", json!({})),
        ("aliases", json!({"claude-*": "m", "gpt-5?": "auto:capable", "x": "a/b"})),
        ("aliases", json!({"a": ""})),
        ("aliases", json!({"": "a"})),
        ("aliases", json!({"a": "b*"})),
        ("aliases", json!({"a": ["b"]})),
        ("aliases", json!(["a"])),
        ("server", json!({})),
        ("server", json!({"allowOrigins": []})),
        ("server", json!({"allowOrigins": ["http://localhost:*", "https://app.example.com", "http://[::1]:3000"]})),
        ("server", json!({"allowOrigins": "http://localhost:*"})),
        ("server", json!({"allowOrigins": ["*"]})),
        ("server", json!({"allowOrigins": ["null"]})),
        ("server", json!({"allowOrigins": ["https://*.example.com"]})),
        ("server", json!({"allowOrigins": ["https://app.example.com:*"]})),
        ("server", json!({"allowOrigins": ["https://app.example.com/"]})),
        ("server", json!({"allowOrigins": [5]})),
        ("server", json!({"sideRequests": "m"})),
        ("server", json!({"sideRequests": false})),
        ("server", json!({"sideRequests": ["m"]})),
        ("server", json!({"driver": "codex", "repoPath": "/"})),
    ] {
        let file = json!({ name: value });
        let loaded = load_file(&file.to_string());
        *(if loaded.is_ok() { &mut accepted } else { &mut rejected }) += 1;
        assert_eq!(schema.is_valid(&file), loaded.is_ok(), "{file}: {:?}", loaded.err());
    }
    assert!(accepted > 4 && rejected > 8, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn schema_and_loader_accept_the_same_values() {
    let schema = include_str!("../../../../../schemas/models.schema.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let with = |key: &str, value: Value| {
        let mut entry = json!({"driver": "codex", "repoPath": "/repo"});
        entry[key] = value;
        json!({"$schema": "x", "m": entry})
    };
    for (key, value) in [
        ("agentFile", json!("")),
        ("worktree", json!(true)),
        ("keepWorktree", json!(1)),
        ("model", json!(7)),
        ("permissions", json!("read")),
        ("permissions", json!("root")),
        ("sandbox", json!("required")),
        ("sandbox", json!(false)),
        ("writable", json!(["~/out"])),
        ("writable", json!("~/out")),
        ("timeout", json!("90")),
        ("timeout", json!("1.5 h")),
        ("timeout", json!(0.5)),
        ("timeout", json!(-1)),
        ("idleTimeout", json!("soon")),
        ("maxTurns", json!(0)),
        ("maxTurns", json!(-1)),
        ("maxTurns", json!(1.5)),
        ("allowedTools", json!(["Read"])),
        ("allowedTools", json!("Read")),
        ("fallback", json!([])),
        ("env", json!({"A": "b"})),
        ("env", json!({"A": 1})),
        ("args", json!(["-x"])),
        ("normalize", json!("last_block")),
        ("normalize", json!("first_block")),
        ("policy", json!({"createHelpers": true, "commitHelpers": false})),
        ("policy", json!({"deleteHelpers": true})),
        ("nonsense", json!(true)),
    ] {
        let file = with(key, value);
        let loaded = load_text(&file.to_string());
        assert_eq!(schema.is_valid(&file), loaded.is_ok(), "{file}: {:?}", loaded.err());
    }
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in r#"[\{\}\[\]":, a-z0-9.\n]{0,80}"#) {
        let _ = load_text(&text);
    }

    #[test]
    fn any_printable_name_is_accepted(name in "\\PC{1,40}") {
        prop_assume!(name != "$schema" && name != sections::ALIASES && name != sections::SERVER);
        let (models, _) = load_text(&json!({&name: {"driver": "codex", "repoPath": "/"}}).to_string()).unwrap();
        prop_assert_eq!(&models[0].name, &name);
    }
}
