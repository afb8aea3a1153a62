//! The grammar of a stream of responses, as Google's clients rely on it.

use serde_json::{Value, json};

/// Checks all frames, and returns the response that a client puts together from them, or the error that the stream ends with.
#[track_caller]
pub(crate) fn check(frames: &[Value]) -> Value {
    let (last, before) = frames.split_last().expect("a frame");
    let mut parts: Vec<Value> = Vec::new();
    for frame in before {
        assert!(frame["candidates"][0].get("finishReason").is_none(), "ends early: {frame}");
        take_parts(&mut parts, frame);
    }
    if last.get("error").is_some() {
        assert!(last["error"]["code"].is_u64() && last["error"]["status"].is_string(), "{last}");
        return last.clone();
    }
    take_parts(&mut parts, last);
    let mut response = last.clone();
    let is_answer = |part: &Value| part.get("thought").is_none();
    if !parts.iter().any(is_answer) {
        parts.push(json!({"text": ""}));
    }
    response["candidates"][0]["content"]["parts"] = parts.into();
    check_response(&response);
    response
}

/// Checks a whole response.
#[track_caller]
pub(crate) fn check_response(response: &Value) {
    let candidate = &response["candidates"][0];
    assert_eq!((&candidate["content"]["role"], &candidate["index"]), (&json!("model"), &json!(0)), "{response}");
    assert!(["STOP", "MAX_TOKENS", "SAFETY"].contains(&candidate["finishReason"].as_str().unwrap()), "{response}");
    assert!(!candidate["content"]["parts"].as_array().unwrap().is_empty(), "{response}");
    let count = |name: &str| response["usageMetadata"][name].as_u64().unwrap();
    assert_eq!(count("promptTokenCount") + count("candidatesTokenCount"), count("totalTokenCount"));
    assert!(response["modelVersion"].is_string() && response["responseId"].is_string(), "{response}");
    assert!(response["trunkline"].get("run").is_some(), "{response}");
}

/// Adds the parts of a frame. Neighbouring texts become one, and empty ones are left out.
fn take_parts(parts: &mut Vec<Value>, frame: &Value) {
    for part in frame["candidates"][0]["content"]["parts"].as_array().unwrap_or_else(|| panic!("no parts: {frame}")) {
        let same = |last: &&mut Value| last.get("text").is_some() && last.get("thought") == part.get("thought");
        match (part["text"].as_str(), parts.last_mut().filter(same)) {
            (Some(""), _) => {}
            (Some(text), Some(last)) => last["text"] = [last["text"].as_str().unwrap(), text].concat().into(),
            (Some(_), None) => parts.push(part.clone()),
            (None, _) => {
                assert!(part["functionCall"]["name"].is_string() && part["functionCall"]["args"].is_object(), "{part}");
                parts.push(part.clone());
            }
        }
    }
}
