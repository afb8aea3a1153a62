//! Web pages of other origins: preflights, answers that a page can read, keys, refusals and reloading.

use std::fs;

use serde_json::json;

use crate::http::{Reply, send_raw};
use crate::observe::until;
use crate::test_gateway::TestGateway;

const PAGE: &str = "http://localhost:5173";
const FOREIGN: &str = "https://evil.example";
const KEY: (&str, &str) = ("authorization", "Bearer right");

fn keyed() -> TestGateway {
    TestGateway::new()
        .cli("codex", "note \"$@\"; codex_answers done")
        .model("m", json!({"driver": "codex"}))
        .env("TRUNKLINE_API_KEYS", "right")
}

fn request(gateway: &TestGateway, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let address = gateway.address();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    send_raw(address, &format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n"))
        .finish()
}

fn preflight(gateway: &TestGateway, origin: &str) -> Reply {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-stainless-lang"),
        ("access-control-request-private-network", "true"),
        ("sec-fetch-site", "cross-site"),
    ];
    request(gateway, "OPTIONS", "/v1/chat/completions", &headers)
}

#[test]
fn page_of_an_allowed_origin_can_ask_and_read_the_answer() {
    let gateway = keyed().args(&["--allow-origin", "https://app.example.com", "--allow-origin", PAGE]).start();
    let asked = preflight(&gateway, PAGE);
    assert_eq!((asked.status, asked.body.as_str()), (204, ""), "{asked:?}");
    for (name, value) in [
        ("access-control-allow-origin", PAGE),
        ("access-control-allow-methods", "GET, HEAD, POST, DELETE"),
        ("access-control-allow-headers", "authorization,content-type,x-stainless-lang"),
        ("access-control-max-age", "7200"),
        ("access-control-allow-private-network", "true"),
    ] {
        assert_eq!(asked.header(name), Some(value), "{name}");
    }
    assert!(asked.header("vary").unwrap().starts_with("Origin, Access-Control-Request-Method"), "{asked:?}");
    for streamed in [false, true] {
        let chat = gateway.chat("hi").header("origin", PAGE).header("sec-fetch-site", "same-site").header(KEY.0, KEY.1);
        let reply = if streamed { chat.streamed().send() } else { chat.send() };
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some(PAGE)), "{reply:?}");
        let exposed: Vec<&str> = reply.header("access-control-expose-headers").unwrap().split(", ").collect();
        assert!(exposed.contains(&"x-trunkline-run") && exposed.contains(&"x-request-id"), "{exposed:?}");
        assert!(reply.header("vary") == Some("Origin") && reply.header("access-control-allow-credentials").is_none());
    }
    let program = request(&gateway, "GET", "/v1/models", &[KEY]);
    assert_eq!((program.header("access-control-allow-origin"), program.header("vary")), (None, Some("Origin")));
}

