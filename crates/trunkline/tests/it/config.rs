//! Configurations that are invalid, missing, or changed while the gateway runs.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::{Value, json};

use crate::observe::until;
use crate::test_gateway::TestGateway;

/// The error of `trunkline check` for a `models.json`; `trunkline serve` reports the same one.
fn config_error(models: &str) -> String {
    let gateway = TestGateway::new().cli("codex", "").config("models.json", models);
    let error = gateway.run(&["check"]).exits(3).stderr;
    assert_eq!(gateway.run(&["serve", "--port", "0"]).exits(3).stderr, error);
    error.replace(gateway.path("config").to_str().unwrap(), "CONFIG")
}

#[test]
fn case_79_error_names_the_line_and_a_similar_key_when_a_key_is_unknown() {
    let error = config_error("{\n  \"m\": {\n    \"driver\": \"codex\",\n    \"repopath\": \"/\"\n  }\n}\n");
    assert!(error.starts_with("trunkline: CONFIG/models.json:4:"), "{error}");
    assert!(error.contains("unknown field `repopath`") && error.contains("did you mean `repoPath`?"), "{error}");
}

#[test]
fn error_suggests_a_similar_driver_when_a_driver_is_unknown() {
    let error = config_error("{\n  \"m\": {\"driver\": \"codec\", \"repoPath\": \"/\"}\n}\n");
    assert!(error.starts_with("trunkline: CONFIG/models.json:2:"), "{error}");
    assert!(error.contains("unknown driver \"codec\" (did you mean \"codex\"?)"), "{error}");
}

#[test]
fn model_is_an_error_when_it_is_defined_twice() {
    let entry = "{\"driver\": \"codex\", \"repoPath\": \"/\"}";
    let error = config_error(&format!("{{\n  \"m\": {entry},\n  \"m\": {entry}\n}}"));
    assert!(error.starts_with("trunkline: CONFIG/models.json:3:") && error.contains("\"m\" is there twice"), "{error}");
}

#[test]
fn fallback_is_an_error_when_its_model_does_not_exist() {
    let error =
        config_error("{\n  \"m\": {\"driver\": \"codex\", \"repoPath\": \"/\",\n    \"fallback\": [\"ghost\"]}\n}");
    assert!(
        error.starts_with("trunkline: CONFIG/models.json:3:") && error.contains("fallback to \"ghost\""),
        "{error}"
    );
}

#[test]
fn error_names_the_line_when_the_file_is_not_json() {
    let error = config_error("{\n  \"m\": {\"driver\" \"codex\"}\n}\n");
    assert!(error.starts_with("trunkline: CONFIG/models.json:2:"), "{error}");
}

#[test]
fn configuration_folder_is_an_error_when_it_has_no_configuration() {
    let gateway = TestGateway::new().cli("codex", "");
    let nowhere = gateway.path("nowhere");
    let ran = gateway.run(&["serve", "--port", "0", "--config", nowhere.to_str().unwrap()]).exits(3);
    assert!(ran.stderr.contains("nowhere: no models.json and no router.yaml here"), "{ran:?}");
}

#[test]
fn every_cli_on_the_path_is_a_model_when_there_is_no_configuration() {
    let gateway = TestGateway::new().cli("codex", "note \"$@\"; replay codex/reasoning").cli("ax-glm", "").start();
    assert_eq!(models(&gateway), ["codex", "glm", "agent"]);
    gateway.chat("hi").model("codex").send().content();
    assert_eq!(gateway.read_note("codex.cwd").trim_end(), gateway.repo().to_str().unwrap());
}

#[test]
fn configuration_is_found_in_the_working_directory() {
    let gateway = TestGateway::new()
        .cli("codex", "")
        .file(".trunkline/models.json", "{\"mine\": {\"driver\": \"codex\", \"repoPath\": \"..\"}}");
    let listed = gateway.run(&["models"]).exits(0).stdout;
    assert!(listed.starts_with("mine   codex in "), "{listed}");
}

