//! Shapes of output, regular and odd ones, and the ways it may end.

use super::super::*;
use super::agent_formats;
use crate::failure::Category;
use crate::vocabulary::Normalize;

fn run(format: Format, stdout: &str, ending: Ending<'_>) -> (String, Conclusion) {
    let mut decoder = Decoder::new(format, Context { program: "cli".into(), ..Context::default() });
    let mut events = decoder.push(stdout.as_bytes());
    let mut conclusion = decoder.conclude(ending, "", "");
    events.append(&mut conclusion.events);
    let text = |event: &Event| if let Event::Text { delta } = event { Some(delta.clone()) } else { None };
    (events.iter().filter_map(text).collect(), conclusion)
}

#[test]
fn reads_the_streams_of_the_specification() {
    let claude = "{\"type\":\"turn.started\",\"id\":\"turn_123\"}\n{\"type\":\"content\",\"content\":\"Hello! \"}\n\
        {\"type\":\"content\",\"content\":\"How can I help?\"}\n\
        {\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":10,\"output_tokens\":8}}\n";
    let codex = "{\"type\":\"thread.started\",\"thread_id\":\"thread_abc\"}\n\
        {\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"Here's my response.\"}}\n\
        {\"type\":\"turn.completed\"}\n";
    let ax = "{\"role\":\"user\",\"content\":\"Hello\"}\n{\"role\":\"assistant\",\"content\":\"Hi there! How can I help?\"}\n";
    for (formats, stdout, content) in [
        ([Format::Claude, Format::StreamJson], claude, "Hello! How can I help?"),
        ([Format::Codex, Format::StreamJson], codex, "Here's my response."),
        ([Format::Ax, Format::StreamJson], ax, "Hi there! How can I help?"),
    ] {
        for format in formats {
            let (shown, conclusion) = run(format, stdout, Ending::Code(0));
            assert_eq!(conclusion.failure, None, "{format:?}");
            assert_eq!((conclusion.content.as_str(), shown.as_str()), (content, content), "{format:?}");
        }
    }
    let (_, conclusion) = run(Format::Claude, claude, Ending::Code(0));
    assert_eq!(
        (conclusion.usage.input_tokens, conclusion.usage.output_tokens, conclusion.usage.estimated),
        (10, 8, false)
    );
}

#[test]
fn reads_plain_text_and_single_objects() {
    for (format, stdout, content) in [
        (Format::Text, "Hello!\nHow can I help?\n", "Hello!\nHow can I help?"),
        (Format::Text, "\u{1b}[32mgreen\u{1b}[0m \n\n", "green"),
        (Format::Json, "{\"content\": \"Hello!\"}", "Hello!"),
        (Format::Json, "{\n  \"choices\": [{\"message\": {\"content\": \"Hi\"}}]\n}\n", "Hi"),
        (Format::Json, "not json", "not json"),
        (Format::Claude, "plain words\nfrom a fake\n", "plain words\nfrom a fake"),
        (Format::Text, "", "No output from CLI."),
        (Format::Codex, "", "No output from CLI."),
        (Format::Json, "{\"a\": 1}", "{\"a\": 1}"),
    ] {
        let (shown, conclusion) = run(format, stdout, Ending::Code(0));
        assert_eq!(conclusion.failure, None, "{stdout:?}");
        assert_eq!((conclusion.content.as_str(), shown.as_str()), (content, content), "{format:?} {stdout:?}");
    }
}

#[test]
fn noise_around_events_is_reported_as_unknown() {
    let stdout = "starting up\n{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"Hi\"}}\nbye\n\
        {\"type\":\"turn.completed\"}\n";
    let mut decoder = Decoder::new(Format::Codex, Context::default());
    let events = decoder.push(stdout.as_bytes());
    let unknown = |line: &str| Event::Unknown { line: line.to_owned() };
    assert_eq!(events, [unknown("starting up"), Event::Text { delta: "Hi".into() }, unknown("bye")]);
    assert!(decoder.ended());
}

