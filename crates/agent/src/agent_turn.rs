//! One turn of the agent: calls the model and runs its tool calls in the order that [`Steps`] decides, and reports both as
//! events.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trunkline_core::api::Api;
use trunkline_core::event::{Answer, Event, SessionId, ToolCall};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::prompt;
use trunkline_core::turn::{AnswerTiming, Message, Options, Role, Turn};
use trunkline_upstream::{Upstream, UpstreamTimeouts};
use trunkline_wire::upstream;

use crate::steps::{NextStep, Steps};
use crate::tools::{ToolOutcome, Toolbox};
use crate::transcript::AgentTranscript;
use crate::transcript_file::TranscriptFile;

/// Time limit of one answer: practically none. The caller limits the turn, and [`AgentConfig::silence`] limits pauses.
const MAX_ANSWER_DURATION: Duration = Duration::from_hours(24 * 365);

/// Model, tools and limits of an agent.
pub struct AgentConfig {
    pub upstream: Upstream,
    /// Service that runs the model.
    pub llm: Arc<Api>,
    /// Model name; `None` for the service's default.
    pub model: Option<String>,
    /// Maximum length of one message of the model.
    pub max_tokens: u64,
    /// System prompt.
    pub system: String,
    pub tools: Arc<Toolbox>,
    /// Maximum number of calls to the model.
    pub max_turns: Option<u32>,
    /// Longest pause in an answer of the model.
    pub silence: Duration,
}

/// A turn in progress. Dropping it stops a running tool and saves the messages so far.
pub struct AgentTurn {
    config: AgentConfig,
    /// The client's system messages. They are sent with every call, but not saved.
    instructions: Vec<Message>,
    steps: Steps,
    file: TranscriptFile,
    state: AgentTurnState,
    events: VecDeque<Event>,
    /// Streamed text of the message that the model is writing.
    streamed: String,
    /// Whether an earlier message of this turn had text.
    has_earlier_text: bool,
    /// Ids of tool calls that have been reported.
    reported_calls: HashSet<String>,
    /// Whether saving has failed. The failure has been reported.
    save_failed: bool,
    /// Whether the session id has been reported.
    announced: bool,
}

enum AgentTurnState {
    Deciding,
    Asking(Box<trunkline_upstream::UpstreamCall>),
    Running { id: String, running: Pin<Box<dyn Future<Output = ToolOutcome> + Send>> },
    Done,
}

impl AgentTurn {
    /// Starts a turn. `before` contains the earlier messages of the session.
    #[must_use]
    pub fn new(config: AgentConfig, file: TranscriptFile, before: AgentTranscript, turn: &Turn) -> Self {
        let (instructions, sent): (Vec<Message>, Vec<Message>) =
            turn.messages.iter().cloned().partition(|message| message.role == Role::System);
        let fresh = if turn.session.is_some() { prompt::new_messages(&sent).to_vec() } else { sent };
        let mut transcript = before;
        transcript.extend(fresh);
        transcript.close();
        Self {
            steps: Steps::new(transcript, config.max_turns),
            config,
            instructions,
            file,
            state: AgentTurnState::Deciding,
            events: VecDeque::new(),
            streamed: String::new(),
            has_earlier_text: false,
            reported_calls: HashSet::new(),
            save_failed: false,
            announced: false,
        }
    }

    /// Stops a running tool, waits for its end, and saves the messages so far.
    pub async fn stop(&mut self) {
        self.config.tools.stop();
        if let AgentTurnState::Running { running, .. } = &mut self.state {
            let ToolOutcome { output, .. } = running.await;
            self.steps.tool_finished(&output);
        }
        self.abort();
    }

