//! Compatibility with the documents that specified Trunkline: their field names, files and flags are accepted.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::agent::{text_reply, tool_calls_reply, with_llm};
use crate::fake_llm::FakeLlm;
use crate::observe::until;
use crate::test_gateway::TestGateway;

/// A provider as the adapter protocol describes one, in TOML, with camel case keys.
const CAMEL: &str = "[new-provider]\ncommand = 'new-cli'\ndefaultArgs = ['--print', '--model={model}']\n\
    outputFormat = 'text'\npromptStyle = 'stdin'\ndefaultModel = 'large'\nmaxTokens = 4096\ntimeout = 120000\n\
    models = [{ modelId = 'large', name = 'Large Model' }, { modelId = 'small', name = 'Small Model' }]\n";

/// The same provider with snake case keys.
const SNAKE: &str = "[new-provider]\ncommand = 'new-cli'\ndefault_args = ['--print', '--model={model}']\n\
    output_format = 'text'\nprompt_style = 'stdin'\ndefault_model = 'large'\nmax_tokens = 4096\ntimeout = 120000\n\
    models = [{ model_id = 'large', name = 'Large Model' }, { id = 'small', name = 'Small Model' }]\n";

#[test]
fn provider_is_read_when_its_fields_have_the_names_of_the_adapter_protocol() {
    for file in [CAMEL, SNAKE] {
        let gateway =
            TestGateway::new().cli("new-cli", "note \"$@\"; echo mine").config("providers.toml", file).start();
        assert_eq!(gateway.chat("hi").model("new-provider").send().content(), "mine");
        assert_eq!(gateway.argv("new-cli"), ["--print", "--model=large"]);
        assert_eq!(gateway.read_note("new-cli.stdin"), "--- USER TASK ---\nhi");
        gateway.chat("hi").model("new-provider/small").send().content();
        assert_eq!(gateway.argv("new-cli"), ["--print", "--model=small"]);
        let list = gateway.get("/v1/models").json();
        let named = |id: &str| list["data"].as_array().unwrap().iter().find(|model| model["id"] == id).unwrap().clone();
        assert_eq!((&named("new-provider")["name"], &named("agent")["name"]), (&json!("Large Model"), &json!(null)));
        assert_eq!(named("new-provider/small")["name"], "Small Model");
        let listed = gateway.run(&["models"]).exits(0).stdout;
        assert!(listed.contains("new-provider (Small Model: small) in "), "{listed}");
        let check = gateway.run(&["check", "new-provider"]).exits(0).stdout;
        assert!(check.contains("  timeout 2m in all"), "{check}");
        assert!(check.contains("timeout: 120000 has no unit and is read as milliseconds (2m)"), "{check}");
        assert!(check.contains("new-provider cannot honour maxTokens; ignored"), "{check}");
    }
}

#[test]
fn field_names_of_the_adapter_protocol_are_read_in_the_router_file() {
    let camel = "command: new-cli, defaultArgs: [--print, '--limit={max_tokens}'], outputFormat: text, promptStyle: arg, \
                 defaultModel: large, maxTokens: 4096, timeout: 120000";
    let snake = "command: new-cli, default_args: [--print, '--limit={max_tokens}'], output_format: text, prompt_style: arg, \
                 default_model: large, max_tokens: 4096, timeout: 120000";
    for config in [camel, snake] {
        let models = "models: [{modelId: large, name: Large Model}, small]";
        let file = format!("providers: [{{name: p, type: agent, config: {{{config}}}, {models}}}]\n");
        let gateway = TestGateway::new().cli("new-cli", "note \"$@\"; echo mine").config("router.yaml", &file).start();
        assert_eq!(gateway.chat("hi").model("p").send().content(), "mine");
        assert_eq!(gateway.argv("new-cli"), ["--print", "--limit=4096", "\n--- USER TASK ---\nhi"]);
        assert!(gateway.log().contains("provider p: timeout: 120000 has no unit"), "{}", gateway.log());
        let list = gateway.get("/v1/models").json();
        let named: Vec<(&str, Option<&str>)> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| (model["id"].as_str().unwrap(), model["name"].as_str()))
            .collect();
        let expected = [
            ("auto", None),
            ("p", Some("Large Model")),
            ("p/large", Some("Large Model")),
            ("p/small", None),
            ("agent", None),
        ];
        assert_eq!(named, expected);
    }
}

