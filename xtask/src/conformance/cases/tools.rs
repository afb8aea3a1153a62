//! Cases about tools of the client: the CLI calls them, the answer ends with the calls, and the next request continues the
//! same turn with the results.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::conversation::{Conversation, started, tool, user, weather};
use crate::conformance::clis::{ClientCalls, LargeResult};
use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::http::SentHttpRequest;
use crate::conformance::observe::{MarkedProcess, exists, processes, wait_until};
use crate::conformance::world::{ConformanceMode, KEYS};

/// Limit for the processes of a cancelled run to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn one_call(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Look at the sky over Bergen.")?;
    let call = talk.call()?;
    call.is("weather", &json!({"city": "Bergen"}))?;
    let result = "{\"sky\": \"rain\",\n \"wind\": \"<7 & rising>\"}";
    talk.give(&call, result);
    talk.ends("It rains in Bergen.", 2)?;
    talk.model_receives(result)
}

pub(super) fn two_calls(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Compare the sky over two towns.")?;
    let expected = [("Bergen", "rain over Bergen"), ("Oslo", "snow over Oslo")];
    let mut calls = talk.calls()?;
    // A CLI that makes calls at the same time makes them in any order.
    calls.sort_by_key(|call| call.arguments["city"].to_string());
    for (index, (city, result)) in expected.iter().enumerate() {
        if context.world.cli.client_calls == ClientCalls::OneByOne && index > 0 {
            calls.extend(talk.calls()?);
        }
        let known = match context.world.cli.client_calls {
            ClientCalls::Together => expected.len(),
            ClientCalls::OneByOne => index + 1,
        };
        equal("calls so far", calls.len(), known)?;
        calls[index].is("weather", &json!({"city": city}))?;
        talk.give(&calls[index], result);
    }
    talk.ends("Rain here, snow there.", 2)?;
    expected.iter().try_for_each(|(_, result)| talk.model_receives(result))
}

pub(super) fn chained_calls(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Follow the storm.")?;
    for (index, city) in ["Bergen", "Oslo", "Narvik"].into_iter().enumerate() {
        let call = talk.call()?;
        call.is("weather", &json!({"city": city}))?;
        talk.check_model_calls(index + 1)?;
        talk.give(&call, &format!("the storm has left {city}"));
    }
    talk.ends("The storm is over.", 4)?;
    ["Bergen", "Narvik"].iter().try_for_each(|city| talk.model_receives(&format!("the storm has left {city}")))
}

pub(super) fn error_result(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Look at the sky over a closed station.")?;
    let call = talk.call()?;
    let result = "Error: station 17 is closed (code E_CLOSED)";
    talk.give(&call, result);
    talk.ends("The station is closed.", 2)?;
    talk.model_receives(result)
}

/// Most CLIs shorten so long a text for the model.
pub(super) fn large_result(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Read the whole weather record.")?;
    let call = talk.call()?;
    let lines: Vec<String> = (0..4_700).map(|line| format!("{line:05} wind from the west, nothing in sight")).collect();
    let result = lines.join("\n");
    holds("the result has 200 kB", result.len() > 200_000)?;
    talk.give(&call, &result);
    talk.ends("I have read the record.", 2)?;
    match context.world.cli.large_result {
        LargeResult::Whole => talk.model_receives(&result),
        LargeResult::Cut => [0, 4_699].into_iter().try_for_each(|line| talk.model_receives(&lines[line])),
        LargeResult::File => {
            let calls = context.tap.calls();
            let request = calls.last().context("no call of the model")?.request.text();
            let found = paths_in(&request).into_iter().any(|path| contains(&path, &result));
            holds("the model receives the path of a file with the whole result", found)
        }
    }
}

pub(super) fn many_tools(context: &CaseContext<'_>) -> Result<()> {
    let tools: Vec<Value> = (0..25).map(large_tool).collect();
    let mut talk = Conversation::new(context, json!(tools), "Use the seventeenth instrument.")?;
    let call = talk.call()?;
    call.is("instrument_17", &json!({"reading_17_0": "on"}))?;
    talk.give(&call, "instrument 17 is on");
    talk.ends("It is on.", 2)?;
    talk.model_receives("instrument 17 is on")?;
    let offered = talk.offered()?;
    let missing = (0..25).filter(|number| !offered.iter().any(|name| name.ends_with(&format!("instrument_{number}"))));
    equal("instruments that the model is not offered", missing.count(), 0)?;
    let request = context.tap.calls()[talk.calls_before].request.text();
    let missing = (0..25).filter(|number| !request.contains(&format!("reading_{number}_39")));
    equal("schemas that the model does not receive", missing.count(), 0)
}

/// A tool with a schema of about 6 kB.
fn large_tool(number: usize) -> Value {
    let property = |index: usize| {
        let description = format!("Reading {index} of instrument {number}: {}", "as the keeper wrote it. ".repeat(4));
        (format!("reading_{number}_{index}"), json!({"type": "string", "description": description}))
    };
    let properties: serde_json::Map<String, Value> = (0..40).map(property).collect();
    tool(&format!("instrument_{number}"), &json!({"type": "object", "properties": properties}))
}

