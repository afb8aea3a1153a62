//! Cases about what is said: answers, prompts, sessions, token counts.

use anyhow::{Context, Result};

use crate::conformance::http::Message;
use crate::conformance::place::INSTRUCTIONS;
use crate::conformance::scene::{Scene, content, equal, holds};
use crate::conformance::tap::Tokens;

pub(super) fn whole(scene: &Scene<'_>) -> Result<()> {
    let reply = scene.ask("How tall is the lighthouse?")?;
    equal("the answer", content(&reply)?.as_str(), "The lighthouse is 41 metres tall.\n\nIts lamp is higher.")?;
    let body = reply.json();
    equal("the provider", body["trunkline"]["provider"].as_str(), Some(scene.world.cli.name))?;
    holds("there is a session", body["trunkline"]["session_id"].is_string())
}

pub(super) fn streamed(scene: &Scene<'_>) -> Result<()> {
    let reply = scene.stream("Describe the coast.")?;
    equal("the status", reply.status(), 200)?;
    let text = reply.text();
    holds("the stream ends with [DONE]", text.trim_end().ends_with("data: [DONE]"))?;
    let frames = reply.frames();
    let joined: String = frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect();
    equal("the joined text", joined.as_str(), "The coast is long, and the wind never rests. Ships pass at night.")?;
    let ends = frames.iter().filter(|frame| frame["choices"][0]["finish_reason"] == "stop").count();
    equal("chunks with finish_reason stop", ends, 1)?;
    let last = frames.last().context("no frames")?;
    holds("the last chunk is the usage", last["usage"]["completion_tokens"].as_u64().is_some_and(|count| count > 0))
}

/// Not cut up afterwards: the mock speaks a word at a time, and words arrive while it still speaks.
pub(super) fn deltas(scene: &Scene<'_>) -> Result<()> {
    let frames = scene.stream("Describe the coast.")?.frames();
    let deltas = frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str());
    let spoken = deltas.filter(|delta| !delta.is_empty()).count();
    holds(&format!("the text came in several pieces, not {spoken}"), spoken >= 3)
}

pub(super) fn resume(scene: &Scene<'_>) -> Result<()> {
    let first = scene.ask("The keeper is called Ingrid. Remember it.")?;
    equal("the first answer", content(&first)?.as_str(), "I will remember the keeper's name.")?;
    let session = first.json()["trunkline"]["session_id"].as_str().context("no session")?.to_owned();
    let (calls_before, counted_before) = (scene.tap.calls().len(), scene.tap.tokens());

    let second = scene.ask_in(&session, "What is the keeper called?")?;
    equal("the second answer", content(&second)?.as_str(), "She is called as you said.")?;
    equal("the session", second.json()["trunkline"]["session_id"].as_str(), Some(session.as_str()))?;
    let calls = scene.tap.calls();
    let of_second = calls.get(calls_before..).context("calls are gone")?;
    let knows = |words: &str| of_second.iter().any(|call| call.says(words));
    holds("the second turn has the first prompt", knows("The keeper is called Ingrid. Remember it."))?;
    holds("the second turn has the first answer", knows("I will remember the keeper's name."))?;
    let counted = scene.tap.tokens();
    let of_second =
        Tokens { input: counted.input - counted_before.input, output: counted.output - counted_before.output };
    equal("the usage of the second turn alone", reported(&second), of_second)
}

/// A client that knows of no sessions sends all that was said; the CLI is told what is new and remembers the rest.
pub(super) fn memory(scene: &Scene<'_>) -> Result<()> {
    let (said, asked) = ("The lamp is called Berta. Remember it.", "What is the lamp called?");
    let first = scene.ask(said)?;
    let answer = content(&first)?;
    equal("the first answer", answer.as_str(), "I will remember the lamp's name.")?;
    let calls_before = scene.tap.calls().len();

    let second = scene.ask_after(&[(said, answer.as_str())], asked)?;
    equal("the second answer", content(&second)?.as_str(), "It is called as you said.")?;
    let session = &second.json()["trunkline"]["session"];
    equal("how the session was found", session["how"].as_str(), Some("history"))?;
    let calls = scene.tap.calls();
    let of_second = calls.get(calls_before..).context("calls are gone")?;
    let knows = |words: &str| of_second.iter().any(|call| call.says(words));
    holds("the second turn has the first prompt", knows(said))?;
    holds("the second turn has the first answer", knows(&answer))?;
    holds("and has them from the CLI alone", !knows(&format!("[Assistant]\n{answer}")) && !knows("[User]\n"))
}

pub(super) fn instructions(scene: &Scene<'_>) -> Result<()> {
    let reply = scene.ask("Which rules hold here?")?;
    equal("the answer", content(&reply)?.as_str(), "Those of this repository.")?;
    holds("the model was told what AGENTS.md says", scene.tap.heard(INSTRUCTIONS))
}

pub(super) fn long_prompt(scene: &Scene<'_>) -> Result<()> {
    let mut prompt = String::from("The logbook begins.\n");
    let mut line = 0;
    while prompt.len() < 300_000 {
        line += 1;
        prompt += &format!("{line:05} wind from the west, nothing in sight, lamp trimmed at dusk\n");
    }
    prompt += "And this is where the logbook ends.";
    let reply = scene.ask(&prompt)?;
    equal("the answer", content(&reply)?.as_str(), "I have read the whole logbook.")?;
    holds("the model was told every line", scene.tap.heard(&prompt))
}

pub(super) fn unicode(scene: &Scene<'_>) -> Result<()> {
    let prompt =
        "Greet everyone: 🚀 👨‍👩‍👧 漢字 ไทย مرحبا שלום o\u{308} Ł \u{1d11e} \u{200f}‏ «guillemets» <b>&amp;</b> \\n";
    let reply = scene.ask(prompt)?;
    let expected = "😀 👩‍👩‍👧‍👦 日本語 한국어 العربية עברית e\u{301} ñ \u{1d11e} “quoted” \\ <tag> & done";
    equal("the answer", content(&reply)?.as_str(), expected)?;
    holds("the model was told the same characters", scene.tap.heard(prompt))
}

/// A turn with a tool: the counts of two calls have to be added up.
pub(super) fn usage(scene: &Scene<'_>) -> Result<()> {
    let reply = scene.ask("Count the gulls.")?;
    equal("the answer", content(&reply)?.as_str(), "There are seventeen gulls.")?;
    equal("calls of the model", scene.tap.calls().len(), 2)?;
    holds("usage is not estimated", reply.json()["usage_estimated"].is_null())?;
    equal("the usage", reported(&reply), scene.tap.tokens())
}

fn reported(reply: &Message) -> Tokens {
    let usage = &reply.json()["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    Tokens { input: count("prompt_tokens"), output: count("completion_tokens") }
}
