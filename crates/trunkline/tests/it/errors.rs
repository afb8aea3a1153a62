//! Failures as a client sees them: status, headers and the common shape of the body.

use serde_json::json;

use crate::test_gateway::TestGateway;

fn gateway_replaying(cli: &str, recording: &str) -> TestGateway {
    TestGateway::new().cli(cli, &format!("replay {recording}")).model("m", json!({"driver": cli})).start()
}

#[test]
fn error_contains_the_stderr_of_the_cli_when_it_fails() {
    let gateway = TestGateway::new()
        .cli("codex", "printf '\\033[31mthe disk is made of cheese\\033[0m\\n' >&2; exit 1")
        .model("m", json!({"driver": "codex"}))
        .start();
    for request in [gateway.chat("hi"), gateway.chat("hi").streamed()] {
        let reply = request.send();
        let error = reply.error(500);
        let expected = json!({"message": "CLI failed: the disk is made of cheese", "type": "cli_error", "code": "unknown", "param": null,
            "detail": "the disk is made of cheese"});
        assert_eq!(error, expected);
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
}

#[test]
fn case_69_rate_limit_has_a_retry_after_header() {
    for (cli, recording) in [("claude", "claude/e429_streamjson_retries0"), ("codex", "codex/err_429")] {
        let reply = gateway_replaying(cli, recording).chat("hi").send();
        let error = reply.error(429);
        assert_eq!((error["code"].as_str(), error["retry_after_ms"].as_u64()), (Some("rate_limit"), Some(1000)));
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(reply.header("x-should-retry"), None, "a retry may succeed");
    }
}

#[test]
fn client_is_told_not_to_retry_when_the_quota_is_exhausted() {
    let reply = gateway_replaying("claude", "claude/oauthdummy_e429sub_streamjson").chat("hi").send();
    let error = reply.error(429);
    assert_eq!((error["code"].as_str(), error["retry_after_ms"].as_u64()), (Some("quota"), Some(7_200_000)));
    assert_eq!((reply.header("retry-after"), reply.header("x-should-retry")), (Some("120"), Some("false")));
}

#[test]
fn turn_fails_when_the_cli_reports_an_error_even_with_exit_status_0() {
    let error = gateway_replaying("opencode", "opencode/run_attach_err401").chat("hi").send().error(500);
    assert_eq!(error["code"], "authentication");
    let error = TestGateway::new()
        .cli("ax-glm", "replay ax/glm_401")
        .model("m", json!({"driver": "ax-glm"}))
        .start()
        .chat("hi")
        .send()
        .error(500);
    assert_eq!(error["code"], "authentication");
}

#[test]
fn case_18_error_is_the_last_frame_when_a_provider_fails_mid_stream() {
    let gateway = gateway_replaying("gemini", "gemini/drop-stream-json");
    let reply = gateway.chat("hi").streamed().send();
    assert_eq!(reply.streamed_text(), "Hello from");
    let frames = reply.frames();
    let (last, before) = frames.split_last().unwrap();
    let error = &last["error"];
    let message = format!("CLI failed: {}", error["detail"].as_str().unwrap().lines().next().unwrap());
    assert_eq!((error["message"].as_str(), &error["code"]), (Some(message.as_str()), &json!("network")));
    assert!(before.iter().all(|frame| frame["choices"][0]["finish_reason"].is_null()), "{}", reply.body);
    assert!(!reply.body.contains("[DONE]"), "{}", reply.body);
}

#[test]
fn case_29_secret_is_masked_when_a_cli_prints_it() {
    let secret = "quite-a-secret-0123456789";
    let gateway = TestGateway::new()
        .cli("gemini", "echo \"bad key $GEMINI_API_KEY\" >&2; exit 1")
        .model("m", json!({"driver": "gemini"}))
        .env("GEMINI_API_KEY", secret)
        .args(&["-vv"])
        .start();
    assert_eq!(gateway.chat("hi").send().error(500)["detail"], "bad key ***");
    assert!(!gateway.log().contains(secret), "{}", gateway.log());
}

#[test]
fn invalid_request_is_refused_before_a_cli_is_started() {
    let gateway = TestGateway::new().cli("codex", "tell ran").model("m", json!({"driver": "codex"})).start();
    assert_eq!(gateway.chat("hi").with("messages", "x").with("n", 0).send().error(400)["param"], "n");
    for streamed in [false, true] {
        let error = gateway.chat("hi").with("n", 2).with("stream", streamed).send().error(400);
        assert_eq!((&error["param"], &error["code"]), (&json!("n"), &json!("unsupported_parameter")), "{error}");
    }
    for wrong in [json!("2"), json!(1.5), json!(-1), json!(129), json!([2])] {
        assert_eq!(gateway.chat("hi").with("n", wrong.clone()).send().error(400)["param"], "n", "{wrong}");
    }
    assert_eq!(gateway.chat(" ").send().error(400)["param"], "messages");
    assert_eq!(gateway.chat("nul \0").send().error(400)["param"], "messages[0].content");
    assert_eq!(gateway.get("/v1/nothing").error(404)["code"], "unknown_url");
    assert!(!gateway.path("seen/ran").exists());
}

#[test]
fn case_42_complete_answer_is_a_success_when_the_exit_status_is_not_0() {
    let gateway =
        TestGateway::new().cli("codex", "codex_answers done; exit 1").model("m", json!({"driver": "codex"})).start();
    assert_eq!(gateway.chat("hi").send().content(), "done");
}

#[test]
fn request_body_is_refused_when_it_is_too_large() {
    let gateway = TestGateway::new().cli("codex", "tell ran").model("m", json!({"driver": "codex"})).start();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        gateway.address(),
        33 * 1024 * 1024
    );
    let error = crate::http::send_raw(gateway.address(), &head).finish().error(413);
    assert_eq!(error["code"], "request_too_large");
    assert!(!gateway.path("seen/ran").exists());
}
