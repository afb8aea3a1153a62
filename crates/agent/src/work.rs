//! One turn at work: the model is asked and its calls are run, as [`Steps`] says, and all of it comes out as events.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trunkline_core::api::Api;
use trunkline_core::event::{Answer, Call, Event, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::prompt;
use trunkline_core::turn::{Message, Options, Role, Shown, Turn};
use trunkline_upstream::{Patience, Upstream};
use trunkline_wire::upstream;

use crate::record::Record;
use crate::steps::{Next, Steps};
use crate::tools::{Outcome, Toolbox};
use crate::transcript::Transcript;

/// An answer may take as long as it is not silent: how long a turn may take is for whoever drives it.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// What an agent works with.
pub struct Agent {
    pub upstream: Upstream,
    /// Where the model is.
    pub llm: Arc<Api>,
    /// Which of its models.
    pub model: Option<String>,
    /// How long one of its messages may be.
    pub max_tokens: u64,
    /// What it is told above all.
    pub system: String,
    pub tools: Arc<Toolbox>,
    /// How often the model may be asked.
    pub max_turns: Option<u32>,
    /// How long the model may be silent.
    pub silence: Duration,
}

/// A turn on its way. Dropping it stops whatever runs, and keeps what was said so far.
pub struct Work {
    agent: Agent,
    /// The client's own instructions: not part of what was said.
    standing: Vec<Message>,
    steps: Steps,
    record: Record,
    state: State,
    events: VecDeque<Event>,
    /// What was shown of the answer that is coming.
    shown: String,
    /// Something was shown before it.
    spoke: bool,
    /// Ids of calls that were told.
    told: HashSet<String>,
    /// The disk has failed once; that was said.
    forgetful: bool,
    /// The session was named.
    announced: bool,
}

enum State {
    Deciding,
    Asking(Box<trunkline_upstream::Call>),
    Running { id: String, running: Pin<Box<dyn Future<Output = Outcome> + Send>> },
    Done,
}

impl Work {
    /// Begins a turn: `before` is what was said in the session, `turn` what the client says now.
    #[must_use]
    pub fn new(agent: Agent, record: Record, before: Transcript, turn: &Turn) -> Self {
        let (standing, said): (Vec<Message>, Vec<Message>) =
            turn.messages.iter().cloned().partition(|message| message.role == Role::System);
        let fresh = if turn.session.is_some() { prompt::latest(&said).to_vec() } else { said };
        let mut transcript = before;
        transcript.extend(fresh);
        transcript.close();
        Self {
            steps: Steps::new(transcript, agent.max_turns),
            agent,
            standing,
            record,
            state: State::Deciding,
            events: VecDeque::new(),
            shown: String::new(),
            spoke: false,
            told: HashSet::new(),
            forgetful: false,
            announced: false,
        }
    }

    /// Ends whatever runs, and waits for that. What was said so far is kept.
    pub async fn stop(&mut self) {
        self.agent.tools.stop();
        if let State::Running { running, .. } = &mut self.state {
            let Outcome { output, .. } = running.await;
            self.steps.ran(&output);
        }
        self.let_go();
    }

    /// Under which name the conversation can be gone on with.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        self.record.session()
    }

    fn let_go(&mut self) {
        if !matches!(self.state, State::Done) {
            self.state = State::Done;
            self.steps.interrupt(&self.shown);
            // Nobody is left to be told.
            let _the_disk_may_be_full = self.record.keep(self.steps.messages());
        }
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match &mut self.state {
                State::Deciding => self.decide(),
                State::Asking(call) => match call.next().await {
                    Some(event) => self.hear(event),
                    None => self.fail(Failure::new(Category::Unknown, "the model ended without an answer")),
                },
                State::Running { id, running } => {
                    let Outcome { output, ok } = running.await;
                    let id = std::mem::take(id);
                    self.ran(id, output, ok);
                }
                State::Done => return None,
            }
        }
    }

    fn decide(&mut self) {
        match self.steps.next() {
            Next::Ask => self.state = State::Asking(Box::new(self.ask())),
            Next::Run(call) => {
                let id = self.tell(&call);
                let tools = Arc::clone(&self.agent.tools);
                let running = Box::pin(async move { tools.run(&call.name, &call.arguments).await });
                self.state = State::Running { id, running };
            }
            Next::Finish(answer) => self.end(Event::Finished(answer)),
            Next::Fail(failure) => self.end(Event::Failed(failure)),
        }
    }

    /// The request for the model's next message.
    fn ask(&self) -> trunkline_upstream::Call {
        let Agent { upstream, llm, model, max_tokens, system, tools, silence, .. } = &self.agent;
        let messages: Vec<Message> = self.standing.iter().chain(self.steps.messages()).cloned().collect();
        let asked: Vec<String> = messages.iter().map(prompt::said).collect();
        let options = Options { max_tokens: Some(*max_tokens), tools: tools.definitions(), ..Options::default() };
        let turn = Turn { messages, options, shown: Shown::AsItComes, ..Turn::default() };
        let body = upstream::request(&turn, Some(system), model.as_deref());
        let patience = Patience { total: LONGEST, silence: *silence };
        upstream.call(llm, body, &[], patience, asked.join("\n"))
    }

    fn hear(&mut self, event: Event) {
        if !matches!(event, Event::Failed(_)) {
            self.announce(None);
        }
        match event {
            Event::Text { delta } => {
                // A new message is a new paragraph.
                let gap = self.spoke && self.shown.is_empty();
                let shown = if gap { format!("\n\n{delta}") } else { delta.clone() };
                self.shown.push_str(&delta);
                self.events.push_back(Event::Text { delta: shown });
            }
            Event::Finished(answer) => self.answered(answer),
            Event::Failed(failure) => self.fail(self.explained(failure)),
            // The pieces of a call come whole with the answer.
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

    /// Names the session, once the model has begun to answer: before that there is nothing to go on with.
    fn announce(&mut self, model: Option<String>) {
        if !std::mem::replace(&mut self.announced, true) || model.is_some() {
            self.keep();
            let session = (!self.forgetful).then(|| self.record.session().clone());
            self.events.push_back(Event::Started { session, model });
        }
    }

    fn answered(&mut self, answer: Answer) {
        self.spoke = self.spoke || !self.shown.is_empty();
        self.shown.clear();
        self.steps.answered(answer);
        self.keep();
        self.state = State::Deciding;
    }

    /// Says that a call is being run, under an id that no other has.
    fn tell(&mut self, call: &Call) -> String {
        let fresh = (0..).map(|n| if n == 0 { call.id.clone() } else { format!("{}-{n}", call.id) });
        let id = fresh.into_iter().find(|id| !self.told.contains(id)).unwrap_or_default();
        self.told.insert(id.clone());
        let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::String(call.arguments.clone()));
        self.events.push_back(Event::ToolStarted { id: id.clone(), name: call.name.clone(), input });
        id
    }

    fn ran(&mut self, id: String, output: String, ok: bool) {
        self.steps.ran(&output);
        self.keep();
        self.state = State::Deciding;
        self.events.push_back(Event::ToolFinished { id, output, ok });
    }

    /// The model failed: what was shown of its message is kept. If nothing was, the question counts as never heard.
    fn fail(&mut self, failure: Failure) {
        if self.announced {
            self.steps.interrupt(&self.shown);
            self.keep();
        }
        self.end(Event::Failed(failure));
    }

    fn end(&mut self, event: Event) {
        self.state = State::Done;
        self.events.push_back(event);
    }

    /// A turn is not given up because it cannot be remembered.
    fn keep(&mut self) {
        if let Err(error) = self.record.keep(self.steps.messages())
            && !std::mem::replace(&mut self.forgetful, true)
        {
            tracing::warn!(session = %self.record.session(), %error, "a conversation of the agent cannot be kept");
            let message = format!("this conversation cannot be kept: {error}");
            self.events.push_back(Event::Notice { message });
        }
    }

    /// What the reader can do about it, in the words of our own settings.
    fn explained(&self, failure: Failure) -> Failure {
        let hint = match failure.category {
            Category::Authentication => Some("check LLM_AUTH_TOKEN".to_owned()),
            Category::Network => Some(format!("is it running? LLM_BASE_URL says {}", self.agent.llm.shown_url())),
            Category::NotFound => Some("check LLM_BASE_URL and LLM_DEFAULT_MODEL".to_owned()),
            // Our own words; an upstream that gave up has its own.
            Category::Timeout if failure.message == Failure::timed_out().message => {
                Some(format!("the LLM was silent for {:?} (idleTimeout)", self.agent.silence))
            }
            Category::Timeout
            | Category::Quota
            | Category::RateLimit
            | Category::Validation
            | Category::Server
            | Category::Configuration
            | Category::Unknown
            | Category::Cancelled => failure.hint.as_ref().map(|hint| hint.replace("base_url", "LLM_BASE_URL")),
        };
        Failure { hint, ..failure }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.let_go();
    }
}
