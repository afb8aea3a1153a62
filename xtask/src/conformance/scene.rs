//! What a case has in hand: its model behind the gateway, its tap, and a record of what was said for when it fails.

use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cases::Case;
use super::http::{Message, Pending};
use super::tap::{Call, Tap};
use super::world::{KEYS, World};

pub(crate) struct Scene<'a> {
    pub(crate) world: &'a World,
    pub(crate) case: &'static Case,
    pub(crate) tap: Tap,
    /// In the environment of all that this case starts.
    pub(crate) marker: String,
    said: Mutex<Vec<String>>,
}

/// How long a text in a report may be.
const SHOWN: usize = 4_000;

impl<'a> Scene<'a> {
    pub(crate) fn new(world: &'a World, case: &'static Case, tap: Tap, marker: String) -> Self {
        Self { world, case, tap, marker, said: Mutex::default() }
    }

    pub(crate) fn repo(&self) -> &Path {
        self.world.repo(self.case)
    }

    /// One whole answer.
    pub(crate) fn ask(&self, prompt: &str) -> Result<Message> {
        self.send(prompt, &json!({}), &[])?.reply().inspect(|reply| self.note_reply(reply))
    }

    /// One whole answer within a session.
    pub(crate) fn ask_in(&self, session: &str, prompt: &str) -> Result<Message> {
        let pending = self.send(prompt, &json!({}), &[("x-trunkline-session", session)])?;
        pending.reply().inspect(|reply| self.note_reply(reply))
    }

    /// One whole answer to who has this key, in a session or not.
    pub(crate) fn ask_as(&self, key: &str, session: Option<&str>, prompt: &str) -> Result<Message> {
        let mut headers = vec![("x-api-key", key)];
        headers.extend(session.map(|session| ("x-trunkline-session", session)));
        self.send(prompt, &json!({}), &headers)?.reply().inspect(|reply| self.note_reply(reply))
    }

    /// The processes that had the turns of this case, in their order.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let log = self.world.gateway.log();
        let model = format!("model=\"{}\"", self.case.name);
        let mine = log.lines().filter(|line| line.contains(" started run=") && line.contains(&model));
        mine.filter_map(|line| line.split_once(" pid=")?.1.split(' ').next()?.parse().ok()).collect()
    }

    /// One whole answer to a request that brings its history along: prompts and their answers.
    pub(crate) fn ask_after(&self, history: &[(&str, &str)], prompt: &str) -> Result<Message> {
        let before = history.iter().flat_map(|(prompt, answer)| {
            [json!({"role": "user", "content": prompt}), json!({"role": "assistant", "content": answer})]
        });
        let messages: Vec<Value> = before.chain([json!({"role": "user", "content": prompt})]).collect();
        let pending = self.send(prompt, &json!({"messages": messages}), &[])?;
        pending.reply().inspect(|reply| self.note_reply(reply))
    }

    /// One streamed answer, to its end.
    pub(crate) fn stream(&self, prompt: &str) -> Result<Message> {
        self.begin_stream(prompt)?.reply().inspect(|reply| self.note_reply(reply))
    }

    pub(crate) fn begin_stream(&self, prompt: &str) -> Result<Pending> {
        self.send(prompt, &json!({"stream": true, "stream_options": {"include_usage": true}}), &[])
    }

    fn send(&self, prompt: &str, more: &Value, headers: &[(&str, &str)]) -> Result<Pending> {
        let mut body = json!({"model": self.case.name, "messages": [{"role": "user", "content": prompt}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let body = body.to_string();
        let mut headers = headers.to_vec();
        if headers.iter().all(|(name, _)| *name != "x-api-key") {
            headers.push(("x-api-key", KEYS[0]));
        }
        self.note(format!("> POST /v1/chat/completions {headers:?}\n{}", cut(&body)));
        Pending::post(self.world.gateway.address, "/v1/chat/completions", &headers, &body)
    }

    fn note_reply(&self, reply: &Message) {
        self.note(format!("< {}\n\n{}", reply.head.replace('\r', ""), cut(&reply.text())));
    }

    fn note(&self, text: String) {
        self.said.lock().expect("nobody panics with it").push(text);
    }

    /// All that is known about how this went: the requests and replies, the gateway's log lines of its runs, and what
    /// the CLI asked of the model and was told.
    pub(crate) fn report(&self) -> String {
        let said = self.said.lock().expect("nobody panics with it").join("\n");
        let runs: Vec<&str> = said.split("\"run\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let log = self.world.gateway.log();
        let model = format!("model=\"{}\"", self.case.name);
        let mine = log.lines().filter(|line| line.contains(&model) || runs.iter().any(|run| line.contains(run)));
        let mine: Vec<&str> = mine.collect();
        let calls: Vec<String> = self.tap.calls().iter().map(shown).collect();
        format!("{said}\n--- the gateway's log\n{}\n--- calls of the model\n{}", mine.join("\n"), calls.join("\n"))
    }
}

/// A call, with the last message of the request: what came of a tool is there.
fn shown(call: &Call) -> String {
    let head = call.asked.head.lines().next().unwrap_or_default();
    let asked = call.asked.json();
    let said = ["messages", "input", "contents"].iter().find_map(|name| asked[*name].as_array()?.last());
    let said = said.map(Value::to_string).unwrap_or_default();
    format!("> {head}\n{}\n< {}\n{}", cut(&said), call.answered.status(), cut(&call.answered.text()))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// The text of a whole answer, which must be one.
pub(crate) fn content(reply: &Message) -> Result<String> {
    let body = reply.json();
    if reply.status() != 200 {
        bail!("status {}: {}", reply.status(), body["error"]);
    }
    let choice = &body["choices"][0];
    if choice["finish_reason"] != "stop" {
        bail!("finish_reason is {}", choice["finish_reason"]);
    }
    Ok(choice["message"]["content"].as_str().context("an answer without content")?.to_owned())
}

pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<()> {
    if actual != expected {
        bail!("{what}: expected {expected:?}, got {actual:?}");
    }
    Ok(())
}

pub(crate) fn holds(what: &str, is_so: bool) -> Result<()> {
    if !is_so {
        bail!("it does not hold that {what}");
    }
    Ok(())
}
