use serde_json::Map;
use trunkline_wire::body;

use super::*;

fn turn(more: Value) -> Result<Turn, ApiError> {
    let mut asked = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    for (name, value) in more.as_object().unwrap() {
        asked[name] = value.clone();
    }
    let request: GenerateRequest = body::parse(asked.to_string().as_bytes())?;
    request.into_turn("m", AnswerTiming::AtTheEnd)
}

/// The options for an upstream by their names.
fn options(more: Value) -> Map<String, Value> {
    let options = turn(more).unwrap().options;
    let value = |json: &Json| serde_json::from_str(json.as_str()).unwrap();
    let mut named: Map<String, Value> =
        options.more.iter().map(|(name, json)| ((*name).to_owned(), value(json))).collect();
    named.extend(options.tools.as_ref().map(|tools| ("tools".to_owned(), value(tools))));
    named.extend(options.temperature.map(|temperature| ("temperature".to_owned(), temperature.into())));
    named.extend(options.top_p.map(|top_p| ("top_p".to_owned(), top_p.into())));
    named
}

#[test]
fn options_have_the_names_of_chat_completions_in_either_spelling() {
    let expected = json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_completion_tokens": 9, "stop": ["END"], "seed": 7,
        "response_format": {"type": "json_schema",
            "json_schema": {"name": "response", "schema": {"type": "object"}}},
        "tools": [{"type": "function", "function": {"name": "ls", "description": "d", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "ls"}},
    });
    let camel = json!({
        "generationConfig": {"temperature": 0.5, "topP": 0.9, "topK": 40.0, "maxOutputTokens": 9,
            "stopSequences": ["END"], "seed": 7, "candidateCount": 1, "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT"}, "responseModalities": ["TEXT"]},
        "tools": [{"functionDeclarations": [{"name": "ls", "description": "d", "parameters": {"type": "OBJECT"}}]},
            {"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["ls"]}},
        "safetySettings": [{"category": "X"}],
    });
    let snake = json!({
        "generation_config": {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_output_tokens": 9,
            "stop_sequences": ["END"], "seed": 7, "response_mime_type": "application/json",
            "response_json_schema": {"type": "object"}},
        "tools": {"function_declarations": [
            {"name": "ls", "description": "d", "parameters_json_schema": {"type": "object"}}]},
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["ls"]}},
    });
    assert_eq!(Value::Object(options(camel)), expected);
    assert_eq!(Value::Object(options(snake)), expected);
    let json_object = options(json!({"generationConfig": {"responseMimeType": "application/json"}}));
    assert_eq!(json_object["response_format"], json!({"type": "json_object"}));
}

#[test]
fn mode_of_calls_is_translated() {
    let tools = json!([{"functionDeclarations": [{"name": "ls"}]}]);
    for (mode, expected) in [("AUTO", "auto"), ("ANY", "required"), ("NONE", "none"), ("VALIDATED", "auto")] {
        let config = json!({"functionCallingConfig": {"mode": mode}});
        assert_eq!(options(json!({"tools": tools, "toolConfig": config}))["tool_choice"], expected, "{mode}");
        assert_eq!(options(json!({"toolConfig": config})).get("tool_choice"), None, "no function to call");
    }
}

#[test]
fn instruction_comes_first_and_thoughts_are_shown_if_asked_for() {
    for instruction in
        [json!({"parts": [{"text": "Be brief."}]}), json!({"role": "system", "parts": {"text": "Be brief."}})]
    {
        for name in ["systemInstruction", "system_instruction"] {
            let turn = turn(json!({name: instruction})).unwrap();
            assert_eq!((turn.messages.len(), turn.messages[0].text.as_str()), (2, "Be brief."));
        }
    }
    for (config, expected) in [
        (json!({}), Reasoning::Hidden),
        (json!({"thinkingConfig": {"includeThoughts": true, "thinkingBudget": -1}}), Reasoning::Shown),
        (json!({"thinking_config": {"include_thoughts": false}}), Reasoning::Hidden),
    ] {
        let asked = json!({"generationConfig": config}).to_string();
        assert_eq!(body::parse::<GenerateRequest>(asked.as_bytes()).unwrap().reasoning(), expected, "{config}");
    }
}

#[test]
fn error_names_the_member() {
    for (more, param) in [
        (json!({"contents": null}), "contents"),
        (json!({"contents": []}), "contents"),
        (json!({"contents": "hi"}), "contents"),
        (json!({"contents": [7]}), "contents[0]"),
        (json!({"contents": [{"parts": [{"text": 7}]}]}), "contents[0].parts[0].text"),
        (json!({"contents": [{"parts": [{"text": ""}]}]}), "contents"),
        (json!({"systemInstruction": "x"}), "systemInstruction"),
        (json!({"generationConfig": {"candidateCount": 2}}), "generationConfig.candidateCount"),
        (json!({"generationConfig": {"responseModalities": ["IMAGE"]}}), "generationConfig.responseModalities"),
        (json!({"generationConfig": {"maxOutputTokens": 0}}), "generationConfig.maxOutputTokens"),
        (json!({"generationConfig": {"maxOutputTokens": "x"}}), "generationConfig.maxOutputTokens"),
        (json!({"tools": [{"functionDeclarations": [{}]}]}), "tools[0].functionDeclarations[0].name"),
        (json!({"tools": 7}), "tools"),
        (json!({"cachedContent": "cachedContents/x"}), "cachedContent"),
        (json!({"trunkline": {"colour": "red"}}), "trunkline.colour"),
    ] {
        let error = turn(more.clone()).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{more}: {error:?}");
    }
}
