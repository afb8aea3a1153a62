use proptest::prelude::*;

use super::*;

/// The example of the specification of this server.
const EXAMPLE: &str = r#"{
  "scenarios": [
    {
      "name": "hello-world",
      "trigger": "hello world",
      "steps": [
        {"response": {"content": "one", "tool_calls": [{"id": "call_001", "type": "function",
          "function": {"name": "write_file", "arguments": "{\"path\": \"hello.py\"}"}}]}},
        {"response": {"content": "two", "tool_calls": [{"id": "call_002", "type": "function",
          "function": {"name": "bash", "arguments": "{\"command\": \"python hello.py\"}"}}]}},
        {"response": {"content": "three"}}
      ]
    },
    {"name": "simple-chat", "trigger": "How Are You", "steps": [{"response": {"content": "well"}}]},
    {"name": "shadowed", "trigger": "hello", "steps": [{"response": {"content": "hi"}}]},
    {"name": "empty", "trigger": "nothing", "steps": []}
  ],
  "default_response": {"content": "default"}
}"#;

fn answer(script: &MockScript, message: &str, results: usize) -> String {
    match script.step(message, results).outcome {
        StepOutcome::Response(response) => response.content.unwrap_or_default(),
        StepOutcome::Error(error) => panic!("{error:?}"),
    }
}

#[test]
fn message_selects_the_scenario_and_result_count_the_step() {
    let script = MockScript::parse(EXAMPLE).unwrap();
    for (message, results, expected) in [
        ("hello world", 0, "one"),
        ("please say hello world!", 0, "one"),
        ("HELLO World", 0, "one"),
        ("hello world", 1, "two"),
        ("hello world", 2, "three"),
        ("hello world", 3, "Scenario complete."),
        ("hello world", 99, "Scenario complete."),
        ("how are you?", 0, "well"),
        ("how are you?", 1, "Scenario complete."),
        ("hello there", 0, "hi"),
        ("hello world, how are you", 0, "one"),
        ("nothing", 0, "Scenario complete."),
        ("hello  world", 0, "hi"),
        ("something else", 0, "default"),
        ("something else", 5, "default"),
        ("", 0, "default"),
    ] {
        assert_eq!(answer(&script, message, results), expected, "{message:?} after {results} results");
    }
}

#[test]
fn tool_calls_are_kept_as_written() {
    let step = MockScript::parse(EXAMPLE).unwrap().step("hello world", 1);
    let StepOutcome::Response(response) = step.outcome else { panic!("{step:?}") };
    let [call] = response.tool_calls.as_slice() else { panic!("{response:?}") };
    assert_eq!(call.id.as_deref(), Some("call_002"));
    assert_eq!(call.function.name, "bash");
    assert_eq!(call.function.arguments, r#"{"command": "python hello.py"}"#);
}

#[test]
fn last_result_replaces_its_mark_in_text_and_arguments() {
    let script = r#"{"scenarios": [{"trigger": "t", "steps": [{"response": {"content": "It says {{result}}.", "tool_calls": [
        {"function": {"name": "say", "arguments": {"text": "so: {{result}}"}}}]}}]}]}"#;
    let StepOutcome::Response(response) = MockScript::parse(script).unwrap().step("t", 0).outcome else {
        panic!("the step has a response")
    };
    let response = response.with_result("\"green\"\n");
    assert_eq!(response.content.as_deref(), Some("It says \"green\"\n."));
    let arguments: serde_json::Value = serde_json::from_str(&response.tool_calls[0].function.arguments).unwrap();
    assert_eq!(arguments["text"], "so: \"green\"\n");
}

#[test]
fn default_answer_is_used_when_script_has_none() {
    let script = MockScript::parse(r#"{"scenarios": []}"#).unwrap();
    assert_eq!(answer(&script, "hello", 0), NOT_UNDERSTOOD);
}

#[test]
fn faults_are_parsed() {
    let script = MockScript::parse(
        r#"{"$schema": "x", "scenarios": [{"trigger": "t", "steps": [
            {"error": {"status": 429, "retry_after": 2, "type": "slow_down", "message": "later"}, "delay_ms": 5},
            {"response": {"content": "x"}, "drop_after": 10, "chunk_bytes": 3, "pace_ms": 7},
            {"stall": true},
            {"response": {"content": "x"}, "stall": 120},
            {"response": {"content": "x"}, "stall": false}
        ]}]}"#,
    )
    .unwrap();
    let error = ScriptedError {
        status: 429,
        retry_after: Some(2),
        kind: Some("slow_down".to_owned()),
        code: None,
        message: Some("later".to_owned()),
    };
    assert_eq!(script.step("t", 0).outcome, StepOutcome::Error(error));
    let plain = DeliveryPlan::default();
    for (results, expected) in [
        (0, DeliveryPlan { delay: Duration::from_millis(5), ..plain }),
        (1, DeliveryPlan { drop_after: Some(10), chunk_bytes: Some(3), pace: Duration::from_millis(7), ..plain }),
        (2, DeliveryPlan { stall: Some(Stall::BeforeHeaders), ..plain }),
        (3, DeliveryPlan { stall: Some(Stall::After(120)), ..plain }),
        (4, plain),
    ] {
        assert_eq!(script.step("t", results).delivery, expected, "step {results}");
    }
}

