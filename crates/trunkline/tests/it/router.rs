//! The router: which providers are tried, retries and fallback, and how the response reports the attempts.

use serde_json::{Value, json};

use crate::http::Reply;
use crate::test_gateway::TestGateway;

/// A `router.yaml` with these providers (name, priority, hints), each an executable of the same name.
pub(crate) fn yaml(providers: &[(&str, i64, &str)], routing: &str) -> String {
    let provider = |(name, priority, hints): &(&str, i64, &str)| {
        format!(
            "- name: {name}\n  type: cli\n  priority: {priority}\n  config: {{path: {name}}}\n  models: {{{hints}}}\n"
        )
    };
    let providers: String = providers.iter().map(provider).collect();
    format!("providers:\n{providers}routing: {{backoff: {{initial: 1ms, max: 5s}}{routing}}}\n")
}

/// Provider and category of each attempt; the category is `ok` on success.
pub(crate) fn attempts(body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("ok").to_owned();
    let list = body["trunkline"]["attempts"].as_array().unwrap_or_else(|| panic!("{body}"));
    list.iter().map(|attempt| (text(&attempt["provider"]), text(&attempt["category"]))).collect()
}

pub(crate) fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(provider, outcome)| ((*provider).to_owned(), (*outcome).to_owned())).collect()
}

pub(crate) fn header(reply: &Reply) -> (Option<&str>, Option<&str>) {
    (reply.header("x-trunkline-provider"), reply.header("x-trunkline-attempts"))
}

#[test]
fn fourth_provider_answers_when_the_first_three_fail() {
    let file = yaml(
        &[
            ("limited", 100, "codegen: a"),
            ("absent", 90, "codegen: b"),
            ("dies", 80, "codegen: c"),
            ("good", 10, "codegen: d"),
        ],
        ", fallback_on: [rate_limit]",
    );
    let gateway = TestGateway::new()
        .cli("limited", "cat >/dev/null; refuses \"$1\" 'rate limit exceeded, retry after 5ms'")
        .cli("dies", "cat >/dev/null; kill -SEGV $$")
        .cli("good", "note \"$@\"; answers \"$1\" done")
        .config("router.yaml", &file)
        .start();
    let expected = pairs(&[
        ("limited", "rate_limit"),
        ("limited", "rate_limit"),
        ("limited", "rate_limit"),
        ("absent", "not_found"),
        ("dies", "unknown"),
        ("good", "ok"),
    ]);
    let reply = gateway.chat("hi").model("auto:codegen").send();
    assert_eq!((reply.content().as_str(), attempts(&reply.json())), ("done", expected.clone()));
    assert_eq!(header(&reply), (Some("good"), Some("6")));
    assert!(gateway.read_note("good.stdin").contains("\"model\":\"d\""));
    let streamed = gateway.chat("hi").model("auto:codegen").streamed().send();
    assert_eq!((streamed.streamed_text().as_str(), streamed.is_done()), ("done", true));
    assert_eq!(header(&streamed), (Some("good"), Some("6")));
    let last = streamed.frames().into_iter().find(|frame| frame["trunkline"].is_object()).unwrap();
    assert_eq!(attempts(&last), expected);
    assert!(streamed.body.contains("dies/c failed (unknown); trying good/d"), "{}", streamed.body);
}

/// For each category: a message, the number of attempts, whether there is a fallback, and the status if there is none.
const MATRIX: [(&str, &str, usize, bool, u16); 10] = [
    ("quota", "insufficient_quota: check your plan", 1, true, 429),
    ("rate_limit", "429 Too Many Requests, retry after 2ms", 3, false, 429),
    ("authentication", "401 Unauthorized: invalid api key", 1, false, 500),
    ("validation", "invalid_request_error: messages", 1, false, 500),
    ("network", "connect ECONNREFUSED 127.0.0.1:1", 3, true, 500),
    ("server", "503 FakeLlm Unavailable", 3, true, 500),
    ("timeout", "the request timed out", 3, true, 504),
    ("not_found", "model_not_found: x", 1, true, 500),
    ("configuration", "the provider is not configured", 1, false, 500),
    ("unknown", "something odd", 1, true, 500),
];

/// For each category one provider that always fails with it (`bad_…`) and one that fails once and then answers
/// (`once_…`), and a `backup` that answers.
fn matrix(routing: &str) -> TestGateway {
    let mut gateway = TestGateway::new().cli("backup", "cat >/dev/null; answers \"$1\" backup");
    let mut file = String::from("providers:\n");
    for (category, message, ..) in MATRIX {
        let (bad, once) = (format!("bad_{category}"), format!("once_{category}"));
        gateway = gateway.cli(&bad, &format!("cat >/dev/null; counted >/dev/null; refuses \"$1\" '{message}'"));
        gateway = gateway.cli(
            &once,
            &format!("cat >/dev/null; [ \"$(counted)\" = 1 ] && refuses \"$1\" '{message}'; answers \"$1\" 'at last'"),
        );
        for name in [bad, once] {
            file += &format!(
                "- {{name: {name}, type: cli, priority: 9, config: {{path: {name}}}, models: {{{name}: x}}}}\n"
            );
        }
    }
    let hints: Vec<String> = MATRIX
        .iter()
        .flat_map(|(category, ..)| [format!("bad_{category}: x"), format!("once_{category}: x")])
        .collect();
    file += &format!("- {{name: backup, type: cli, config: {{path: backup}}, models: {{{}}}}}\n", hints.join(", "));
    file += &format!("routing: {{backoff: {{initial: 1ms, max: 5s}}{routing}}}\n");
    gateway.config("router.yaml", &file).start()
}

