//! One attempt: output of the CLI becomes events, and its end becomes the last event.

mod new_process;
mod parking;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Answer, Event, Receipt, SessionId, Usage};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::live::ChannelStage;
use trunkline_core::model::Model;
use trunkline_core::parse::{Conclusion, Decoder, Ending};
use trunkline_core::phase::{Phase, Phases};
use trunkline_core::provider::Provider;
use trunkline_core::vocabulary::UsageScope;
use trunkline_process::{ProcessEvent, ProcessExit, RunningProcess, Spec};
use trunkline_upstream::UpstreamCall;

use self::parking::StepWithTools;
use crate::attempt::builtin::{AgentAttempt, AgentStep};
use crate::attempt::resources::AttemptResources;
use crate::attempt::warm::WarmAttempt;
use crate::router::RetryPolicy;
use crate::shared::Shared;
use crate::tools::StdioAnswer;
use crate::warm::WarmProcess;

/// Time that a CLI that keeps retrying gets to report the reason on stderr.
const LAST_STDERR_TIMEOUT: Duration = Duration::from_millis(300);

/// Retries that a CLI may make by itself while another candidate could take over.
const MAX_OWN_RETRIES: u32 = 2;

/// Time between the interrupt message to a warm process and its stop signal.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(1);

/// An attempt in progress. Dropping it stops the CLI and saves its workspace.
pub(crate) struct Attempt {
    events: VecDeque<Event>,
    state: State,
    /// Retries that the CLI made by itself.
    own_retries: u32,
    /// Resolved when no process of the attempt is left. `None` if that holds as soon as the attempt has ended.
    gone: Option<oneshot::Receiver<()>>,
    /// Present phase, and its start.
    phase: (Phase, Instant),
    /// Phase as far as events show it, for attempts without a decoder.
    phases: Phases,
    /// Whether the run has ended with calls of the client's tools, and the process waits for their results.
    parked: bool,
}

enum State {
    Live(Box<CliAttempt>),
    /// The process was lost before it printed anything: its remains are stopped,
    Leaving(Box<CliAttempt>, Box<Spec>),
    /// and the same turn starts again in a new process.
    Starting(Box<CliAttempt>, Starting),
    /// An HTTP upstream answers.
    Calling(Box<(UpstreamCall, AttemptResources)>),
    /// The built-in agent answers.
    Working(Box<AgentAttempt>),
    /// The CLI has ended and its worktree is being saved. The last event waits for the receipt.
    Closing {
        receipt: oneshot::Receiver<Option<Receipt>>,
        last: Box<Event>,
        cancelled: CancellationToken,
    },
    Done,
}

type Starting = Pin<Box<dyn Future<Output = Result<RunningProcess, Failure>> + Send>>;

pub(crate) struct CliAttempt {
    pub(crate) running: RunningProcess,
    /// Set when the turn runs on a warm process.
    pub(crate) warm: Option<WarmAttempt>,
    pub(crate) decoder: Decoder,
    pub(crate) provider: Arc<Provider>,
    pub(crate) model: Arc<Model>,
    pub(crate) prompt: String,
    pub(crate) session: Option<SessionId>,
    pub(crate) resources: AttemptResources,
    /// Set when another candidate could take over: the policy that decides whether it does.
    pub(crate) standby: Option<Arc<RetryPolicy>>,
    /// Deadline for the last output of a CLI that has given up, or for the exit of one that has finished.
    pub(crate) deadline: Option<Instant>,
    /// Whether text, thinking or a tool has been seen.
    pub(crate) shown: bool,
    /// Whether the command has the schema of the answer: the CLI then fails if its model does not obey.
    pub(crate) has_schema: bool,
    /// The same turn without streaming, for an executable that may not support streaming.
    pub(crate) generate: Option<Box<Spec>>,
}

/// How the process of an attempt ends.
enum Parting {
    /// The process has exited.
    Exited,
    /// The process has printed its last event and may exit by itself.
    Ended,
    Stop,
}

impl Attempt {
    pub(crate) fn new(live: CliAttempt) -> Self {
        Self::in_state(State::Live(Box::new(live)))
    }

    pub(crate) fn calling(call: UpstreamCall, resources: AttemptResources) -> Self {
        Self::in_state(State::Calling(Box::new((call, resources))))
    }

    pub(crate) fn working(at_work: AgentAttempt) -> Self {
        Self::in_state(State::Working(Box::new(at_work)))
    }

    fn in_state(state: State) -> Self {
        let phase = (Phase::Starting, Instant::now());
        Self {
            events: VecDeque::new(),
            state,
            own_retries: 0,
            gone: None,
            phase,
            phases: Phases::default(),
            parked: false,
        }
    }

