//! Case: nothing that one client says reaches another one, neither through a warm process nor through a reused one.

use anyhow::{Context, Result};

use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::world::{ConformanceMode, KEYS};

/// API key and secret word of each conversation: two conversations share a key, and one has another key.
const SECRETS: [(&str, &str); 3] = [(KEYS[0], "walrus"), (KEYS[1], "heron"), (KEYS[0], "marmot")];

const QUESTION: &str = "Which secret word was it?";

pub(super) const CONVERSATIONS: u64 = SECRETS.len() as u64;

pub(super) fn secrets(context: &CaseContext<'_>) -> Result<()> {
    let mut sessions = Vec::new();
    for (key, word) in SECRETS {
        let reply = context.ask_as(key, None, &format!("My secret word is {word}. Keep it."))?;
        equal("the answer", content(&reply)?.as_str(), "I keep it.")?;
        sessions.push(reply.json()["trunkline"]["session_id"].as_str().context("no session")?.to_owned());
    }
    for ((key, word), session) in SECRETS.into_iter().zip(&sessions) {
        let reply = context.ask_as(key, Some(session), QUESTION)?;
        equal("the second answer", content(&reply)?.as_str(), "The one you said.")?;
        let knows = context.tap.calls().iter().any(|call| call.contains(QUESTION) && call.contains(word));
        holds("a conversation knows its own word", knows)?;
    }
    for call in context.tap.calls() {
        let words = SECRETS.iter().filter(|(_, word)| call.contains(word)).count();
        holds("no call of the model contains the words of two conversations", words <= 1)?;
    }
    processes(context)
}

/// Each conversation has a process of its own; in warm mode, both turns use the same process.
fn processes(context: &CaseContext<'_>) -> Result<()> {
    let mut pids = context.pids();
    equal("turns", pids.len(), SECRETS.len() * 2)?;
    let later = pids.split_off(SECRETS.len());
    if context.world.mode == ConformanceMode::Warm {
        equal("the processes of the later turns", later, pids.clone())?;
    }
    pids.sort_unstable();
    pids.dedup();
    equal("processes", pids.len(), SECRETS.len())
}