    /// Id by which the session can be resumed.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        self.file.session()
    }

    /// Saves the messages of a turn that has not ended by itself.
    fn abort(&mut self) {
        if !matches!(self.state, AgentTurnState::Done) {
            self.state = AgentTurnState::Done;
            self.steps.interrupt(&self.streamed);
            // No event can be sent any more, so that a failure cannot be reported.
            let _ = self.file.save(self.steps.messages());
        }
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match &mut self.state {
                AgentTurnState::Deciding => self.decide(),
                AgentTurnState::Asking(call) => match call.next().await {
                    Some(event) => self.handle(event),
                    None => self.fail(Failure::new(Category::Unknown, "the model ended without an answer")),
                },
                AgentTurnState::Running { id, running } => {
                    let ToolOutcome { output, ok } = running.await;
                    let id = std::mem::take(id);
                    self.tool_finished(id, output, ok);
                }
                AgentTurnState::Done => return None,
            }
        }
    }

    fn decide(&mut self) {
        match self.steps.next() {
            NextStep::CallModel => self.state = AgentTurnState::Asking(Box::new(self.ask())),
            NextStep::RunTool(call) => {
                let id = self.report_call(&call);
                let tools = Arc::clone(&self.config.tools);
                let running = Box::pin(async move { tools.run(&call.name, &call.arguments).await });
                self.state = AgentTurnState::Running { id, running };
            }
            NextStep::Finish(answer) => self.end(Event::Finished(answer)),
            NextStep::Fail(failure) => self.end(Event::Failed(failure)),
        }
    }

    /// The request for the model's next message.
    fn ask(&self) -> trunkline_upstream::UpstreamCall {
        let AgentConfig { upstream, llm, model, max_tokens, system, tools, silence, .. } = &self.config;
        let messages: Vec<Message> = self.instructions.iter().chain(self.steps.messages()).cloned().collect();
        let texts: Vec<String> = messages.iter().map(prompt::message_text).collect();
        let options = Options { max_tokens: Some(*max_tokens), tools: tools.definitions(), ..Options::default() };
        let turn = Turn { messages, options, shown: AnswerTiming::AsItComes, ..Turn::default() };
        let body = upstream::request(&turn, Some(system), model.as_deref());
        let patience = UpstreamTimeouts { total: MAX_ANSWER_DURATION, silence: *silence };
        upstream.call(llm, body, &[], patience, texts.join("\n").into())
    }

    fn handle(&mut self, event: Event) {
        if !matches!(event, Event::Failed(_)) {
            self.announce(None);
        }
        match event {
            Event::Text { delta } => {
                // Each message of the model starts a new paragraph.
                let gap = self.has_earlier_text && self.streamed.is_empty();
                let text = if gap { format!("\n\n{delta}") } else { delta.clone() };
                self.streamed.push_str(&delta);
                self.events.push_back(Event::Text { delta: text });
            }
            Event::Finished(answer) => self.answered(answer),
            Event::Failed(failure) => self.fail(self.with_hint(failure)),
            // The finished answer contains the whole calls.
            Event::ToolCall { .. } => {}
            Event::Started { model, .. } => self.announce(model),
            other @ (Event::Thinking { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::Workspace(_)
            | Event::Attempted(_)) => self.events.push_back(other),
        }
    }

    /// Reports the session id once the model has started to answer. Before that there is nothing to resume.
    fn announce(&mut self, model: Option<String>) {
        if !std::mem::replace(&mut self.announced, true) || model.is_some() {
            self.save();
            let session = (!self.save_failed).then(|| self.file.session().clone());
            self.events.push_back(Event::Started { session, model });
        }
    }

    fn answered(&mut self, answer: Answer) {
        self.has_earlier_text = self.has_earlier_text || !self.streamed.is_empty();
        self.streamed.clear();
        self.steps.answered(answer);
        self.save();
        self.state = AgentTurnState::Deciding;
    }

    /// Reports the start of a tool call under an id that is unique in this turn.
    fn report_call(&mut self, call: &ToolCall) -> String {
        let fresh = (0..).map(|n| if n == 0 { call.id.clone() } else { format!("{}-{n}", call.id) });
        let id = fresh.into_iter().find(|id| !self.reported_calls.contains(id)).unwrap_or_default();
        self.reported_calls.insert(id.clone());
        let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::String(call.arguments.clone()));
        self.events.push_back(Event::ToolStarted { id: id.clone(), name: call.name.clone(), input });
        id
    }

    fn tool_finished(&mut self, id: String, output: String, ok: bool) {
        self.steps.tool_finished(&output);
        self.save();
        self.state = AgentTurnState::Deciding;
        self.events.push_back(Event::ToolFinished { id, output, ok });
    }

    /// Ends the turn after a failure of the model. Streamed text of its message is saved. If the model had not started to
    /// answer, nothing is saved.
    fn fail(&mut self, failure: Failure) {
        if self.announced {
            self.steps.interrupt(&self.streamed);
            self.save();
        }
        self.end(Event::Failed(failure));
    }

    fn end(&mut self, event: Event) {
        self.state = AgentTurnState::Done;
        self.events.push_back(event);
    }

    /// Saves new messages. A failure is reported once and does not end the turn.
    fn save(&mut self) {
        if let Err(error) = self.file.save(self.steps.messages())
            && !std::mem::replace(&mut self.save_failed, true)
        {
            tracing::warn!(session = %self.file.session(), %error, "cannot save a session of the agent");
            let message = format!("cannot save this session: {error}");
            self.events.push_back(Event::Notice { message });
        }
    }

    /// Adds a hint that names the agent's own settings.
    fn with_hint(&self, failure: Failure) -> Failure {
        let hint = match failure.category {
            Category::Authentication => Some("check LLM_AUTH_TOKEN".to_owned()),
            Category::Network => Some(format!("is it running? LLM_BASE_URL is {}", self.config.llm.shown_url())),
            Category::NotFound => Some("check LLM_BASE_URL and LLM_DEFAULT_MODEL".to_owned()),
            // Our own timeout. One that the upstream reports has its own message.
            Category::Timeout if failure.message == Failure::timed_out().message => {
                Some(format!("the LLM was silent for {:?} (idleTimeout)", self.config.silence))
            }
            Category::Timeout
            | Category::Quota
            | Category::RateLimit
            | Category::Validation
            | Category::Server
            | Category::Configuration
            | Category::Unknown
            | Category::SchemaMismatch
            | Category::Cancelled => failure.hint.as_ref().map(|hint| hint.replace("base_url", "LLM_BASE_URL")),
        };
        Failure { hint, ..failure }
    }
}

impl Drop for AgentTurn {
    fn drop(&mut self) {
        self.abort();
    }
}