    pub(crate) fn own_retries(&self) -> u32 {
        self.own_retries
    }

    /// Present phase, and the time spent in it.
    pub(crate) fn phase(&self) -> (&Phase, Duration) {
        (&self.phase.0, self.phase.1.elapsed())
    }

    fn enter(&mut self, phase: Phase) {
        if self.phase.0 != phase {
            self.phase = (phase, Instant::now());
        }
    }

    /// A receiver to await before the next attempt, which may run in the same folder.
    pub(crate) fn gone(&mut self) -> Option<oneshot::Receiver<()>> {
        self.gone.take()
    }

    /// An event that is available without waiting.
    pub(crate) fn ready(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match &mut self.state {
                State::Live(live) if live.has_tools() => match live.next_with_tools().await {
                    StepWithTools::Process(step) => self.take_with_end(step),
                    StepWithTools::Called => {}
                    StepWithTools::Settled => self.end_with_calls(),
                    StepWithTools::Deadline => self.conclude(Ending::Open, Parting::Stop),
                },
                State::Live(live) => {
                    let step = match live.deadline.or_else(|| live.unresponsive_at()) {
                        Some(until) => tokio::time::timeout_at(until, live.running.next()).await.ok(),
                        None => Some(live.running.next().await),
                    };
                    match step {
                        Some(step) => self.take_with_end(step),
                        None if live.deadline.is_none() => self.start_over("does not answer"),
                        None => self.conclude(Ending::Open, Parting::Stop),
                    }
                }
                State::Leaving(live, _) => {
                    // A process that is only slow must not do the same work at the same time as its replacement.
                    live.running.end().await;
                    self.start_cold();
                }
                State::Starting(_, starting) => {
                    let started = starting.await;
                    self.started_over(started);
                }
                State::Calling(calling) => {
                    let (call, resources) = &mut **calling;
                    match call.next().await {
                        Some(Event::Failed(failure)) => {
                            let message = resources.shared.settings.secrets.mask(&failure.message);
                            self.events.push_back(Event::Failed(Failure { message, ..failure }));
                        }
                        Some(event) => {
                            self.phases.hear(&event);
                            self.enter(self.phases.now());
                            return Some(event);
                        }
                        None => self.state = State::Done,
                    }
                }
                State::Working(at_work) => {
                    let event = match at_work.step(&self.phase.0).await {
                        AgentStep::Event(event) => *event,
                        AgentStep::Called => continue,
                        AgentStep::Settled => {
                            self.end_with_calls();
                            continue;
                        }
                    };
                    self.phases.hear(&event);
                    self.enter(self.phases.now());
                    if !matches!(event, Event::Finished(_) | Event::Failed(_)) {
                        return Some(event);
                    }
                    let State::Working(at_work) = std::mem::replace(&mut self.state, State::Done) else { continue };
                    let cancelled = at_work.cancelled();
                    self.state = State::Closing { receipt: at_work.end(), last: Box::new(event), cancelled };
                }
                State::Closing { receipt, .. } => {
                    let receipt = receipt.await.ok().flatten();
                    let State::Closing { last, .. } = std::mem::replace(&mut self.state, State::Done) else { continue };
                    self.events.extend(receipt.map(Event::Workspace));
                    self.events.push_back(*last);
                }
                State::Done => return None,
            }
        }
    }

    /// Takes a step, and the next one if the process has ended: its last output and its end are then recorded together.
    fn take_with_end(&mut self, step: ProcessEvent) {
        self.take(step);
        if let State::Live(live) = &mut self.state
            && live.running.is_over()
            && let Some(step) = live.running.next().now_or_never()
        {
            self.take(step);
        }
    }

    fn take(&mut self, step: ProcessEvent) {
        let State::Live(live) = &mut self.state else { return };
        match step {
            ProcessEvent::Stdout(bytes) => {
                let events = live.hear(&bytes);
                let acted = |event: &Event| matches!(event, Event::ToolStarted { .. } | Event::Text { .. });
                if events.iter().any(acted) {
                    // The attempt makes progress: another candidate would start from the beginning.
                    live.standby = None;
                }
                let shows = |event: &Event| acted(event) || matches!(event, Event::Thinking { .. });
                if !live.shown && events.iter().any(shows) {
                    live.shown = true;
                    // The next turn may arrive while this one is still running.
                    live.resources.shared.warm.refill();
                    live.resources.shared.worktrees.refill_spares();
                }
                self.events.extend(events);
                let phase = live.decoder.phase();
                live.running.enter(phase.clone());
                self.own_retries = live.decoder.own_retries();
                let unknown = live.decoder.take_strangers();
                if !unknown.is_empty() {
                    live.resources.shared.health.unknown_events.note(&live.provider.name, unknown);
                }
                live.give_up_on_retries();
                if live.decoder.gave_up() {
                    live.deadline.get_or_insert_with(|| Instant::now() + LAST_STDERR_TIMEOUT);
                } else if live.decoder.awaits_exit() {
                    let linger = live.resources.shared.settings.linger;
                    live.deadline.get_or_insert_with(|| Instant::now() + linger);
                } else if live.decoder.ended() && live.may_generate() {
                    return self.generate();
                } else if live.decoder.ended() && live.remind() {
                    return;
                } else if live.decoder.ended() {
                    self.conclude(Ending::Open, Parting::Ended);
                }
                self.enter(phase);
            }
            ProcessEvent::Exited(_) if live.may_start_over() => self.start_over("had gone"),
            ProcessEvent::Exited(ProcessExit::Code(_)) if live.may_generate() => self.generate(),
            // The output was complete when the process was stopped.
            ProcessEvent::Exited(_) if live.running.was_mute() => self.conclude(Ending::Open, Parting::Exited),
            ProcessEvent::Exited(ProcessExit::Code(code)) => self.conclude(Ending::Code(code), Parting::Exited),
            ProcessEvent::Exited(ProcessExit::Signal(signal)) => self.conclude(Ending::Signal(signal), Parting::Exited),
            ProcessEvent::Limit(overrun) => self.conclude(Ending::TimedOut(&overrun.to_string()), Parting::Stop),
        }
    }

    /// Turns the end of the output into the last events, and ends or keeps the process.
    fn conclude(&mut self, ending: Ending<'_>, parting: Parting) {
        let State::Live(mut live) = std::mem::replace(&mut self.state, State::Done) else { return };
        let stderr = live.running.stderr_tail();
        let mut conclusion = live.decoder.conclude(ending, &stderr, &live.prompt);
        self.events.extend(conclusion.events.drain(..));
        let session = conclusion.session.clone();
        let last = live.last_event(conclusion);
        // A failed CLI has nothing to finish, and the next attempt may be waiting for its end.
        let parting = match (parting, &last) {
            (Parting::Ended, Event::Failed(_)) => Parting::Stop,
            (parting, _) => parting,
        };
        let CliAttempt { running, warm, model, session: asked, mut resources, .. } = *live;
        let shared = Arc::clone(&resources.shared);
        if resources.worktree.is_none() {
            let answered = matches!(last, Event::Finished(_));
            self.events.push_back(last);
            // A client without session recognition returns to this process only if it names the session.
            let comes_back = answered && (model.resume || asked.is_some());
            let warm = match (warm, session.filter(|_| comes_back)) {
                (Some(warm), Some(session)) if *warm.line.stage() == ChannelStage::Ready => {
                    let WarmAttempt { line, boot, stamps, scratch, tools, servers, .. } = warm;
                    let process = WarmProcess { running, line, boot, stamps, scratch, tools, servers };
                    shared.warm.hold(process, session);
                    shared.warm.refill();
                    return;
                }
                (warm, _) => warm,
            };
            shared.warm.refill();
            match parting {
                Parting::Exited if answered => drop((running, resources)),
                Parting::Ended | Parting::Exited if running.is_over() => drop((running, resources)),
                Parting::Exited | Parting::Ended | Parting::Stop => {
                    let (sender, gone) = oneshot::channel();
                    self.gone = Some(gone);
                    shared.tasks.tracker.spawn(async move {
                        part(running, parting, &resources.shared).await;
                        drop((resources, warm));
                        let _ = sender.send(());
                    });
                }
            }
            return;
        }
        let (sender, receipt) = oneshot::channel();
        let cancelled = resources.cancelled();
        self.state = State::Closing { receipt, last: Box::new(last), cancelled };
        shared.tasks.tracker.spawn(async move {
            part(running, parting, &resources.shared).await;
            let receipt = resources.save_worktree().await;
            drop(resources);
            let _ = sender.send(receipt);
        });
    }
}

