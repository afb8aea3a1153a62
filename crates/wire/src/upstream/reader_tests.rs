use super::*;
use proptest::prelude::*;
use trunkline_core::event::Finish;

/// Decodes a body that arrives in these pieces and checks that exactly one final event comes last.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut reader = UpstreamReader::new(&[]);
    let mut events: Vec<Event> = Vec::new();
    for piece in pieces {
        events.extend(reader.push(piece));
    }
    events.extend(reader.conclude("four"));
    let ends = events.iter().filter(|event| (*event).clone().end().is_some()).count();
    assert_eq!(ends, 1, "exactly one end: {events:?}");
    assert!(events.last().unwrap().clone().end().is_some(), "and it is the last");
    events
}

/// All events of a body, merged.
#[derive(Debug, Default, PartialEq)]
struct MergedEvents {
    model: String,
    text: String,
    thinking: String,
    calls: Vec<ToolCall>,
    unknown: usize,
    end: Option<Result<Answer, Failure>>,
}

fn merge(events: Vec<Event>) -> MergedEvents {
    let mut received = MergedEvents::default();
    for event in events {
        match event {
            Event::Started { model, .. } => received.model.push_str(&model.unwrap()),
            Event::Text { delta } => received.text.push_str(&delta),
            Event::Thinking { delta } => received.thinking.push_str(&delta),
            Event::ToolCall { index, id, name, arguments } => {
                received.calls.resize(received.calls.len().max(index as usize + 1), ToolCall::default());
                let call = &mut received.calls[index as usize];
                call.id.push_str(&id.unwrap_or_default());
                call.name.push_str(&name.unwrap_or_default());
                call.arguments.push_str(&arguments);
            }
            Event::Unknown { .. } => received.unknown += 1,
            Event::Finished(answer) => received.end = Some(Ok(answer)),
            Event::Failed(failure) => received.end = Some(Err(failure)),
            Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::Notice { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => panic!("unexpected event from an upstream: {event:?}"),
        }
    }
    received
}

fn decode(body: &str) -> MergedEvents {
    merge(read([body.as_bytes()]))
}

fn answer(content: &str, finish: Finish, usage: (u64, u64, u64)) -> Option<Result<Answer, Failure>> {
    let usage = Usage { input_tokens: usage.0, output_tokens: usage.1, cached_tokens: usage.2, estimated: false };
    Some(Ok(Answer::new(content, usage, finish)))
}

const OPENAI: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-x","service_tier":"default","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"a"}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{"content":"Grüß"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{"content":" Gott 🎉"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0}}}

data: [DONE]

"#;

const OPENAI_CALLS: &str = r#"data: {"id":"1","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]},"finish_reason":null}]}

data: {"id":"1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}]}

data: {"id":"1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Köln\"}"}}]},"finish_reason":null}]}

