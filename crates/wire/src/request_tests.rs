use super::*;
use serde_json::{Value, json};

fn turn(body: &Value) -> Result<Turn, ApiError> {
    ChatRequest::parse(body.to_string().as_bytes())?.into_turn()
}

fn with(messages: Value) -> Value {
    json!({"model": "m", "messages": messages})
}

#[test]
fn roles_and_contents_are_converted_to_messages() {
    let body = with(json!([
        {"role": "system", "content": "be terse"},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "2+2?", "name": "ann"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":2}"}},
            {"id": "2", "type": "custom", "custom": {"name": "note", "input": "hm"}},
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "4"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "refusal": null},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "5"},
    ]));
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let calls = vec![call("1", "add", "{\"a\":2}"), call("2", "note", "hm")];
    let expected = vec![
        Message::new(Role::System, "be terse"),
        Message::new(Role::System, "a\nb"),
        Message { name: Some("ann".into()), ..Message::new(Role::User, "2+2?") },
        Message { calls, ..Message::new(Role::Assistant, "") },
        Message { call_id: Some("1".into()), ..Message::new(Role::Tool, "4") },
        Message::new(Role::Assistant, "no"),
        Message { calls: vec![call("", "old", "{}")], ..Message::new(Role::Assistant, "") },
        Message { name: Some("old".into()), ..Message::new(Role::Tool, "5") },
    ];
    let expected = Turn { model: "m".into(), messages: expected, shown: AnswerTiming::AtTheEnd, ..Turn::default() };
    assert_eq!(turn(&body).unwrap(), expected);
}

#[test]
fn options_are_kept_unless_null() {
    let mut body = with(json!([{"role": "user", "content": "hi"}]));
    for (name, value) in [
        ("stream", json!(true)),
        ("max_tokens", json!(0)),
        ("temperature", json!(0)),
        ("top_p", json!(0.5)),
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(false)),
        ("seed", json!(null)),
        ("metadata", json!({"task_id": "abc", "session_id": "s"})),
        ("service_tier", json!("auto")),
    ] {
        body[name] = value;
    }
    let turn = turn(&body).unwrap();
    let options = &turn.options;
    assert_eq!((turn.shown, options.max_tokens), (AnswerTiming::AsItComes, Some(0)));
    assert_eq!(serde_json::to_value(&options.temperature).unwrap(), json!(0));
    assert_eq!(serde_json::to_value(&options.top_p).unwrap(), json!(0.5));
    assert_eq!(serde_json::to_value(&options.tools).unwrap(), body["tools"]);
    let more: Vec<(&str, &str)> = options.more.iter().map(|(name, json)| (*name, json.as_str())).collect();
    let kept = [("tool_choice", "\"auto\""), ("parallel_tool_calls", "false"), ("service_tier", "\"auto\"")];
    assert_eq!(more, kept);
    let metadata: Vec<(&str, &str)> =
        options.metadata.iter().map(|(name, json)| (name.as_str(), json.as_str())).collect();
    assert_eq!((metadata, turn.session), (vec![("task_id", "\"abc\"")], Some(SessionId("s".into()))));
    body["max_completion_tokens"] = json!(7);
    assert_eq!(self::turn(&body).unwrap().options.max_tokens, Some(7));
}

#[test]
fn case_14_model_is_unknown_when_name_is_not_acceptable() {
    for name in ["x".repeat(257), "a\nb".to_owned(), "a\0b".to_owned()] {
        let mut body = with(json!([{"role": "user", "content": "hi"}]));
        body["model"] = json!(name);
        let error = turn(&body).unwrap_err();
        assert_eq!((error.status, error.code), (400, "model_not_found"), "{name:?}");
    }
}

#[test]
fn error_names_the_rejected_member() {
    let audio = json!({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}});
    let file = json!({"type": "file", "file": {"file_id": "f"}});
    let part = |part: Value| with(json!([{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]));
    let with_image = |url: &str| part(json!({"type": "image_url", "image_url": {"url": url}}));
    for (body, param, code) in [
        (json!({"messages": [{"role": "user", "content": "x"}]}), "model", "missing_required_parameter"),
        (json!({"model": "m"}), "messages", "missing_required_parameter"),
        (with(json!([])), "messages", "invalid_value"),
        (with(json!([{"role": "user", "content": " \n"}])), "messages", "invalid_value"),
        (with(json!([{"role": "system", "content": "x"}])), "messages", "invalid_value"),
        (with(json!([{"role": "robot", "content": "x"}])), "messages[0].role", "invalid_value"),
        (with(json!([{"role": "user", "content": "a\u{0}b"}])), "messages[0].content", "invalid_value"),
        (part(json!({"type": "text", "text": "\u{0}"})), "messages[0].content[1].text", "invalid_value"),
        (part(json!({"type": "text"})), "messages[0].content[1].text", "missing_required_parameter"),
        (part(json!({"type": "video"})), "messages[0].content[1].type", "invalid_value"),
        (part(audio), "messages[0].content[1]", "unsupported_parameter"),
        (part(file), "messages[0].content[1]", "unsupported_parameter"),
        (with_image("https://example.com/a.png"), "messages[0].content[1].image_url.url", "invalid_image_url"),
        (with_image("data:image/svg+xml;base64,AAAA"), "messages[0].content[1].image_url.url", "invalid_image_url"),
        (with_image("data:image/png,AAAA"), "messages[0].content[1].image_url.url", "invalid_image_url"),
        (with_image("data:image/png;base64,%%"), "messages[0].content[1].image_url.url", "invalid_image_url"),
        (with_image("data:image/png;base64,"), "messages[0].content[1].image_url.url", "invalid_image_url"),
        (with_image("data"), "messages[0].content[1].image_url.url", "invalid_image_url"),
    ] {
        let error = turn(&body).unwrap_err();
        assert_eq!((error.status, error.param.as_deref(), error.code), (400, Some(param), code), "{body}");
    }
}

