//! Access control of the gateway, and the environment and processes a child can see.

use std::collections::BTreeMap;

use serde_json::json;

use crate::http::send_raw;
use crate::test_gateway::TestGateway;

fn codex() -> TestGateway {
    TestGateway::new().cli("codex", "note \"$@\"; replay codex/reasoning").model("m", json!({"driver": "codex"}))
}

#[test]
fn case_21_request_is_rejected_without_a_valid_key_when_keys_are_set() {
    let gateway = codex().env("TRUNKLINE_API_KEYS", "first-key, second-key").start();
    assert_eq!(gateway.chat("hi").send().error(401)["code"], "invalid_api_key");
    let wrong = gateway.chat("hi").header("authorization", "Bearer third-key").send();
    assert_eq!(wrong.error(401)["code"], "invalid_api_key");
    assert!(!wrong.body.contains("third-key"), "{wrong:?}");
    gateway.chat("hi").header("authorization", "Bearer second-key").send().content();
    gateway.chat("hi").header("x-api-key", "first-key").send().content();
}

#[test]
fn case_24_serve_fails_on_a_public_address_when_no_keys_are_set() {
    let ran = codex().run(&["serve", "--port", "0", "--listen", "0.0.0.0"]).exits(3);
    assert!(ran.stderr.contains("no keys") && ran.stdout.is_empty(), "{ran:?}");
}

/// Tries to read the memory, environment and files of its keeper and of the gateway, which run as the same user.
const SNOOPS: &str = "cat >/dev/null; stat=$(cat /proc/$PPID/stat); stat=${stat##*) }; set -- $stat; gateway=$2; \
    tell others \"$PPID $gateway\"; \
    for file in environ mem maps fd/0; do cat /proc/$PPID/$file /proc/$gateway/$file; done >\"$seen/found\" 2>\"$seen/refused\"; \
    cat /proc/$$/environ >\"$seen/own\"; ls /proc/$gateway/fd /proc/$PPID/fd >>\"$seen/found\" 2>>\"$seen/refused\"; \
    codex_answers done";

#[test]
fn agent_cannot_inspect_the_gateway_or_its_keeper() {
    let gateway = TestGateway::new().cli("codex", SNOOPS).model("m", json!({"driver": "codex"})).unprivileged();
    let gateway = gateway.env("XAI_API_KEY", "a key that is none of its business").start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    let (others, refused) = (gateway.read_note("others"), gateway.read_note("refused"));
    assert!(
        others.trim_end().ends_with(&format!(" {}", gateway.gateway_pid())),
        "the script inspected the right processes: {others}"
    );
    assert_eq!(refused.matches("Permission denied").count(), 10, "{refused}");
    assert_eq!(gateway.read_note("found"), "");
    assert!(!gateway.read_note("own").is_empty(), "it may read its own environment");
}

#[test]
fn case_25_case_26_request_is_rejected_when_host_or_origin_is_foreign() {
    let gateway = codex().start();
    assert_eq!(gateway.chat("hi").header("host", "evil.example").send().error(403)["code"], "forbidden_host");
    let page = gateway.chat("hi").header("origin", "http://evil.example").send();
    assert_eq!(page.error(403)["code"], "forbidden_origin");
    let form = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: text/plain\r\ncontent-length: 2\r\n\r\n{}";
    send_raw(gateway.address(), form).finish().error(415);
    assert!(!gateway.path("seen/codex.argv").exists());
    gateway.chat("hi").header("host", "localhost").send().content();
}

#[test]
fn case_28_child_gets_only_the_environment_it_needs() {
    let gateway = codex()
        .model("own", json!({"driver": "codex", "env": {"EXTRA": "yes", "CI": "no"}}))
        .env("OPENAI_API_KEY", "its own key")
        .env("LANG", "C.UTF-8")
        .start_with_secrets();
    gateway.chat("hi").send().content();
    let env = environment(&gateway);
    for (name, value) in [
        ("TERM", "dumb"),
        ("NO_COLOR", "1"),
        ("CI", "true"),
        ("OPENAI_API_KEY", "its own key"),
        ("LANG", "C.UTF-8"),
        ("HOME", gateway.path("home").to_str().unwrap()),
        ("PWD", gateway.repo().to_str().unwrap()),
        ("CODEX_HOME", gateway.path("state/homes/codex").to_str().unwrap()),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
    for name in SECRETS.iter().chain(&["CLAUDECODE", "TRUNKLINE_PORT"]) {
        assert!(!env.contains_key(*name), "{name}");
    }
    gateway.chat("hi").model("own").send().content();
    let env = environment(&gateway);
    assert_eq!((env["EXTRA"].as_str(), env["CI"].as_str()), ("yes", "no"));
}

const SECRETS: [&str; 6] = [
    "TRUNKLINE_API_KEYS_OLD",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "XAI_API_KEY",
    "DISCORD_TOKEN",
    "CLAUDE_CODE_ENTRYPOINT",
];

impl TestGateway {
    fn start_with_secrets(self) -> Self {
        let gateway = SECRETS.iter().fold(self, |gateway, name| gateway.env(name, "somebody else's"));
        gateway.env("CLAUDECODE", "1").env("TRUNKLINE_PORT", "0").start()
    }
}

fn environment(gateway: &TestGateway) -> BTreeMap<String, String> {
    let noted = gateway.read_note("codex.env");
    noted.lines().filter_map(|variable| variable.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn codex_does_not_write_to_the_users_own_home() {
    let gateway = codex();
    std::fs::create_dir(gateway.path("home/.codex")).unwrap();
    std::fs::write(gateway.path("home/.codex/auth.json"), "{}").unwrap();
    let gateway = gateway.cli(
        "codex",
        "echo x >\"$CODEX_HOME/history\"; cat \"$CODEX_HOME/auth.json\" >\"$seen/auth\"; codex_answers done",
    );
    let gateway = gateway.start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
    assert_eq!(gateway.read_note("auth"), "{}");
    assert!(!gateway.path("home/.codex/history").exists());
}
