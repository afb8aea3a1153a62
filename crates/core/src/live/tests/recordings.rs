//! Recorded conversations with real CLIs (`fixtures/live/<provider>/<case>.txt`): `>` is our input, `<` their output. The
//! channel must write the same lines at the same points, and the events of the decoder are compared with a snapshot.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;

/// Greeting of each case, in addition to the recipe of the provider.
fn greeting(provider: &str, case: &str) -> Greeting {
    let full = ["claude", "gemini", "qwen"].contains(&provider);
    Greeting {
        cwd: "/repo".to_owned(),
        model: match provider {
            "codex" => Some("gpt-5.5".to_owned()),
            "opencode" => Some("mock/mock-model".to_owned()),
            _ => None,
        },
        mode: (provider == "codex").then(|| "workspace-write".to_owned()),
        primer: provider::built_in()[provider].live.as_ref().and_then(|live| live.primer.clone()),
        system: (provider == "claude" && case == "turns").then(|| "Be brief.".to_owned()),
        permissions: if full { Permissions::Full } else { Permissions::Edit },
        ..Greeting::default()
    }
}

struct Replay {
    channel: LiveChannel,
    decoder: Decoder,
    events: Vec<Event>,
    /// Bytes that the channel has written and that were not compared with the recording yet.
    unconfirmed: Vec<u8>,
    turns: Vec<Value>,
}

impl Replay {
    /// Compares the next recorded line of ours with what the channel wrote, after starting or interrupting a turn if needed.
    fn written(&mut self, line: &str) {
        let wanted: Value = serde_json::from_str(line).unwrap();
        if self.unconfirmed.is_empty() {
            let prompt = ["/message/content", "/params/input/0/text", "/params/prompt/0/text"];
            let prompt = prompt.iter().find_map(|place| wanted.pointer(place)).and_then(Value::as_str);
            let session = wanted.pointer("/params/threadId").and_then(Value::as_str);
            self.unconfirmed = match (prompt, wanted.get("method").and_then(Value::as_str)) {
                (Some(prompt), _) => self.channel.say(prompt, None).unwrap(),
                (None, Some("thread/resume")) => self.channel.say("and on", session).unwrap(),
                (None, _) => self.channel.interrupt(),
            };
        }
        let end = self.unconfirmed.iter().position(|byte| *byte == b'\n').expect("the channel wrote nothing");
        let written: Vec<u8> = self.unconfirmed.drain(..=end).collect();
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), wanted);
    }

    fn received(&mut self, line: &str) {
        let busy = *self.channel.stage() == ChannelStage::Busy;
        let output = self.channel.hear(format!("{line}\n").as_bytes());
        self.unconfirmed.extend(output.reply);
        self.events.extend(self.decoder.push(&output.said));
        if busy && *self.channel.stage() == ChannelStage::Ready {
            assert!(self.decoder.ended(), "the channel and the decoder must agree on the end of the turn");
            let conclusion = concluded(&mut self.decoder, &mut self.events);
            self.turns.push(json!({
                "events": std::mem::take(&mut self.events),
                "content": conclusion.content,
                "usage": [conclusion.usage.input_tokens, conclusion.usage.output_tokens],
                "session": conclusion.session,
                "failure": conclusion.failure,
            }));
        }
    }
}

fn replay(provider: &'static str, path: &Path) -> Vec<Value> {
    let case = path.file_stem().unwrap().to_string_lossy().into_owned();
    let recording = fs::read_to_string(path).unwrap();
    let protocol = provider::built_in()[provider].live.as_ref().unwrap().protocol;
    let (channel, unconfirmed) = LiveChannel::new(protocol, greeting(provider, &case));
    let mut replay = Replay { channel, decoder: decoder(provider), events: Vec::new(), unconfirmed, turns: Vec::new() };
    for line in recording.lines() {
        match line.split_at(2) {
            ("> ", line) => {
                if *replay.channel.stage() == ChannelStage::Ready {
                    replay.decoder = decoder(provider);
                }
                replay.written(line);
            }
            (_, line) => replay.received(line),
        }
    }
    assert_eq!((replay.channel.stage(), replay.unconfirmed.len()), (&ChannelStage::Ready, 0), "{provider} {case}");
    replay.turns
}

#[test]
fn conversations() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/live");
    for provider in ["claude", "codex", "gemini", "qwen", "opencode"] {
        let folder = root.join(provider);
        let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        cases.sort();
        for path in cases {
            let name = format!("{provider}__{}", path.file_stem().unwrap().to_string_lossy());
            insta::assert_json_snapshot!(name, replay(provider, &path));
        }
    }
}