/// CLIs are offered names that all of them accept: the script calls the tools by those.
pub(super) fn names(context: &CaseContext<'_>) -> Result<()> {
    let long = "n".repeat(64);
    let schema = json!({"type": "object", "properties": {"of": {"type": "string"}}});
    let tools = json!([tool("harbour.tide.next", &schema), tool(&long, &schema)]);
    let mut talk = Conversation::new(context, tools, "When does the tide turn?")?;
    for (name, of) in [("harbour.tide.next", "today"), (long.as_str(), "tomorrow")] {
        let call = talk.call()?;
        call.is(name, &json!({"of": of}))?;
        talk.give(&call, &format!("the tide of {of}"));
    }
    talk.ends("The tide turns at noon.", 3)?;
    talk.model_receives("the tide of tomorrow")
}

pub(super) fn unicode(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Look at the sky over every town.")?;
    let call = talk.call()?;
    call.is("weather", &json!({"city": "Köln Åß 👨‍👩‍👧 🚀 漢字 한국 \u{1d11e} \"quoted\" \\ </end>\n\ttab"}))?;
    let result = "Grüße 👩‍👩‍👧‍👦 日本語 العربية e\u{301} \u{1d11e} “so” \\ <tag> & \ttab";
    talk.give(&call, result);
    talk.ends("The sky is 青い.", 2)?;
    talk.model_receives(result)
}

pub(super) fn choice_none(context: &CaseContext<'_>) -> Result<()> {
    let messages = user("Do not look at the sky.");
    let reply = context.request(&json!({"tools": weather(), "tool_choice": "none", "messages": messages}))?;
    equal("the answer", content(&reply)?.as_str(), "I do not look.")?;
    for call in context.tap.calls() {
        holds("the model is not offered the tool", !call.request.text().contains("weather"))?;
    }
    Ok(())
}

pub(super) fn cancel_parked(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Look at the sky and wait.")?;
    let reply = talk.ask()?;
    let run = reply.json()["trunkline"]["run"].as_str().context("no run")?.to_owned();
    talk.messages.clear();
    let pid = *started(context).last().context("no process was started")?;
    let is_it = |process: &MarkedProcess| process.pid == pid;
    let parked = processes(&context.marker).into_iter().find(is_it).context("the process has ended")?;
    equal("the state of the run", state(context, &run)?.as_deref(), Some("parked"))?;
    let path = format!("/v1/runs/{run}");
    let cancelled =
        SentHttpRequest::delete(context.world.gateway.address, &path, &[("x-api-key", KEYS[0])])?.reply()?;
    equal("the status of DELETE", cancelled.status(), 200)?;
    wait_until(STOP_TIMEOUT, "the process has ended", || (!exists(&parked)).then_some(()))?;
    if context.world.mode == ConformanceMode::Cold {
        wait_until(STOP_TIMEOUT, "no process is left", || processes(&context.marker).is_empty().then_some(()))?;
    }
    let after = state(context, &run)?;
    holds(&format!("the run is parked no longer, but {after:?}"), after.as_deref() != Some("parked"))
}

/// State of a run in the list of runs.
fn state(context: &CaseContext<'_>, run: &str) -> Result<Option<String>> {
    let list = SentHttpRequest::get(context.world.gateway.address, "/v1/runs", &[("x-api-key", KEYS[0])])?.reply()?;
    let list = list.json();
    let found = list["data"].as_array().into_iter().flatten().find(|entry| entry["id"] == run);
    Ok(found.and_then(|entry| entry["state"].as_str().map(str::to_owned)))
}

pub(super) fn split_results(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Compare the sky over two towns.")?;
    let calls = talk.calls()?;
    equal("calls in the answer", calls.len(), 2)?;
    talk.give(&calls[1], "snow over Oslo");
    let refused = talk.ask()?;
    equal("the status without the first result", refused.status(), 400)?;
    let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    holds(&format!("the missing call is named: {message}"), message.contains(&calls[0].id))?;
    holds(&format!("the other call is not named: {message}"), !message.contains(&calls[1].id))?;
    talk.messages.pop();
    talk.give(&calls[0], "rain over Bergen");
    talk.ends("Rain here, snow there.", 2)?;
    ["rain over Bergen", "snow over Oslo"].iter().try_for_each(|result| talk.model_receives(result))
}

/// The model calls the shell nevertheless, then a tool of the client.
pub(super) fn own_tools_off(context: &CaseContext<'_>) -> Result<()> {
    let mut talk = Conversation::new(context, weather(), "Try the shell, then look at the sky.")?;
    let call = talk.call()?;
    call.is("weather", &json!({"city": "Bergen"}))?;
    talk.give(&call, "rain");
    talk.ends("Only the sky is left.", 3)?;
    talk.model_receives("rain")?;
    holds("the command did not run", !context.repo().join("ran-by-model.txt").exists())?;
    let mut offered = talk.offered()?;
    offered.retain(|name| !name.ends_with("weather"));
    let left = context.world.cli.own_tools_left.iter().map(|name| (*name).to_owned()).collect();
    equal("tools that are not the client's", offered, left)
}

/// Absolute paths in a text.
fn paths_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`<>()\\,".contains(c));
    let paths = words.filter_map(|word| Some(word[word.find('/')?..].trim_end_matches(['.', ':']).to_owned()));
    paths.filter(|path| path.len() > 1).collect()
}

/// Whether a file contains this text, as it is or as a JSON string.
fn contains(path: &str, text: &str) -> bool {
    let Ok(found) = fs::read_to_string(Path::new(path)) else { return false };
    let quoted = json!(text).to_string();
    found.contains(text) || found.contains(quoted.trim_matches('"'))
}
