//! Circuit breakers, the explained order of candidates, and the health of providers.

use serde_json::{Value, json};

use crate::observe::until;
use crate::router::yaml;
use crate::test_gateway::TestGateway;

/// Fails until the test sends `well`.
const FAILS_UNTIL_WELL: &str = "[ \"$1\" = health ] || cat >/dev/null; counted >/dev/null; [ -e \"$seen/well\" ] || refuses \"$1\" 'something odd'; \
    answers \"$1\" done";

#[test]
fn circuit_opens_and_is_reported_when_provider_keeps_failing() {
    let file = yaml(&[("p", 1, "")], ", breaker: {failures: 3, cooldown: 1h}");
    let gateway = TestGateway::new().cli("p", FAILS_UNTIL_WELL).config("router.yaml", &file).start();
    for _ in 0..3 {
        assert_eq!(gateway.chat("hi").model("p").send().error(500)["code"], "unknown");
    }
    let refused = gateway.chat("hi").model("p").send();
    assert_eq!(refused.error(503)["code"], "circuit_open");
    assert_eq!(refused.header("retry-after"), Some("120"), "capped, because SDKs ignore longer waits");
    assert_eq!(gateway.read_note("p.runs").lines().count(), 3, "the provider was not called");
    let state = |path: &str, pointer: &str| gateway.get(path).json().pointer(pointer).unwrap().clone();
    assert_eq!(state("/v1/route?model=p", "/candidates/0/circuit/state"), "open");
    assert_eq!(state("/health/providers", "/providers/0/circuit/state"), "open");
    let port = gateway.address().rsplit(':').next().unwrap();
    let shown = gateway.run(&["doctor", "--port", port]).exits(0).stdout;
    assert!(shown.lines().any(|row| row.starts_with("✗ p ") && row.contains("open for another")), "{shown}");
}

#[test]
fn circuit_closes_when_a_trial_succeeds_after_the_cooldown() {
    let file = yaml(&[("p", 1, "")], ", breaker: {failures: 3, cooldown: 50ms}");
    let gateway = TestGateway::new().cli("p", FAILS_UNTIL_WELL).config("router.yaml", &file).start();
    for _ in 0..3 {
        gateway.chat("hi").model("p").send().error(500);
    }
    gateway.leave_note("well");
    until("a trial succeeds", || gateway.chat("hi").model("p").send().status == 200);
    let route = gateway.get("/v1/route?model=p").json();
    assert_eq!(route["candidates"][0]["circuit"], json!({"state": "closed", "failures": 0}));
    assert_eq!(gateway.chat("hi").model("p").send().content(), "done");
}

#[test]
fn route_explains_the_order_of_candidates() {
    let file = yaml(&[("low", 1, "codegen: x"), ("high", 9, ""), ("absent", 5, "codegen: y")], ", max_retries: 1");
    let gateway = TestGateway::new()
        .cli("low", "answers \"$1\" low")
        .cli("high", "answers \"$1\" high")
        .config("router.yaml", &file)
        .start();
    let explained = gateway.get("/v1/route?model=auto%3Acodegen").json();
    let order: Vec<&str> =
        explained["candidates"].as_array().unwrap().iter().map(|c| c["model"].as_str().unwrap()).collect();
    assert_eq!(order, ["absent/y", "low/x", "high"]);
    assert_eq!(explained["candidates"][1]["why"], "has a model for codegen, priority 1");
    assert!(explained["candidates"][0]["problem"].as_str().unwrap().contains("not found"), "{explained}");
    assert_eq!(explained["max_retries"], 1);
    assert!(explained["fallback_on"].as_array().unwrap().contains(&json!("not_found")));
    let unknown = gateway.get("/v1/route?model=auto:codgen").error(400);
    assert!(unknown["detail"].as_str().unwrap().contains("auto:codegen"), "{unknown}");
    assert_eq!(gateway.get("/v1/route").error(400)["param"], "model");
    let shown = gateway.run(&["check", "--route", "auto:codegen"]).exits(0).stdout;
    let places: Vec<usize> =
        ["1. absent/y", "2. low/x", "3. high"].iter().map(|row| shown.find(row).unwrap()).collect();
    assert!(places.is_sorted(), "{shown}");
    let listed = gateway.get("/v1/models").json();
    let names: Vec<&str> = listed["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["auto", "auto:codegen", "low", "high", "absent", "agent"]);
}

#[test]
fn provider_health_is_cached_and_probed_only_on_demand() {
    let well = "[ \"$1\" = health ] && { counted >/dev/null; echo fine; exit; }; cat >/dev/null; tell asked 1; answers \"$1\" OK";
    let gateway = TestGateway::new()
        .cli("well", well)
        .cli(
            "ill",
            "[ \"$1\" = health ] && { echo 'no connection to the model'; exit 1; }; cat >/dev/null; refuses \"$1\" odd",
        )
        .cli("claude", "[ \"$1\" = --version ] && echo '2.1.0 (Claude Code)'")
        .config("router.yaml", &yaml(&[("well", 3, ""), ("ill", 2, ""), ("absent", 1, "")], ""))
        .model("m", json!({"driver": "claude"}))
        .start();
    let report = gateway.get("/health/providers").json();
    let one = |report: &Value, name: &str| {
        report["providers"].as_array().unwrap().iter().find(|p| p["name"] == name).unwrap().clone()
    };
    assert_eq!(report["status"], "degraded");
    let levels = |p: &Value| (p["available"].clone(), p["healthy"].clone(), p["version"].clone(), p["probe"].clone());
    assert_eq!(levels(&one(&report, "claude")), (json!(true), json!(true), json!("2.1.0 (Claude Code)"), json!(null)));
    assert_eq!(levels(&one(&report, "well")), (json!(true), json!(true), json!("fine"), json!(null)));
    assert_eq!(levels(&one(&report, "ill")), (json!(true), json!(false), json!(null), json!(null)));
    assert_eq!(one(&report, "ill")["error"], "health failed: no connection to the model");
    assert_eq!(levels(&one(&report, "absent")), (json!(false), json!(null), json!(null), json!(null)));
    assert_eq!(one(&report, "well")["circuit"], json!({"state": "closed", "failures": 0}));
    for _ in 0..5 {
        gateway.get("/health/providers").json();
    }
    assert_eq!(gateway.read_note("well.runs").lines().count(), 1, "health was checked once");
    assert!(!gateway.path("seen/asked").exists(), "and the provider was not probed");
    let probed = gateway.get("/health/providers?probe=true").json();
    let probe = |name: &str| one(&probed, name)["probe"].clone();
    assert_eq!((&probe("well")["ok"], &probe("well")["message"]), (&json!(true), &json!("OK")));
    assert_eq!((&probe("ill")["ok"], &probe("ill")["category"]), (&json!(false), &json!("unknown")));
    assert_eq!(probe("absent"), json!(null));
    assert_eq!(gateway.get("/health/providers?probe=maybe").error(400)["param"], "probe");
    let shown = gateway.run(&["doctor", "--port", "1"]).exits(0).stdout;
    let row = |name: &str| shown.lines().find(|row| row.contains(name)).unwrap_or_else(|| panic!("{shown}"));
    assert!(row("well").starts_with("✓ well") && row("well").contains("fine"), "{shown}");
    assert!(row("ill").starts_with("✗ ill") && row("ill").contains("no connection"), "{shown}");
}
