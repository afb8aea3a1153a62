//! Context of a running case: requests to its model, its tap, a transcript for failures, and assertions.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::cases::ConformanceCase;
use super::environment::TrunklineChild;
use super::http::{HttpMessage, SentHttpRequest};
use super::tap::{Tap, TappedCall};
use super::world::{ConformanceWorld, KEYS};

pub(crate) struct CaseContext<'a> {
    pub(crate) world: &'a ConformanceWorld,
    pub(crate) case: &'static ConformanceCase,
    pub(crate) tap: Tap,
    /// In the environment of every process that this case starts.
    pub(crate) marker: String,
    /// Requests and replies, for the report of a failure.
    transcript: Mutex<Vec<String>>,
}

/// Maximum length of a text in a report.
const MAX_SHOWN_CHARS: usize = 4_000;

impl<'a> CaseContext<'a> {
    pub(crate) fn new(world: &'a ConformanceWorld, case: &'static ConformanceCase, tap: Tap, marker: String) -> Self {
        Self { world, case, tap, marker, transcript: Mutex::default() }
    }

    pub(crate) fn repo(&self) -> &Path {
        self.world.repo(self.case)
    }

    /// Requests one whole answer.
    pub(crate) fn ask(&self, prompt: &str) -> Result<HttpMessage> {
        self.send(prompt, &json!({}), &[])?.reply().inspect(|reply| self.note_reply(reply))
    }

    /// Requests one whole answer within a session.
    pub(crate) fn ask_in(&self, session: &str, prompt: &str) -> Result<HttpMessage> {
        let pending = self.send(prompt, &json!({}), &[("x-trunkline-session", session)])?;
        pending.reply().inspect(|reply| self.note_reply(reply))
    }

    /// Requests one whole answer with this API key, with or without a session.
    pub(crate) fn ask_as(&self, key: &str, session: Option<&str>, prompt: &str) -> Result<HttpMessage> {
        let mut headers = vec![("x-api-key", key)];
        headers.extend(session.map(|session| ("x-trunkline-session", session)));
        self.send(prompt, &json!({}), &headers)?.reply().inspect(|reply| self.note_reply(reply))
    }

    /// The processes that served the turns of this case, in order.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let log = self.world.gateway.log();
        let model = format!("model=\"{}\"", self.case.name);
        let mine = log.lines().filter(|line| line.contains(" started run=") && line.contains(&model));
        mine.filter_map(|line| line.split_once(" pid=")?.1.split(' ').next()?.parse().ok()).collect()
    }

    /// Requests one whole answer, with a history of prompts and answers in the request.
    pub(crate) fn ask_after(&self, history: &[(&str, &str)], prompt: &str) -> Result<HttpMessage> {
        let before = history.iter().flat_map(|(prompt, answer)| {
            [json!({"role": "user", "content": prompt}), json!({"role": "assistant", "content": answer})]
        });
        let messages: Vec<Value> = before.chain([json!({"role": "user", "content": prompt})]).collect();
        let pending = self.send(prompt, &json!({"messages": messages}), &[])?;
        pending.reply().inspect(|reply| self.note_reply(reply))
    }

    /// Requests one streamed answer and reads it to its end.
    pub(crate) fn stream(&self, prompt: &str) -> Result<HttpMessage> {
        self.begin_stream(prompt)?.reply().inspect(|reply| self.note_reply(reply))
    }

    pub(crate) fn begin_stream(&self, prompt: &str) -> Result<SentHttpRequest> {
        self.send(prompt, &json!({"stream": true, "stream_options": {"include_usage": true}}), &[])
    }

    /// Requests one whole answer with these messages and other members of the request.
    pub(crate) fn request(&self, members: &Value) -> Result<HttpMessage> {
        self.send("", members, &[])?.reply().inspect(|reply| self.note_reply(reply))
    }

    /// As [`request`](Self::request), to a gateway of this case.
    pub(crate) fn request_at(&self, gateway: &TrunklineChild, members: &Value) -> Result<HttpMessage> {
        let pending = self.send_to(gateway.address, "", members, &[])?;
        pending.reply().inspect(|reply| self.note_reply(reply))
    }

    /// Starts a gateway for this case alone. It finds the state that an earlier one has left.
    pub(crate) fn own_gateway(&self) -> Result<TrunklineChild> {
        self.world.own_gateway(self.case, &self.tap, &self.own_marker())
    }

    /// In the environment of every process that a gateway of this case starts.
    pub(crate) fn own_marker(&self) -> String {
        format!("{}-own", self.marker)
    }

    fn send(&self, prompt: &str, more: &Value, headers: &[(&str, &str)]) -> Result<SentHttpRequest> {
        self.send_to(self.world.gateway.address, prompt, more, headers)
    }

    fn send_to(
        &self,
        gateway: SocketAddr,
        prompt: &str,
        more: &Value,
        headers: &[(&str, &str)],
    ) -> Result<SentHttpRequest> {
        let mut body = json!({"model": self.case.name, "messages": [{"role": "user", "content": prompt}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let body = body.to_string();
        let mut headers = headers.to_vec();
        if headers.iter().all(|(name, _)| *name != "x-api-key") {
            headers.push(("x-api-key", KEYS[0]));
        }
        self.note(format!("> POST /v1/chat/completions {headers:?}\n{}", truncate(&body)));
        SentHttpRequest::post(gateway, "/v1/chat/completions", &headers, &body)
    }

    fn note_reply(&self, reply: &HttpMessage) {
        self.note(format!("< {}\n\n{}", reply.head.replace('\r', ""), truncate(&reply.text())));
    }

    fn note(&self, text: String) {
        self.transcript.lock().expect("no thread panics").push(text);
    }

    /// Report of a failure: the requests and replies, the gateway's log lines of the runs, and the CLI's calls of the
    /// model.
    pub(crate) fn report(&self) -> String {
        let transcript = self.transcript.lock().expect("no thread panics").join("\n");
        let runs: Vec<&str> =
            transcript.split("\"run\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let log = self.world.gateway.log();
        let model = format!("model=\"{}\"", self.case.name);
        let mine = log.lines().filter(|line| line.contains(&model) || runs.iter().any(|run| line.contains(run)));
        let mine: Vec<&str> = mine.collect();
        let calls: Vec<String> = self.tap.calls().iter().map(describe).collect();
        format!(
            "{transcript}\n--- the gateway's log\n{}\n--- calls of the model\n{}",
            mine.join("\n"),
            calls.join("\n")
        )
    }
}

/// A call with the last message of its request, which contains the result of a tool.
fn describe(call: &TappedCall) -> String {
    let head = call.request.head.lines().next().unwrap_or_default();
    let request = call.request.json();
    let last = ["messages", "input", "contents"].iter().find_map(|name| request[*name].as_array()?.last());
    let last = last.map(Value::to_string).unwrap_or_default();
    format!("> {head}\n{}\n< {}\n{}", truncate(&last), call.reply.status(), truncate(&call.reply.text()))
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// The text of a complete answer; anything else is an error.
pub(crate) fn content(reply: &HttpMessage) -> Result<String> {
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

/// Fails unless both values are equal.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<()> {
    if actual != expected {
        bail!("{what}: expected {expected:?}, got {actual:?}");
    }
    Ok(())
}

/// Fails unless the condition is true.
pub(crate) fn holds(what: &str, condition: bool) -> Result<()> {
    if !condition {
        bail!("not true: {what}");
    }
    Ok(())
}