#[test]
fn errors_have_a_position_and_a_hint_when_script_is_invalid() {
    let step = |step: &str| format!("{{\"scenarios\": [\n{{\"trigger\": \"t\", \"steps\": [\n{step}\n]}}]}}");
    for (text, line, message, hint) in [
        ("{\n\"scenarios\": [}".to_owned(), 2, "expected value", None),
        ("{}".to_owned(), 1, "missing field `scenarios`", None),
        (r#"{"scenarios": [], "default": 1}"#.to_owned(), 1, "unknown field `default`", Some("default_response")),
        ("{\"scenarios\": [\n{\"triger\": \"t\"}]}".to_owned(), 2, "unknown field `triger`", Some("trigger")),
        ("{\"scenarios\": [\n{\"steps\": []}]}".to_owned(), 2, "missing field `trigger`", None),
        (step("{}"), 3, "a step needs a `response`", None),
        (step(r#"{"stall": 5}"#), 3, "a step needs a `response`", None),
        (step(r#"{"response": {}, "error": {"status": 500}}"#), 3, "not both", None),
        (step(r#"{"response": {}, "stall": true, "drop_after": 1}"#), 3, "not both", None),
        (step(r#"{"error": {"status": 200}}"#), 3, "status 200 is not an error", None),
        (step(r#"{"error": {"status": 429, "retry-after": 1}}"#), 3, "unknown field", Some("retry_after")),
        (step(r#"{"response": {}, "delay": 1}"#), 3, "unknown field `delay`", Some("delay_ms")),
        (step(r#"{"response": {}, "delay_ms": 99999999}"#), 3, "more than an hour", None),
        (step(r#"{"response": {}, "chunk_bytes": 0}"#), 3, "chunk_bytes must be at least 1", None),
        (step(r#"{"response": {}, "stall": "yes"}"#), 3, "expected true, false or a number of bytes", None),
        (
            step(r#"{"response": {"tool_calls": [{"function": {"name": "bash", "arguments": 5}}]}}"#),
            3,
            "arguments must be an object",
            None,
        ),
        (
            step(r#"{"response": {"tool_calls": [{"type": "tool", "function": {"name": "x", "arguments": {}}}]}}"#),
            3,
            "unknown variant `tool`",
            None,
        ),
        (
            r#"{"scenarios": [], "default_response": {"content": "x", "tool_calls": []}}"#.to_owned(),
            1,
            "unknown field `tool_calls`",
            None,
        ),
    ] {
        let error = MockScript::parse(&text).unwrap_err();
        assert!(error.message.contains(message), "{text}\n{error}");
        assert_eq!(error.line, line, "{text}\n{error}");
        assert!(error.column > 0 && !error.message.contains(" at line "), "{error}");
        match hint {
            Some(hint) => assert_eq!(error.hint.as_deref(), Some(format!("did you mean `{hint}`?").as_str()), "{text}"),
            None => assert_eq!(error.hint, None, "{text}"),
        }
    }
}

#[test]
fn built_in_script_greets_and_uses_each_tool_once() {
    let script = MockScript::built_in();
    assert!(answer(&script, "Hello!", 0).contains("mock"));
    let mut used = Vec::new();
    for results in 0.. {
        let StepOutcome::Response(response) = script.step("show me the tools", results).outcome else { panic!() };
        if response.tool_calls.is_empty() {
            break;
        }
        used.extend(response.tool_calls.into_iter().map(|call| call.function.name));
    }
    assert_eq!(used, ["write_file", "read_file", "edit_file", "bash"]);
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_an_error_with_a_position(text in "\\PC{0,200}") {
        if let Err(error) = MockScript::parse(&text) {
            prop_assert!(error.line > 0 && error.column > 0);
        }
    }

    #[test]
    fn triggers_ignore_case(before in "[a-z ]{0,10}", after in "[a-z ]{0,10}") {
        let script = MockScript::parse(EXAMPLE).unwrap();
        let message = format!("{before}hello world{after}");
        prop_assert_eq!(script.step(&message, 1), script.step(&message.to_uppercase(), 1));
    }
}

#[test]
fn scripts_in_the_guide_are_valid() {
    let guide = include_str!("../../../docs/MOCK.md");
    let scripts: Vec<&str> = guide.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(scripts.len() >= 2);
    for script in scripts {
        MockScript::parse(script).unwrap_or_else(|error| panic!("{error}\n{script}"));
    }
}
