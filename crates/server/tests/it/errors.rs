//! Refused requests: their statuses and the common shape of errors.

use serde_json::{Value, json};
use trunkline_server::auth::Keys;
use trunkline_server::{HttpLimits, ServerConfig};

use crate::support::{Reply, TestServer, chat, get, request};

const JSON: &str = "Content-Type: application/json\r\n";

/// The `error` member, after checks that apply to all errors.
fn error(reply: &Reply) -> Value {
    assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
    assert!(reply.header("x-request-id").is_some(), "{reply:?}");
    let error = reply.json()["error"].clone();
    for member in ["message", "type", "code", "param"] {
        assert!(error.get(member).is_some(), "{member}: {reply:?}");
    }
    error
}

#[tokio::test]
async fn case_12_each_error_has_its_status_and_code() {
    let limits = HttpLimits { body: 1000, ..HttpLimits::default() };
    let server = TestServer::with_limits(limits).await;
    let post = |target: &str, headers: &str, body: &str| request("POST", target, headers, body);
    let large = "x".repeat(1001);
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n3e9\r\n{large}\r\n"
    );
    let completions = "/v1/chat/completions";
    let no_text = r#"{"model":"scripted","messages":[]}"#;
    let no_choices = r#"{"model":"scripted","messages":[{"role":"user","content":"x"}],"n":0}"#;
    let unknown = r#"{"model":"../etc","messages":[{"role":"user","content":"x"}]}"#;
    let unknown_streamed = r#"{"model":"-x","messages":[{"role":"user","content":"x"}],"stream":true}"#;
    for (request, status, code) in [
        (get("/index.html"), 404, "unknown_url"),
        (get("/v1"), 404, "unknown_url"),
        (get("//v1/models"), 404, "unknown_url"),
        (get("/v1/../v1/models"), 404, "unknown_url"),
        (get("/v1/%2e%2e/health"), 404, "unknown_url"),
        (get("/v1/chat/completions/x"), 404, "unknown_url"),
        (get("/v1/models/missing"), 404, "model_not_found"),
        (get("/v1/models/%ff"), 404, "model_not_found"),
        (get(completions), 405, "method_not_allowed"),
        (request("OPTIONS", completions, "", ""), 405, "method_not_allowed"),
        (request("DELETE", "/v1/models", "", ""), 405, "method_not_allowed"),
        (post(completions, "Content-Type: text/plain\r\n", "{}"), 415, "unsupported_media_type"),
        (post(completions, "", "{}"), 415, "unsupported_media_type"),
        (post(completions, &format!("{JSON}Content-Encoding: gzip\r\n"), "{}"), 415, "unsupported_media_type"),
        (post(completions, JSON, &large), 413, "request_too_large"),
        (chunked, 413, "request_too_large"),
        (post(completions, JSON, "{"), 400, "invalid_json"),
        (post(completions, JSON, ""), 400, "invalid_json"),
        (post(completions, JSON, "[]"), 400, "invalid_value"),
        (post(completions, JSON, no_text), 400, "invalid_value"),
        (post(completions, JSON, no_choices), 400, "invalid_value"),
        (post(completions, JSON, unknown), 400, "model_not_found"),
        (post(completions, JSON, unknown_streamed), 400, "model_not_found"),
        (post("/chat/completions/", JSON, unknown), 400, "model_not_found"),
        (post(completions, &format!("{JSON}x-trunkline-session: --bad\r\n"), unknown), 400, "invalid_value"),
        (post(completions, &format!("{JSON}Origin: http://evil.example\r\n"), unknown), 403, "forbidden_origin"),
        (post(completions, &format!("{JSON}Sec-Fetch-Site: cross-site\r\n"), unknown), 403, "forbidden_origin"),
        (get("/health").replace("localhost", "evil.example"), 403, "forbidden_host"),
    ] {
        let reply = server.ask(&request).await;
        let body = error(&reply);
        assert_eq!((reply.status, body["code"].as_str()), (status, Some(code)), "{request:.200} {reply:?}");
        assert!(reply.header("access-control-allow-origin").is_none());
        assert_eq!(reply.header("allow").is_some(), status == 405, "{reply:?}");
    }
}