#[test]
fn allowed_page_needs_a_key_and_can_read_the_error() {
    let gateway = keyed().env("TRUNKLINE_ALLOW_ORIGIN", format!("{PAGE},https://app.example.com")).start();
    for path in ["/v1/models", "/health", "/v1/runs"] {
        let reply = request(&gateway, "GET", path, &[("origin", PAGE)]);
        assert_eq!(reply.error(401)["code"], "invalid_api_key", "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE), "{path}");
        assert_eq!(request(&gateway, "GET", path, &[("origin", PAGE), KEY]).status, 200, "{path}");
    }
    assert_eq!(request(&gateway, "GET", "/health", &[]).status, 200, "programs need none");
    let wrong = gateway.chat("hi").header("origin", PAGE).header("x-api-key", "wrong").send();
    assert_eq!(wrong.error(401)["code"], "invalid_api_key");
    assert!(!gateway.path("seen/codex.argv").exists());
}

#[test]
fn every_other_origin_is_refused_and_the_error_names_the_setting() {
    let gateway = keyed().args(&["--allow-origin", "http://localhost:*"]).start();
    assert_eq!(preflight(&gateway, "http://localhost:1").status, 204);
    for origin in [FOREIGN, "https://localhost:5173", "http://localhost.evil.example", "null"] {
        for reply in
            [preflight(&gateway, origin), gateway.chat("hi").header("origin", origin).header(KEY.0, KEY.1).send()]
        {
            let error = reply.error(403);
            assert_eq!(error["code"], "forbidden_origin", "{origin}");
            let shown = format!("{} {}", error["message"], error["hint"]);
            assert!(shown.contains("--allow-origin"), "{origin}: {shown}");
            assert_eq!(reply.header("access-control-allow-origin"), None, "{origin}");
        }
    }
    let hint = preflight(&gateway, FOREIGN).error(403)["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("server.allowOrigins"), "{hint}");
    for path in ["/chat", "/clear", "/stop"] {
        let reply = request(&gateway, "POST", path, &[("origin", PAGE), KEY, ("content-length", "0")]);
        assert_eq!(reply.error(403)["code"], "forbidden_origin", "the chat page's own endpoint {path}");
    }
    assert!(!gateway.path("seen/codex.argv").exists());
    let own = format!("http://{}", gateway.address());
    let page = request(&gateway, "GET", "/chat", &[("origin", &own), ("sec-fetch-site", "same-origin"), KEY]);
    assert_eq!((page.status, page.header("access-control-allow-origin")), (200, None), "{page:?}");
}

#[test]
fn serve_fails_when_an_origin_is_allowed_without_keys_or_is_not_an_origin() {
    let gateway = TestGateway::new().cli("codex", "").model("m", json!({"driver": "codex"}));
    let ran = gateway.run(&["serve", "--port", "0", "--allow-origin", PAGE]).exits(3);
    assert!(
        ran.stderr.contains("there are no API keys: set TRUNKLINE_API_KEYS or --keys-file") && ran.stdout.is_empty(),
        "{ran:?}"
    );
    for (origin, why) in [
        ("*", "`*` would let every web page use your agents"),
        ("null", "sandboxed frames"),
        ("https://*.example.com", "`*` may only stand for the port"),
        ("https://app.example.com/", "no path: write https://app.example.com"),
    ] {
        let ran = gateway.run(&["serve", "--port", "0", "--allow-origin", origin]).exits(2);
        assert!(ran.stderr.contains(why), "{origin}: {ran:?}");
    }
    let file = format!(r#"{{"server": {{"allowOrigins": ["{PAGE}"]}}}}"#);
    let gateway = TestGateway::new().cli("codex", "").config("models.json", &file);
    let shown = gateway.run(&["check"]).exits(0).stdout;
    let origins = format!("\nallowed origins of web pages (each request needs an API key)\n  {PAGE}\n");
    assert!(shown.contains(&origins), "{shown}");
    let ran = gateway.run(&["serve", "--port", "0"]).exits(3);
    assert!(ran.stderr.contains("there are no API keys"), "{ran:?}");
    let file = r#"{"server": {"allowOrigins": ["*"]}}"#;
    let ran = TestGateway::new().config("models.json", file).run(&["check"]).exits(3);
    assert!(ran.stderr.contains("models.json:1:30: server.allowOrigins: `*` would let every web page"), "{ran:?}");
}

#[test]
fn origins_of_the_configuration_are_reloaded() {
    let gateway = keyed().args(&["--allow-origin", "https://app.example.com"]).start();
    let path = gateway.path("config/models.json");
    let write = |server: &str| {
        let entry = json!({"driver": "codex", "repoPath": gateway.repo()});
        fs::write(&path, format!("{{\"server\": {server}, \"m\": {entry}}}")).unwrap();
    };
    assert_eq!(preflight(&gateway, PAGE).status, 403);
    write(&format!("{{\"allowOrigins\": [\"{PAGE}\"]}}"));
    until("the origin is allowed", || preflight(&gateway, PAGE).status == 204);
    write("{\"allowOrigins\": [\"*\"]}");
    until("the error is logged", || gateway.log().contains("`*` would let every web page"));
    assert_eq!(preflight(&gateway, PAGE).status, 204, "the last good configuration stays");
    write("{}");
    until("the origin is removed", || preflight(&gateway, PAGE).status == 403);
    assert_eq!(preflight(&gateway, "https://app.example.com").status, 204, "that of the argument stays");
}

#[test]
fn reload_is_refused_when_an_origin_is_added_and_there_are_no_keys() {
    let gateway = TestGateway::new().cli("codex", "").model("m", json!({"driver": "codex"})).start();
    let entry = json!({"driver": "codex", "repoPath": gateway.repo()});
    let file = json!({"server": {"allowOrigins": [PAGE]}, "m": entry, "n": entry});
    fs::write(gateway.path("config/models.json"), file.to_string()).unwrap();
    until("the error is logged", || gateway.log().contains("configuration not reloaded, the last good one stays"));
    assert!(gateway.log().contains("there are no API keys"), "{}", gateway.log());
    assert_eq!(preflight(&gateway, PAGE).status, 403);
    assert!(!gateway.get("/v1/models").body.contains("\"n\""), "nothing of the file is applied");
}
