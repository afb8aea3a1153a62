use serde_json::{Map, json};

use super::*;

fn request(more: Value) -> Result<MessagesRequest, ApiError> {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    MessagesRequest::parse(body.to_string().as_bytes())
}

/// The options for an upstream by their names.
fn options(more: Value) -> Map<String, Value> {
    let turn = request(more).unwrap().into_turn().unwrap();
    let value = |json: &Json| serde_json::from_str(json.as_str()).unwrap();
    let mut named: Map<String, Value> =
        turn.options.more.iter().map(|(name, json)| ((*name).to_owned(), value(json))).collect();
    named.extend(turn.options.tools.as_ref().map(|tools| ("tools".to_owned(), value(tools))));
    named
}

#[test]
fn options_have_the_names_of_chat_completions() {
    let tool = json!({"name": "ls", "description": "d", "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"}});
    let function = json!({"name": "ls", "description": "d", "parameters": {"type": "object"}});
    let named = options(json!({
        "stop_sequences": ["END"], "top_k": 5, "metadata": {"user_id": "u"}, "service_tier": "standard_only",
        "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "tools": [tool, {"type": "web_search_20260209", "name": "web_search"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "context_management": {"edits": []}, "container": null,
    }));
    let expected = json!({
        "stop": ["END"], "top_k": 5, "user": "u", "max_completion_tokens": 9,
        "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}},
        "tools": [{"type": "function", "function": function}], "tool_choice": "required", "parallel_tool_calls": false,
    });
    assert_eq!(Value::Object(named), expected);
}

#[test]
fn choice_of_a_tool_is_translated() {
    let tools = json!([{"name": "ls", "input_schema": {}}]);
    for (choice, expected) in [
        (json!({"type": "auto"}), json!("auto")),
        (json!({"type": "any"}), json!("required")),
        (json!({"type": "none"}), json!("none")),
        (json!({"type": "tool", "name": "ls"}), json!({"type": "function", "function": {"name": "ls"}})),
    ] {
        assert_eq!(options(json!({"tools": tools, "tool_choice": choice}))["tool_choice"], expected, "{choice}");
    }
    assert_eq!(options(json!({"tool_choice": {"type": "auto"}})).get("tool_choice"), None, "no tool to choose");
}

#[test]
fn reasoning_is_shown_if_thinking_is_on() {
    for (thinking, expected) in [
        (json!(null), Reasoning::Hidden),
        (json!({"type": "disabled"}), Reasoning::Hidden),
        (json!({"type": "enabled", "budget_tokens": 1024}), Reasoning::Shown),
        (json!({"type": "adaptive"}), Reasoning::Shown),
        (json!({"type": "adaptive", "display": "omitted"}), Reasoning::Hidden),
    ] {
        assert_eq!(request(json!({"thinking": thinking})).unwrap().reasoning(), expected, "{thinking}");
    }
}

#[test]
fn error_names_the_member() {
    for (more, param) in [
        (json!({"model": null}), "model"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "assistant", "content": "hi"}]}), "messages"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"system": 7}), "system"),
        (json!({"stop_sequences": "END"}), "stop_sequences"),
        (json!({"thinking": {"type": "maybe"}}), "thinking.type"),
        (json!({"thinking": "on"}), "thinking"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [7]}), "tools[0]"),
        (json!({"tools": [{"input_schema": {}}]}), "tools[0].name"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"tool_choice": {"type": "some"}}), "tool_choice.type"),
        (json!({"tool_choice": {"type": "tool"}}), "tool_choice.name"),
        (json!({"output_config": {"format": {"type": "xml"}}}), "output_config.format.type"),
        (json!({"output_format": {"type": "json_schema"}}), "output_config.format.schema"),
        (json!({"trunkline": {"colour": "red"}}), "trunkline.colour"),
        (json!({"metadata": "x"}), "metadata"),
        (
            json!({"messages": [{"role": "user", "content": vec![json!({"type": "text", "text": ""}); 4097]}]}),
            "messages[0].content",
        ),
    ] {
        let error = request(more.clone()).and_then(MessagesRequest::into_turn).unwrap_err();
        let shown: String = more.to_string().chars().take(100).collect();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{shown}: {error:?}");
    }
}