#[tokio::test]
async fn error_for_an_unknown_model_has_the_prescribed_text() {
    let server = TestServer::start(ServerConfig::default()).await;
    let reply = server.ask(&chat(r#"{"model":"script","messages":[{"role":"user","content":"x"}]}"#)).await;
    let expected = json!({"error": {
        "message": "Unknown model", "type": "invalid_request_error", "code": "model_not_found", "param": "model",
        "detail": "did you mean: scripted?", "hint": "models here: scripted, panic, org/name:tag",
    }});
    assert_eq!((reply.status, reply.json()), (400, expected));
}

#[tokio::test]
async fn key_is_required_everywhere_except_health() {
    let server = TestServer::start(ServerConfig { keys: Keys::new(["open-sesame"]), ..ServerConfig::default() }).await;
    for (target, headers, status) in [
        ("/v1/models", "", 401),
        ("/nowhere", "", 401),
        ("/v1/models", "Authorization: Bearer wrong\r\n", 401),
        ("/v1/models?api_key=open-sesame", "", 401),
        ("/v1/models", "authorization: bEARER open-sesame\r\n", 200),
        ("/v1/models", "X-Api-Key: open-sesame\r\n", 200),
        ("/health", "", 200),
    ] {
        let reply = server.ask(&request("GET", target, headers, "")).await;
        assert_eq!(reply.status, status, "{target} {headers}");
        if status == 401 {
            assert_eq!(
                (error(&reply)["code"].as_str(), reply.header("www-authenticate")),
                (Some("invalid_api_key"), Some("Bearer"))
            );
            assert!(!reply.body.contains("sesame"));
        }
    }
}

#[tokio::test]
async fn models_are_listed_and_found() {
    let server = TestServer::start(ServerConfig::default()).await;
    for target in ["/v1/models", "/v1/models/", "/models", "/models/"] {
        let list = server.ask(&get(target)).await.json();
        assert_eq!(list["object"], "list");
        let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
        assert_eq!(ids, ["scripted", "panic", "org/name:tag"]);
    }
    for id in ["org/name:tag", "org%2Fname%3Atag"] {
        let model = server.ask(&get(&format!("/v1/models/{id}"))).await.json();
        assert_eq!(
            (&model["id"], &model["object"], &model["owned_by"]),
            (&"org/name:tag".into(), &"model".into(), &"trunkline".into())
        );
        assert!(model["created"].as_u64().unwrap() > 1_700_000_000);
    }
    let health = server.ask(&get("/health")).await.json();
    assert_eq!(health, json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "models": 3, "waiting": 0}));
}

#[tokio::test]
async fn request_id_is_echoed_when_it_is_a_plain_word() {
    let server = TestServer::start(ServerConfig::default()).await;
    for (id, echoed) in [("abc-123_x.y:z", true), ("two words", false), (&"x".repeat(129), false), ("<script>", false)]
    {
        let reply = server.ask(&request("GET", "/health", &format!("x-request-id: {id}\r\n"), "")).await;
        let found = reply.header("x-request-id").unwrap();
        assert_eq!(found == id, echoed, "{id}");
        assert!(echoed || found.starts_with("req_"), "{found}");
    }
}

#[tokio::test]
async fn case_38_panic_fails_only_its_own_request() {
    let server = TestServer::start(ServerConfig::default()).await;
    for stream in ["false", "true"] {
        let body = format!(r#"{{"model":"panic","messages":[{{"role":"user","content":"x"}}],"stream":{stream}}}"#);
        let reply = server.ask(&chat(&body)).await;
        assert_eq!((reply.status, error(&reply)["code"].as_str()), (500, Some("internal_error")));
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
    assert_eq!(server.ask(&get("/health")).await.status, 200);
}

#[tokio::test]
async fn valid_key_is_accepted_while_wrong_keys_come_from_its_address() {
    let server = TestServer::start(ServerConfig { keys: Keys::new(["open-sesame"]), ..ServerConfig::default() }).await;
    let ask = |key: &str| request("GET", "/v1/models", &format!("Authorization: Bearer {key}\r\n"), "");
    let mut statuses = Vec::new();
    for n in 0..30 {
        let reply = server.ask(&ask(&format!("guess-{n}"))).await;
        if reply.status == 401 {
            let error = error(&reply);
            assert_eq!(error["code"], "invalid_api_key");
            assert!(error["message"].as_str().unwrap().starts_with("Incorrect API key provided"), "{error}");
        }
        statuses.push(reply.status);
    }
    assert_eq!((statuses.first(), statuses.last()), (Some(&401), Some(&429)), "a flood is still limited");
    // A valid key that was not used before.
    assert_eq!(server.ask(&ask("open-sesame")).await.status, 200);
    assert_eq!(server.ask(&ask("guess-again")).await.status, 429);
    assert_eq!(server.ask(&ask("open-sesame")).await.status, 200);
}

#[tokio::test]
async fn probe_is_refused_when_another_site_requests_it() {
    let server = TestServer::start(ServerConfig::default()).await;
    for (headers, status) in [
        ("User-Agent: curl/8.5.0\r\n", 200),
        ("", 200),
        ("Sec-Fetch-Site: same-origin\r\nUser-Agent: Mozilla/5.0\r\n", 200),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: none\r\nSec-Purpose: prefetch\r\n", 403),
        ("User-Agent: Mozilla/5.0\r\n", 403),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = server.ask(&request(method, "/health/providers?probe=true", headers, "")).await;
            assert_eq!(reply.status, status, "{method} {headers}");
        }
    }
    let looked = server.ask(&request("GET", "/health/providers", "User-Agent: Mozilla/5.0\r\n", "")).await;
    assert_eq!(looked.status, 200, "only a probe costs something");
}

#[tokio::test]
async fn body_is_refused_when_it_is_not_an_object() {
    let server = TestServer::start(ServerConfig::default()).await;
    for target in ["/v1/chat/completions", "/chat"] {
        for body in
            [r#"["scripted",[{"role":"user","content":"hi"}]]"#, r#"["hi","scripted"]"#, "[]", "\"hi\"", "1", "null"]
        {
            let reply = server.ask(&request("POST", target, JSON, body)).await;
            let error = error(&reply);
            assert_eq!((reply.status, &error["code"]), (400, &json!("invalid_value")), "{target} {body}");
            assert!(error["message"].as_str().unwrap().contains("expected an object"), "{error}");
        }
    }
    assert!(server.turns().is_empty());
}
