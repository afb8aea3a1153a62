//! One try of a turn: bytes from the CLI become events, and its end becomes the last of them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Answer, Event, Receipt, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::live::Stage;
use trunkline_core::model::Model;
use trunkline_core::parse::{Conclusion, Decoder, Ending};
use trunkline_core::phase::{Phase, Phases};
use trunkline_core::provider::{Form, Provider, UsageScope};
use trunkline_process::{Exit, Running, Spec, Step};
use trunkline_upstream::Call;

use crate::attempt::builtin::AgentAttempt;
use crate::attempt::request::{BeginError, start_process};
use crate::attempt::resources::AttemptResources;
use crate::attempt::warm::WarmAttempt;
use crate::router::RetryPolicy;
use crate::shared::Shared;
use crate::warm::WarmProcess;

/// How long a CLI that keeps trying in vain may take to say why, on its other stream.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How often a CLI may try again by itself while another waits to take over.
const ENOUGH_RETRIES: u32 = 2;

/// How long a process that is told to leave off may take to do so before it is stopped.
const LEAVE_OFF: Duration = Duration::from_secs(1);

/// A try on its way. Dropping it stops the CLI and puts its workspace in order.
pub(crate) struct Attempt {
    events: VecDeque<Event>,
    state: State,
    /// How often the CLI has tried again by itself.
    own_retries: u32,
    /// Resolved when nothing of it runs any more; none when that is so at its end.
    gone: Option<oneshot::Receiver<()>>,
    /// What it is doing, and since when.
    phase: (Phase, Instant),
    /// The same as far as events tell, for what prints nothing.
    phases: Phases,
}

enum State {
    Live(Box<CliAttempt>),
    /// A process was lost before it had said anything: whatever is left of it is ended,
    Leaving(Box<CliAttempt>, Box<Spec>),
    /// and the same turn begins again in a process of its own.
    Starting(Box<CliAttempt>, Starting),
    /// A service answers.
    Calling(Box<(Call, AttemptResources)>),
    /// The built-in agent answers.
    Working(Box<AgentAttempt>),
    /// The CLI is done; its worktree is being put in order. The last event waits for the receipt.
    Closing {
        receipt: oneshot::Receiver<Option<Receipt>>,
        last: Box<Event>,
        cancelled: CancellationToken,
    },
    Done,
}

type Starting = Pin<Box<dyn Future<Output = Result<Running, Failure>> + Send>>;

pub(crate) struct CliAttempt {
    pub(crate) running: Running,
    /// Set when the process was there before the turn, and may be there after it.
    pub(crate) carrier: Option<WarmAttempt>,
    pub(crate) decoder: Decoder,
    pub(crate) provider: Arc<Provider>,
    pub(crate) model: Arc<Model>,
    pub(crate) prompt: String,
    pub(crate) session: Option<SessionId>,
    pub(crate) resources: AttemptResources,
    /// Set when another may take over: when it does.
    pub(crate) standby: Option<Arc<RetryPolicy>>,
    /// Until when a CLI that has given up may still say why, or one that has said all may exit.
    pub(crate) last_words: Option<Instant>,
    /// Something of the answer, or a tool, has come.
    pub(crate) shown: bool,
    /// The same turn without streaming, for an executable that may not know how.
    pub(crate) generate: Option<Box<Spec>>,
}

/// How a CLI is parted from.
enum Parting {
    /// It has exited.
    Exited,
    /// It has said its last word and may exit by itself.
    Ended,
    Stop,
}

impl Attempt {
    pub(crate) fn new(live: CliAttempt) -> Self {
        Self::in_state(State::Live(Box::new(live)))
    }

    pub(crate) fn calling(call: Call, resources: AttemptResources) -> Self {
        Self::in_state(State::Calling(Box::new((call, resources))))
    }

    pub(crate) fn working(at_work: AgentAttempt) -> Self {
        Self::in_state(State::Working(Box::new(at_work)))
    }

