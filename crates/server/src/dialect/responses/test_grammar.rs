//! The grammar of a stream of a response, as a state machine. Used by the tests of the encoder and by those of the whole gateway.
//!
//! ```text
//! stream  = created [queued] in_progress item* end
//! end     = completed | incomplete | error failed
//! item    = added body done             items may overlap, but only tools of the agent do
//! body    = part.added delta* text.done part.done         message
//!         | summary_part.added delta* text.done part.done reasoning
//!         | delta* arguments.done                         function call
//!         | (nothing)                                     tool of the agent
//! ```

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// State of an item.
#[derive(Debug, Clone, PartialEq)]
struct ItemState {
    id: Value,
    kind: String,
    step: Step,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Added,
    InPart,
    TextDone,
    PartDone,
}

/// Checks the order and the members of all frames, and that the last one is the sum of those before. Returns the response in it.
#[track_caller]
pub(crate) fn check(frames: &[Value]) -> Value {
    let kind = |frame: &Value| frame["type"].as_str().unwrap_or_else(|| panic!("no type: {frame}")).to_owned();
    for (number, frame) in frames.iter().enumerate() {
        assert_eq!(frame["sequence_number"], number, "{frame}");
    }
    let mut rest = frames.iter().peekable();
    let created = rest.next().expect("a stream has frames");
    assert_eq!(kind(created), "response.created");
    let queued = rest.next_if(|frame| kind(frame) == "response.queued").is_some();
    assert_eq!(created["response"]["status"], if queued { "queued" } else { "in_progress" });
    assert_eq!(created["response"]["background"], queued);
    assert_eq!(rest.next().map(kind).as_deref(), Some("response.in_progress"));
    let response = &created["response"];
    assert_eq!((&response["object"], &response["output"]), (&json!("response"), &json!([])));
    assert!(response["id"].as_str().unwrap().starts_with("resp_"), "{response}");

    let (mut open, mut done) = (BTreeMap::<u64, ItemState>::new(), BTreeMap::<u64, Value>::new());
    let mut failed = false;
    for frame in rest {
        let name = kind(frame);
        if let Some(end) =
            ["completed", "incomplete", "failed"].into_iter().find(|end| name == format!("response.{end}"))
        {
            assert!(open.is_empty(), "items are open at the end: {open:?}");
            assert_eq!(failed, end == "failed", "an error comes before a failure, and only there");
            let last = &frame["response"];
            assert_eq!(frame, frames.last().unwrap(), "frames after the end");
            let statuses: &[&str] = if failed { &["failed", "cancelled"] } else { &[end] };
            assert!(statuses.contains(&last["status"].as_str().unwrap()), "{last}");
            assert_eq!(last["output"], Value::from(done.into_values().collect::<Vec<_>>()));
            for member in ["id", "created_at", "model", "metadata", "tools", "previous_response_id"] {
                assert_eq!(last[member], created["response"][member], "{member}");
            }
            check_response(last);
            return last.clone();
        }
        assert!(!failed, "only the failure follows an error: {frame}");
        if name == "error" {
            assert!(
                frame["code"].is_string() && frame["message"].is_string() && frame.get("param").is_some(),
                "{frame}"
            );
            failed = true;
            continue;
        }
        let index = frame["output_index"].as_u64().unwrap_or_else(|| panic!("no output_index: {frame}"));
        match name.as_str() {
            "response.output_item.added" => {
                let item = &frame["item"];
                assert_eq!(index as usize, open.len() + done.len(), "indices have no gaps");
                let kind = item["type"].as_str().unwrap().to_owned();
                let others = open.values().filter(|other| other.kind != "trunkline:tool_call").count();
                assert!(kind == "trunkline:tool_call" || others == 0, "two items are open: {open:?}");
                assert_eq!(item["status"], "in_progress");
                open.insert(index, ItemState { id: item["id"].clone(), kind, step: Step::Added, text: String::new() });
            }
            "response.output_item.done" => {
                let state = open.remove(&index).unwrap_or_else(|| panic!("not open: {frame}"));
                let item = &frame["item"];
                assert_eq!((&item["id"], item["type"].as_str()), (&state.id, Some(&*state.kind)));
                assert!(["completed", "incomplete"].contains(&item["status"].as_str().unwrap()), "{item}");
                check_item(item, &state);
                done.insert(index, item.clone());
            }
            name => {
                let state = open.get_mut(&index).unwrap_or_else(|| panic!("no item is open for {frame}"));
                assert_eq!(frame["item_id"], state.id, "{frame}");
                step(state, name, frame);
            }
        }
    }
    panic!("the stream has no end: {}", frames.last().unwrap());
}

