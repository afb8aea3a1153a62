//! The grammar of a stream of messages, as Anthropic's clients rely on it.

use serde_json::Value;

/// Checks the order and the members of all frames, and returns the message that a client puts together from them, or the error that
/// the stream ends with.
#[track_caller]
pub(crate) fn check(frames: &[Value]) -> Value {
    let kind = |frame: &Value| frame["type"].as_str().unwrap().to_owned();
    let mut frames = frames.iter().filter(|frame| frame["type"] != "ping");
    let first = frames.next().expect("a frame");
    if kind(first) == "error" {
        return first.clone();
    }
    assert_eq!(kind(first), "message_start", "{first}");
    let mut message = first["message"].clone();
    check_head(&message);
    assert_eq!((&message["content"], &message["stop_reason"]), (&Value::Array(Vec::new()), &Value::Null));
    let mut open: Option<(Value, String)> = None;
    let mut ended = false;
    for frame in frames {
        assert!(!ended, "a frame after the end: {frame}");
        let next = message["content"].as_array().unwrap().len();
        match kind(frame).as_str() {
            "content_block_start" => {
                assert!(open.is_none(), "two blocks are open: {frame}");
                assert_eq!(frame["index"], next, "{frame}");
                open = Some((frame["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                assert_eq!(frame["index"], next, "{frame}");
                add(open.as_mut().expect("an open block"), &frame["delta"]);
            }
            "content_block_stop" => {
                assert_eq!(frame["index"], next, "{frame}");
                let block = closed(open.take().expect("an open block"));
                message["content"].as_array_mut().unwrap().push(block);
            }
            "message_delta" => {
                assert!(open.is_none() && message["stop_reason"].is_null(), "{frame}");
                for member in ["stop_reason", "stop_sequence"] {
                    message[member] = frame["delta"][member].clone();
                }
                message["usage"] = frame["usage"].clone();
                message["trunkline"] = frame["trunkline"].clone();
            }
            "message_stop" => ended = true,
            "error" => return frame.clone(),
            other => panic!("unknown event {other}"),
        }
    }
    assert!(ended, "no message_stop");
    check_message(&message);
    message
}

/// Checks a whole message.
#[track_caller]
pub(crate) fn check_message(message: &Value) {
    check_head(message);
    let reasons = ["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"];
    assert!(reasons.contains(&message["stop_reason"].as_str().unwrap()), "{message}");
    assert!(!message["content"].as_array().unwrap().is_empty(), "{message}");
    for block in message["content"].as_array().unwrap() {
        match block["type"].as_str().unwrap() {
            "text" => assert!(block["text"].is_string(), "{block}"),
            "thinking" => assert!(block["thinking"].is_string() && block["signature"].is_string(), "{block}"),
            "tool_use" => assert!(block["id"].as_str().is_some_and(|id| !id.is_empty()), "{block}"),
            other => panic!("unknown block {other}"),
        }
    }
    for member in ["run", "provider", "attempts"] {
        assert!(message["trunkline"].get(member).is_some(), "{message}");
    }
}

fn check_head(message: &Value) {
    assert!(message["id"].as_str().unwrap().starts_with("msg_"), "{message}");
    assert_eq!((message["type"].as_str(), message["role"].as_str()), (Some("message"), Some("assistant")));
    assert!(message["model"].is_string() && message.get("stop_sequence").is_some(), "{message}");
    for count in ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"] {
        assert!(message["usage"][count].is_u64(), "{count}: {message}");
    }
}

/// Adds a delta to a block. `arguments` is the JSON of a call so far.
fn add((block, arguments): &mut (Value, String), delta: &Value) {
    let (kind, member) = match delta["type"].as_str().unwrap() {
        "text_delta" => ("text", "text"),
        "thinking_delta" => ("thinking", "thinking"),
        "signature_delta" => ("thinking", "signature"),
        "input_json_delta" => {
            assert_eq!(block["type"], "tool_use", "{delta}");
            arguments.push_str(delta["partial_json"].as_str().unwrap());
            return;
        }
        other => panic!("unknown delta {other}"),
    };
    assert_eq!(block["type"], kind, "{delta}");
    let sum = [block[member].as_str().unwrap(), delta[member].as_str().unwrap()].concat();
    block[member] = sum.into();
}

fn closed((mut block, arguments): (Value, String)) -> Value {
    if block["type"] == "tool_use" && !arguments.trim().is_empty() {
        let parsed = serde_json::from_str(&arguments).ok().filter(Value::is_object);
        block["input"] = parsed.unwrap_or_else(|| serde_json::json!({"arguments": arguments}));
    }
    block
}