#[test]
fn failure_is_retried_or_falls_back_according_to_its_category() {
    let gateway = matrix("");
    for (category, _, tries, falls_back, status) in MATRIX {
        let bad = format!("bad_{category}");
        let mut expected = vec![(bad.clone(), category.to_owned()); tries];
        // With a fallback.
        let reply = gateway.chat("hi").model(&format!("auto:{bad}")).send();
        if falls_back {
            expected.push(("backup".to_owned(), "ok".to_owned()));
            assert_eq!(reply.content(), "backup", "{category}");
        } else {
            assert_eq!(reply.error(status)["code"], category);
        }
        assert_eq!(attempts(&reply.json()), expected, "{category}");
        assert_eq!(gateway.read_note(&format!("{bad}.runs")).lines().count(), tries, "{category}");
        // Without a fallback.
        let reply = gateway.chat("hi").model(&bad).send();
        assert_eq!(reply.error(status)["code"], category);
        assert_eq!(attempts(&reply.json()), vec![(bad.clone(), category.to_owned()); tries], "{category}");
        // A transient failure: only a retry succeeds.
        let once = format!("once_{category}");
        let reply = gateway.chat("hi").model(&once).streamed().send();
        match tries {
            1 => assert_eq!(reply.error(status)["code"], category),
            _ => {
                assert_eq!(reply.streamed_text(), "at last", "{category}");
                assert_eq!(header(&reply), (Some(once.as_str()), Some("2")), "{category}");
            }
        }
    }
}

#[test]
fn every_category_falls_back_when_fallback_on_lists_it() {
    let all: Vec<&str> = MATRIX.iter().map(|(category, ..)| *category).collect();
    let gateway = matrix(&format!(", max_retries: 0, fallback_on: [{}]", all.join(", ")));
    for (category, ..) in MATRIX {
        let bad = format!("bad_{category}");
        let reply = gateway.chat("hi").model(&format!("auto:{bad}")).send();
        assert_eq!(reply.content(), "backup", "{category}");
        assert_eq!(attempts(&reply.json()), pairs(&[(&bad, category), ("backup", "ok")]));
    }
}

#[test]
fn case_65_model_falls_back_to_other_models_and_to_the_router() {
    let gateway = TestGateway::new()
        .cli("codex", "cat >/dev/null; echo 'stream error: insufficient_quota' >&2; exit 1")
        .cli("good", "cat >/dev/null; answers \"$1\" routed")
        .config("router.yaml", &yaml(&[("good", 1, "fast: x")], ""))
        .model("m", json!({"driver": "codex", "fallback": ["absent", "auto:fast"]}))
        .model("absent", json!({"driver": "gemini"}))
        .start();
    let reply = gateway.chat("hi").model("m").send();
    assert_eq!(reply.content(), "routed");
    assert_eq!(attempts(&reply.json()), pairs(&[("codex", "quota"), ("gemini", "not_found"), ("good", "ok")]));
    assert!(!gateway.log().contains("not used yet"), "{}", gateway.log());
}

/// Reports its own retries, as claude does, and would continue them for minutes.
const KEEPS_RETRYING: &str = "cat >/dev/null; counted >/dev/null; for attempt in 1 2 3 4; do \
    printf '{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":%s,\"max_retries\":10,\"retry_delay_ms\":9000,\"error_status\":529,\"error\":\"overloaded\"}\\n' $attempt; done; hang";

#[test]
fn cli_that_keeps_retrying_is_cancelled_when_there_is_a_fallback() {
    let gateway = TestGateway::new()
        .cli("claude", KEEPS_RETRYING)
        .cli("codex", "cat >/dev/null; codex_answers done")
        .config("router.yaml", "providers: []\nrouting: {fallback_on: [rate_limit]}\n")
        .model("m", json!({"driver": "claude", "fallback": ["other"]}))
        .model("other", json!({"driver": "codex"}))
        .start();
    let reply = gateway.chat("hi").model("m").send();
    assert_eq!(
        (reply.content().as_str(), attempts(&reply.json())),
        ("done", pairs(&[("claude", "rate_limit"), ("codex", "ok")]))
    );
    assert_eq!(gateway.read_note("claude.runs").lines().count(), 1, "no retry: the CLI has retried itself");
}

