//! Conversation of a client that offers tools, and the processes that it runs on.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::http::HttpMessage;
use crate::conformance::observe::{processes, wait_until};
use crate::conformance::world::ConformanceMode;

/// Limit for a process to be ready for the next conversation.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A conversation of a client that offers tools.
pub(super) struct Conversation<'a> {
    pub(super) context: &'a CaseContext<'a>,
    pub(super) tools: Value,
    pub(super) messages: Vec<Value>,
    /// Members of each request in addition to the messages and the tools.
    pub(super) members: Value,
    /// Calls of the model before the conversation.
    pub(super) calls_before: usize,
}

/// Call of a client tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
}

impl<'a> Conversation<'a> {
    /// In warm mode the conversation must run on a process that is ready for it.
    pub(super) fn new(context: &'a CaseContext<'a>, tools: Value, prompt: &str) -> Result<Self> {
        if context.world.mode == ConformanceMode::Warm {
            let earlier = context.request(&json!({"tools": tools, "messages": user("Only nod.")}))?;
            equal("the answer before the case", content(&earlier)?.as_str(), "I nod.")?;
            wait_until(READY_TIMEOUT, "a process is ready", || (!ready(context).is_empty()).then_some(()))?;
        }
        Ok(Self::cold(context, tools, prompt))
    }

    /// A conversation on whatever process the gateway uses for it.
    pub(super) fn cold(context: &'a CaseContext<'a>, tools: Value, prompt: &str) -> Self {
        let calls_before = context.tap.calls().len();
        Self { context, tools, messages: user(prompt), members: json!({}), calls_before }
    }

    pub(super) fn with(mut self, members: Value) -> Self {
        self.members = members;
        self
    }

    pub(super) fn ask(&self) -> Result<HttpMessage> {
        self.context.request(&self.request())
    }

    /// Members of the next request.
    pub(super) fn request(&self) -> Value {
        let mut request = json!({"tools": self.tools, "messages": self.messages});
        for (name, value) in self.members.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        request
    }

    /// Asks, and returns the calls with which the answer ends.
    pub(super) fn calls(&mut self) -> Result<Vec<ClientToolCall>> {
        let reply = self.ask()?;
        self.calls_of(&reply)
    }

    /// The calls with which an answer ends.
    pub(super) fn calls_of(&mut self, reply: &HttpMessage) -> Result<Vec<ClientToolCall>> {
        let body = reply.json();
        let choice = &body["choices"][0];
        if choice["finish_reason"] != "tool_calls" {
            bail!("status {}, finish_reason {}: {}", reply.status(), choice["finish_reason"], reply.text());
        }
        self.messages.push(choice["message"].clone());
        let calls = choice["message"]["tool_calls"].as_array().context("no calls")?;
        calls.iter().map(ClientToolCall::read).collect()
    }

    /// The only call with which the answer ends.
    pub(super) fn call(&mut self) -> Result<ClientToolCall> {
        let mut calls = self.calls()?;
        equal("calls in the answer", calls.len(), 1)?;
        Ok(calls.remove(0))
    }

    pub(super) fn give(&mut self, call: &ClientToolCall, result: &str) {
        self.messages.push(json!({"role": "tool", "tool_call_id": call.id, "content": result}));
    }

    /// Asks for the end of the turn: its text, after this number of calls of the model, in the process of the first one.
    pub(super) fn ends(&self, text: &str, model_calls: usize) -> Result<()> {
        equal("the answer", content(&self.ask()?)?.as_str(), text)?;
        self.check_model_calls(model_calls)?;
        let started = started(self.context);
        match self.context.world.mode {
            ConformanceMode::Cold => equal("processes of the conversation", started.len(), 1),
            ConformanceMode::Warm => {
                equal("processes of both conversations", started.len(), 2)?;
                holds("the process was ready before", ready(self.context).contains(&started[1]))
            }
        }
    }

    /// Fails unless the model was called this number of times. Qwen Code may make one more call on its own, with the same tools.
    pub(super) fn check_model_calls(&self, expected: usize) -> Result<()> {
        let (calls, more) = (self.model_calls(), usize::from(self.context.world.cli.name == "qwen"));
        holds(&format!("the model was called {expected} times: {calls}"), (expected..=expected + more).contains(&calls))
    }

    pub(super) fn model_calls(&self) -> usize {
        // Calls that a CLI makes on its own, such as for a title, offer no tools.
        let calls = self.context.tap.calls();
        calls[self.calls_before..].iter().filter(|call| !call.tools().is_empty()).count()
    }

    /// Fails unless the last request to the model contains the text of a result.
    pub(super) fn model_receives(&self, result: &str) -> Result<()> {
        let calls = self.context.tap.calls();
        holds("the model receives the result", calls.last().is_some_and(|call| call.contains(result)))
    }

    /// Names of the tools in the first request to the model.
    pub(super) fn offered(&self) -> Result<BTreeSet<String>> {
        let calls = self.context.tap.calls();
        Ok(calls.get(self.calls_before).context("no call of the model")?.tools())
    }
}

impl ClientToolCall {
    pub(super) fn read(call: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("no text in {call}"));
        let function = &call["function"];
        let arguments = serde_json::from_str(&text(&function["arguments"])?)?;
        Ok(Self { id: text(&call["id"])?, name: text(&function["name"])?, arguments })
    }

    /// Fails unless this is a call of `name` with these arguments.
    pub(super) fn is(&self, name: &str, arguments: &Value) -> Result<()> {
        equal("the call", (self.name.as_str(), &self.arguments), (name, arguments))
    }
}

pub(super) fn weather() -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!([tool("weather", &schema)])
}

pub(super) fn tool(name: &str, schema: &Value) -> Value {
    let function = json!({"name": name, "description": "An instrument of the client.", "parameters": schema});
    json!({"type": "function", "function": function})
}

pub(super) fn user(prompt: &str) -> Vec<Value> {
    vec![json!({"role": "user", "content": prompt})]
}

/// Processes that conversations of this case were started on, in order.
pub(super) fn started(context: &CaseContext<'_>) -> Vec<u32> {
    let model = format!("model=\"{}\"", context.case.name);
    pids(context, &["started with tools of the client", &model])
}

/// Processes of this case that were made ready before a conversation, whether they are used or not.
pub(super) fn ready(context: &CaseContext<'_>) -> Vec<u32> {
    let marked: Vec<u32> = processes(&context.marker).iter().map(|process| process.pid).collect();
    pids(context, &["warm process is ready"]).into_iter().filter(|pid| marked.contains(pid)).collect()
}

/// The processes in the lines of the gateway's log that contain these texts.
pub(super) fn pids(context: &CaseContext<'_>, texts: &[&str]) -> Vec<u32> {
    let log = context.world.gateway.log();
    let lines = log.lines().filter(|line| texts.iter().all(|text| line.contains(text)));
    lines.filter_map(|line| line.split_once(" pid=")?.1.split(' ').next()?.parse().ok()).collect()
}
