use super::*;

fn failure_of(status: u16, body: &str) -> Failure {
    failure(status, &UpstreamHeaders::default(), body.as_bytes(), &[])
}

#[test]
fn errors_of_known_servers_are_classified() {
    use Category::*;
    for (server, status, body, category, message) in [
        (
            "openai",
            401,
            r#"{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            Authentication,
            "Incorrect API key provided: sk-x.",
        ),
        (
            "openai",
            404,
            r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            NotFound,
            "The model `x` does not exist",
        ),
        (
            "openai",
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            Quota,
            "You exceeded your current quota, please check your plan",
        ),
        (
            "openai",
            429,
            r#"{"error":{"message":"Rate limit reached for gpt-x","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
            RateLimit,
            "Rate limit reached for gpt-x",
        ),
        (
            "openai",
            400,
            r#"{"error":{"message":"Invalid 'timeout': not found","type":"invalid_request_error","param":"timeout","code":null}}"#,
            Validation,
            "Invalid 'timeout': not found",
        ),
        (
            "openai",
            500,
            r#"{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}"#,
            Server,
            "The server had an error",
        ),
        (
            "litellm",
            429,
            r#"{"error":{"message":"litellm.RateLimitError: quota exceeded for the day","type":"throttling_error","param":null,"code":"429"}}"#,
            Quota,
            "litellm.RateLimitError: quota exceeded for the day",
        ),
        (
            "litellm",
            401,
            r#"{"error":{"message":"Authentication Error, Invalid proxy server token","type":"auth_error","param":"None","code":"401"}}"#,
            Authentication,
            "Authentication Error, Invalid proxy server token",
        ),
        (
            "ollama",
            404,
            r#"{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
            NotFound,
            "model \"x\" not found, try pulling it first",
        ),
        (
            "ollama",
            500,
            r#"{"error":"llama runner process has terminated"}"#,
            Server,
            "llama runner process has terminated",
        ),
        (
            "vllm",
            404,
            r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
            NotFound,
            "The model `x` does not exist.",
        ),
        (
            "vllm",
            400,
            r#"{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}}"#,
            Validation,
            "This model's maximum context length is 4096 tokens.",
        ),
        ("lm studio", 400, r#"{"error":"Model not loaded"}"#, Validation, "Model not loaded"),
        ("fastapi", 404, r#"{"detail":"Not Found"}"#, NotFound, "Not Found"),
        (
            "fastapi",
            422,
            r#"{"detail":[{"loc":["body","messages",0,"role"],"msg":"field required","type":"value_error"}]}"#,
            Validation,
            "body.messages.0.role: field required",
        ),
        (
            "gemini",
            429,
            r#"[{"error":{"code":429,"message":"Resource has been exhausted","status":"RESOURCE_EXHAUSTED"}}]"#,
            Quota,
            "Resource has been exhausted",
        ),
        (
            "openrouter",
            502,
            r#"{"error":{"message":"Provider returned error","code":502,"metadata":{"raw":"model is overloaded","provider_name":"x"}}}"#,
            RateLimit,
            "Provider returned error: model is overloaded",
        ),
        (
            "us",
            400,
            r#"{"error":{"message":"Unknown model","type":"invalid_request_error","code":"model_not_found","param":"model"}}"#,
            NotFound,
            "Unknown model",
        ),
        ("a proxy", 402, r#"{"message":"no credit"}"#, Quota, "no credit"),
        ("a proxy", 403, r#"{"error":{"message":"API rate limit exceeded"}}"#, RateLimit, "API rate limit exceeded"),
        ("a proxy", 418, "", Validation, "the upstream answered with status 418"),
        ("a proxy", 599, "{}", Server, "the upstream answered with status 599"),
        (
            "nginx",
            502,
            "<html>\r\n<head><title>502 Bad\n Gateway</title></head>\r\n<body><h1>no</h1></body></html>",
            Server,
            "502 Bad Gateway",
        ),
        ("a page", 503, "<!DOCTYPE html><h1 class=x>Come back later</h1>", Server, "Come back later"),
        ("a page", 504, "<div>", Server, "an HTML page"),
        ("text", 503, "\u{1b}[31mno healthy upstream\u{1b}[0m\nstack trace", Server, "no healthy upstream"),
    ] {
        let failure = failure_of(status, body);
        assert_eq!((failure.category, failure.message.as_str()), (category, message), "{server} {status} {body}");
    }
}

#[test]
fn failure_is_copied_when_upstream_is_another_trunkline() {
    let body = r#"{"error":{"message":"CLI failed","type":"cli_error","code":"quota","param":null,"detail":"weekly limit",
        "hint":"wait","retry_after_ms":3600000}}"#;
    let headers = UpstreamHeaders { retry_after: Some("120"), ..UpstreamHeaders::default() };
    let expected =
        Failure::new(Category::Quota, "weekly limit").hint("wait").retry_after(Some(Duration::from_hours(1)));
    assert_eq!(failure(429, &headers, body.as_bytes(), &[]), expected);
    let brief = r#"{"error":{"message":"CLI failed: no key","type":"cli_error","code":"authentication","param":null}}"#;
    assert_eq!(failure_of(500, brief), Failure::new(Category::Authentication, "no key"));
    let unknown = r#"{"error":{"message":"CLI failed","type":"cli_error","code":"new","detail":"x"}}"#;
    assert_eq!(failure_of(500, unknown).category, Category::Server);
}

#[test]
fn wait_is_taken_from_the_headers_before_the_message() {
    let body = br#"{"error":{"message":"Please try again in 20s","code":"rate_limit_exceeded"}}"#;
    let none = UpstreamHeaders::default();
    let date = Some("Wed, 21 Oct 2015 07:28:00 GMT");
    for (headers, body, millis) in [
        (none, body.as_slice(), Some(20_000)),
        (none, b"slow down", Some(1000)),
        (UpstreamHeaders { retry_after: Some("7"), ..none }, body, Some(7000)),
        (UpstreamHeaders { retry_after: Some(" 1.5 "), ..none }, body, Some(1500)),
        (UpstreamHeaders { retry_after: Some("7"), retry_after_ms: Some("250"), ..none }, body, Some(250)),
        (UpstreamHeaders { retry_after: date, now: 1_445_412_450, ..none }, body, Some(30_000)),
        (
            UpstreamHeaders { retry_after: date, date: Some("Wed, 21 Oct 2015 07:27:50 GMT"), now: 0, ..none },
            body,
            Some(10_000),
        ),
        (UpstreamHeaders { retry_after: date, now: 1_545_412_450, ..none }, body, Some(0)),
        (UpstreamHeaders { retry_after: Some("-1"), ..none }, body, Some(20_000)),
        (UpstreamHeaders { retry_after: Some("soon"), ..none }, body, Some(20_000)),
        (UpstreamHeaders { retry_after: Some("99999999999"), ..none }, body, Some(2_592_000_000)),
        (UpstreamHeaders { retry_after: Some("NaN"), retry_after_ms: Some("inf"), ..none }, body, Some(20_000)),
    ] {
        let failure = failure(429, &headers, body, &[]);
        assert_eq!(failure.retry_after.map(|wait| wait.as_millis()), millis, "{headers:?}");
    }
    assert_eq!(failure_of(500, "no").retry_after, None);
    let unavailable = failure(503, &UpstreamHeaders { retry_after: Some("5"), ..none }, b"", &[]);
    assert_eq!((unavailable.category, unavailable.retry_after), (Category::Server, Some(Duration::from_secs(5))));
}

#[test]
fn category_is_taken_from_the_providers_rules_first() {
    let rules = [Rule { contains: "loading model".into(), is: Category::Server, weak: false, session_lost: false }];
    let body = br#"{"error":{"message":"Loading model","type":"invalid_request_error"}}"#;
    assert_eq!(failure(400, &UpstreamHeaders::default(), body, &rules).category, Category::Server);
    assert_eq!(failure(400, &UpstreamHeaders::default(), body, &[]).category, Category::Validation);
    let weak = [Rule { contains: "loading model".into(), is: Category::Server, weak: true, session_lost: false }];
    assert_eq!(
        failure(400, &UpstreamHeaders::default(), body, &weak).category,
        Category::Validation,
        "the status wins over a weak rule"
    );
}

#[test]
fn redirect_is_a_configuration_failure() {
    let failure = failure_of(308, "");
    assert_eq!(failure.category, Category::Configuration);
    assert!(failure.message.contains("308") && failure.hint.unwrap().contains("base_url"));
}

#[test]
fn errors_inside_a_stream_are_classified_without_status() {
    for (json, category, message) in [
        (r#""boom""#, Category::Unknown, "boom"),
        (
            r#"{"message":"The server had an error","type":"server_error","code":null}"#,
            Category::Server,
            "The server had an error",
        ),
        (r#"{"message":"slow","code":429}"#, Category::RateLimit, "slow"),
        (r#"{"message":"no","type":"authentication_error"}"#, Category::Authentication, "no"),
        (r#"{"type":"overloaded_error"}"#, Category::RateLimit, "the upstream reported an error without a message"),
        (
            r#"{"message":"CLI failed","type":"cli_error","code":"timeout","param":null,"detail":"Query timed out"}"#,
            Category::Timeout,
            "Query timed out",
        ),
        ("7", Category::Unknown, "the upstream reported an error without a message"),
    ] {
        let failure = in_band(json, &[]);
        assert_eq!((failure.category, failure.message.as_str()), (category, message), "{json}");
    }
}

#[test]
fn message_is_truncated() {
    let long = "ä".repeat(MAX_MESSAGE_CHARS + 1);
    let body = format!(r#"{{"error":{{"message":"{long}"}}}}"#);
    assert_eq!(failure_of(500, &body).message.chars().count(), MAX_MESSAGE_CHARS);
    assert!(failure_of(500, &body).message.ends_with('…'));
    let exact = "ä".repeat(MAX_MESSAGE_CHARS);
    assert_eq!(failure_of(500, &exact).message, exact);
}

proptest::proptest! {
    #[test]
    fn failure_always_has_a_message(
        status in 100u16..1000,
        body in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
        wait in "\\PC{0,20}",
    ) {
        let headers = UpstreamHeaders { retry_after: Some(&wait), retry_after_ms: Some(&wait), date: Some(&wait), now: i64::MIN };
        assert!(!failure(status, &headers, &body, &[]).message.is_empty());
    }

    #[test]
    fn summarize_never_panics_on_html(page in "<(title|h1|TİTLE|[a-zé>/<]){0,8}") {
        assert!(summarize(&page).is_some());
    }
}
