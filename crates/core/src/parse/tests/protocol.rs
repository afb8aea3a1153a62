//! Output of executables: messages of the provider protocol, and output that violates it.

use serde_json::{Value, json};

use super::super::*;
use crate::event::{Finish, ToolCall};
use crate::failure::Category;

struct DecodedExecutable {
    shown: Vec<String>,
    conclusion: Conclusion,
}

fn read(lines: &[Value], ending: Ending<'_>, stderr: &str) -> DecodedExecutable {
    let stdout: String = lines.iter().map(|line| format!("{line}\n")).collect();
    read_text(&stdout, ending, stderr)
}

fn read_text(stdout: &str, ending: Ending<'_>, stderr: &str) -> DecodedExecutable {
    let mut decoder = Decoder::new(Format::Protocol, Context { program: "ollama".into(), ..Context::default() });
    let mut events = decoder.push(stdout.as_bytes());
    let mut conclusion = decoder.conclude(ending, stderr, "four");
    events.append(&mut conclusion.events);
    let shown =
        events.into_iter().filter_map(|event| if let Event::Text { delta } = event { Some(delta) } else { None });
    DecodedExecutable { shown: shown.collect(), conclusion }
}

fn response() -> Value {
    json!({"content": "2 + 2 = 4.", "tokens_used": 41, "input_tokens": 32, "output_tokens": 9,
        "model": "llama3.2:latest", "latency": 4364650667u64, "finish_reason": "stop", "error": "",
        "provider": "ollama"})
}

fn chunk(content: &str, delta: &str, done: bool) -> Value {
    json!({"content": content, "delta": delta, "done": done, "tokens_used": if done { 41 } else { 0 }, "error": "",
        "timestamp": "2025-01-07T10:30:00Z"})
}

fn stream() -> Vec<Value> {
    vec![
        chunk("2", "2", false),
        chunk("2 +", " +", false),
        chunk("2 + 2", " 2", false),
        chunk("2 + 2 = 4.", " = 4.", true),
    ]
}

#[test]
fn reads_the_response_and_the_stream_of_the_specification() {
    for stdout in [response().to_string(), serde_json::to_string_pretty(&response()).unwrap()] {
        let whole = read_text(&stdout, Ending::Code(0), "2025 loading model\n").conclusion;
        assert_eq!((whole.content.as_str(), whole.failure), ("2 + 2 = 4.", None), "{stdout}");
        assert_eq!((whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.estimated), (32, 9, false));
        let metadata = json!({"latency": 4364650667u64, "model": "llama3.2:latest", "provider": "ollama"});
        assert_eq!(Value::Object(whole.metadata), metadata);
    }
    let streamed = read(&stream(), Ending::Code(0), "");
    assert_eq!(streamed.shown, ["2", " +", " 2", " = 4."]);
    assert_eq!((streamed.conclusion.content.as_str(), streamed.conclusion.failure), ("2 + 2 = 4.", None));
    let usage = streamed.conclusion.usage;
    assert_eq!((usage.input_tokens + usage.output_tokens, usage.estimated), (41, true));
}

#[test]
fn shows_the_delta_unless_the_content_extends_the_text() {
    for (chunks, shown) in [
        // The delta lacks text that the content has.
        (vec![chunk("Hel", "Hel", false), chunk("Hello", "o", true)], vec!["Hel", "lo"]),
        // The content does not grow, or is the delta itself: the delta counts.
        (vec![chunk("ha", "ha", false), chunk("ha", "ha", false), chunk("ha", "ha", true)], vec!["ha", "ha", "ha"]),
        (vec![chunk("Hi", "Hi", false), chunk("Hi", "", true)], vec!["Hi"]),
        // If the content was the text so far before, the same content adds nothing.
        (
            vec![chunk("He", "He", false), chunk("Hello", "llo", false), chunk("Hello", "Hello", true)],
            vec!["He", "llo"],
        ),
        // The content is not the text so far: the delta counts.
        (vec![chunk("Hel", "Hel", false), chunk("lo", "lo", true)], vec!["Hel", "lo"]),
        (vec![chunk("", "Hel", false), chunk("", "lo", true)], vec!["Hel", "lo"]),
        (vec![chunk("Hel", "Hel", false), chunk("Bye", "lo", true)], vec!["Hel", "lo"]),
        // Only one of the two members.
        (vec![json!({"delta": "Hel"}), json!({"delta": "lo", "done": true})], vec!["Hel", "lo"]),
        (vec![json!({"content": "Hel", "done": false}), json!({"content": "Hello", "done": true})], vec!["Hel", "lo"]),
        // Chunks after the end are ignored.
        (vec![chunk("Hi", "Hi", true), chunk("Hi!", "!", true)], vec!["Hi"]),
    ] {
        let read = read(&chunks, Ending::Code(0), "");
        assert_eq!((read.shown, read.conclusion.failure), (shown.iter().map(|s| (*s).to_owned()).collect(), None));
        assert_eq!(read.conclusion.content, shown.concat());
    }
}