    fn in_state(state: State) -> Self {
        let phase = (Phase::Starting, Instant::now());
        Self { events: VecDeque::new(), state, own_retries: 0, gone: None, phase, phases: Phases::default() }
    }

    pub(crate) fn own_retries(&self) -> u32 {
        self.own_retries
    }

    /// What it is doing, and for how long by now.
    pub(crate) fn phase(&self) -> (&Phase, Duration) {
        (&self.phase.0, self.phase.1.elapsed())
    }

    fn enter(&mut self, phase: Phase) {
        if self.phase.0 != phase {
            self.phase = (phase, Instant::now());
        }
    }

    /// What to wait for before another try, which may be in the same folder.
    pub(crate) fn gone(&mut self) -> Option<oneshot::Receiver<()>> {
        self.gone.take()
    }

    /// An event that is there already.
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
                State::Live(live) => {
                    let step = match live.last_words.or_else(|| live.is_deaf_at()) {
                        Some(until) => tokio::time::timeout_at(until, live.running.next()).await.ok(),
                        None => Some(live.running.next().await),
                    };
                    match step {
                        Some(step) => self.take(step),
                        None if live.last_words.is_none() => self.start_over("does not answer"),
                        None => self.conclude(Ending::Open, Parting::Stop),
                    }
                }
                State::Leaving(live, _) => {
                    // One that is only slow must not do the same beside the other.
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
                    let event = at_work.next(&self.phase.0).await;
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

    fn take(&mut self, step: Step) {
        let State::Live(live) = &mut self.state else { return };
        match step {
            Step::Stdout(bytes) => {
                let events = live.hear(&bytes);
                let acted = |event: &Event| matches!(event, Event::ToolStarted { .. } | Event::Text { .. });
                if events.iter().any(acted) {
                    // It is on its way: whoever took over would begin anew.
                    live.standby = None;
                }
                let shows = |event: &Event| acted(event) || matches!(event, Event::Thinking { .. });
                if !live.shown && events.iter().any(shows) {
                    live.shown = true;
                    // The next turn may come while this one goes on.
                    live.resources.shared.warm.refill();
                    live.resources.shared.worktrees.refill_spares();
                }
                self.events.extend(events);
                let phase = live.decoder.phase();
                live.running.enter(phase.clone());
                self.own_retries = live.decoder.own_retries();
                let strangers = live.decoder.take_strangers();
                if !strangers.is_empty() {
                    live.resources.shared.health.unknown_events.note(&live.provider.name, strangers);
                }
                live.lose_patience();
                if live.decoder.gave_up() {
                    live.last_words.get_or_insert_with(|| Instant::now() + LAST_WORDS);
                } else if live.decoder.awaits_exit() {
                    let linger = live.resources.shared.settings.linger;
                    live.last_words.get_or_insert_with(|| Instant::now() + linger);
                } else if live.decoder.ended() && live.may_generate() {
                    return self.generate();
                } else if live.decoder.ended() {
                    self.conclude(Ending::Open, Parting::Ended);
                }
                self.enter(phase);
            }
            Step::Exited(_) if live.may_start_over() => self.start_over("had gone"),
            Step::Exited(Exit::Code(_)) if live.may_generate() => self.generate(),
            // Its output was complete when it was stopped.
            Step::Exited(_) if live.running.was_mute() => self.conclude(Ending::Open, Parting::Exited),
            Step::Exited(Exit::Code(code)) => self.conclude(Ending::Code(code), Parting::Exited),
            Step::Exited(Exit::Signal(signal)) => self.conclude(Ending::Signal(signal), Parting::Exited),
            Step::Limit(overrun) => self.conclude(Ending::TimedOut(&overrun.to_string()), Parting::Stop),
        }
    }

    /// Turns the end of the output into the last events and parts from the CLI.
    fn conclude(&mut self, ending: Ending<'_>, parting: Parting) {
        let State::Live(mut live) = std::mem::replace(&mut self.state, State::Done) else { return };
        let stderr = live.running.stderr_tail();
        let mut conclusion = live.decoder.conclude(ending, &stderr, &live.prompt);
        self.events.extend(conclusion.events.drain(..));
        let session = conclusion.session.clone();
        let last = live.last_event(conclusion);
        // Who has failed has nothing left to put away, and another may wait for its end.
        let parting = match (parting, &last) {
            (Parting::Ended, Event::Failed(_)) => Parting::Stop,
            (parting, _) => parting,
        };
        let CliAttempt { running, carrier, model, session: asked, mut resources, .. } = *live;
        let shared = Arc::clone(&resources.shared);
        if resources.worktree.is_none() {
            let answered = matches!(last, Event::Finished(_));
            self.events.push_back(last);
            // Who is not known by what was said comes back only if there is a session to come back to.
            let comes_back = answered && (model.resume || asked.is_some());
            let carrier = match (carrier, session.filter(|_| comes_back)) {
                (Some(carrier), Some(session)) if *carrier.line.stage() == Stage::Ready => {
                    let WarmAttempt { line, boot, stamps, scratch, .. } = carrier;
                    shared.warm.hold(WarmProcess { running, line, boot, stamps, scratch }, session);
                    shared.warm.refill();
                    return;
                }
                (carrier, _) => carrier,
            };
            shared.warm.refill();
            match parting {
                Parting::Exited if answered => drop((running, resources)),
                Parting::Exited | Parting::Ended | Parting::Stop => {
                    let (sender, gone) = oneshot::channel();
                    self.gone = Some(gone);
                    shared.tasks.tracker.spawn(async move {
                        part(running, parting, &resources.shared).await;
                        drop((resources, carrier));
                        let _nobody_waits_for_it = sender.send(());
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
            let receipt = resources.put_in_order().await;
            drop(resources);
            let _nobody_waits_for_it = sender.send(receipt);
        });
    }
}

impl Attempt {
    /// Begins again, cold. It is the same attempt: the line was ours to lose, not the provider's.
    fn start_over(&mut self, why: &str) {
        let State::Live(mut live) = std::mem::replace(&mut self.state, State::Done) else { return };
        let Some(spec) = live.carrier.as_mut().and_then(|carrier| carrier.cold.take()) else { return };
        let (shared, provider) = (Arc::clone(&live.resources.shared), Arc::clone(&live.provider));
        let message = format!("the {} that was kept ready {why}; starting another", provider.name);
        tracing::info!(model = live.model.name, "{message}");
        shared.warm.ledger.note(&provider.name, |figures| figures.lost += 1);
        self.events.push_back(Event::Notice { message });
        self.state = State::Leaving(live, Box::new(spec));
    }

    /// Begins again with an executable that does not stream: its whole answer will be one piece.
    fn generate(&mut self) {
        let State::Live(mut live) = std::mem::replace(&mut self.state, State::Done) else { return };
        let Some(spec) = live.generate.take() else { return };
        tracing::info!(model = live.model.name, "{} does not stream: asking for the whole answer", live.provider.name);
        self.state = State::Leaving(live, spec);
    }

    fn start_cold(&mut self) {
        let State::Leaving(mut live, spec) = std::mem::replace(&mut self.state, State::Done) else { return };
        live.carrier = None;
        let (shared, provider) = (Arc::clone(&live.resources.shared), Arc::clone(&live.provider));
        let starting = async move {
            start_process(&shared.keepers, *spec, &provider).await.map_err(|not_begun| match not_begun {
                BeginError::Failed(failure) => failure,
                BeginError::Exhausted(message) => Failure::new(Category::Server, message),
            })
        };
        self.state = State::Starting(live, Box::pin(starting));
    }

    fn started_over(&mut self, started: Result<Running, Failure>) {
        let State::Starting(mut live, _) = std::mem::replace(&mut self.state, State::Done) else { return };
        match started {
            Ok(running) => {
                live.decoder = live.provider.decoder(live.model.normalize, Form::Streamed);
                live.running = running;
                live.last_words = None;
                self.state = State::Live(live);
            }
            Err(failure) => self.events.push_back(Event::Failed(failure)),
        }
    }
}

impl CliAttempt {
    /// What came of some bytes; what the process waits for is written to it.
    fn hear(&mut self, bytes: &[u8]) -> Vec<Event> {
        let Some(carrier) = &mut self.carrier else { return self.decoder.push(bytes) };
        let heard = carrier.line.hear(bytes);
        self.running.write(&heard.reply);
        self.decoder.push(&heard.said)
    }

    /// When a process that was told the turn is taken for deaf.
    fn is_deaf_at(&self) -> Option<Instant> {
        self.carrier.as_ref().filter(|_| self.may_start_over())?.is_deaf_at()
    }

    /// Whether its process is gone for no reason of the turn's, and nobody will notice another.
    fn may_start_over(&self) -> bool {
        !self.shown && !self.decoder.ended() && self.carrier.as_ref().is_some_and(|carrier| carrier.cold.is_some())
    }

    /// Whether it has failed only because it cannot stream, as far as can be known.
    fn may_generate(&self) -> bool {
        self.generate.is_some() && self.decoder.may_lack_command(&self.running.stderr_tail())
    }

    /// A CLI may try for minutes what another could answer now.
    fn lose_patience(&mut self) {
        if let Some(policy) = &self.standby
            && self.decoder.own_retries() >= ENOUGH_RETRIES
            && let Some(category) = self.decoder.trouble(&self.running.stderr_tail())
            && policy.falls_back(category)
        {
            self.decoder.give_up();
        }
    }

    /// What the reader can do about a failure of this kind.
    fn hint(&self, category: Category) -> Option<String> {
        let provider = &self.provider;
        let keys = provider.keys.join(" or ");
        (category == Category::Authentication && !keys.is_empty())
            .then(|| format!("log in with {} itself, or set {keys} for the gateway", provider.program))
    }

    fn last_event(&self, conclusion: Conclusion) -> Event {
        let session = conclusion.session.clone();
        match conclusion.result() {
            Err(failure) => {
                let message = self.resources.shared.settings.secrets.mask(&failure.message);
                let hint = failure.hint.or_else(|| self.hint(failure.category));
                Event::Failed(Failure { message, hint, ..failure })
            }
            Ok(answer) => {
                let live = self.carrier.as_ref().and(self.provider.live.as_ref());
                let scope = live.and_then(|live| live.usage).unwrap_or(self.provider.usage);
                let usage = match (scope, session.as_ref().or(self.session.as_ref())) {
                    (UsageScope::Session, Some(session)) => {
                        self.resources.shared.sessions.turn_usage(session, answer.usage)
                    }
                    (UsageScope::Session, None) | (UsageScope::Turn, _) => answer.usage,
                };
                Event::Finished(Answer { usage, ..answer })
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Live(live) | State::Leaving(live, _) | State::Starting(live, _) => {
                let CliAttempt { mut running, carrier, mut resources, .. } = *live;
                let shared = Arc::clone(&resources.shared);
                shared.tasks.tracker.spawn(async move {
                    // One that can be told to leave off ends its tools itself.
                    let mut carrier = carrier;
                    let leave_off = carrier.as_mut().map(|carrier| carrier.line.interrupt()).unwrap_or_default();
                    running.write(&leave_off);
                    running.finish(if leave_off.is_empty() { Duration::ZERO } else { LEAVE_OFF }).await;
                    drop(carrier);
                    resources.cancelled().cancel();
                    resources.put_in_order().await;
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

/// Waits until every process of the run is gone.
async fn part(running: Running, parting: Parting, shared: &Shared) {
    match parting {
        Parting::Exited | Parting::Stop => running.stop().await,
        Parting::Ended => running.finish(shared.settings.linger).await,
    };
}
