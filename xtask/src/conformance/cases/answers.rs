//! Cases about answers, prompts, sessions and token counts.

use anyhow::{Context, Result};

use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::environment::INSTRUCTIONS;
use crate::conformance::http::HttpMessage;
use crate::conformance::tap::ModelTokens;

pub(super) fn whole(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.ask("How tall is the lighthouse?")?;
    equal("the answer", content(&reply)?.as_str(), "The lighthouse is 41 metres tall.\n\nIts lamp is higher.")?;
    let body = reply.json();
    equal("the provider", body["trunkline"]["provider"].as_str(), Some(context.world.cli.name))?;
    holds("there is a session", body["trunkline"]["session_id"].is_string())
}

pub(super) fn streamed(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.stream("Describe the coast.")?;
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

/// The mock LLM sends one word at a time, and the client receives words before it has sent all of them.
pub(super) fn deltas(context: &CaseContext<'_>) -> Result<()> {
    let frames = context.stream("Describe the coast.")?.frames();
    let deltas = frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str());
    let count = deltas.filter(|delta| !delta.is_empty()).count();
    holds(&format!("the text came in at least 3 pieces, not {count}"), count >= 3)
}

pub(super) fn resume(context: &CaseContext<'_>) -> Result<()> {
    let first = context.ask("The keeper is called Ingrid. Remember it.")?;
    equal("the first answer", content(&first)?.as_str(), "I will remember the keeper's name.")?;
    let session = first.json()["trunkline"]["session_id"].as_str().context("no session")?.to_owned();
    let (calls_before, counted_before) = (context.tap.calls().len(), context.tap.tokens());

    let second = context.ask_in(&session, "What is the keeper called?")?;
    equal("the second answer", content(&second)?.as_str(), "She is called as you said.")?;
    equal("the session", second.json()["trunkline"]["session_id"].as_str(), Some(session.as_str()))?;
    let calls = context.tap.calls();
    let of_second = calls.get(calls_before..).context("fewer calls than before")?;
    let knows = |text: &str| of_second.iter().any(|call| call.contains(text));
    holds("the second turn has the first prompt", knows("The keeper is called Ingrid. Remember it."))?;
    holds("the second turn has the first answer", knows("I will remember the keeper's name."))?;
    let counted = context.tap.tokens();
    let of_second =
        ModelTokens { input: counted.input - counted_before.input, output: counted.output - counted_before.output };
    equal("the usage of the second turn alone", reported(&second), of_second)
}

/// A client without session support sends the whole history. The CLI receives the new prompt and remembers the rest.
pub(super) fn memory(context: &CaseContext<'_>) -> Result<()> {
    let (prompt, question) = ("The lamp is called Berta. Remember it.", "What is the lamp called?");
    let first = context.ask(prompt)?;
    let answer = content(&first)?;
    equal("the first answer", answer.as_str(), "I will remember the lamp's name.")?;
    let calls_before = context.tap.calls().len();

    let second = context.ask_after(&[(prompt, answer.as_str())], question)?;
    equal("the second answer", content(&second)?.as_str(), "It is called as you said.")?;
    let session = &second.json()["trunkline"]["session"];
    equal("how the session was found", session["how"].as_str(), Some("history"))?;
    let calls = context.tap.calls();
    let of_second = calls.get(calls_before..).context("fewer calls than before")?;
    let knows = |text: &str| of_second.iter().any(|call| call.contains(text));
    holds("the second turn has the first prompt", knows(prompt))?;
    holds("the second turn has the first answer", knows(&answer))?;
    holds(
        "the history comes from the CLI, not from the prompt",
        !knows(&format!("[Assistant]\n{answer}")) && !knows("[User]\n"),
    )
}

pub(super) fn instructions(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.ask("Which rules hold here?")?;
    equal("the answer", content(&reply)?.as_str(), "Those of this repository.")?;
    holds("the model receives the text of AGENTS.md", context.tap.received(INSTRUCTIONS))
}

pub(super) fn long_prompt(context: &CaseContext<'_>) -> Result<()> {
    let mut prompt = String::from("The logbook begins.\n");
    let mut line = 0;
    while prompt.len() < 300_000 {
        line += 1;
        prompt += &format!("{line:05} wind from the west, nothing in sight, lamp trimmed at dusk\n");
    }
    prompt += "And this is where the logbook ends.";
    let reply = context.ask(&prompt)?;
    equal("the answer", content(&reply)?.as_str(), "I have read the whole logbook.")?;
    holds("the model receives every line", context.tap.received(&prompt))
}

pub(super) fn unicode(context: &CaseContext<'_>) -> Result<()> {
    let prompt =
        "Greet everyone: 🚀 👨‍👩‍👧 漢字 ไทย مرحبا שלום o\u{308} Ł \u{1d11e} \u{200f}‏ «guillemets» <b>&amp;</b> \\n";
    let reply = context.ask(prompt)?;
    let expected = "😀 👩‍👩‍👧‍👦 日本語 한국어 العربية עברית e\u{301} ñ \u{1d11e} “quoted” \\ <tag> & done";
    equal("the answer", content(&reply)?.as_str(), expected)?;
    holds("the model receives the same characters", context.tap.received(prompt))
}

/// A turn with a tool: usage is the sum of two calls of the model.
pub(super) fn usage(context: &CaseContext<'_>) -> Result<()> {
    let reply = context.ask("Count the gulls.")?;
    equal("the answer", content(&reply)?.as_str(), "There are seventeen gulls.")?;
    equal("calls of the model", context.tap.calls().len(), 2)?;
    holds("usage is not estimated", reply.json()["usage_estimated"].is_null())?;
    equal("the usage", reported(&reply), context.tap.tokens())
}

fn reported(reply: &HttpMessage) -> ModelTokens {
    let usage = &reply.json()["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    ModelTokens { input: count("prompt_tokens"), output: count("completion_tokens") }
}