#[test]
fn an_error_counts_only_when_it_is_not_empty() {
    for empty in [json!(""), json!(null), json!("  ")] {
        let mut response = response();
        response["error"] = empty;
        assert_eq!(read(&[response], Ending::Code(0), "").conclusion.failure, None);
    }
    let mut without = response();
    without.as_object_mut().unwrap().remove("error");
    assert_eq!(read(&[without], Ending::Code(0), "").conclusion.failure, None);
    for (error, category, wait) in [
        (json!("rate limit exceeded, retry after 30 seconds"), Category::RateLimit, Some(30_000)),
        (json!("429 Too Many Requests"), Category::RateLimit, Some(1000)),
        (json!("connect ECONNREFUSED 127.0.0.1:11434"), Category::Network, None),
        (json!("model \"x\" not found"), Category::NotFound, None),
        (json!("odd"), Category::Unknown, None),
        (json!({"message": "invalid api key", "code": 401}), Category::Authentication, None),
    ] {
        // Also with a successful exit, and in the middle of a stream.
        let failed = json!({"content": "", "delta": "", "done": true, "error": error});
        for lines in [vec![json!({"content": "", "error": error})], vec![chunk("Hel", "Hel", false), failed]] {
            let failure = read(&lines, Ending::Code(0), "INFO rate limit is fine").conclusion.failure.unwrap();
            let waits = failure.retry_after.map(|wait| wait.as_millis());
            assert_eq!((failure.category, waits), (category, wait), "{lines:?}");
        }
    }
}

#[test]
fn the_turn_fails_when_the_exit_status_is_not_zero() {
    for lines in [vec![response()], stream()] {
        for (ending, stderr, category, message) in [
            (Ending::Code(3), "", Category::Unknown, "ollama ended with exit status 3"),
            (Ending::Code(1), "Error: 503 Service Unavailable", Category::Server, "Error: 503 Service Unavailable"),
            (Ending::Signal(11), "", Category::Unknown, "ollama was killed by SIGSEGV"),
        ] {
            let failure = read(&lines, ending, stderr).conclusion.failure.unwrap();
            assert_eq!((failure.category, failure.message.as_str()), (category, message));
        }
        assert_eq!(
            read(&lines, Ending::Open, "").conclusion.failure,
            None,
            "the response was complete, although the process did not exit in time"
        );
    }
}

#[test]
fn output_that_is_not_a_response_is_a_failure() {
    for (stdout, message) in [
        ("", "ollama printed no response"),
        ("Hello!\n", "ollama printed no response, but: Hello!"),
        ("{\"text\": \"Hello\"}\n", "ollama printed no response, but: {\"text\": \"Hello\"}"),
        ("{\"content\":\"He\",\"delta\":\"He\",\"done\":false}\n", "ollama ended without its final event"),
        (
            "{\"content\":\"He\",\"delta\":\"He\",\"done\":false}\n{\"content\":\"Hel",
            "ollama ended without its final event",
        ),
    ] {
        let failure = read_text(stdout, Ending::Code(0), "").conclusion.failure.unwrap();
        assert_eq!((failure.category, failure.message.as_str()), (Category::Unknown, message), "{stdout:?}");
        assert!(failure.hint.unwrap().contains("provider check"));
    }
    let loading = "loading…\n".to_owned() + &response().to_string();
    assert_eq!(read_text(&loading, Ending::Code(0), "").conclusion.failure, None, "noise around a response is ignored");
}