#[test]
fn case_78_configuration_is_reloaded_when_its_file_changes_unless_it_is_broken() {
    let gateway =
        TestGateway::new().cli("codex", "codex_answers done").model("old", json!({"driver": "codex"})).start();
    let path = gateway.path("config/models.json");
    let entry = json!({"driver": "codex", "repoPath": gateway.repo()});
    fs::write(&path, json!({"old": entry, "new": entry}).to_string()).unwrap();
    until("the new model is there", || models(&gateway) == ["new", "old", "agent"]);
    assert_eq!(gateway.chat("hi").model("new").send().content(), "done");
    fs::write(&path, "{\"new\": {\"driver\": \"codec\"}}").unwrap();
    until("the error is logged", || gateway.log().contains("configuration not reloaded, the last good one stays"));
    assert!(gateway.log().contains("missing field `repoPath`"), "{}", gateway.log());
    assert_eq!(models(&gateway), ["new", "old", "agent"]);
    // Editors write another file and rename it.
    let swap = gateway.path("config/.models.json.swp");
    fs::write(&swap, json!({"newest": entry}).to_string()).unwrap();
    fs::rename(&swap, &path).unwrap();
    until("the newest model is there", || models(&gateway) == ["newest", "agent"]);
}

#[test]
fn run_continues_when_its_model_is_removed() {
    let gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("old", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let entry = json!({"driver": "codex", "repoPath": gateway.repo()});
    fs::write(gateway.path("config/models.json"), json!({"new": entry}).to_string()).unwrap();
    until("the model is removed", || models(&gateway) == ["new", "agent"]);
    gateway.leave_note("go");
    let reply = stream.finish();
    assert!(reply.is_done() && reply.streamed_text().ends_with("two"), "{}", reply.body);
    assert_eq!(gateway.chat("hi").model("old").send().error(400)["message"], "Unknown model");
}

#[test]
fn providers_file_adds_a_cli() {
    let providers = "[mine]\nprogram = \"my-agent\"\nformat = \"text\"\nargs = [[\"--task\", \"-\"], [\"--model\", \"{model}\"]]\n\
                     [mine.permissions]\nfull = { args = [\"--yes\"] }\n";
    let gateway = TestGateway::new()
        .cli("my-agent", "note \"$@\"; echo mine")
        .config("providers.toml", providers)
        .model("m", json!({"driver": "mine", "model": "large"}))
        .start();
    assert_eq!(gateway.chat("hi").send().content(), "mine");
    assert_eq!(gateway.argv("my-agent"), ["--task", "-", "--model", "large"]);
    let gateway = TestGateway::new().config("providers.toml", &providers.replace("format", "fromat"));
    let ran = gateway.run(&["check"]).exits(3);
    assert!(ran.stderr.contains("providers.toml:3:") && ran.stderr.contains("did you mean `format`"), "{ran:?}");
}

fn models(gateway: &TestGateway) -> Vec<String> {
    let list = gateway.get("/v1/models").json();
    let ids = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned());
    assert_eq!(list["object"], Value::from("list"));
    ids.collect()
}

const ROUTER: &str = "providers: [{name: p, type: cli, config: {path: p}}]\n";

#[test]
fn last_good_configuration_stays_when_the_file_is_emptied_or_removed() {
    let gateway =
        TestGateway::new().cli("p", "cat >/dev/null; answers \"$1\" done").config("router.yaml", ROUTER).start();
    let file = gateway.path("config/router.yaml");
    for what in ["emptied", "removed"] {
        if what == "emptied" {
            fs::write(&file, "").unwrap()
        } else {
            fs::remove_file(&file).unwrap()
        }
        until("the change is noticed", || gateway.log().contains("empty or gone"));
        assert_eq!(gateway.chat("hi").model("p").send().content(), "done", "{what}: the last good one stays");
        fs::write(&file, ROUTER).unwrap();
        until("the file is read again", || gateway.log().contains("configuration reloaded"));
        fs::write(gateway.path("log"), "").unwrap();
    }
    fs::write(&file, "providers: []\n").unwrap();
    until("an explicitly empty list of providers is accepted", || gateway.chat("hi").model("p").send().status == 400);
}

