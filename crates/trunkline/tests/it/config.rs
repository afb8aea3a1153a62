//! Configurations that are wrong, absent, or changed on the way.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::{Value, json};

use crate::look::until;
use crate::test_gateway::TestGateway;

/// What `trunkline check` says to a `models.json`.
fn refusal(models: &str) -> String {
    let gateway = TestGateway::new().cli("codex", "").config("models.json", models);
    let said = gateway.run(&["check"]).exits(3).stderr;
    assert_eq!(gateway.run(&["serve", "--port", "0"]).exits(3).stderr, said);
    said.replace(gateway.path("config").to_str().unwrap(), "CONFIG")
}

#[test]
fn case_79_an_unknown_key_is_named_with_its_line_and_what_was_meant() {
    let said = refusal("{\n  \"m\": {\n    \"driver\": \"codex\",\n    \"repopath\": \"/\"\n  }\n}\n");
    assert!(said.starts_with("trunkline: CONFIG/models.json:4:"), "{said}");
    assert!(said.contains("unknown field `repopath`") && said.contains("did you mean `repoPath`?"), "{said}");
}

#[test]
fn an_unknown_driver_is_named_with_a_near_one() {
    let said = refusal("{\n  \"m\": {\"driver\": \"codec\", \"repoPath\": \"/\"}\n}\n");
    assert!(said.starts_with("trunkline: CONFIG/models.json:2:"), "{said}");
    assert!(said.contains("unknown driver \"codec\" (did you mean \"codex\"?)"), "{said}");
}

#[test]
fn a_model_that_is_there_twice_is_an_error() {
    let entry = "{\"driver\": \"codex\", \"repoPath\": \"/\"}";
    let said = refusal(&format!("{{\n  \"m\": {entry},\n  \"m\": {entry}\n}}"));
    assert!(said.starts_with("trunkline: CONFIG/models.json:3:") && said.contains("\"m\" appears twice"), "{said}");
}

#[test]
fn a_fallback_to_nobody_is_an_error() {
    let said = refusal("{\n  \"m\": {\"driver\": \"codex\", \"repoPath\": \"/\",\n    \"fallback\": [\"ghost\"]}\n}");
    assert!(said.starts_with("trunkline: CONFIG/models.json:3:") && said.contains("fallback to \"ghost\""), "{said}");
}

#[test]
fn a_file_that_is_no_json_says_where_it_breaks() {
    let said = refusal("{\n  \"m\": {\"driver\" \"codex\"}\n}\n");
    assert!(said.starts_with("trunkline: CONFIG/models.json:2:"), "{said}");
}

#[test]
fn a_configuration_folder_without_a_configuration_is_an_error() {
    let gateway = TestGateway::new().cli("codex", "");
    let nowhere = gateway.path("nowhere");
    let ran = gateway.run(&["serve", "--port", "0", "--config", nowhere.to_str().unwrap()]).exits(3);
    assert!(ran.stderr.contains("nowhere: no models.json and no router.yaml here"), "{ran:?}");
}

#[test]
fn without_a_configuration_every_cli_on_the_path_is_a_model() {
    let gateway = TestGateway::new().cli("codex", "note \"$@\"; replay codex/reasoning").cli("ax-glm", "").start();
    assert_eq!(models(&gateway), ["codex", "glm", "agent"]);
    gateway.chat("hi").model("codex").send().content();
    assert_eq!(gateway.noted("codex.cwd").trim_end(), gateway.repo().to_str().unwrap());
}

#[test]
fn a_configuration_is_found_where_the_gateway_starts() {
    let gateway = TestGateway::new()
        .cli("codex", "")
        .file(".trunkline/models.json", "{\"mine\": {\"driver\": \"codex\", \"repoPath\": \"..\"}}");
    let listed = gateway.run(&["models"]).exits(0).stdout;
    assert!(listed.starts_with("mine   codex in "), "{listed}");
}

#[test]
fn case_78_a_changed_file_is_the_new_configuration_and_a_broken_one_is_not() {
    let gateway =
        TestGateway::new().cli("codex", "codex_answers done").model("old", json!({"driver": "codex"})).start();
    let path = gateway.path("config/models.json");
    let entry = json!({"driver": "codex", "repoPath": gateway.repo()});
    fs::write(&path, json!({"old": entry, "new": entry}).to_string()).unwrap();
    until("the new model is there", || models(&gateway) == ["new", "old", "agent"]);
    assert_eq!(gateway.chat("hi").model("new").send().content(), "done");
    fs::write(&path, "{\"new\": {\"driver\": \"codec\"}}").unwrap();
    until("the log says why", || gateway.log().contains("configuration not reloaded, the last good one stays"));
    assert!(gateway.log().contains("missing field `repoPath`"), "{}", gateway.log());
    assert_eq!(models(&gateway), ["new", "old", "agent"]);
    // As editors do it: another file takes its place.
    let beside = gateway.path("config/.models.json.swp");
    fs::write(&beside, json!({"newest": entry}).to_string()).unwrap();
    fs::rename(&beside, &path).unwrap();
    until("the newest model is there", || models(&gateway) == ["newest", "agent"]);
}

