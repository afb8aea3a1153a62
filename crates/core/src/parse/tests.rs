//! Each recording against its snapshot, and what must hold for any bytes.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::failure::Category;
use crate::provider;

const FORMATS: [Format; 9] = [
    Format::Claude,
    Format::Codex,
    Format::Gemini,
    Format::Qwen,
    Format::Opencode,
    Format::Ax,
    Format::Text,
    Format::Json,
    Format::StreamJson,
];

/// A recording: what a real CLI printed and how it ended.
struct Recording {
    provider: &'static str,
    stdout: Vec<u8>,
    stderr: String,
    ending: Ending,
}

fn recordings(folder: &'static str, provider: &'static str) -> Vec<(String, Recording)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder);
    let mut all: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let exit: i32 = fs::read_to_string(path.join("exit")).unwrap().trim().parse().unwrap();
            let recording = Recording {
                provider,
                stdout: fs::read(path.join("stdout")).unwrap(),
                stderr: fs::read(path.join("stderr"))
                    .map(|b| String::from_utf8_lossy(&b).into_owned())
                    .unwrap_or_default(),
                ending: if exit < 0 { Ending::Signal(-exit) } else { Ending::Code(exit) },
            };
            (path.file_name().unwrap().to_string_lossy().into_owned(), recording)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn everything() -> Vec<(String, Recording)> {
    let folders = [
        ("claude", "claude"),
        ("codex", "codex"),
        ("gemini", "gemini"),
        ("qwen", "qwen"),
        ("opencode", "opencode"),
        ("ax", "glm"),
    ];
    folders.iter().flat_map(|(folder, provider)| recordings(folder, provider)).collect()
}

fn decode(recording: &Recording, pieces: &[&[u8]]) -> (Vec<Event>, Conclusion) {
    let provider = &provider::built_in()[recording.provider];
    let context = Context {
        program: recording.provider.to_owned(),
        rules: provider.failures.clone(),
        noise: provider.noise.clone(),
        normalize: Normalize::None,
    };
    let mut decoder = Decoder::new(provider.format, context);
    let mut events: Vec<Event> = pieces.iter().flat_map(|piece| decoder.push(piece)).collect();
    let mut conclusion = decoder.conclude(recording.ending, &recording.stderr, "");
    events.append(&mut conclusion.events);
    (events, conclusion)
}