data: {"id":"1","model":"gpt-x","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"time","arguments":"{}"}}]},"finish_reason":null}]}

data: {"id":"1","model":"gpt-x","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

"#;

const VLLM: &str = r#"data: {"id":"c","object":"chat.completion.chunk","model":"qwen","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null},"finish_reason":null}],"usage":null}

data: {"id":"c","object":"chat.completion.chunk","model":"qwen","choices":[{"index":0,"delta":{"reasoning_content":"hm, ","reasoning":"hm, "},"finish_reason":null}],"usage":null}

data: {"id":"c","object":"chat.completion.chunk","model":"qwen","choices":[{"index":0,"delta":{"reasoning":"so"},"finish_reason":null}],"usage":null}

data: {"id":"c","object":"chat.completion.chunk","model":"qwen","choices":[{"index":0,"delta":{"content":"4"},"finish_reason":"length","stop_reason":null}],"usage":null}

data: {"id":"c","object":"chat.completion.chunk","model":"qwen","choices":[],"usage":{"prompt_tokens":11,"total_tokens":13,"completion_tokens":2,"prompt_tokens_details":null}}

data: [DONE]

"#;

const OLLAMA: &str = "data: {\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"llama3.2\",\"system_fingerprint\":\"fp_ollama\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"2 + 2\"},\"finish_reason\":null}]}\n\ndata: {\"model\":\"llama3.2\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\" = 4\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"model\":\"llama3.2\",\"choices\":[],\"usage\":{\"prompt_tokens\":32,\"completion_tokens\":9,\"total_tokens\":41}}\n\ndata: [DONE]\n\n";

const LITELLM: &str = "data: {\"id\":\"x\",\"model\":\"claude\",\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"provider_specific_fields\":null,\"content\":\"hi\",\"role\":\"assistant\",\"function_call\":null,\"tool_calls\":null,\"audio\":null},\"logprobs\":null}],\"provider_specific_fields\":null}\r\n\r\n: keep-alive\r\n\r\ndata: {\"id\":\"x\",\"model\":\"claude\",\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\r\n\r\ndata: [DONE]\r\n\r\n";

#[test]
fn streams_of_known_servers_are_decoded() {
    for (server, body, model, text, thinking, end) in [
        ("openai", OPENAI, "gpt-x", "Grüß Gott 🎉", "", answer("Grüß Gott 🎉", Finish::Stop, (9, 3, 4))),
        ("vllm", VLLM, "qwen", "4", "hm, so", answer("4", Finish::Length, (11, 2, 0))),
        ("ollama", OLLAMA, "llama3.2", "2 + 2 = 4", "", answer("2 + 2 = 4", Finish::Stop, (32, 9, 0))),
        ("litellm", LITELLM, "claude", "hi", "", answer("hi", Finish::Stop, (5, 1, 0))),
        (
            "lm studio, the usage in the last chunk and no [DONE]",
            "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}\n\ndata: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n",
            "m",
            "a",
            "",
            answer("a", Finish::Stop, (1, 1, 0)),
        ),
        (
            "mistral, parts for content",
            "data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"mm\"}]},{\"type\":\"text\",\"text\":\"yes\"}]},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n",
            "",
            "yes",
            "mm",
            answer("yes", Finish::Stop, (1, 0, 0)),
        ),
        (
            "a refusal, another choice, an empty finish_reason, zeros",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"not me\"},\"finish_reason\":\"length\"},{\"index\":0,\"delta\":{\"refusal\":\"no\"},\"finish_reason\":\"\"}],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"prompt_cache_hit_tokens\":1}}\n\ndata: {\"choices\":[{\"index\":0,\"finish_reason\":\"content_filter\"}],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\ndata: [DONE]",
            "",
            "no",
            "",
            answer("no", Finish::ContentFilter, (2, 1, 1)),
        ),
        (
            "members of the wrong type",
            "event: message\ndata: {\"error\":null,\"model\":7,\"choices\":[{\"index\":\"0\",\"delta\":{\"content\":\"a\",\"reasoning\":{},\"tool_calls\":{}},\"finish_reason\":5}],\"usage\":[]}\n\ndata: {\"choices\":[{\"message\":{\"content\":\"b\"},\"finish_reason\":\"end_turn\"}],\"usage\":{\"prompt_tokens\":1.5,\"completion_tokens\":2}}\n\n",
            "",
            "ab",
            "",
            answer("ab", Finish::Stop, (0, 2, 0)),
        ),
    ] {
        let received = decode(body);
        let expected = MergedEvents {
            model: model.into(),
            text: text.into(),
            thinking: thinking.into(),
            end,
            ..MergedEvents::default()
        };
        assert_eq!(received, expected, "{server}");
    }
}

#[test]
fn stream_of_our_own_gateway_is_decoded() {
    use crate::response::Head;
    use crate::stream::{Chunks, UsageChunk};
    let call = ToolCall { id: "c1".into(), name: "f".into(), arguments: "{\"a\":1}".into() };
    let usage = Usage { input_tokens: 5, output_tokens: 2, cached_tokens: 1, estimated: false };
    let answer = Answer { calls: vec![call.clone()], ..Answer::new("hé", usage, Finish::ToolCalls) };
    let piece = |id: Option<&str>, name: Option<&str>, arguments: &str| Event::ToolCall {
        index: 0,
        id: id.map(str::to_owned),
        name: name.map(str::to_owned),
        arguments: arguments.into(),
    };
    let events = [
        Event::Thinking { delta: "hm".into() },
        Event::Text { delta: "hé".into() },
        piece(Some("c1"), Some("f"), ""),
        piece(None, None, "{\"a\":1}"),
        Event::Finished(answer.clone()),
    ];
    let head =
        Head { id: "cmpl-1".into(), created: 1, model: "claude".into(), calls: crate::chat::CallFormat::default() };
    let mut chunks = Chunks::new(head, UsageChunk::Wanted, Default::default());
    let mut body = crate::sse::KEEP_ALIVE.to_vec();
    for event in &events {
        chunks.push(event, &mut body);
    }
    let expected = MergedEvents {
        model: "claude".into(),
        text: "hé".into(),
        thinking: "hm".into(),
        calls: vec![call],
        unknown: 0,
        end: Some(Ok(answer)),
    };
    assert_eq!(merge(read([body.as_slice()])), expected);
    let mut broken = crate::sse::KEEP_ALIVE.to_vec();
    let failure = Failure::new(Category::Quota, "no more today").hint("wait");
    chunks.push(&events[1], &mut broken);
    chunks.push(&Event::Failed(failure.clone()), &mut broken);
    let received = merge(read([broken.as_slice()]));
    assert_eq!((received.text.as_str(), received.end), ("hé", Some(Err(failure))));
}

#[test]
fn tool_calls_are_decoded_when_streamed_whole_or_deprecated() {
    let calls = vec![
        ToolCall { id: "call_a".into(), name: "weather".into(), arguments: "{\"city\":\"Köln\"}".into() },
        ToolCall { id: "call_b".into(), name: "time".into(), arguments: "{}".into() },
    ];
    let object = r#"{"id":"1","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
        {"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Köln\"}"}},
        {"id":"call_b","type":"function","function":{"name":"time","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    for body in [OPENAI_CALLS, object] {
        let received = decode(body);
        assert_eq!((&received.calls, received.text.as_str()), (&calls, ""), "{body}");
        let answer = received.end.unwrap().unwrap();
        assert_eq!((answer.finish, &answer.calls, answer.usage.estimated), (Finish::ToolCalls, &calls, true));
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (1, 7), "four and 28 characters");
    }
    let old = decode(
        r#"{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{}"}},"finish_reason":"function_call"}]}"#,
    );
    assert_eq!(old.calls, [ToolCall { id: "call_0".into(), name: "f".into(), arguments: "{}".into() }]);
}

#[test]
fn answer_is_decoded_when_body_is_one_object() {
    let object = r#"{"id":"chatcmpl-9","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null,"reasoning_content":"hm"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}"#;
    let expected = MergedEvents {
        model: "gpt-x".into(),
        text: "hi".into(),
        thinking: "hm".into(),
        end: answer("hi", Finish::Stop, (9, 1, 2)),
        ..MergedEvents::default()
    };
    assert_eq!(decode(object), expected);
    assert_eq!(decode(&format!("\u{feff}\r\n {object}\n")), expected, "whitespace around it");
    let silent = decode(r#"{"choices":[{"message":{"content":"eight ch"}}]}"#).end.unwrap().unwrap();
    assert_eq!((silent.finish, silent.usage), (Finish::Stop, Usage::estimate("four", "eight ch")));
}

#[test]
fn body_that_is_not_a_complete_answer_fails() {
    use Category::*;
    let begun = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let early = "the upstream's answer ended too early";
    let cases = [
        ("".to_owned(), Network, early),
        (" \n".to_owned(), Network, early),
        ("dat".to_owned(), Network, early),
        (": keep-alive\n\n".to_owned(), Network, early),
        (begun.to_owned(), Network, early),
        (format!("{begun}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reas"), Network, early),
        ("{\"choices\":[{\"message\":{\"content\":\"a\"".to_owned(), Network, early),
        ("data: [DONE]\n\n".to_owned(), Server, "the upstream's answer is empty: it has no choices"),
        (
            "{\"object\":\"chat.completion\",\"choices\":null}".to_owned(),
            Server,
            "the upstream's answer is empty: it has no choices",
        ),
        (
            "<html><title>Welcome</title>".to_owned(),
            Configuration,
            "the upstream's answer is not a chat completion: Welcome",
        ),
        (
            "[1]".to_owned(),
            Configuration,
            "the upstream's answer is not a chat completion: [1]",
        ),
        (format!("{begun}data: {{\"error\":\"boom\"}}\n\ndata: [DONE]\n\n"), Unknown, "boom"),
        ("{\"error\":{\"message\":\"slow\",\"code\":\"rate_limit_exceeded\"}}".to_owned(), RateLimit, "slow"),
        (
            "event: error\ndata: {\"object\":\"error\",\"message\":\"bad\",\"type\":\"BadRequestError\",\"code\":400}\n\n".to_owned(),
            Validation,
            "bad",
        ),
        (
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\",\"error\":{\"message\":\"gone\",\"code\":502}}]}\n\n".to_owned(),
            Server,
            "gone",
        ),
        (
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n".to_owned(),
            Server,
            "the upstream ended its answer with an error",
        ),
    ];
    for (body, category, message) in cases {
        let failure = decode(&body).end.unwrap().unwrap_err();
        assert_eq!((failure.category, failure.message.as_str()), (category, message), "{body}");
    }
}

#[test]
fn bytes_are_ignored_after_the_end() {
    for end in ["data: [DONE]\n\n", "data: {\"error\":\"boom\"}\n\n"] {
        let mut reader = UpstreamReader::new(&[]);
        let first = reader.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");
        assert_eq!(first, [Event::Text { delta: "a".into() }], "text arrives before the end");
        assert!(!reader.ended());
        let more = format!("{end}data: {{\"choices\":[{{\"delta\":{{\"content\":\"b\"}}}}]}}\n\n");
        assert_eq!(reader.push(more.as_bytes()), []);
        assert!(reader.ended(), "{end}");
        assert_eq!(reader.push(b"data: {\"error\":\"late\"}\n\n"), []);
        assert_eq!(reader.conclude("").len(), 1);
    }
}

#[test]
fn answer_is_finished_before_its_end_marker() {
    let finish = OPENAI.find("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-x\",\"choices\":[],").unwrap();
    let mut reader = UpstreamReader::new(&[]);
    for (bytes, finished, ended) in
        [(&OPENAI[..100], false, false), (&OPENAI[100..finish], true, false), (&OPENAI[finish..], true, true)]
    {
        reader.push(bytes.as_bytes());
        assert_eq!((reader.finished(), reader.ended()), (finished, ended));
    }
}

#[test]
fn unparsable_frames_are_reported_and_skipped() {
    let received = decode(&format!("data: {{nonsense\n\ndata: [1]\n\ndata: \"ping\"\n\n{OPENAI}"));
    assert_eq!((received.unknown, received.text.as_str()), (3, "Grüß Gott 🎉"));
}

#[test]
fn size_of_frames_and_answers_is_limited() {
    let mut reader = UpstreamReader::new(&[]);
    reader.push(b"data: ");
    let piece = vec![b'x'; 1024 * 1024];
    let pushed = (0..100).take_while(|_| reader.push(&piece).is_empty() && !reader.ended()).count();
    assert_eq!(pushed, 15, "sixteen MiB and a field name are too many");
    assert_eq!(reader.conclude("").pop().unwrap().end().unwrap().unwrap_err().category, Category::Server);

    let mut reader = UpstreamReader::new(&[]);
    let frame =
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(4 * 1024 * 1024));
    let pushed = (0..100)
        .take_while(|_| {
            reader.push(frame.as_bytes());
            !reader.ended()
        })
        .count();
    assert_eq!(pushed, 16);
    let failure = reader.conclude("").pop().unwrap().end().unwrap().unwrap_err();
    assert_eq!(
        (failure.category, failure.message.as_str()),
        (Category::Server, "the upstream's answer is larger than 64 MiB")
    );

    let mut reader = UpstreamReader::new(&[]);
    reader.push(b"{\"x\":\"");
    let pushed = (0..100)
        .take_while(|_| {
            reader.push(&piece);
            !reader.ended()
        })
        .count();
    assert_eq!(pushed, 63);
}

proptest! {
    #[test]
    fn events_are_the_same_however_the_bytes_are_split(body in 0usize..5, cuts in prop::collection::vec(0usize..2000, 0..12)) {
        let body = [OPENAI, OPENAI_CALLS, VLLM, LITELLM, r#"{"model":"é","choices":[{"message":{"content":"ü🎉"}}]}"#][body];
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).chain([0, body.len()]).collect();
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &body.as_bytes()[cut[0]..cut[1]]);
        prop_assert_eq!(merge(read(pieces)), decode(body));
    }

    #[test]
    fn truncated_body_is_never_an_answer_before_its_finish_reason(body in 0usize..2, cut in 0usize..2000) {
        let body = [OPENAI, VLLM][body];
        let finished = body.find("\"stop\"").or_else(|| body.find("\"length\"")).unwrap();
        let received = merge(read([&body.as_bytes()[..cut.min(finished)]]));
        prop_assert_eq!(received.end.unwrap().unwrap_err().category, Category::Network);
    }

    #[test]
    fn any_bytes_produce_exactly_one_final_event(pieces in prop::collection::vec(prop::collection::vec(prop::num::u8::ANY, 0..40), 0..6)) {
        read(pieces.iter().map(Vec::as_slice));
    }

    #[test]
    fn any_json_produces_exactly_one_final_event(
        frames in prop::collection::vec(
            "(data: )?(\\{\"(choices|error|usage|model|object)\":(\\[\\{\"(delta|message|index|finish_reason)\":)?(\\{\"(content|tool_calls|function_call)\":)?(null|1|\"a\"|\\[\\]|\\{\\}|\\[\\{\"index\":-1\\}\\])\\}?\\}?\\]?\\}|\\[DONE\\])\n\n?",
            0..6,
        ),
    ) {
        read(frames.iter().map(String::as_bytes));
    }
}

#[test]
fn log_probabilities_are_part_of_the_answer_whole_and_streamed() {
    let token = |token: &str| format!(r#"{{"token":"{token}","logprob":-0.5,"bytes":null,"top_logprobs":[]}}"#);
    let expected = format!(r#"{{"content":[{},{}],"refusal":null}}"#, token("a"), token("b"));
    let whole = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"ab"}},"finish_reason":"stop","logprobs":{expected}}}]}}"#
    );
    let chunk = |name: &str| {
        let logprobs = format!(r#"{{"content":[{}]}}"#, token(name));
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{name}\"}},\"logprobs\":{logprobs}}}]}}\n\n"
        )
    };
    let streamed = [chunk("a"), chunk("b"), "data: [DONE]\n\n".to_owned()].concat();
    for body in [whole, streamed] {
        let Some(Ok(answer)) = decode(&body).end else { panic!("{body}") };
        assert_eq!((answer.content.as_str(), answer.logprobs.as_ref()), ("ab", Some(&expected)));
    }
}