#[test]
fn a_run_on_its_way_outlives_its_model() {
    let gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("old", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.until("one");
    let entry = json!({"driver": "codex", "repoPath": gateway.repo()});
    fs::write(gateway.path("config/models.json"), json!({"new": entry}).to_string()).unwrap();
    until("its model is gone", || models(&gateway) == ["new", "agent"]);
    gateway.tell("go");
    let reply = stream.finish();
    assert!(reply.is_done() && reply.streamed_text().ends_with("two"), "{}", reply.body);
    assert_eq!(gateway.chat("hi").model("old").send().error(400)["message"], "Unknown model");
}

#[test]
fn a_providers_file_adds_a_cli() {
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
fn a_file_that_is_emptied_is_about_to_be_written() {
    let gateway =
        TestGateway::new().cli("p", "cat >/dev/null; answers \"$1\" done").config("router.yaml", ROUTER).start();
    let file = gateway.path("config/router.yaml");
    for what in ["emptied", "removed"] {
        if what == "emptied" {
            fs::write(&file, "").unwrap()
        } else {
            fs::remove_file(&file).unwrap()
        }
        until("it is noticed", || gateway.log().contains("empty or gone"));
        assert_eq!(gateway.chat("hi").model("p").send().content(), "done", "{what}: the last good one stays");
        fs::write(&file, ROUTER).unwrap();
        until("it is read again", || gateway.log().contains("configuration reloaded"));
        fs::write(gateway.path("log"), "").unwrap();
    }
    fs::write(&file, "providers: []\n").unwrap();
    until("nobody is somebody's wish", || gateway.chat("hi").model("p").send().status == 400);
}

#[test]
fn a_change_behind_a_link_is_noticed_too() {
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
fn a_key_in_place_of_its_variable_is_not_repeated() {
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
fn configuration_is_reloaded_and_runs_go_on_when_sighup_comes() {
    let mut gateway = TestGateway::new()
        .cli("codex", "codex_says one; await go; codex_answers two")
        .model("old", json!({"driver": "codex"}))
        .start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.until("one");
    gateway.signal(Signal::HUP);
    until("it is said", || gateway.log().contains("configuration reloaded: nothing changed"));
    let path = gateway.path("config/models.json");
    fs::write(&path, "{").unwrap();
    gateway.signal(Signal::HUP);
    until("it is said why not", || gateway.log().contains("configuration not reloaded, the last good one stays"));
    let entry = |timeout: &str| json!({"driver": "codex", "repoPath": gateway.repo(), "timeout": timeout});
    fs::write(&path, json!({"old": entry("5m"), "new": entry("1m")}).to_string()).unwrap();
    gateway.signal(Signal::HUP);
    until("it is said what changed", || gateway.log().contains("configuration reloaded: added new; changed old"));
    gateway.tell("go");
    let reply = stream.finish();
    assert!(reply.is_done() && reply.streamed_text().ends_with("two"), "{}", reply.body);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended(), Some(0));
}

#[test]
fn cli_that_was_installed_since_is_a_model_after_sighup() {
    let gateway = TestGateway::new().start();
    assert_eq!(models(&gateway), ["agent"]);
    let gateway = gateway.cli("codex", "codex_answers done");
    gateway.signal(Signal::HUP);
    until("it is found", || models(&gateway) == ["codex", "agent"]);
    assert_eq!(gateway.chat("hi").model("codex").send().content(), "done");
}

#[test]
fn gateway_stops_when_its_terminal_is_closed() {
    let gateway = TestGateway::new().cli("codex", "codex_answers done").model("m", json!({"driver": "codex"}));
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    let stream = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = gateway.on_terminal(&["serve", "--port", "0"], [stream(), stream(), stream()]);
    let (mut terminal, mut shown) = (fs::File::from(ours), Vec::new());
    while !String::from_utf8_lossy(&shown).contains("ready") {
        let mut more = [0; 4096];
        let count = terminal.read(&mut more).unwrap();
        shown.extend_from_slice(&more[..count]);
    }
    drop(theirs);
    drop(terminal);
    until("it has ended", || child.try_wait().unwrap().is_some());
}