#[test]
fn ends_the_turn_when_an_executable_floods_its_output() {
    let line = "x".repeat(1000) + "\n";
    for (piece, times, message) in [
        ("x".repeat(1024 * 1024), 17, "it printed a line of more than 16 MiB"),
        (line, 8500, "it printed more than 8 MiB that is not an answer"),
    ] {
        let mut decoder = Decoder::new(Format::Protocol, Context { program: "p".into(), ..Context::default() });
        for _ in 0..times {
            decoder.push(piece.as_bytes());
        }
        assert!(decoder.ended(), "{message}");
        let failure = decoder.conclude(Ending::Open, "", "").failure.unwrap();
        assert_eq!((failure.category, failure.message.as_str()), (Category::Server, message));
    }
    // A document over many lines is not a flood.
    let mut long = response();
    long["content"] = json!(vec!["word"; 100_000].join(" "));
    long["metadata"] = json!(vec!["x".repeat(50); 200_000]);
    let pretty = serde_json::to_string_pretty(&long).unwrap();
    assert!(pretty.len() > 9 * 1024 * 1024);
    assert_eq!(read_text(&pretty, Ending::Code(0), "").conclusion.failure, None);
    // A response after a flood is not an answer.
    let mut decoder = Decoder::new(Format::Protocol, Context::default());
    for _ in 0..17 {
        decoder.push("x".repeat(1024 * 1024).as_bytes());
    }
    decoder.push(format!("\n{}\n", chunk("end", "end", true)).as_bytes());
    assert!(decoder.conclude(Ending::Code(0), "", "").failure.is_some());
}

#[test]
fn finish_reasons_are_those_of_openai() {
    for (reason, finish) in [
        ("stop", Finish::Stop),
        ("length", Finish::Length),
        ("tool_use", Finish::Stop), // there is no call
        ("whatever", Finish::Stop),
    ] {
        let mut response = response();
        response["finish_reason"] = json!(reason);
        assert_eq!(read(&[response], Ending::Code(0), "").conclusion.finish, finish);
    }
}

#[test]
fn estimates_the_parts_when_only_the_total_of_tokens_is_known() {
    for (members, input, output, estimated) in [
        (json!({"content": "four", "tokens_used": 10}), 9, 1, true),
        (json!({"content": "four", "tokens_used": 10, "output_tokens": 4}), 6, 4, false),
        (json!({"content": "four", "tokens_used": 10, "input_tokens": 4}), 4, 6, false),
        (json!({"content": "four", "tokens_used": 0, "input_tokens": 0, "output_tokens": 0}), 1, 1, true),
    ] {
        let usage = read(std::slice::from_ref(&members), Ending::Code(0), "").conclusion.usage;
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.estimated), (input, output, estimated), "{members}");
    }
}

fn calls_of(events: &[Event]) -> Vec<(u32, Option<String>, Option<String>, String)> {
    let piece = |event: &Event| {
        let Event::ToolCall { index, id, name, arguments } = event else { return None };
        Some((*index, id.clone(), name.clone(), arguments.clone()))
    };
    events.iter().filter_map(piece).collect()
}

fn decoded(lines: &[Value]) -> (Vec<Event>, Conclusion) {
    let mut decoder = Decoder::new(Format::Protocol, Context { program: "p".into(), ..Context::default() });
    let mut events = Vec::new();
    for line in lines {
        events.extend(decoder.push(format!("{line}\n").as_bytes()));
    }
    let mut conclusion = decoder.conclude(Ending::Code(0), "", "four");
    events.append(&mut conclusion.events);
    (events, conclusion)
}