#[test]
fn configuration_is_reloaded_when_the_target_of_a_symlink_changes() {
    let gateway = TestGateway::new().cli("p", "cat >/dev/null; answers \"$1\" done").config("router.yaml", ROUTER);
    let real = gateway.path("elsewhere.yaml");
    fs::rename(gateway.path("config/router.yaml"), &real).unwrap();
    std::os::unix::fs::symlink(&real, gateway.path("config/router.yaml")).unwrap();
    let gateway = gateway.start();
    assert_eq!(gateway.chat("hi").model("p").send().content(), "done");
    fs::write(&real, ROUTER.replace("name: p", "name: q")).unwrap();
    until("the new name is known", || gateway.chat("hi").model("q").send().status == 200);
}

#[test]
fn error_does_not_repeat_a_key_when_it_was_given_instead_of_its_variable() {
    for written in ["'${GROQ}'", "gsk_hunter2topsecret"] {
        let file = format!(
            "providers: [{{name: up, type: api, config: {{base_url: 'http://127.0.0.1:1', model: m, api_key_env: {written}}}}}]\n"
        );
        let ran = TestGateway::new()
            .env("GROQ", "gsk_hunter2topsecret")
            .config("router.yaml", &file)
            .run(&["check"])
            .exits(3);
        assert!(ran.stderr.contains("capital letters") && !ran.stderr.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn configuration_is_reloaded_and_runs_continue_on_sighup() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("old", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    gateway.signal(Signal::HUP);
    until("the reload is logged", || gateway.log().contains("configuration reloaded: nothing changed"));
    let path = gateway.path("config/models.json");
    fs::write(&path, "{").unwrap();
    gateway.signal(Signal::HUP);
    until("the error is logged", || gateway.log().contains("configuration not reloaded, the last good one stays"));
    let entry = |timeout: &str| json!({"driver": "codex", "repoPath": gateway.repo(), "timeout": timeout});
    fs::write(&path, json!({"old": entry("5m"), "new": entry("1m")}).to_string()).unwrap();
    gateway.signal(Signal::HUP);
    until("the changes are logged", || gateway.log().contains("configuration reloaded: added new; changed old"));
    gateway.leave_note("go");
    let reply = stream.finish();
    assert!(reply.is_done() && reply.streamed_text().ends_with("two"), "{}", reply.body);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
}

#[test]
fn newly_installed_cli_is_a_model_after_sighup() {
    let gateway = TestGateway::new().start();
    assert_eq!(models(&gateway), ["agent"]);
    let gateway = gateway.cli("codex", "codex_answers done");
    gateway.signal(Signal::HUP);
    until("the CLI is found", || models(&gateway) == ["codex", "agent"]);
    assert_eq!(gateway.chat("hi").model("codex").send().content(), "done");
}

#[test]
fn gateway_stops_when_its_terminal_is_closed() {
    let gateway = TestGateway::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"}));
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let terminal = ioctl_tiocgptpeer(&controller, flags).unwrap();
    let stream = || Stdio::from(terminal.try_clone().unwrap());
    let mut child = gateway.on_terminal(&["serve", "--port", "0"], [stream(), stream(), stream()]);
    let (mut controller, mut shown) = (fs::File::from(controller), Vec::new());
    while !String::from_utf8_lossy(&shown).contains("ready") {
        let mut more = [0; 4096];
        let count = controller.read(&mut more).unwrap();
        shown.extend_from_slice(&more[..count]);
    }
    drop(terminal);
    drop(controller);
    until("the gateway has exited", || child.try_wait().unwrap().is_some());
}
