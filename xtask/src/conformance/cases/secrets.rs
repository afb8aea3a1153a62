//! What one caller says is never told to another: not by a process that was there before, nor by one that stays.

use anyhow::{Context, Result};

use crate::conformance::scene::{Scene, content, equal, holds};
use crate::conformance::world::{KEYS, Way};

/// Who says what: two with the same key in conversations of their own, and one with another key.
const SAID: [(&str, &str); 3] = [(KEYS[0], "walrus"), (KEYS[1], "heron"), (KEYS[0], "marmot")];

const ASKED: &str = "Which secret word was it?";

/// One for each conversation.
pub(super) const LINES: u64 = SAID.len() as u64;

pub(super) fn secrets(scene: &Scene<'_>) -> Result<()> {
    let mut sessions = Vec::new();
    for (key, word) in SAID {
        let reply = scene.ask_as(key, None, &format!("My secret word is {word}. Keep it."))?;
        equal("the answer", content(&reply)?.as_str(), "I keep it.")?;
        sessions.push(reply.json()["trunkline"]["session_id"].as_str().context("no session")?.to_owned());
    }
    for ((key, word), session) in SAID.into_iter().zip(&sessions) {
        let reply = scene.ask_as(key, Some(session), ASKED)?;
        equal("the second answer", content(&reply)?.as_str(), "The one you said.")?;
        let knows = scene.tap.calls().iter().any(|call| call.says(ASKED) && call.says(word));
        holds("a conversation knows its own word", knows)?;
    }
    for call in scene.tap.calls() {
        let words = SAID.iter().filter(|(_, word)| call.says(word)).count();
        holds("no call of the model has the words of two conversations", words <= 1)?;
    }
    processes(scene)
}

/// Each conversation had a process of its own, and where processes stay, the same one twice.
fn processes(scene: &Scene<'_>) -> Result<()> {
    let mut pids = scene.pids();
    equal("turns", pids.len(), SAID.len() * 2)?;
    let later = pids.split_off(SAID.len());
    if scene.world.way == Way::Warm {
        equal("the processes of the later turns", later, pids.clone())?;
    }
    pids.sort_unstable();
    pids.dedup();
    equal("processes", pids.len(), SAID.len())
}