#[test]
fn case_13_parameters_that_change_the_answer_are_rejected() {
    for (member, value, refused) in [
        ("n", json!(2), false),
        ("n", json!(128), false),
        ("n", json!(129), true),
        ("n", json!(0), true),
        ("n", json!(1), false),
        ("modalities", json!(["text", "audio"]), true),
        ("modalities", json!(["text"]), false),
        ("audio", json!({"voice": "x"}), true),
        ("user", json!("u".repeat(10_000)), true),
        ("user", json!("u"), false),
    ] {
        let mut body = with(json!([{"role": "user", "content": "x"}]));
        body[member] = value.clone();
        let param = turn(&body).err().and_then(|error| error.param);
        assert_eq!(param.as_deref(), refused.then_some(member), "{member} {value}");
    }
}

#[test]
fn session_is_taken_from_the_body_or_its_metadata() {
    for (members, session) in [
        (json!({}), None),
        (json!({"session_id": "a", "metadata": {"session_id": "b"}}), Some("a")),
        (json!({"metadata": {"session_id": "b"}}), Some("b")),
        (json!({"session_id": ""}), None),
    ] {
        let mut body = with(json!([{"role": "user", "content": "x"}]));
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        assert_eq!(turn(&body).unwrap().session.map(|id| id.0).as_deref(), session, "{members}");
    }
    for bad in ["--flag", "a b", "a\nb", "a\u{0}", &"x".repeat(257)] {
        assert!(session(bad, "session_id").is_err(), "{bad}");
    }
}

#[test]
fn session_in_the_body_is_ignored_when_model_keeps_no_sessions() {
    for id in [json!("a"), json!("my chat --flag"), json!(7), json!({"a": 1})] {
        let mut body = with(json!([{"role": "user", "content": "x"}]));
        body["session_id"] = id.clone();
        body["metadata"] = json!({"session_id": id, "other": "o"});
        let mut chat = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
        chat.ignore_session();
        let turn = chat.into_turn().unwrap();
        let passed_on: Vec<&str> = turn.options.metadata.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((turn.session, passed_on), (None, vec!["other", "session_id"]), "{id}");
    }
    let mut body = with(json!([{"role": "user", "content": "x"}]));
    body["metadata"] = json!({"session_id": 1});
    assert_eq!(turn(&body).unwrap_err().param.as_deref(), Some("metadata.session_id"));
}

#[test]
fn tools_are_rejected_unless_they_are_an_array_of_objects() {
    for (tools, accepted) in [
        (json!([]), true),
        (json!([{"type": "function"}]), true),
        (json!(null), true),
        (json!({"type": "function"}), false),
        (json!([["function", {}]]), false),
        (json!("all"), false),
    ] {
        let mut body = with(json!([{"role": "user", "content": "x"}]));
        body["tools"] = tools.clone();
        let refused = turn(&body).err().and_then(|error| error.param);
        assert_eq!(refused.as_deref(), (!accepted).then_some("tools"), "{tools}");
    }
}

#[test]
fn data_urls_are_decoded() {
    for (url, extension) in [
        ("data:image/png;base64,AQID", "png"),
        ("DATA:IMAGE/JPEG;BASE64,AQID", "jpeg"),
        ("data:image/jpg;base64,AQID", "jpeg"),
        ("data:image/gif;name=a.gif;base64,AQID", "gif"),
        ("data:image/webp;base64,AQID", "webp"),
    ] {
        let body = with(
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}]),
        );
        let turn = turn(&body).unwrap();
        let images: Vec<_> = turn.images().cloned().collect();
        assert_eq!(images, [Image { extension, bytes: vec![1, 2, 3] }], "{url}");
    }
    assert_eq!(image("data:image/png;base64,AQ", "p").unwrap().bytes, [1]);
    assert_eq!(image("data:image/png;base64,AQ==", "p").unwrap().bytes, [1]);
}

#[test]
fn number_and_size_of_images_are_limited() {
    let part = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}});
    let message = |count: usize| json!({"role": "user", "content": vec![part.clone(); count]});
    assert!(turn(&with(json!([message(16)]))).is_ok());
    assert!(turn(&with(json!([message(17)]))).is_err());
    assert!(turn(&with(json!([message(9), message(8)]))).is_err());
    let huge = format!("data:image/png;base64,{}", "A".repeat((MAX_IMAGE_BYTES / 3 + 3) * 4));
    assert!(image(&huge, "p").unwrap_err().message.contains("larger"));
}

proptest::proptest! {
    #[test]
    fn text_is_never_changed(text in "[^\0]{1,80}") {
        proptest::prop_assume!(!text.trim().is_empty());
        let turn = turn(&with(json!([{"role": "user", "content": text}]))).unwrap();
        assert_eq!(turn.messages, [Message::new(Role::User, text)]);
    }

    #[test]
    fn image_url_parsing_never_panics(url in "(data:)?(image/png)?[;,a-zA-Z0-9+/=é]{0,40}") {
        let _decoded = image(&url, "p");
    }
}
