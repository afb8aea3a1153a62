//! Calls of one process that wait for results of the client.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::event::{Answer, Event, Finish, ToolCall, Usage};
use trunkline_core::live::{CallKey, ClientCall, ToolServer};

use super::ClientTools;
use super::ports::{OwnedPort, PortCall};

/// Maximum number of calls that wait at the same time.
const MAX_WAITING: usize = 128;

/// Time to wait for a call that the output has shown, in addition to the settle time. On a loaded machine a call comes late.
const SHOWN_CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum size of the arguments of a call.
const MAX_ARGUMENT_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of the text before a call that is repeated in the answer.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// The client's tools in a process, and the calls that wait for results.
pub(crate) struct ToolExchange {
    tools: Arc<ClientTools>,
    /// Port of a process that calls through an MCP server.
    port: Option<OwnedPort>,
    /// Time without output or calls after which all calls of a model response have come.
    settle_time: Duration,
    waiting: Vec<WaitingCall>,
    /// Number of waiting calls, from the first, that the client knows.
    announced: usize,
    /// Time at which the calls that have arrived are all that come.
    settled_at: Option<Instant>,
    /// Text since the turn began, or since the last call.
    text: String,
    /// Ids of the client's tools in the output of the process.
    hidden: HashSet<String>,
    /// Tools of the provider itself whose names are shown without decoration.
    own_names: Vec<&'static str>,
    /// Whether the model has called a tool in this turn.
    called: bool,
    /// Whether the model was reminded that it has to call a tool.
    reminded: bool,
    /// Number of calls that the output has shown and not ended since the client's last results.
    shown: usize,
    /// Tokens that were reported for the turn so far.
    pub(crate) reported: Usage,
}

/// A call that waits for its result.
pub(crate) struct WaitingCall {
    pub(crate) call: ToolCall,
    way_back: WayBack,
}

enum WayBack {
    Stdio(CallKey),
    Port(oneshot::Sender<Result<String, String>>),
}

/// An answer that has to be written to the stdin of the process.
pub(crate) struct StdioAnswer {
    pub(crate) key: CallKey,
    pub(crate) result: Result<String, String>,
}

impl ToolExchange {
    pub(crate) fn new(tools: Arc<ClientTools>, port: Option<OwnedPort>, settle_time: Duration) -> Self {
        Self {
            tools,
            port,
            settle_time,
            waiting: Vec::new(),
            announced: 0,
            settled_at: None,
            text: String::new(),
            hidden: HashSet::new(),
            own_names: Vec::new(),
            called: false,
            reminded: false,
            shown: 0,
            reported: Usage::default(),
        }
    }

    /// Keeps the provider's own tools apart from tools of the client with the same names.
    pub(crate) fn beside(self, own_names: Vec<&'static str>) -> Self {
        Self { own_names, ..self }
    }

    /// The MCP server for the process, if it needs one.
    pub(crate) fn server(&self, url: &str) -> Option<ToolServer> {
        self.port.as_ref().map(|port| ToolServer { url: url.to_owned(), token: port.token.clone() })
    }

    pub(crate) fn tools(&self) -> &ClientTools {
        &self.tools
    }

    /// Prepares for another turn of the same process.
    pub(crate) fn begin_turn(&mut self, tools: Arc<ClientTools>) {
        self.tools = tools;
        self.text.clear();
        (self.called, self.reminded) = (false, false);
        self.shown = 0;
        self.reported = Usage::default();
    }

    /// Whether the model has ended its turn without a call that the client requires.
    pub(crate) fn lacks_call(&self) -> bool {
        self.tools.is_required() && !self.called
    }

    /// Returns the reminder for a model that has not called a tool. None if it had one already.
    pub(crate) fn remind(&mut self) -> Option<String> {
        (self.lacks_call() && !std::mem::replace(&mut self.reminded, true)).then(|| self.tools.instruction())?
    }