impl CliAttempt {
    /// Decodes output. Replies that a warm process waits for are written to it.
    fn hear(&mut self, bytes: &[u8]) -> Vec<Event> {
        let Some(warm) = &mut self.warm else { return self.decoder.push(bytes) };
        let heard = warm.line.hear(bytes);
        self.running.write(&heard.reply);
        let mut events = self.decoder.push(&heard.said);
        if let Some(tools) = &mut warm.tools {
            tools.filter(&mut events);
            for call in heard.calls {
                if let Some(StdioAnswer { key, result }) = tools.take_stdio_call(call) {
                    let answer = warm.line.answer_call(&key, result.as_deref().map_err(String::as_str));
                    self.running.write(&answer);
                }
            }
        }
        events
    }

    /// Deadline for the first reaction of a warm process to its turn.
    fn unresponsive_at(&self) -> Option<Instant> {
        self.warm.as_ref().filter(|_| self.may_start_over())?.unresponsive_at()
    }

    /// Whether the warm process may be replaced: nothing has been shown, and the turn can be started again.
    fn may_start_over(&self) -> bool {
        !self.shown && !self.decoder.ended() && self.warm.as_ref().is_some_and(|warm| warm.cold.is_some())
    }

    /// Whether the executable probably failed only because it does not support streaming.
    fn may_generate(&self) -> bool {
        self.generate.is_some() && self.decoder.may_lack_command(&self.running.stderr_tail())
    }

