//! Recorded output of real CLIs against snapshots.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::*;
use crate::provider;
use crate::vocabulary::Normalize;

/// Recorded output of a real CLI, and how it ended.
struct CliRecording {
    provider: &'static str,
    stdout: Vec<u8>,
    stderr: String,
    ending: Ending<'static>,
}

fn recordings(folder: &'static str, provider: &'static str) -> Vec<(String, CliRecording)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder);
    let mut all: Vec<_> = fs::read_dir(root)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let exit: i32 = fs::read_to_string(path.join("exit")).unwrap().trim().parse().unwrap();
            let recording = CliRecording {
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

fn everything() -> Vec<(String, CliRecording)> {
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

fn decode(recording: &CliRecording, pieces: &[&[u8]]) -> (Vec<Event>, Conclusion) {
    let provider = &provider::built_in()[recording.provider];
    let mut decoder = provider.decoder(Normalize::None, OutputForm::Streamed);
    let mut events: Vec<Event> = pieces.iter().flat_map(|piece| decoder.push(piece)).collect();
    let mut conclusion = decoder.conclude(recording.ending, &recording.stderr, "");
    events.append(&mut conclusion.events);
    (events, conclusion)
}

/// Content of a snapshot: everything, with long strings cut.
fn digest(recording: &CliRecording) -> Value {
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

/// Only after these recordings is a turn of a session sent again.
#[test]
fn a_session_is_lost_only_when_its_cli_reports_that_it_cannot_be_resumed() {
    let lost = |(_, recording): &(String, CliRecording)| {
        let failure = decode(recording, &[&recording.stdout]).1.failure;
        failure.is_some_and(|failure| failure.session_lost)
    };
    let named: Vec<String> = everything().into_iter().filter(lost).map(|(name, _)| name).collect();
    let expected = [
        "resume_unknown_streamjson",
        "conc_resume_2",
        "resume_unknown_uuid",
        "resume-loss-ret-default-2-resume",
        "resume-missing",
        "session_bad",
    ];
    assert_eq!(named, expected);
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

/// The shown text is the answer, or the text before a tool followed by the answer.
#[test]
fn no_recorded_text_is_shown_twice() {
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
fn recordings_give_the_same_events_when_split_anywhere() {
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

/// Every recorded failure and its category in one snapshot: a message that is no longer classified shows up here.
#[test]
fn recorded_failures_and_their_categories() {
    let mut page = String::new();
    for (name, recording) in everything() {
        let (_, conclusion) = decode(&recording, &[&recording.stdout]);
        if let Some(failure) = conclusion.failure {
            let wait = failure.retry_after.map(|wait| format!(", wait {wait:?}")).unwrap_or_default();
            let message: String = failure.message.lines().next().unwrap_or_default().chars().take(70).collect();
            page += &format!("{} {name}: {}{wait} | {message}\n", recording.provider, failure.category.name());
        }
    }
    insta::assert_snapshot!(page);
}

/// At the end of a recording no phase is left open: a tool that never ends would be awaited until the tool limit. Only a CLI
/// that was killed while a tool ran has an open phase.
#[test]
fn no_recording_leaves_a_phase_hanging() {
    let mut open = Vec::new();
    for (name, recording) in everything() {
        let provider = &provider::built_in()[recording.provider];
        let mut decoder = Decoder::new(provider.format, Context::default());
        let _events = decoder.push(&recording.stdout);
        match decoder.transcript.phases.now() {
            Phase::Tool { names } => open.push(format!("{} {name}: {}", recording.provider, names.join(", "))),
            Phase::Compacting => open.push(format!("{} {name}: compacting", recording.provider)),
            Phase::Starting | Phase::Thinking | Phase::Retrying { .. } | Phase::Ended => {}
        }
    }
    insta::assert_snapshot!(open.join("\n"));
}