    /// The next call through the MCP server. Cancel safe.
    pub(crate) async fn next_call(&mut self) -> PortCall {
        match &mut self.port {
            Some(port) => match port.calls.recv().await {
                Some(call) => call,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Takes a call that came through the MCP server.
    pub(crate) fn take_port_call(&mut self, call: PortCall) {
        // A refusal needs no way back to stdin.
        let _ = self.add(&call.name, call.arguments, WayBack::Port(call.reply));
    }

    /// Takes a call that came over stdio. Returns the answer to write if it is refused.
    pub(crate) fn take_stdio_call(&mut self, call: ClientCall) -> Option<StdioAnswer> {
        self.add(&call.name, call.arguments, WayBack::Stdio(call.key))
    }

    fn add(&mut self, offered: &str, arguments: String, way_back: WayBack) -> Option<StdioAnswer> {
        let Some(name) = self.tools.client_name(offered).map(str::to_owned) else {
            return refuse(way_back, format!("there is no tool {offered}"));
        };
        if self.waiting.len() >= MAX_WAITING {
            return refuse(way_back, format!("{MAX_WAITING} calls are waiting for results; call fewer tools at once"));
        }
        if arguments.len() > MAX_ARGUMENT_BYTES {
            return refuse(way_back, format!("the arguments exceed {MAX_ARGUMENT_BYTES} bytes"));
        }
        let id = format!("call_{}", uuid::Uuid::new_v4().simple());
        let arguments = self.tools.arguments(offered, arguments);
        self.waiting.push(WaitingCall { call: ToolCall { id, name, arguments }, way_back });
        self.settled_at = Some(Instant::now() + self.settle_time);
        None
    }

    /// Removes the client's tools from the events of the process, which are reported as calls, and notes the rest.
    pub(crate) fn filter(&mut self, events: &mut Vec<Event>) {
        if let Some(settled_at) = &mut self.settled_at {
            *settled_at = Instant::now() + self.settle_time;
        }
        events.retain(|event| match event {
            Event::ToolStarted { id, name, .. }
                if !self.own_names.contains(&name.as_str()) && self.tools.is_name_in_output(name) =>
            {
                self.shown += usize::from(self.hidden.insert(id.clone()));
                false
            }
            Event::ToolFinished { id, .. } => {
                let is_clients = self.hidden.remove(id);
                self.shown = self.shown.saturating_sub(usize::from(is_clients));
                !is_clients
            }
            Event::ToolStarted { .. } => {
                self.text.clear();
                true
            }
            Event::Text { delta } => {
                if self.text.len() + delta.len() <= MAX_TEXT_BYTES {
                    self.text.push_str(delta);
                }
                true
            }
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_)
            | Event::Finished(_)
            | Event::Failed(_) => true,
        });
    }

    /// Time at which the run may end with the calls that wait. `None` if no call waits.
    pub(crate) fn settled_at(&self) -> Option<Instant> {
        let settled_at = self.settled_at.filter(|_| !self.waiting.is_empty())?;
        // Without a settle time, the process makes one call at a time.
        let more_will_come = self.shown > self.waiting.len() && !self.settle_time.is_zero();
        Some(if more_will_come { settled_at + SHOWN_CALL_TIMEOUT } else { settled_at })
    }

    /// The events with which the run ends: its calls, and an answer that consists of them.
    pub(crate) fn calls(&mut self, prompt: &str) -> Vec<Event> {
        self.settled_at = None;
        self.called = true;
        self.announced = if self.tools.one_at_a_time() { 1 } else { self.waiting.len() };
        let calls: Vec<ToolCall> =
            self.waiting.iter().take(self.announced).map(|waiting| waiting.call.clone()).collect();
        let mut events: Vec<Event> = (0..)
            .zip(&calls)
            .map(|(index, call)| Event::ToolCall {
                index,
                id: Some(call.id.clone()),
                name: Some(call.name.clone()),
                arguments: call.arguments.clone(),
            })
            .collect();
        let text = std::mem::take(&mut self.text);
        let output: usize = calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
        // The prompt counts once in a turn, however often the turn stops for results.
        let prompt = if self.reported == Usage::default() { prompt } else { "" };
        let usage = Usage::estimate(prompt, &format!("{text}{}", " ".repeat(output)));
        self.reported = self.reported.plus(usage);
        events.push(Event::Finished(Answer { calls, ..Answer::new(text, usage, Finish::ToolCalls) }));
        events
    }

    /// Answers the calls that the client knows. `results` returns the result of a call by its id. Returns the answers to write to stdin.
    pub(crate) fn answer(&mut self, results: impl Fn(&str) -> Result<String, String>) -> Vec<StdioAnswer> {
        let answer = |WaitingCall { call, way_back }| {
            let result = results(&call.id);
            match way_back {
                WayBack::Stdio(key) => Some(StdioAnswer { key, result }),
                WayBack::Port(reply) => {
                    // The process may have given up waiting.
                    let _ = reply.send(result);
                    None
                }
            }
        };
        self.shown = 0;
        let answered = self.waiting.drain(..std::mem::take(&mut self.announced)).filter_map(answer).collect();
        if !self.waiting.is_empty() {
            self.settled_at = Some(Instant::now());
        }
        answered
    }
}

fn refuse(way_back: WayBack, reason: String) -> Option<StdioAnswer> {
    match way_back {
        WayBack::Stdio(key) => Some(StdioAnswer { key, result: Err(reason) }),
        WayBack::Port(reply) => {
            let _ = reply.send(Err(reason));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trunkline_core::turn::Options;

    use super::*;
    use crate::tools::ToolPorts;

    fn exchange(settle_time: Duration) -> ToolExchange {
        let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
        let tools = ClientTools::of(&Options { tools: Some((&tools).into()), ..Options::default() }).unwrap().unwrap();
        let port = ToolPorts::default().open(&tools);
        ToolExchange::new(tools, Some(port), settle_time)
    }

    fn call(exchange: &mut ToolExchange) -> oneshot::Receiver<Result<String, String>> {
        let (reply, result) = oneshot::channel();
        exchange.take_port_call(PortCall { name: "weather".into(), arguments: "{}".into(), reply });
        result
    }

    fn shown(id: &str) -> Event {
        Event::ToolStarted { id: id.into(), name: "mcp__client__weather".into(), input: Value::Null }
    }

    #[test]
    fn waits_longer_for_calls_that_the_output_has_shown() {
        let mut exchange = exchange(Duration::from_millis(50));
        let mut events = vec![shown("a"), shown("b")];
        exchange.filter(&mut events);
        assert_eq!((events.len(), exchange.settled_at()), (0, None));
        let _first = call(&mut exchange);
        assert!(exchange.settled_at().unwrap() > Instant::now() + Duration::from_secs(2));
        let _second = call(&mut exchange);
        assert!(exchange.settled_at().unwrap() < Instant::now() + Duration::from_secs(2));
    }

    #[test]
    fn refuses_calls_beyond_the_limit_and_of_other_tools() {
        let mut exchange = exchange(Duration::ZERO);
        let mut results: Vec<_> = (0..=MAX_WAITING).map(|_| call(&mut exchange)).collect();
        assert!(results.pop().unwrap().try_recv().unwrap().is_err());
        assert!(results.iter_mut().all(|result| result.try_recv().is_err()), "the others wait");
        let (reply, mut result) = oneshot::channel();
        exchange.take_port_call(PortCall { name: "shell".into(), arguments: "{}".into(), reply });
        assert!(result.try_recv().unwrap().unwrap_err().contains("shell"));
    }

    #[test]
    fn answers_only_calls_that_the_client_knows() {
        let mut exchange = exchange(Duration::ZERO);
        let mut first = call(&mut exchange);
        exchange.calls("prompt");
        let mut late = call(&mut exchange);
        exchange.answer(|_| Ok("sun".to_owned()));
        assert_eq!(first.try_recv().unwrap(), Ok("sun".to_owned()));
        assert!(late.try_recv().is_err() && exchange.settled_at().is_some());
    }
}
