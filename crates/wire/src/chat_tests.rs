use super::*;
use proptest::prelude::*;

fn parse_error(body: &str) -> (Option<String>, &'static str, String) {
    let error = ChatRequest::parse(body.as_bytes()).unwrap_err();
    assert_eq!(error.status, 400, "{body}");
    (error.param.map(String::from), error.code, error.message.into())
}

#[test]
fn error_names_the_path_of_a_bad_member() {
    for (body, param) in [
        (r#"{"messages":5}"#, "messages"),
        (r#"{"messages":[{"role":"user","content":"a"},7]}"#, "messages[1]"),
        (r#"{"messages":[{"role":"user","content":5}]}"#, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}"#, "messages[0].content[0].text"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":1}}]}]}"#,
            "messages[0].content[0].image_url.url",
        ),
        (r#"{"messages":[{"role":"assistant","tool_calls":[{}]}]}"#, "messages[0].tool_calls[0]"),
        (r#"{"stream":"yes"}"#, "stream"),
        (r#"{"n":-1}"#, "n"),
        (r#"{"stream_options":[true]}"#, "stream_options"),
        (r#"{"messages":[["user","hi"]]}"#, "messages[0]"),
        (r#"{"messages":[{"role":"user","content":[["text","hi"]]}]}"#, "messages[0].content[0]"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":["data:"]}]}]}"#,
            "messages[0].content[0].image_url",
        ),
        (r#"{"messages":[{"role":"assistant","tool_calls":[["id",["f","{}"]]]}]}"#, "messages[0].tool_calls[0]"),
        (r#"{"messages":[{"role":"assistant","function_call":["f","{}"]}]}"#, "messages[0].function_call"),
        (r#"{"trunkline":["detach"]}"#, "trunkline"),
        (r#"{"metadata":["s"]}"#, "metadata"),
    ] {
        let (found, code, message) = parse_error(body);
        assert_eq!((found.as_deref(), code), (Some(param), "invalid_value"), "{body}: {message}");
        assert!(message.contains(" column "), "{message}");
    }
}

#[test]
fn body_is_rejected_unless_it_is_an_object() {
    for body in [r#"["m",[{"role":"user","content":"hi"}]]"#, "[]", r#""hi""#, "7", "null", "true"] {
        let (_, code, message) = parse_error(body);
        assert_eq!(code, "invalid_value", "{body}");
        assert!(message.contains("expected an object"), "{body}: {message}");
    }
}

#[test]
fn case_10_error_has_line_and_column_when_json_is_broken() {
    for (body, place) in [
        ("", "line 1 column 0"),
        ("{\n  \"model\": \"m\",\n  oops", "line 3 column 3"),
        (r#"{"model":"m""#, "line 1 column 12"),
        (r#"{"model":"m"} x"#, "line 1 column 15"),
        (r#"{"model":"\ud800"}"#, "line 1 column "),
    ] {
        let (_, code, message) = parse_error(body);
        assert_eq!(code, "invalid_json", "{body}");
        assert!(message.contains(place), "{message}");
    }
    let error = ChatRequest::parse(b"{\"model\":\"\xff\"}").unwrap_err();
    assert!(error.message.contains("offset 10"), "{}", error.message);
}

#[test]
fn duplicate_members_are_rejected() {
    assert!(parse_error(r#"{"model":"a","model":"b"}"#).2.contains("duplicate field `model`"));
}

#[test]
fn error_is_truncated_when_it_quotes_a_long_value() {
    let (_, _, message) = parse_error(&format!(r#"{{"stream":"{}"}}"#, "x".repeat(100_000)));
    assert!(message.len() < 500);
}

#[test]
fn every_parameter_clients_send_is_accepted() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi","name":"ann"}],"max_tokens":1,
        "max_completion_tokens":2,"stream":true,"stream_options":{"include_usage":true,"x":1},"tools":[{"type":"function",
        "function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":{"type":"function"},
        "parallel_tool_calls":false,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},
        "temperature":0.5,"top_p":1,"n":1,"seed":7,"stop":["a"],"user":"u","metadata":{"a":"b","session_id":"s"},
        "store":true,"reasoning_effort":"low","verbosity":"low","prompt_cache_key":"k","service_tier":"auto",
        "logit_bias":{"1":2},"logprobs":true,"top_logprobs":3,"presence_penalty":0,"frequency_penalty":0,"new_one":{}}"#;
    let request = ChatRequest::parse(body.as_bytes()).unwrap();
    assert!(request.include_usage());
    assert_eq!(request.metadata.unwrap().session_id.unwrap().get(), "\"s\"");
}

#[test]
fn every_optional_member_may_be_null() {
    let body = r#"{"model":"m","messages":[{"role":"assistant","content":null,"refusal":null,"tool_calls":null,
        "function_call":null}],"stream":null,"stream_options":null,"n":null,"user":null,"modalities":null,"audio":null,
        "session_id":null,"metadata":null,"temperature":null}"#;
    let request = ChatRequest::parse(body.as_bytes()).unwrap();
    assert!(!request.include_usage());
    assert!(request.audio.is_none());
}

#[test]
fn case_09_depth_and_length_are_bounded() {
    for deep in [
        format!(r#"{{"x":{}"#, "[".repeat(100_000)),
        format!(r#"{{"messages":{}"#, "[".repeat(100_000)),
        format!(r#"{{"messages":[{{"role":"user","content":{}"#, "[".repeat(100_000)),
        "[".repeat(1_000_000),
    ] {
        assert!(ChatRequest::parse(deep.as_bytes()).is_err());
    }
    let many = format!(r#"{{"messages":[{}]}}"#, vec![r#"{"role":"user"}"#; 20_000].join(","));
    assert!(parse_error(&many).2.contains("at most 16384"));
    let entries: Vec<String> = (0..17).map(|key| format!(r#""{key}":0"#)).collect();
    assert_eq!(parse_error(&format!(r#"{{"metadata":{{{}}}}}"#, entries.join(","))).0.as_deref(), Some("metadata"));
}

proptest! {
    #[test]
    fn case_10_parse_never_panics_on_random_bytes(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _read = ChatRequest::parse(&body);
    }

    #[test]
    fn parse_never_panics_on_a_truncated_body(at in 0usize..200) {
        let body = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d\ude00 é"}]}],"n":1}"#;
        let _read = ChatRequest::parse(&body.as_bytes()[..at.min(body.len())]);
    }
}