    /// Gives up on a CLI that keeps retrying while another candidate could answer.
    fn give_up_on_retries(&mut self) {
        if let Some(policy) = &self.standby
            && self.decoder.own_retries() >= MAX_OWN_RETRIES
            && let Some(category) = self.decoder.trouble(&self.running.stderr_tail())
            && policy.falls_back(category)
        {
            self.decoder.give_up();
        }
    }

    /// A remedy for a failure of this category.
    fn hint(&self, category: Category) -> Option<String> {
        let provider = &self.provider;
        let keys = provider.keys.join(" or ");
        (category == Category::Authentication && !keys.is_empty())
            .then(|| format!("log in with {} itself, or set {keys} for the gateway", provider.program))
    }

    fn last_event(&self, conclusion: Conclusion) -> Event {
        let session = conclusion.session.clone();
        let lacks_form =
            conclusion.failure.as_ref().is_some_and(|failure| failure.category == Category::SchemaMismatch);
        let conclusion = match self.has_schema && lacks_form {
            // The gateway checks the answer itself, and asks for a corrected one.
            true => Conclusion { failure: None, ..conclusion },
            false => conclusion,
        };
        match conclusion.result() {
            Err(failure) => {
                let message = self.resources.shared.settings.secrets.mask(&failure.message);
                let hint = failure.hint.or_else(|| self.hint(failure.category));
                Event::Failed(Failure { message, hint, ..failure })
            }
            Ok(_) if self.lacks_call() => {
                let message = "the model called none of the tools, although `tool_choice` requires it";
                Event::Failed(
                    Failure::new(Category::Server, message).hint("with `tool_choice: \"auto\"` its answer is given"),
                )
            }
            Ok(answer) => {
                let live = self.warm.as_ref().and(self.provider.live.as_ref());
                let scope = live.and_then(|live| live.usage).unwrap_or(self.provider.usage);
                let usage = match (scope, session.as_ref().or(self.session.as_ref())) {
                    (UsageScope::Session, Some(session)) => {
                        self.resources.shared.sessions.turn_usage(session, answer.usage)
                    }
                    (UsageScope::Session, None) | (UsageScope::Turn, _) => answer.usage,
                };
                let reported = self.warm.as_ref().and_then(|warm| warm.tools.as_ref()).map(|tools| tools.reported);
                // The runs before have reported a part of the turn.
                let usage = reported
                    .filter(|reported| *reported != Usage::default())
                    .map_or(usage, |reported| Usage { estimated: usage.estimated, ..usage.since(reported) });
                Event::Finished(Answer { usage, ..answer })
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Live(live) | State::Leaving(live, _) | State::Starting(live, _) => {
                let CliAttempt { mut running, warm, mut resources, .. } = *live;
                let shared = Arc::clone(&resources.shared);
                shared.tasks.tracker.spawn(async move {
                    // A warm process that understands an interrupt stops its tools by itself.
                    let mut warm = warm;
                    let interrupt = warm.as_mut().map(|warm| warm.line.interrupt()).unwrap_or_default();
                    running.write(&interrupt);
                    running.finish(if interrupt.is_empty() { Duration::ZERO } else { INTERRUPT_TIMEOUT }).await;
                    drop(warm);
                    resources.cancelled().cancel();
                    resources.save_worktree().await;
                    resources.shared.warm.refill();
                });
            }
            State::Working(at_work) => {
                at_work.cancelled().cancel();
                drop(at_work.end());
            }
            State::Closing { cancelled, .. } => cancelled.cancel(),
            State::Calling(_) | State::Done => {}
        }
    }
}

/// Waits until every process of the attempt has ended.
async fn part(running: RunningProcess, parting: Parting, shared: &Shared) {
    match parting {
        Parting::Exited | Parting::Stop => running.stop().await,
        Parting::Ended => running.finish(shared.settings.linger).await,
    };
}