/// What a snapshot holds: everything, with long strings cut.
fn digest(recording: &Recording) -> Value {
    let (events, conclusion) = decode(recording, &[&recording.stdout]);
    let mut value = json!({
        "content": conclusion.content,
        "usage": conclusion.usage,
        "finish": conclusion.finish,
        "session": conclusion.session,
        "failure": conclusion.failure,
        "events": events,
    });
    cut(&mut value);
    value
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().count() > 160 => {
            let head: String = text.chars().take(120).collect();
            *text = format!("{head}… ({} characters)", text.chars().count());
        }
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(fields) => fields.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn snapshots(folder: &'static str, provider: &'static str) {
    for (name, recording) in recordings(folder, provider) {
        insta::assert_json_snapshot!(format!("{folder}__{name}"), digest(&recording));
    }
}

#[test]
fn claude_recordings() {
    snapshots("claude", "claude");
}

#[test]
fn codex_recordings() {
    snapshots("codex", "codex");
}

#[test]
fn gemini_recordings() {
    snapshots("gemini", "gemini");
}

#[test]
fn qwen_recordings() {
    snapshots("qwen", "qwen");
}

#[test]
fn opencode_recordings() {
    snapshots("opencode", "opencode");
}

#[test]
fn ax_recordings() {
    snapshots("ax", "glm");
}

/// Shown text is the answer, or ends with it after what was said before a tool; it is never repeated.
#[test]
fn no_recorded_text_is_counted_twice() {
    for (name, recording) in everything() {
        let (events, conclusion) = decode(&recording, &[&recording.stdout]);
        let shown: String = events
            .iter()
            .filter_map(|event| if let Event::Text { delta } = event { Some(delta.as_str()) } else { None })
            .collect();
        if conclusion.failure.is_none() {
            assert!(shown.ends_with(&conclusion.content), "{name}: shown {shown:?}, answer {:?}", conclusion.content);
            let before = shown.strip_suffix(&conclusion.content).unwrap();
            assert!(before.is_empty() || before.ends_with("\n\n"), "{name}: shown {shown:?}");
        } else {
            assert!(!shown.contains("API Error"), "{name}: an error was shown as text: {shown:?}");
        }
    }
}

#[test]
fn a_recording_cut_anywhere_gives_the_same_events() {
    for (name, recording) in everything() {
        let bytes = recording.stdout.as_slice();
        let whole = decode(&recording, &[bytes]);
        for size in [1, 7, 4096] {
            if size == 1 && bytes.len() > 20_000 {
                continue;
            }
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(decode(&recording, &pieces), whole, "{name} in pieces of {size}");
        }
    }
}

fn run(format: Format, stdout: &str, ending: Ending) -> (String, Conclusion) {
    let mut decoder = Decoder::new(format, Context { program: "cli".into(), ..Context::default() });
    let mut events = decoder.push(stdout.as_bytes());
    let mut conclusion = decoder.conclude(ending, "", "");
    events.append(&mut conclusion.events);
    let text = |event: &Event| if let Event::Text { delta } = event { Some(delta.clone()) } else { None };
    (events.iter().filter_map(text).collect(), conclusion)
}

#[test]
fn the_described_streams() {
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
fn plain_text_and_single_objects() {
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
fn noise_around_events_is_kept_apart() {
    let stdout = "starting up\n{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"Hi\"}}\nbye\n\
        {\"type\":\"turn.completed\"}\n";
    let mut decoder = Decoder::new(Format::Codex, Context::default());
    let events = decoder.push(stdout.as_bytes());
    let unknown = |line: &str| Event::Unknown { line: line.to_owned() };
    assert_eq!(events, [unknown("starting up"), Event::Text { delta: "Hi".into() }, unknown("bye")]);
    assert!(decoder.ended());
}

#[test]
fn endings() {
    let category = |format, stdout: &str, ending| run(format, stdout, ending).1.failure.map(|failure| failure.category);
    let started = "{\"type\":\"thread.started\",\"thread_id\":\"x\"}\n";
    assert_eq!(category(Format::Codex, started, Ending::Code(0)), Some(Category::Unknown));
    assert_eq!(category(Format::Codex, started, Ending::Signal(9)), Some(Category::Timeout));
    assert_eq!(category(Format::Codex, started, Ending::Cancelled), Some(Category::Cancelled));
    assert_eq!(category(Format::Text, "some text", Ending::Code(1)), Some(Category::Unknown));
    let timed_out = run(Format::Text, "some text", Ending::TimedOut("total limit")).1.failure.unwrap();
    assert_eq!((timed_out.category, timed_out.message.as_str()), (Category::Timeout, "Query timed out"));
    // A result that came before the CLI was stopped stands.
    let done = format!("{started}{{\"type\":\"turn.completed\"}}\n");
    assert_eq!(category(Format::Codex, &done, Ending::TimedOut("total limit")), None);
}

#[test]
fn a_line_beyond_the_limit_costs_only_itself() {
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

/// Lines that look like events of every dialect, with parts missing or of the wrong type.
fn eventish() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "type",
        "subtype",
        "message",
        "content",
        "item",
        "text",
        "event",
        "delta",
        "result",
        "is_error",
        "part",
        "role",
        "error",
        "status",
        "usage",
        "session_id",
        "input_tokens",
        "id",
        "index",
        "messages",
        "response",
        "stats",
        "abandoned_blocks",
    ]);
    let words = prop::sample::select(vec![
        "assistant",
        "result",
        "stream_event",
        "content_block_delta",
        "text_delta",
        "item.completed",
        "agent_message",
        "turn.completed",
        "turn.failed",
        "message",
        "user",
        "tool_use",
        "text",
        "step_finish",
        "error",
        "init",
        "system",
        "content",
    ]);
    let leaf = prop_oneof![
        words.prop_map(|word| json!(word)),
        any::<i32>().prop_map(|n| json!(n)),
        any::<bool>().prop_map(|b| json!(b)),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec((keys.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    });
    value.prop_map(|value| value.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_in_any_pieces(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let cut = cut.min(bytes.len());
        for format in FORMATS {
            let mut whole = Decoder::new(format, Context::default());
            let mut events = whole.push(&bytes);
            let mut end = whole.conclude(Ending::Code(0), "", "");
            events.append(&mut end.events);

            let mut pieces = Decoder::new(format, Context::default());
            let mut cut_events = pieces.push(&bytes[..cut]);
            cut_events.extend(pieces.push(&bytes[cut..]));
            let mut cut_end = pieces.conclude(Ending::Code(0), "", "");
            cut_events.append(&mut cut_end.events);

            prop_assert_eq!(joined(&events), joined(&cut_events));
            prop_assert_eq!(end, cut_end);
        }
    }

    #[test]
    fn malformed_events_never_panic(lines in prop::collection::vec(eventish(), 0..8), stderr in "\\PC{0,40}", exit in -2i32..3) {
        for format in FORMATS {
            let mut decoder = Decoder::new(format, Context::default());
            decoder.push(lines.join("\n").as_bytes());
            let ending = if exit < 0 { Ending::Signal(-exit) } else { Ending::Code(exit) };
            decoder.conclude(ending, &stderr, "");
        }
    }
}

/// Events with neighbouring text joined: how plain text is cut into deltas follows how it arrives.
fn joined(events: &[Event]) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(Event::Text { delta }), Event::Text { delta: more }) => delta.push_str(more),
            (_, event) => joined.push(event.clone()),
        }
    }
    joined
}