#[test]
fn field_is_an_error_when_it_is_given_under_two_names() {
    let toml = CAMEL.replace("command =", "program = 'x'\ncommand =");
    let ran = TestGateway::new().config("providers.toml", &toml).run(&["check"]).exits(3);
    assert!(ran.stderr.contains("duplicate field `program`"), "{ran:?}");
    for config in ["command: a, program: b, format: text", "maxTokens: 1, max_tokens: 2", "model: a, defaultModel: b"] {
        let file = format!("providers: [{{name: codex, type: agent, config: {{{config}}}}}]\n");
        let ran = TestGateway::new().config("router.yaml", &file).run(&["check"]).exits(3);
        assert!(ran.stderr.contains("are the same field"), "{config} {ran:?}");
    }
}

#[test]
fn max_tokens_of_the_configuration_apply_when_the_client_sets_none() {
    let llm = FakeLlm::new([text_reply("one"), text_reply("two")]);
    let router = format!(
        "providers:\n  - {{name: exe, type: cli, config: {{path: exe, maxTokens: 100}}}}\n  \
         - {{name: api, type: api, config: {{base_url: '{}', model: m, max_tokens: 200}}}}\n",
        llm.url
    );
    let gateway = TestGateway::new()
        .cli("exe", "cat >\"$seen/request\"; answers \"$1\" done")
        .config("router.yaml", &router)
        .start();
    let request =
        |gateway: &TestGateway| serde_json::from_str::<serde_json::Value>(&gateway.read_note("request")).unwrap();
    gateway.chat("hi").model("exe").send().content();
    assert_eq!(request(&gateway)["max_tokens"], 100);
    gateway.chat("hi").model("exe").with("max_tokens", 7).send().content();
    assert_eq!(request(&gateway)["max_tokens"], 7);
    gateway.chat("hi").model("api").send().content();
    gateway.chat("hi").model("api").with("max_tokens", 7).send().content();
    let sent: Vec<_> = llm.seen().iter().map(|(_, body)| body["max_tokens"].clone()).collect();
    assert_eq!(sent, [json!(200), json!(7)]);
}

#[test]
fn timeout_without_unit_is_refused_when_it_is_ambiguous() {
    let gateway =
        |timeout: u64| TestGateway::new().cli("codex", "").model("m", json!({"driver": "codex", "timeout": timeout}));
    let ran = gateway(30_000).run(&["check"]).exits(3);
    assert!(ran.stderr.contains("30000 could be seconds or milliseconds"), "{ran:?}");
    let shown = gateway(7200).run(&["check", "m"]).exits(0).stdout;
    assert!(shown.contains("  timeout 2h in all"), "{shown}");
    let shown = gateway(120_000).run(&["check", "m"]).exits(0).stdout;
    assert!(shown.contains("  timeout 2m in all") && shown.contains("model m: timeout: 120000 has no unit"), "{shown}");
}

#[test]
fn unknown_option_is_passed_to_the_executable_with_a_warning() {
    let router =
        "providers: [{name: p, type: cli, config: {path: p, custom_option: value, timout: 5, options: {a: 1}}}]\n";
    let gateway = TestGateway::new()
        .cli("p", "cat >\"$seen/request\"; answers \"$1\" done")
        .config("router.yaml", router)
        .start();
    gateway.chat("hi").model("p").send().content();
    let request: serde_json::Value = serde_json::from_str(&gateway.read_note("request")).unwrap();
    assert_eq!(request["config"], json!({"custom_option": "value", "timout": 5, "a": 1}));
    let log = gateway.log();
    assert!(log.contains("`custom_option` is not a key of ours and is passed on to the executable"), "{log}");
    assert!(log.contains("did you mean `timeout`?"), "{log}");
    let twice = router.replace("{a: 1}", "{custom_option: 1}");
    let ran = TestGateway::new().config("router.yaml", &twice).run(&["check"]).exits(3);
    assert!(ran.stderr.contains("`custom_option` is there twice"), "{ran:?}");
}

#[test]
fn router_file_of_specular_is_read_when_there_is_no_other() {
    let router = |name: &str| format!("providers: [{{name: {name}, type: cli, config: {{path: p}}}}]\n");
    let gateway = TestGateway::new().cli("p", "answers \"$1\" done").file(".specular/router.yaml", &router("theirs"));
    let gateway = gateway.file(".specular/models.json", "not for us");
    let shown = gateway.run(&["check", "theirs"]).exits(0).stdout;
    assert!(shown.contains("/.specular/router.yaml") && shown.contains("move it to .trunkline/router.yaml"), "{shown}");
    let gateway = gateway.file(".trunkline/router.yaml", &router("ours"));
    let shown = gateway.run(&["check", "ours"]).exits(0).stdout;
    assert!(!shown.contains(".specular"), "{shown}");
    gateway.run(&["check", "theirs"]).exits(3);
}

