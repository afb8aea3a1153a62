//! Metrics, on a separate port.

use serde_json::json;

use crate::http::send_raw;
use crate::observe::until;
use crate::test_gateway::TestGateway;

fn response_body(address: &str, request: &str) -> String {
    let request = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    send_raw(address, &request).finish().body
}

/// The address of the metrics endpoint, from the gateway's log.
fn address(gateway: &TestGateway) -> String {
    let log = gateway.log();
    log.rsplit_once("metrics on http://").unwrap().1.split_once("/metrics").unwrap().0.to_owned()
}

/// The value of a metric without labels, if the gateway reports it. Requires `--metrics 127.0.0.1:0`.
pub(crate) fn metric_value(gateway: &TestGateway, name: &str) -> Option<u64> {
    let page = response_body(&address(gateway), "GET /metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(&format!("trunkline_{name} ")))?;
    Some(value.parse().unwrap())
}

#[test]
fn open_files_are_counted_with_their_limit() {
    let gateway = TestGateway::new().open_files(200).args(&["--metrics", "127.0.0.1:0"]).start();
    assert_eq!(metric_value(&gateway, "open_files_limit"), Some(200));
    let before = metric_value(&gateway, "open_files").unwrap();
    let _open: Vec<_> = (0..10).map(|_| std::net::TcpStream::connect(gateway.address()).unwrap()).collect();
    until("the connections are counted", || metric_value(&gateway, "open_files").unwrap() >= before + 10);
}

#[test]
fn metrics_count_turns_without_exposing_prompts() {
    let gateway = TestGateway::new()
        .cli("codex", "case \"$(cat)\" in *bad*) exit 9;; esac; codex_answers done")
        .model("m", json!({"driver": "codex", "warm": 0}))
        .config("router.yaml", "providers: []\nrouting: {max_retries: 0}\n")
        .args(&["--metrics", "127.0.0.1:0"])
        .start();
    let address = &*address(&gateway);
    let before = response_body(address, "GET /metrics");
    assert!(before.contains("\ntrunkline_runs 0\n") && !before.contains("trunkline_turns_total{"), "{before}");
    for text in ["alpha-word", "beta-word"] {
        gateway.chat(text).send().content();
    }
    assert_ne!(gateway.chat("bad secret-word").send().status, 200);
    let ok = r#"trunkline_turns_total{provider="codex",outcome="ok"} 2"#;
    until("all turns are counted", || {
        let page = response_body(address, "GET /metrics");
        page.contains(ok) && page.contains(r#"provider="codex",outcome=""#) && page.contains("\ntrunkline_runs 0\n")
    });
    let page = response_body(address, "GET /metrics");
    assert!(!page.contains("-word"), "{page}");
    assert!(response_body(address, "GET /v1/models").contains("only /metrics"));
    assert!(response_body(address, "POST /metrics").contains("GET it"));
}

#[test]
fn serve_fails_when_metrics_address_is_invalid() {
    let ran = TestGateway::new().run(&["serve", "--metrics", "nonsense"]).exits(2);
    assert!(ran.stderr.contains("not an address"), "{ran:?}");
}

#[test]
fn provider_is_named_when_turn_ends_before_it_ran() {
    let gateway = TestGateway::new()
        .cli("codex", "tell pid $$; await go; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .args(&["--metrics", "127.0.0.1:0", "--max-runs", "1"])
        .start();
    let log = gateway.log();
    let address = log.split_once("metrics on http://").unwrap().1.split_once("/metrics").unwrap().0;
    let running = gateway.chat("hi").open();
    gateway.wait_for_note("pid");
    let waiting = gateway.chat("hi").open();
    until("the second turn is queued", || gateway.get("/health").json()["waiting"] == 1);
    drop(waiting);
    drop(running);
    let cancelled = r#"trunkline_turns_total{provider="codex",outcome="cancelled"} 2"#;
    until("both turns are counted", || response_body(address, "GET /metrics").contains(cancelled));
    assert!(!response_body(address, "GET /metrics").contains(r#"provider="""#));
    gateway.leave_note("go");
}

#[test]
fn log_names_run_and_model_when_attempt_fails() {
    let unreachable = "providers: [{name: up, type: api, config: {base_url: 'http://127.0.0.1:1', model: x}}]\n\
                   routing: {max_retries: 0}\n";
    let gateway = TestGateway::new()
        .cli("codex", "echo 'the disk is made of cheese' >&2; exit 1")
        .model("m", json!({"driver": "codex"}))
        .config("router.yaml", unreachable)
        .env("LLM_BASE_URL", "http://127.0.0.1:1/v1")
        .start();
    for (model, provider) in [("m", "codex"), ("up", "up"), ("agent", "agent")] {
        let reply = gateway.chat("hi").model(model).send();
        assert_ne!(reply.status, 200);
        let run = reply.header("x-trunkline-run").unwrap().to_owned();
        let log = gateway.log();
        let entry = log.lines().find(|line| line.contains(&run) && line.contains("attempt failed")).unwrap_or_default();
        assert!(entry.contains("model=") && entry.contains(&format!("provider=\"{provider}\"")), "{model}: {log}");
    }
}