#[test]
fn tool_calls_are_passed_on_when_a_response_or_a_stream_has_them() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}});
    let flat = json!({"id": "c1", "name": "add", "arguments": {"a": 1}});
    let expected = ToolCall { id: "c1".to_owned(), name: "add".to_owned(), arguments: "{\"a\":1}".to_owned() };
    for lines in [
        vec![json!({"content": "", "tool_calls": [call], "finish_reason": "tool_calls"})],
        vec![json!({"content": null, "tool_calls": [call], "finish_reason": "tool_use"})],
        vec![json!({"tool_calls": [flat], "finish_reason": "stop"})],
        vec![json!({"tool_calls": [flat]})],
        vec![json!({"delta": "", "done": false}), json!({"delta": "", "tool_calls": [call], "done": true})],
        // The same call in every chunk, like `content`.
        vec![json!({"delta": "", "tool_calls": [call], "done": false}), json!({"tool_calls": [call], "done": true})],
        // In pieces, as OpenAI sends them.
        vec![
            json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}}], "done": false}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\""}}], "done": false}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}], "done": true, "finish_reason": "tool_calls"}),
        ],
    ] {
        let (events, conclusion) = decoded(&lines);
        assert_eq!((conclusion.failure.as_ref(), conclusion.finish), (None, Finish::ToolCalls), "{lines:?}");
        assert_eq!(conclusion.calls, std::slice::from_ref(&expected), "{lines:?}");
        let pieces = calls_of(&events);
        assert_eq!((pieces[0].1.as_deref(), pieces[0].2.as_deref()), (Some("c1"), Some("add")));
        assert_eq!(pieces.iter().map(|piece| piece.3.as_str()).collect::<String>(), expected.arguments, "{lines:?}");
        assert_eq!(conclusion.result().unwrap().calls, std::slice::from_ref(&expected));
    }
    let (events, conclusion) = decoded(&[json!({"content": "Two.", "tool_calls": [{"name": "a"}, {"name": "b"}]})]);
    assert_eq!(calls_of(&events).iter().map(|call| call.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((conclusion.content.as_str(), conclusion.calls.len()), ("Two.", 2));
    assert_ne!(conclusion.calls[0].id, conclusion.calls[1].id, "a call without an id gets one");
}

#[test]
fn the_finish_reason_is_corrected_when_there_are_no_tool_calls() {
    for reason in ["tool_calls", "tool_use"] {
        for lines in [
            vec![json!({"content": "Hi", "finish_reason": reason})],
            vec![json!({"content": "Hi", "delta": "Hi", "done": true, "finish_reason": reason, "tool_calls": []})],
        ] {
            let (_, conclusion) = decoded(&lines);
            assert_eq!((conclusion.content.as_str(), conclusion.finish), ("Hi", Finish::Stop), "{lines:?}");
        }
    }
}

#[test]
fn a_line_is_an_error_that_names_field_and_type_when_its_type_is_wrong() {
    for (line, wrong) in [
        (json!({"content": 42}), "`content` is a number, not a string"),
        (json!({"content": ["a"], "delta": "a", "done": true}), "`content` is an array, not a string"),
        (json!({"delta": {"text": "a"}, "done": true}), "`delta` is an object, not a string"),
        (json!({"delta": "a", "done": "true"}), "`done` is a string, not a boolean"),
        (json!({"content": "a", "finish_reason": 1}), "`finish_reason` is a number, not a string"),
        (json!({"content": "", "tool_calls": {"name": "a"}}), "`tool_calls` is an object, not an array"),
        (json!({"content": "", "tool_calls": ["a"]}), "`tool_calls[0]` is a string, not an object"),
        (json!({"content": "", "tool_calls": [{"id": "x"}]}), "`tool_calls[0]` has no name"),
        (
            json!({"tool_calls": [{"name": "f", "arguments": 1}]}),
            "`tool_calls[0].arguments` is a number, not a string or an object",
        ),
        (json!({"tool_calls": [{"name": 7}]}), "`tool_calls[0].name` is a number, not a string"),
    ] {
        for before in [vec![], vec![chunk("He", "He", false)]] {
            let lines: Vec<Value> = before.into_iter().chain([line.clone()]).collect();
            let failure = read(&lines, Ending::Code(0), "").conclusion.failure.unwrap();
            let message = format!("it printed a line that is not of the protocol: {wrong}");
            assert_eq!((failure.category, failure.message.as_str()), (Category::Unknown, message.as_str()));
            assert!(failure.hint.unwrap().contains("provider check"));
        }
    }
}

#[test]
fn may_lack_the_command_when_the_executable_does_not_know_it() {
    for (stdout, stderr, expected) in [
        ("", "unknown command: stream", true),
        ("", "", true),
        ("usage: p generate|health\n", "", true),
        ("{\"error\": \"unknown command: use generate or health\"}\n", "", true),
        ("{\"error\": \"streaming is not supported\"}\n", "", true),
        ("{\"error\": \"unknown model\"}\n", "", false),
        ("{\"error\": \"401 bad key\"}\n", "", false),
        ("", "connect ECONNREFUSED 127.0.0.1:11434", false),
        ("", "429 Too Many Requests", false),
        ("{\"content\": 7}\n", "", false),
        ("{\"content\":\"He\",\"delta\":\"He\",\"done\":false}\n", "", false),
    ] {
        let mut decoder = Decoder::new(Format::Protocol, Context { program: "p".into(), ..Context::default() });
        decoder.push(stdout.as_bytes());
        assert_eq!(decoder.may_lack_command(stderr), expected, "{stdout:?} {stderr:?}");
    }
    let mut agent = Decoder::new(Format::Claude, Context::default());
    agent.push(b"unknown command\n");
    assert!(!agent.may_lack_command("unknown command: stream"), "only executables have commands");
}