fn step(state: &mut ItemState, name: &str, frame: &Value) {
    let name = name.strip_prefix("response.").unwrap_or(name);
    state.step = match (state.kind.as_str(), state.step, name) {
        ("message", Step::Added, "content_part.added") => {
            assert_eq!(frame["content_index"], 0);
            assert_eq!(frame["part"], json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []}));
            Step::InPart
        }
        ("message", Step::InPart, "output_text.delta") => {
            assert_eq!((&frame["content_index"], &frame["logprobs"]), (&json!(0), &json!([])), "{frame}");
            state.text.push_str(frame["delta"].as_str().unwrap());
            Step::InPart
        }
        ("message", Step::InPart, "output_text.done") => {
            assert_eq!((frame["text"].as_str(), &frame["logprobs"]), (Some(&*state.text), &json!([])), "{frame}");
            Step::TextDone
        }
        ("message", Step::TextDone, "content_part.done") => {
            assert_eq!(frame["part"]["text"], state.text);
            Step::PartDone
        }
        ("reasoning", Step::Added, "reasoning_summary_part.added") => {
            assert_eq!(frame["part"], json!({"type": "summary_text", "text": ""}));
            Step::InPart
        }
        ("reasoning", Step::InPart, "reasoning_summary_text.delta") => {
            assert_eq!(frame["summary_index"], 0);
            state.text.push_str(frame["delta"].as_str().unwrap());
            Step::InPart
        }
        ("reasoning", Step::InPart, "reasoning_summary_text.done") => {
            assert_eq!(frame["text"], state.text);
            Step::TextDone
        }
        ("reasoning", Step::TextDone, "reasoning_summary_part.done") => {
            assert_eq!(frame["part"]["text"], state.text);
            Step::PartDone
        }
        ("function_call", Step::Added, "function_call_arguments.delta") => {
            state.text.push_str(frame["delta"].as_str().unwrap());
            Step::Added
        }
        ("function_call", Step::Added, "function_call_arguments.done") => {
            assert_eq!(frame["arguments"], state.text);
            Step::PartDone
        }
        (kind, step, _) => panic!("{name} in {kind} after {step:?}: {frame}"),
    };
}

/// Checks a complete item against what was streamed of it.
fn check_item(item: &Value, state: &ItemState) {
    let expected = if state.kind == "trunkline:tool_call" { Step::Added } else { Step::PartDone };
    assert_eq!(state.step, expected, "{item}");
    match state.kind.as_str() {
        "message" => {
            assert_eq!(item["role"], "assistant");
            let part = json!({"type": "output_text", "text": state.text, "annotations": [], "logprobs": []});
            assert_eq!(item["content"], json!([part]));
        }
        "reasoning" => assert_eq!(item["summary"], json!([{"type": "summary_text", "text": state.text}])),
        "function_call" => {
            assert_eq!(item["arguments"], state.text);
            assert!(item["call_id"].is_string() && item["name"].is_string(), "{item}");
        }
        "trunkline:tool_call" => assert!(item["name"].is_string() && item.get("input").is_some(), "{item}"),
        kind => panic!("a foreign type of item: {kind}"),
    }
}

/// Checks the members that a response always has.
pub(crate) fn check_response(response: &Value) {
    for member in [
        "id",
        "object",
        "created_at",
        "status",
        "background",
        "completed_at",
        "error",
        "incomplete_details",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "output",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "service_tier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "usage",
        "user",
    ] {
        assert!(response.get(member).is_some(), "no {member}: {response}");
    }
    let status = response["status"].as_str().unwrap();
    assert_eq!(response["error"].is_null(), status != "failed", "{response}");
    assert_eq!(response["incomplete_details"].is_null(), status != "incomplete", "{response}");
    assert_eq!(response["usage"].is_object(), ["completed", "incomplete"].contains(&status), "{response}");
    if let Some(usage) = response["usage"].as_object() {
        let count = |name: &str| usage[name].as_u64().unwrap();
        assert_eq!(count("input_tokens") + count("output_tokens"), count("total_tokens"));
        assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
        assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());
    }
}