#[test]
fn example_router_file_is_valid_and_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = fs::read_to_string(root.join("examples/router.example.yaml")).unwrap();
    let gateway = TestGateway::new()
        .cli("ollama-provider", "answers \"$1\" done")
        .cli("claude", "")
        .config("router.yaml", &example);
    let shown = gateway.env("OPENAI_API_KEY", "k").run(&["check"]);
    assert!(shown.stderr.is_empty() && shown.stdout.contains("\nollama\n"), "{shown:?}");
    // The command that docs/PROVIDERS.md names installs a program of this name.
    assert!(
        fs::read_to_string(root.join("providers/ollama/Cargo.toml")).unwrap().contains("name = \"ollama-provider\"")
    );
    for page in ["docs/CONFIGURATION.md", "docs/PROVIDERS.md"] {
        assert!(fs::read_to_string(root.join(page)).unwrap().contains("examples/router.example.yaml"), "{page}");
    }
}

#[test]
fn backend_variables_are_warned_about_when_no_backend_is_set() {
    let gateway =
        TestGateway::new().cli("codex", "").env("BACKEND_MODEL", "opus").env("BACKEND_MAX_TURNS", "3").start();
    let expected = "BACKEND_MODEL, BACKEND_MAX_TURNS are set, but AGENT_BACKEND is not: ignored";
    assert!(gateway.log().contains(expected) && gateway.log().contains("trunkline discord"), "{}", gateway.log());
    let used = TestGateway::new().cli("codex", "").env("AGENT_BACKEND", "codex").env("BACKEND_MODEL", "o3").start();
    assert!(!used.log().contains("BACKEND_MODEL"), "{}", used.log());
}

#[test]
fn agent_reads_outside_the_workspace_when_allow_read_is_given() {
    let docs = tempfile::tempdir().unwrap();
    let notes = docs.path().canonicalize().unwrap().join("notes.txt");
    fs::write(&notes, "the keeper is Ingrid").unwrap();
    let read = || tool_calls_reply("Look.", &[("c1", "read_file", json!({"path": notes}))]);
    let write = || tool_calls_reply("Change.", &[("c2", "write_file", json!({"path": notes, "content": "x"}))]);
    let llm = FakeLlm::new([read(), write(), text_reply("done"), read(), text_reply("done")]);
    let gateway = with_llm(TestGateway::new(), &llm);
    let folder = docs.path().to_str().unwrap();
    gateway.run(&["agent", "--allow-read", folder, "-p", "look there"]).exits(0);
    let results = crate::agent::request_messages(&llm, 2);
    let results: Vec<&str> = results.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert_eq!(results[0], "the keeper is Ingrid");
    assert!(results[1].contains("outside the workspace"), "{results:?}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "the keeper is Ingrid");
    gateway.run(&["agent", "-p", "look there"]).exits(0);
    let refused = crate::agent::request_messages(&llm, 4);
    assert!(refused.last().unwrap().1.contains("outside the workspace"), "{refused:?}");
    for wrong in ["/no/such/folder", notes.to_str().unwrap()] {
        let ran = gateway.run(&["agent", "--allow-read", wrong, "-p", "hi"]).exits(2);
        assert!(ran.stderr.contains("--allow-read"), "{ran:?}");
    }
}

#[test]
fn runs_show_the_latest_message_when_a_request_contains_a_history() {
    let gateway = TestGateway::new()
        .cli("codex", "cat >/dev/null; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .start();
    let messages = json!([
        {"role": "user", "content": "the first words"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": "the latest words"},
    ]);
    gateway.chat("").with_messages(messages.as_array().unwrap().clone()).send().content();
    let mut listed = String::new();
    until("the run is listed", || {
        listed = gateway.run(&["runs"]).exits(0).stdout;
        listed.lines().count() > 1
    });
    assert!(listed.lines().last().unwrap().ends_with("the latest words") && !listed.contains("[User]"), "{listed}");
    let id = listed.lines().last().unwrap().split(' ').next().unwrap().to_owned();
    let shown = gateway.run(&["runs", "show", &id]).exits(0).stdout;
    assert!(shown.contains("prompt    the latest words"), "{shown}");
}