#[test]
fn reads_a_response_in_one_object_of_any_shape() {
    let choices = r#"{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    for format in agent_formats().filter(|format| *format != Format::Text) {
        for (stdout, content) in [
            (r#"{"content": "Hello!"}"#, "Hello!"),
            ("{\n \"response\": \"Hello!\"\n}\n", "Hello!"),
            (r#"{"response": "Hello!", "stats": {"models": {}}}"#, "Hello!"),
            (choices, "Hi"),
        ] {
            let (_, conclusion) = run(format, stdout, Ending::Code(0));
            assert_eq!((conclusion.content.as_str(), conclusion.failure), (content, None), "{format:?} {stdout}");
        }
        let (_, failed) =
            run(format, r#"{"error": {"message": "Rate limited, retry after 5 seconds"}}"#, Ending::Code(0));
        let failure = failed.failure.unwrap();
        assert_eq!((failure.category, failure.retry_after.unwrap().as_secs()), (Category::RateLimit, 5), "{format:?}");
    }
}

#[test]
fn an_error_event_of_the_services_kind_fails_the_turn() {
    let error = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    for format in
        [Format::Claude, Format::Codex, Format::Gemini, Format::Qwen, Format::Opencode, Format::Ax, Format::StreamJson]
    {
        for before in ["", "{\"type\":\"content\",\"content\":\"a\"}\n"] {
            let (_, conclusion) = run(format, &format!("{before}{error}\n"), Ending::Code(0));
            let category = conclusion.failure.map(|failure| failure.category);
            assert_eq!(category, Some(Category::RateLimit), "{format:?} {before}");
        }
    }
}

#[test]
fn reads_a_document_between_noise_and_refuses_one_that_is_cut_off() {
    let object = "{\n  \"session_id\": \"s\",\n  \"response\": \"Hi\",\n  \"stats\": {}\n}";
    for stdout in [
        format!("[STARTUP] x\n{object}\n"),
        format!("{object}\nbye\n"),
        format!("{{not json}}\n[info]\n{object}"),
        format!("\u{feff}{object}"),
    ] {
        let (_, conclusion) = run(Format::Gemini, &stdout, Ending::Code(0));
        assert_eq!((conclusion.content.as_str(), conclusion.failure), ("Hi", None), "{stdout}");
    }
    let (_, cut) = run(Format::Gemini, &object[..object.len() - 10], Ending::Code(0));
    assert!(cut.failure.is_some_and(|failure| failure.message.contains("cut off")) && cut.content.is_empty());
    // Text that contains an object is text.
    let prose = "Here it is:\n{\"content\": \"x\"}\nDone.";
    assert_eq!(run(Format::Claude, prose, Ending::Code(0)).1.content, prose);
}

#[test]
fn reads_lines_with_several_values_and_odd_escapes() {
    let first = r#"{"type":"thread.started","thread_id":"t"}"#;
    let item = r#"{"type":"item.completed","item":{"type":"agent_message","text":"a \ud83d b \ud83d\ude00 \\ud83d"}}"#;
    let (_, conclusion) =
        run(Format::Codex, &format!("\u{feff}{first} {item}{{\"type\":\"turn.completed\"}}\n"), Ending::Code(0));
    assert_eq!(conclusion.content, "a \u{fffd} b 😀 \\ud83d");
    assert_eq!((&*conclusion.session.unwrap().0, conclusion.failure), ("t", None));
    let huge = r#"{"type":"turn.completed","usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":9}}"#;
    assert_eq!(run(Format::Codex, huge, Ending::Code(0)).1.usage.input_tokens, u64::MAX);
}

#[test]
fn an_ax_error_counts_only_when_the_exit_status_is_not_zero() {
    let stdout = r#"{"role":"assistant","content":"Error: 429 rate limit"}"#;
    let (shown, failed) = run(Format::Ax, stdout, Ending::Code(1));
    assert_eq!((shown.as_str(), failed.failure.unwrap().category), ("", Category::RateLimit));
    let (shown, answered) = run(Format::Ax, stdout, Ending::Code(0));
    assert_eq!((shown.as_str(), answered.failure), ("Error: 429 rate limit", None));
    let ends_on_a_tool =
        r#"{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"1","function":{"name":"bash"}}]}"#;
    assert!(run(Format::Ax, ends_on_a_tool, Ending::Code(0)).1.failure.is_some());
}

#[test]
fn shows_only_answers_when_the_format_of_a_stream_is_unknown() {
    let stdout = ["reasoning", "thinking", "tool_call", "tool_output", "log", "text"]
        .map(|kind| format!(r#"{{"type":"{kind}","content":"{kind} "}}"#))
        .join("\n");
    assert_eq!(run(Format::StreamJson, &stdout, Ending::Code(0)).1.content, "text ");
}

#[test]
fn opencode_continues_after_an_error_and_ignores_sub_agents() {
    let event =
        |kind: &str, session: &str, rest: &str| format!("{{\"type\":\"{kind}\",\"sessionID\":\"{session}\",{rest}}}\n");
    let stdout = [
        event("step_start", "main", "\"part\":{}"),
        event("error", "main", "\"error\":{\"name\":\"APIError\",\"data\":{\"message\":\"overloaded\"}}"),
        event("step_start", "main", "\"part\":{}"),
        event("text", "other", "\"part\":{\"text\":\"sub\"}"),
        event("text", "main", "\"part\":{\"text\":\"answer\"}"),
        event("step_finish", "main", "\"part\":{\"reason\":\"stop\"}"),
    ]
    .concat();
    let (shown, conclusion) = run(Format::Opencode, &stdout, Ending::Code(0));
    assert_eq!((shown.as_str(), conclusion.failure), ("answer", None));
}

#[test]
fn the_ending_of_the_process_decides_the_category() {
    let category = |format, stdout: &str, ending| run(format, stdout, ending).1.failure.map(|failure| failure.category);
    let started = "{\"type\":\"thread.started\",\"thread_id\":\"x\"}\n";
    assert_eq!(category(Format::Codex, started, Ending::Code(0)), Some(Category::Unknown));
    assert_eq!(category(Format::Codex, started, Ending::Signal(9)), Some(Category::Timeout));
    assert_eq!(category(Format::Codex, started, Ending::Cancelled), Some(Category::Cancelled));
    assert_eq!(category(Format::Text, "some text", Ending::Code(1)), Some(Category::Unknown));
    let timed_out = run(Format::Text, "some text", Ending::TimedOut("total limit")).1.failure.unwrap();
    assert_eq!((timed_out.category, timed_out.message.as_str()), (Category::Timeout, "Query timed out"));
    // A result that came before the CLI was stopped is valid.
    let done = format!("{started}{{\"type\":\"turn.completed\"}}\n");
    assert_eq!(category(Format::Codex, &done, Ending::TimedOut("total limit")), None);
}

#[test]
fn a_line_beyond_the_limit_loses_only_itself() {
    let mut decoder = Decoder::new(Format::Codex, Context::default());
    let filler = vec![b'x'; 1024 * 1024];
    decoder.push(b"{\"type\":\"item.completed\",\"item\":{\"type\":\"reasoning\",\"text\":\"");
    for _ in 0..20 {
        decoder.push(&filler);
    }
    let mut events =
        decoder.push(b"\"}}\n{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"ok\"}}\n");
    events.extend(decoder.push(b"{\"type\":\"turn.completed\"}\n"));
    assert!(matches!(&events[0], Event::Unknown { line } if line.contains("bytes was left out")), "{:?}", events[0]);
    let conclusion = decoder.conclude(Ending::Code(0), "", "");
    assert_eq!((conclusion.content.as_str(), conclusion.failure), ("ok", None));
}

/// Like [`run`], with stderr and the rules of a provider.
fn run_as(provider: &str, stdout: &str, stderr: &str, ending: Ending<'_>) -> Conclusion {
    let provider = &crate::provider::built_in()[provider];
    let mut decoder = provider.decoder(Normalize::None, OutputForm::Streamed);
    decoder.push(stdout.as_bytes());
    decoder.conclude(ending, stderr, "")
}

#[test]
fn classifies_an_error_by_its_family_when_its_code_is_unknown() {
    let body =
        r#"{\"error\":{\"message\":\"Invalid value\",\"type\":\"invalid_request_error\",\"code\":\"invalid_value\"}}"#;
    let stdout = format!(r#"{{"type":"turn.failed","error":{{"message":"{body}"}}}}"#);
    let failure = run_as("codex", &stdout, "", Ending::Code(1)).failure.unwrap();
    assert_eq!((failure.category, failure.message.as_str()), (Category::Validation, "Invalid value"));
    // The code takes precedence over the family.
    let body = body.replace("invalid_value", "model_not_found");
    let stdout = format!(r#"{{"type":"turn.failed","error":{{"message":"{body}"}}}}"#);
    assert_eq!(run_as("codex", &stdout, "", Ending::Code(1)).failure.unwrap().category, Category::NotFound);
}

#[test]
fn keeps_the_text_so_far_when_the_process_was_stopped_from_outside() {
    for ending in [Ending::Signal(9), Ending::Code(143), Ending::TimedOut("limit")] {
        let (_, conclusion) = run(Format::Text, "Hello from", ending);
        let failure = conclusion.failure.unwrap();
        assert_eq!((conclusion.content.as_str(), failure.category), ("Hello from", Category::Timeout), "{ending:?}");
        assert!(!failure.message.contains("Hello"), "{failure:?}");
    }
    let (_, conclusion) = run(Format::Text, "API Error: 500", Ending::Code(1));
    assert_eq!((conclusion.content.as_str(), conclusion.failure.unwrap().category), ("", Category::Server));
}

#[test]
fn a_rate_limit_warning_does_not_affect_another_failure() {
    let warned = |status: &str, result: &str| {
        let event =
            format!(r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":1794710198}}}}"#);
        let timed = r#"{"type":"system","subtype":"x","timestamp":"2026-11-15T00:36:38Z"}"#;
        let result = format!(r#"{{"type":"result","is_error":true,"result":"{result}"}}"#);
        run_as("claude", &format!("{event}\n{timed}\n{result}\n"), "", Ending::Code(1)).failure.unwrap().retry_after
    };
    assert_eq!(warned("allowed_warning", "API Error: 500"), None);
    assert_eq!(warned("rejected", "API Error: 500"), None);
    assert!(warned("rejected", "You've hit your 5-hour limit").is_some_and(|wait| wait.as_secs() == 7200));
}

#[test]
fn errors_of_tools_and_logs_are_not_errors_of_the_turn() {
    let tool = r#"{"type":"tool_use","sessionID":"s","part":{"tool":"bash","state":{"status":"error","error":"401 Unauthorized"}}}"#;
    let killed = run_as("opencode", tool, "", Ending::Signal(9)).failure.unwrap();
    assert_eq!(killed.category, Category::Timeout);
    let log = r#"{"level":"error","timestamp":"2026-11-15T00:00:00Z","error":"boom"}"#;
    let item = r#"{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}"#;
    let stdout = format!("{log}\n{item}\n{log}\n{{\"type\":\"turn.completed\"}}\n");
    let conclusion = run_as("codex", &stdout, "", Ending::Code(0));
    assert_eq!((conclusion.content.as_str(), conclusion.failure), ("ok", None));
}

#[test]
fn an_error_is_dropped_when_the_turn_recovers() {
    let stdout = "{\"type\":\"error\",\"error\":{\"message\":\"overloaded\"}}\n{\"type\":\"content\",\"content\":\"ok\"}\n\
        {\"type\":\"turn.completed\"}\n";
    assert_eq!(run(Format::Claude, stdout, Ending::Code(0)).1.failure, None);
}

#[test]
fn a_message_of_the_services_own_shape_is_a_response() {
    let stdout = r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"Hello"}],"usage":{"input_tokens":10,"output_tokens":8}}"#;
    for format in agent_formats().filter(|format| *format != Format::Text) {
        let (_, conclusion) = run(format, stdout, Ending::Code(0));
        assert_eq!((conclusion.content.as_str(), conclusion.failure), ("Hello", None), "{format:?}");
        assert_eq!((conclusion.usage.input_tokens, conclusion.usage.output_tokens), (10, 8), "{format:?}");
    }
    // The exit status decides.
    assert!(run(Format::Json, r#"{"content":"Hi"}"#, Ending::Code(1)).1.failure.is_some());
}

#[test]
fn json_that_is_cut_off_is_not_an_answer() {
    for stdout in ["[{\"type\":\"system\",\"sess", "log\n{\"type\":\"system\",\"sess"] {
        let (_, conclusion) = run(Format::Claude, stdout, Ending::Code(0));
        assert!(conclusion.failure.is_some() && conclusion.content.is_empty(), "{stdout}: {conclusion:?}");
    }
}

#[test]
fn the_phase_follows_from_the_output() {
    let claude = |subtype: &str, more: &str| format!(r#"{{"type":"system","subtype":"{subtype}"{more}}}"#);
    let codex = |event: &str, kind: &str| format!(r#"{{"type":"item.{event}","item":{{"id":"i","type":"{kind}"}}}}"#);
    let (thinking, compacting) = ("waiting for the model", "compacting its context");
    for (format, lines, phase) in [
        (Format::Claude, vec![claude("init", "")], thinking),
        (Format::Claude, vec![claude("status", r#","status":"compacting""#)], compacting),
        (Format::Claude, vec![claude("hook_started", r#","hook_event":"PreCompact""#)], compacting),
        (Format::Claude, vec![claude("hook_started", r#","hook_event":"Stop""#)], thinking),
        (
            Format::Claude,
            vec![claude("status", r#","status":"compacting""#), claude("status", r#","status":null"#)],
            thinking,
        ),
        (Format::Claude, vec![claude("status", r#","status":"compacting""#), claude("compact_boundary", "")], thinking),
        (Format::Claude, vec![claude("api_retry", r#","attempt":1,"retry_delay_ms":500"#)], "waiting to try again"),
        (Format::Qwen, vec![claude("retry", r#","data":{"attempt":1,"delayMs":2000}"#)], "waiting to try again"),
        (Format::Codex, vec![codex("started", "command_execution")], "running command_execution"),
        (Format::Codex, vec![codex("started", "command_execution"), codex("completed", "command_execution")], thinking),
        (Format::Codex, vec![codex("started", "context_compaction")], compacting),
        (
            Format::Codex,
            vec![codex("started", "context_compaction"), codex("completed", "context_compaction")],
            thinking,
        ),
        (Format::Codex, vec![r#"{"type":"error","message":"Reconnecting... 1/5"}"#.to_owned()], "waiting to try again"),
        (Format::Codex, vec![r#"{"type":"turn.completed"}"#.to_owned()], "finishing"),
        (Format::Text, vec!["hello".to_owned()], thinking),
    ] {
        let mut decoder = Decoder::new(format, Context::default());
        assert_eq!(decoder.phase(), Phase::Starting);
        let _events = decoder.push((lines.join("\n") + "\n").as_bytes());
        assert_eq!(decoder.phase().to_string(), phase, "{lines:?}");
    }
}

#[test]
fn an_error_without_a_message_gets_one() {
    let stdout = r#"{"type":"result","is_error":true,"error":{"message":""}}"#;
    let failure = |stderr| run_as("claude", stdout, stderr, Ending::Code(0)).failure.unwrap().message;
    assert_eq!(
        (failure(""), failure("no such thing")),
        ("claude failed without an error message".into(), "no such thing".into())
    );
}

#[test]
fn the_exit_status_decides_in_the_whole_form() {
    let stdout = r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#;
    for (form, ending, ends, failure) in [
        (OutputForm::Streamed, Ending::Code(3), true, None),
        (OutputForm::Whole, Ending::Code(3), false, Some("a hook failed")),
        (OutputForm::Whole, Ending::Code(0), false, None),
        // The process did not exit in time.
        (OutputForm::Whole, Ending::Open, false, None),
    ] {
        let mut decoder = Decoder::new(Format::Claude, Context { form, ..Context::default() });
        decoder.push(stdout.as_bytes());
        decoder.push(b"\n");
        assert_eq!((decoder.ended(), decoder.awaits_exit()), (ends, !ends));
        let conclusion = decoder.conclude(ending, "a hook failed", "");
        assert_eq!(conclusion.content, "done");
        assert_eq!(conclusion.failure.map(|failure| failure.message).as_deref(), failure, "{form:?} {ending:?}");
    }
}

#[test]
fn progress_of_a_long_tool_is_known_and_ignored() {
    let stdout = concat!(
        r#"{"type":"assistant","message":{"id":"a","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#,
        "\n",
        r#"{"type":"tool_progress","tool_use_id":"t","tool_name":"Bash","parent_tool_use_id":null,"elapsed_time_seconds":30}"#,
        "\n",
    );
    for format in [Format::Claude, Format::Qwen, Format::StreamJson] {
        let mut decoder = Decoder::new(format, Context::default());
        let events = decoder.push(stdout.as_bytes());
        assert!(matches!(events[..], [Event::ToolStarted { .. }]), "{events:?}");
        assert_eq!(decoder.take_strangers(), Vec::<String>::new());
        assert_eq!(decoder.phase(), Phase::Tool { names: vec!["Bash".to_owned()] });
    }
}
