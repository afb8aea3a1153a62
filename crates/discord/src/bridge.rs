//! The bridge: hears what happens on Discord, keeps one queue for each channel, and has their messages answered one
//! after the other; channels do not wait for each other.
//!
//! All of it is one loop that owns the queues: what takes long is a task of its own, and tells the loop when it is done. What
//! is asked of the store may take long.

mod commands;
mod intake;

use commands::Doing;
use intake::command_in;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trunkline_store::Store;

use crate::Settings;
use crate::answer::answer;
use crate::backend::Backends;
use crate::catch_up::{Missed, catch_up, is_still_admitted};
use crate::desk::{Arrival, Desk, Gate, Running, Waiting};
use crate::files::Files;
use crate::gateway::{self, Happening};
use crate::incoming::{Incoming, Whereabouts, heard};
use crate::ledger::{Ledger, Progress};
use crate::rest::{self, Rest};
use crate::shared::Shared;
use crate::snowflake::Snowflake;
use crate::token::Token;
use crate::wire;

/// How much may happen before the loop has looked at it; then the connection waits.
const AHEAD: usize = 256;

/// How many messages wait in memory for a channel's history to be read; more are read from it.
const HELD: usize = 1000;

/// How many threads are kept in mind.
const MANY: usize = 20_000;

/// How to end: first gently, letting answers come to their end for a while, then now.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    pub gently: CancellationToken,
    pub now: CancellationToken,
}

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("nobody is allowed to talk to the bridge")]
    NobodyAllowed,
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("Discord refused the token")]
    Token,
    #[error("Discord refused the intents")]
    Intents,
    #[error("Discord closed the connection for good (code {0:?})")]
    Refused(Option<u16>),
}

/// Runs the bridge until it is stopped or Discord will not have it.
pub async fn run(
    settings: Settings,
    token: &Token,
    backends: Backends,
    store: Store,
    stop: Stop,
) -> Result<(), BridgeError> {
    if settings.allow.is_empty() {
        return Err(BridgeError::NobodyAllowed);
    }
    let http = rest::client(settings.api.is_some()).map_err(BridgeError::Tls)?;
    check_tls()?;
    let interrupted = CancellationToken::new();
    let shared = Arc::new(Shared {
        rest: Rest::new(http.clone(), token.clone(), settings.api.as_deref()),
        ledger: Ledger::new(store, settings.secrets.clone(), interrupted.clone()),
        files: Files::new(http, &settings.state, settings.api.as_deref()),
        backends,
        me: OnceLock::new(),
        interrupted,
        settings,
    });
    shared.files.sweep().await;
    let (happens, mut happenings) = mpsc::channel(AHEAD);
    let shard = gateway::connect(token, shared.settings.gateway.as_deref());
    let mut connection = JoinSet::new();
    connection.spawn(gateway::follow(shard, happens));
    let mut bridge = Bridge::new(shared);
    let outcome = loop {
        tokio::select! {
            biased;
            () = stop.gently.cancelled() => break Ok(()),
            () = stop.now.cancelled() => break Ok(()),
            Some(done) = bridge.tasks.join_next_with_id() => bridge.ended(done),
            // What is pending comes before what is said now.
            happening = happenings.recv(), if !bridge.opening => match happening {
                Some(Happening::Refused(code)) => break Err(refused(code)),
                Some(happening) => bridge.hear(happening),
                None => break Err(BridgeError::Refused(None)),
            },
        }
    };
    drop(happenings);
    bridge.end(&stop).await;
    while connection.join_next().await.is_some() {}
    outcome
}

/// Twilight panics where this fails.
fn check_tls() -> Result<(), BridgeError> {
    use rustls_platform_verifier::BuilderVerifierExt;
    let usable = rustls::ClientConfig::builder().with_platform_verifier();
    usable.map(drop).map_err(|error| BridgeError::Tls(error.to_string()))
}

const fn refused(code: Option<u16>) -> BridgeError {
    match code {
        Some(4004) => BridgeError::Token,
        Some(4013 | 4014) => BridgeError::Intents,
        code => BridgeError::Refused(code),
    }
}

