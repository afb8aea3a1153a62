use proptest::prelude::*;

use super::*;

/// The example of the specification this server was written to.
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

fn said(script: &Script, message: &str, results: usize) -> String {
    match script.step(message, results).outcome {
        Outcome::Response(response) => response.content.unwrap_or_default(),
        Outcome::Error(error) => panic!("{error:?}"),
    }
}

#[test]
fn the_message_chooses_the_scenario_and_the_results_the_step() {
    let script = Script::parse(EXAMPLE).unwrap();
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
        assert_eq!(said(&script, message, results), expected, "{message:?} after {results} results");
    }
}

#[test]
fn calls_are_as_written() {
    let step = Script::parse(EXAMPLE).unwrap().step("hello world", 1);
    let Outcome::Response(response) = step.outcome else { panic!("{step:?}") };
    let [call] = response.tool_calls.as_slice() else { panic!("{response:?}") };
    assert_eq!(call.id.as_deref(), Some("call_002"));
    assert_eq!(call.function.name, "bash");
    assert_eq!(call.function.arguments, r#"{"command": "python hello.py"}"#);
}

#[test]
fn without_a_default_there_is_one() {
    let script = Script::parse(r#"{"scenarios": []}"#).unwrap();
    assert_eq!(said(&script, "hello", 0), NOT_UNDERSTOOD);
}

#[test]
fn faults_as_written() {
    let script = Script::parse(
        r#"{"$schema": "x", "scenarios": [{"trigger": "t", "steps": [
            {"error": {"status": 429, "retry_after": 2, "type": "slow_down", "message": "later"}, "delay_ms": 5},
            {"response": {"content": "x"}, "drop_after": 10, "chunk_bytes": 3, "pace_ms": 7},
            {"stall": true},
            {"response": {"content": "x"}, "stall": 120},
            {"response": {"content": "x"}, "stall": false}
        ]}]}"#,
    )
    .unwrap();
    let error = ErrorAnswer {
        status: 429,
        retry_after: Some(2),
        kind: Some("slow_down".to_owned()),
        code: None,
        message: Some("later".to_owned()),
    };
    assert_eq!(script.step("t", 0).outcome, Outcome::Error(error));
    let plain = Delivery::default();
    for (results, expected) in [
        (0, Delivery { delay: Duration::from_millis(5), ..plain }),
        (1, Delivery { drop_after: Some(10), chunk_bytes: Some(3), pace: Duration::from_millis(7), ..plain }),
        (2, Delivery { stall: Some(Stall::AtOnce), ..plain }),
        (3, Delivery { stall: Some(Stall::After(120)), ..plain }),
        (4, plain),
    ] {
        assert_eq!(script.step("t", results).delivery, expected, "step {results}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
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
        (step(r#"{"error": {"status": 200}}"#), 3, "status 200 is no error", None),
        (step(r#"{"error": {"status": 429, "retry-after": 1}}"#), 3, "unknown field", Some("retry_after")),
        (step(r#"{"response": {}, "delay": 1}"#), 3, "unknown field `delay`", Some("delay_ms")),
        (step(r#"{"response": {}, "delay_ms": 99999999}"#), 3, "more than an hour", None),
        (step(r#"{"response": {}, "chunk_bytes": 0}"#), 3, "pieces of 0 bytes", None),
        (step(r#"{"response": {}, "stall": "yes"}"#), 3, "expected true, false or a number of bytes", None),
        (
            step(r#"{"response": {"tool_calls": [{"function": {"name": "bash", "arguments": 5}}]}}"#),
            3,
            "arguments are an object",
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
        let error = Script::parse(&text).unwrap_err();
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
fn the_built_in_script_greets_and_uses_each_tool_once() {
    let script = Script::built_in();
    assert!(said(&script, "Hello!", 0).contains("mock"));
    let mut used = Vec::new();
    for results in 0.. {
        let Outcome::Response(response) = script.step("show me the tools", results).outcome else { panic!() };
        if response.tool_calls.is_empty() {
            break;
        }
        used.extend(response.tool_calls.into_iter().map(|call| call.function.name));
    }
    assert_eq!(used, ["write_file", "read_file", "edit_file", "bash"]);
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_an_error_with_a_place(text in "\\PC{0,200}") {
        if let Err(error) = Script::parse(&text) {
            prop_assert!(error.line > 0 && error.column > 0);
        }
    }

    #[test]
    fn case_never_matters(before in "[a-z ]{0,10}", after in "[a-z ]{0,10}") {
        let script = Script::parse(EXAMPLE).unwrap();
        let message = format!("{before}hello world{after}");
        prop_assert_eq!(script.step(&message, 1), script.step(&message.to_uppercase(), 1));
    }
}

#[test]
fn the_scripts_of_the_guide_can_be_played() {
    let guide = include_str!("../../../docs/MOCK.md");
    let scripts: Vec<&str> = guide.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(scripts.len() >= 2);
    for script in scripts {
        Script::parse(script).unwrap_or_else(|error| panic!("{error}\n{script}"));
    }
}