#[test]
fn cli_may_keep_retrying_when_there_is_no_fallback() {
    let recovers = KEEPS_RETRYING.replace("hang", "replay claude/slow_streamjson_partial");
    let gateway = TestGateway::new().cli("claude", &recovers).model("m", json!({"driver": "claude"})).start();
    let reply = gateway.chat("hi").send();
    assert_eq!((reply.status, attempts(&reply.json())), (200, pairs(&[("claude", "ok")])));
}

/// A gateway with one provider that fails with this message and one that answers.
fn failing(message: &str, routing: &str) -> TestGateway {
    TestGateway::new()
        .cli("first", &format!("cat >/dev/null; refuses \"$1\" '{message}'"))
        .cli("second", "cat >/dev/null; answers \"$1\" second")
        .config("router.yaml", &yaml(&[("first", 9, ""), ("second", 1, "")], routing))
        .start()
}

#[test]
fn every_error_has_the_reason_when_authentication_or_quota_keeps_failing() {
    for message in ["401 Unauthorized: invalid api key", "insufficient_quota: check your plan"] {
        let gateway = failing(message, ", max_retries: 0, fallback_on: []");
        for _ in 0..8 {
            let reply = gateway.chat("hi").model("first").send();
            let error = reply.json()["error"].clone();
            assert!(error["code"] == "authentication" || error["code"] == "quota", "{error}");
            assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        }
    }
    let gateway = failing("401 Unauthorized: invalid api key", ", max_retries: 0");
    for _ in 0..8 {
        let reply = gateway.chat("hi").model("auto").send();
        assert_eq!(reply.error(500)["code"], "authentication");
        assert_eq!(attempts(&reply.json()), pairs(&[("first", "authentication")]), "no fallback for this category");
    }
}

#[test]
fn open_circuit_falls_back_only_when_the_failures_that_opened_it_allow_it() {
    let limited = "429 Too Many Requests, retry after 1h";
    for (message, routing, falls_back) in [
        ("503 FakeLlm Unavailable: the cat sat on it", "", true),
        (limited, "", false),
        (limited, ", fallback_on: [rate_limit]", true),
    ] {
        let gateway = failing(message, &format!(", max_retries: 0{routing}"));
        for _ in 0..5 {
            assert_ne!(gateway.chat("hi").model("first").send().status, 200);
        }
        let alone = gateway.chat("hi").model("first").send();
        let error = alone.error(503);
        assert_eq!((error["code"].as_str(), error["detail"].as_str()), (Some("circuit_open"), Some(message)));
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        assert!(alone.header("retry-after").is_some());
        let auto = gateway.chat("hi").model("auto").send();
        if falls_back {
            assert_eq!(auto.content(), "second", "{message}");
        } else {
            assert_eq!(auto.error(503)["code"], "circuit_open", "{message}");
        }
    }
}

#[test]
fn model_endpoint_accepts_every_name_that_a_request_accepts() {
    let gateway = TestGateway::new()
        .cli("up", "cat >/dev/null; answers \"$1\" done")
        .config("router.yaml", &yaml(&[("up", 9, "fast: mock-1")], ""))
        .start();
    let names = [
        "up",
        "up/mock-1",
        "up%2Fmock-1",
        "up/org/mock:1",
        "up%2Forg%2Fmock%3A1",
        "auto",
        "auto:fast",
        "auto%3Afast",
        "agent/x",
    ];
    for name in names {
        for path in [format!("/v1/models/{name}"), format!("/models/{name}"), format!("/v1/models/{name}/")] {
            let found = gateway.get(&path);
            let id = name.replace("%2F", "/").replace("%3A", ":");
            assert_eq!((found.status, &found.json()["id"]), (200, &json!(id)), "{path}");
        }
    }
    for name in ["nobody", "nobody/x", "auto:slow", "up%00x", "up/"] {
        let reply = gateway.get(&format!("/v1/models/{name}"));
        assert_eq!(reply.status == 200, name == "up/", "{name}: {reply:?}");
    }
}

#[test]
fn session_in_the_body_is_ignored_when_model_keeps_no_sessions() {
    let gateway = TestGateway::new()
        .cli("up", "note \"$@\"; answers \"$1\" done")
        .config("router.yaml", &yaml(&[("up", 9, "")], ""))
        .start();
    let ask = || gateway.chat("hi").model("up");
    let own = ask().with("metadata", json!({"session_id": "my own id", "chat": "c"})).send();
    assert_eq!((own.content().as_str(), &own.json()["trunkline"]["session_id"]), ("done", &json!(null)));
    assert!(gateway.read_note("up.stdin").contains("my own id"), "it is passed to the provider");
    ask().with("session_id", "s-1").send().content();
    ask().with("metadata", json!({"session_id": 7})).send().content();
    let explicit = ask().header("x-trunkline-session", "s-1").send().error(400);
    assert!(explicit["message"].as_str().unwrap().contains("cannot resume a session"), "{explicit}");
}