struct Bridge {
    shared: Arc<Shared>,
    desks: HashMap<Snowflake, Desk>,
    /// What an earlier bridge left to be answered is being read.
    opening: bool,
    /// Where threads belong.
    places: HashMap<Snowflake, Whereabouts>,
    application: Option<Snowflake>,
    /// Guilds that know our commands.
    commanded: HashSet<Snowflake>,
    tasks: JoinSet<Done>,
    /// What a task counts as, should it never say.
    owed: HashMap<Id, Done>,
}

enum Done {
    Opened(Opened),
    /// Something of a channel was written down: a message that is new, or nothing that is to be looked at.
    Noted(Snowflake, Option<Incoming>),
    Answered(Snowflake),
    CaughtUp(Snowflake, Missed),
    Said,
}

/// What is on record.
#[derive(Default)]
struct Opened {
    pending: Vec<(Incoming, Progress)>,
    /// Channels that have talked.
    talking: Vec<Snowflake>,
}

impl Bridge {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            desks: HashMap::new(),
            opening: false,
            places: HashMap::new(),
            application: None,
            commanded: HashSet::new(),
            tasks: JoinSet::new(),
            owed: HashMap::new(),
        }
    }

    fn hear(&mut self, happening: Happening) {
        match happening {
            Happening::Ready(ready) => self.ready(ready),
            Happening::Resumed => tracing::info!("the connection to Discord is back, nothing was missed"),
            Happening::Message(message) => self.message(&message),
            Happening::Interaction(interaction) => self.interaction(&interaction),
            Happening::Guild(guild) => {
                for thread in &guild.threads {
                    self.thread(thread, Some(guild.id));
                }
                self.register(guild.id);
            }
            Happening::Thread(thread) => self.thread(&thread, None),
            // The caller's to tell.
            Happening::Refused(_) => {}
        }
    }

    /// A new session: what was pending is taken up, and what was said before it is read.
    fn ready(&mut self, ready: wire::Ready) {
        let first = self.shared.me.set(ready.user.id).is_ok();
        tracing::info!(bot = %ready.user.id, guilds = ready.guilds.len(), "connected to Discord");
        self.application = Some(ready.application.id);
        for guild in ready.guilds {
            self.register(guild.id);
        }
        let shared = Arc::clone(&self.shared);
        self.opening = true;
        self.start(Done::Opened(Opened::default()), async move {
            let pending = if first { shared.ledger.pending().await } else { None };
            let talking = shared.ledger.channels().await;
            Done::Opened(Opened { pending: pending.unwrap_or_default(), talking: talking.unwrap_or_default() })
        });
    }

    fn opened(&mut self, Opened { pending, talking }: Opened) {
        self.opening = false;
        for (incoming, progress) in pending {
            let desk = self.desks.entry(incoming.channel).or_default();
            desk.waiting.push_back(Waiting { incoming, progress, old: true });
        }
        let allow = &self.shared.settings.allow;
        let listed = allow.listen.iter().chain(&allow.channels);
        let read: HashSet<Snowflake> = talking.iter().chain(listed).chain(self.desks.keys()).copied().collect();
        for channel in read {
            self.catch_up(channel);
        }
    }

    fn catch_up(&mut self, channel: Snowflake) {
        let desk = self.desks.entry(channel).or_default();
        if let Some(gate) = &mut desk.gate {
            gate.again = true;
            return;
        }
        desk.gate = Some(Gate::default());
        self.read_history(channel);
    }

    fn read_history(&mut self, channel: Snowflake) {
        let shared = Arc::clone(&self.shared);
        let nothing = Done::CaughtUp(channel, Missed::default());
        self.start(nothing, async move { Done::CaughtUp(channel, catch_up(&shared, channel).await) });
    }

    fn caught_up(&mut self, channel: Snowflake, missed: Missed) {
        self.places.extend(missed.place.map(|place| (channel, place)));
        for incoming in missed.heard {
            self.arrive(channel, Arrival::Message(incoming));
        }
        if let Some(read) = missed.read {
            self.arrive(channel, Arrival::Passing(read));
        }
        let Some(gate) = self.desks.get_mut(&channel).and_then(|desk| desk.gate.as_mut()) else { return };
        if std::mem::take(&mut gate.again) {
            self.read_history(channel);
            return;
        }
        let held = std::mem::take(&mut gate.held);
        for incoming in held {
            self.arrive(channel, Arrival::Message(incoming));
        }
        if let Some(desk) = self.desks.get_mut(&channel) {
            desk.gate = None;
        }
        self.begin(channel);
    }

    fn message(&mut self, message: &wire::Message) {
        let Some(me) = self.shared.me.get().copied() else { return };
        let place = self.places.get(&message.channel_id).copied().unwrap_or_default();
        let heard = heard(message, me, place, &self.shared.settings.allow);
        let desk = self.desks.get_mut(&message.channel_id);
        match (heard, desk) {
            (Some(incoming), Some(Desk { gate: Some(gate), .. })) => {
                if gate.held.len() < HELD {
                    gate.held.push(incoming);
                } else {
                    gate.again = true;
                }
            }
            (Some(incoming), _) => self.hear_live(message.channel_id, Arrival::Message(incoming)),
            // Read, and not for us: not to be read again.
            (None, Some(Desk { gate: None, .. })) => {
                self.hear_live(message.channel_id, Arrival::Passing(message.id));
            }
            (None, _) => {}
        }
    }

    /// Begins with the next message of a channel, if it is its turn.
    fn begin(&mut self, channel: Snowflake) {
        let Some(desk) = self.desks.get_mut(&channel) else { return };
        if desk.running.is_some() || desk.gate.is_some() {
            return;
        }
        let Some(Waiting { incoming, progress, old }) = desk.waiting.pop_front() else { return };
        let stop = CancellationToken::new();
        desk.running = Some(Running { stop: stop.clone(), since: Instant::now() });
        let place = self.places.get(&channel).copied().unwrap_or_default();
        let shared = Arc::clone(&self.shared);
        self.start(Done::Answered(channel), async move {
            match if old { is_still_admitted(&shared, &incoming, place).await } else { Ok(true) } {
                Ok(true) => match command_in(&incoming) {
                    // Taken in, and not obeyed by then.
                    Some(command) => shared.obey_message(&incoming, command, &Doing::default()).await,
                    None => answer(&shared, &incoming, progress, &stop).await.unwrap_or_default(),
                },
                Ok(false) => {
                    let (message, author) = (incoming.id, incoming.author);
                    tracing::warn!(%channel, %message, %author, "not answered: its author is no longer allowed here");
                    shared.ledger.failed(message, "its author is no longer allowed").await;
                }
                Err(_interrupted) => {}
            }
            Done::Answered(channel)
        });
    }

    fn thread(&mut self, thread: &wire::Channel, guild: Option<Snowflake>) {
        if self.places.len() >= MANY {
            self.places.clear();
        }
        let place = Whereabouts { guild: thread.guild_id.or(guild), parent: thread.thread_of() };
        self.places.insert(thread.id, place);
    }

    fn start(&mut self, owed: Done, task: impl Future<Output = Done> + Send + 'static) {
        let handle = self.tasks.spawn(task);
        self.owed.insert(handle.id(), owed);
    }

    fn ended(&mut self, done: Result<(Id, Done), JoinError>) {
        let done = match done {
            Ok((id, done)) => {
                self.owed.remove(&id);
                done
            }
            // A bug; what it was about is taken up again at the next start.
            Err(error) => {
                tracing::error!("a task of the bridge failed: {error}");
                self.owed.remove(&error.id()).unwrap_or(Done::Said)
            }
        };
        match done {
            Done::Answered(channel) => {
                if let Some(desk) = self.desks.get_mut(&channel) {
                    desk.running = None;
                }
                self.begin(channel);
            }
            Done::CaughtUp(channel, missed) => self.caught_up(channel, missed),
            Done::Opened(opened) => self.opened(opened),
            Done::Noted(channel, new) => self.noted(channel, new),
            Done::Said => {}
        }
    }

    /// Lets what runs come to its end for a while, then interrupts it.
    async fn end(mut self, stop: &Stop) {
        /// What a task that was interrupted may still take.
        const LAST_MOMENT: Duration = Duration::from_secs(5);
        let running = self.desks.values().filter(|desk| desk.running.is_some()).count();
        if running > 0 {
            tracing::info!(running, "letting answers come to their end");
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::pin!(all);
        tokio::select! {
            () = &mut all => return,
            () = tokio::time::sleep(self.shared.settings.drain) => {}
            () = stop.now.cancelled() => {}
        }
        self.shared.interrupted.cancel();
        // Dropping what is left stops it, too.
        let _in_time = tokio::time::timeout(LAST_MOMENT, all).await;
    }
}
