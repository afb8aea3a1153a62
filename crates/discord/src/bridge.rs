//! The bridge: receives events from Discord, keeps one queue for each channel, and answers the messages of a channel one
//! after the other. Channels do not wait for each other.
//!
//! One loop owns the queues. Everything that may take long, including store operations, is a task that reports its result to
//! the loop.

mod commands;
mod intake;

use commands::ChannelActivity;
use intake::command_in;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trunkline_store::Store;

use crate::DiscordSettings;
use crate::answer::answer;
use crate::backend::ChatBackends;
use crate::bridge_store::{AnswerProgress, BridgeStore};
use crate::catch_up::{MissedMessages, catch_up, is_still_admitted};
use crate::channel_state::{ActiveAnswer, Arrival, ChannelState, HistoryRead, QueuedMessage};
use crate::files::Files;
use crate::gateway::{self, DiscordEvent};
use crate::incoming::{ChannelLocation, IncomingMessage, addressed_message};
use crate::rest::{self, Rest};
use crate::shared::BridgeShared;
use crate::snowflake::Snowflake;
use crate::token::Token;
use crate::wire;

/// Events that are buffered for the loop. The connection waits if the buffer is full.
const MAX_BUFFERED_EVENTS: usize = 256;

/// Messages of a channel that are held in memory until they can be processed. Further ones are read from its history.
const MAX_HELD_MESSAGES: usize = 1000;

/// Threads whose location is cached.
const MAX_CACHED_THREADS: usize = 20_000;

/// Tokens that stop the bridge.
#[derive(Debug, Clone, Default)]
pub struct BridgeShutdown {
    /// Stops the bridge after running answers have ended, or after [`DiscordSettings::drain`].
    pub gently: CancellationToken,
    /// Interrupts running answers.
    pub now: CancellationToken,
}

/// Reason why the bridge cannot run.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("no user is allowed to talk to the bridge")]
    NoUserAllowed,
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("Discord refused the token")]
    Token,
    #[error("Discord refused the intents")]
    Intents,
    #[error("Discord closed the connection permanently (code {0:?})")]
    Refused(Option<u16>),
}

/// Runs the bridge until it is stopped or Discord refuses the connection.
pub async fn run(
    settings: DiscordSettings,
    token: &Token,
    backends: ChatBackends,
    store: Store,
    stop: BridgeShutdown,
) -> Result<(), BridgeError> {
    if settings.allow.is_empty() {
        return Err(BridgeError::NoUserAllowed);
    }
    let http = rest::client(settings.api.is_some()).map_err(BridgeError::Tls)?;
    check_tls()?;
    let interrupted = CancellationToken::new();
    let shared = Arc::new(BridgeShared {
        rest: Rest::new(http.clone(), token.clone(), settings.api.as_deref()),
        store: BridgeStore::new(store, settings.secrets.clone(), interrupted.clone()),
        files: Files::new(http, &settings.state, settings.api.as_deref()),
        backends,
        me: OnceLock::new(),
        interrupted,
        settings,
    });
    shared.files.sweep().await;
    let (sender, mut events) = mpsc::channel(MAX_BUFFERED_EVENTS);
    let shard = gateway::connect(token, shared.settings.gateway.as_deref());
    let mut connection = JoinSet::new();
    connection.spawn(gateway::forward_events(shard, sender));
    let mut bridge = Bridge::new(shared);
    let outcome = loop {
        tokio::select! {
            biased;
            () = stop.gently.cancelled() => break Ok(()),
            () = stop.now.cancelled() => break Ok(()),
            Some(done) = bridge.tasks.join_next_with_id() => bridge.task_ended(done),
            // Messages of an earlier process come before new ones.
            event = events.recv(), if !bridge.loading => match event {
                Some(DiscordEvent::Refused(code)) => break Err(refused(code)),
                Some(event) => bridge.handle(event),
                None => break Err(BridgeError::Refused(None)),
            },
        }
    };
    drop(events);
    bridge.shut_down(&stop).await;
    while connection.join_next().await.is_some() {}
    outcome
}

/// Checks TLS in advance: twilight panics if it does not work.
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
    shared: Arc<BridgeShared>,
    channels: HashMap<Snowflake, ChannelState>,
    /// Whether unanswered messages of an earlier process are being loaded.
    loading: bool,
    /// Locations of threads.
    locations: HashMap<Snowflake, ChannelLocation>,
    application: Option<Snowflake>,
    /// Guilds in which the commands are registered.
    guilds_with_commands: HashSet<Snowflake>,
    tasks: JoinSet<BridgeTaskResult>,
    /// Results to assume for tasks that panic.
    fallback_results: HashMap<Id, BridgeTaskResult>,
}

/// Result of a task.
enum BridgeTaskResult {
    Loaded(StoredWork),
    /// An arrival was recorded. Contains the message if it is new.
    Recorded(Snowflake, Option<IncomingMessage>),
    Answered(Snowflake),
    CaughtUp(Snowflake, MissedMessages),
    Responded,
}

/// State that an earlier process has left in the store.
#[derive(Default)]
struct StoredWork {
    pending: Vec<(IncomingMessage, AnswerProgress)>,
    /// Channels with a conversation.
    channels: Vec<Snowflake>,
}

impl Bridge {
    fn new(shared: Arc<BridgeShared>) -> Self {
        Self {
            shared,
            channels: HashMap::new(),
            loading: false,
            locations: HashMap::new(),
            application: None,
            guilds_with_commands: HashSet::new(),
            tasks: JoinSet::new(),
            fallback_results: HashMap::new(),
        }
    }

    fn handle(&mut self, event: DiscordEvent) {
        match event {
            DiscordEvent::Ready(ready) => self.ready(ready),
            DiscordEvent::Resumed => tracing::info!("the connection to Discord was resumed; no event was lost"),
            DiscordEvent::Message(message) => self.message(&message),
            DiscordEvent::Interaction(interaction) => self.interaction(&interaction),
            DiscordEvent::Guild(guild) => {
                for thread in &guild.threads {
                    self.thread(thread, Some(guild.id));
                }
                self.register(guild.id);
            }
            DiscordEvent::Thread(thread) => self.thread(&thread, None),
            // Handled by the caller.
            DiscordEvent::Refused(_) => {}
        }
    }

    /// Starts a new gateway session: loads unanswered messages, and reads the history of channels.
    fn ready(&mut self, ready: wire::ReadyEvent) {
        let first = self.shared.me.set(ready.user.id).is_ok();
        tracing::info!(bot = %ready.user.id, guilds = ready.guilds.len(), "connected to Discord");
        self.application = Some(ready.application.id);
        for guild in ready.guilds {
            self.register(guild.id);
        }
        let shared = Arc::clone(&self.shared);
        self.loading = true;
        self.spawn(BridgeTaskResult::Loaded(StoredWork::default()), async move {
            let pending = if first { shared.store.pending().await } else { None };
            let channels = shared.store.channels().await;
            BridgeTaskResult::Loaded(StoredWork {
                pending: pending.unwrap_or_default(),
                channels: channels.unwrap_or_default(),
            })
        });
    }

    fn loaded(&mut self, StoredWork { pending, channels }: StoredWork) {
        self.loading = false;
        for (incoming, progress) in pending {
            let state = self.channels.entry(incoming.channel).or_default();
            state.queue.push_back(QueuedMessage { incoming, progress, from_earlier_process: true });
        }
        let allow = &self.shared.settings.allow;
        let listed = allow.listen.iter().chain(&allow.channels);
        let all: HashSet<Snowflake> = channels.iter().chain(listed).chain(self.channels.keys()).copied().collect();
        for channel in all {
            self.catch_up(channel);
        }
    }

    fn catch_up(&mut self, channel: Snowflake) {
        let state = self.channels.entry(channel).or_default();
        if let Some(history_read) = &mut state.history_read {
            history_read.again = true;
            return;
        }
        state.history_read = Some(HistoryRead::default());
        self.read_history(channel);
    }

    fn read_history(&mut self, channel: Snowflake) {
        let shared = Arc::clone(&self.shared);
        let fallback = BridgeTaskResult::CaughtUp(channel, MissedMessages::default());
        self.spawn(fallback, async move { BridgeTaskResult::CaughtUp(channel, catch_up(&shared, channel).await) });
    }

    fn caught_up(&mut self, channel: Snowflake, missed: MissedMessages) {
        self.locations.extend(missed.location.map(|location| (channel, location)));
        for incoming in missed.messages {
            self.enqueue(channel, Arrival::Message(incoming));
        }
        if let Some(read) = missed.read {
            self.enqueue(channel, Arrival::Ignored(read));
        }
        let state = self.channels.get_mut(&channel);
        let Some(history_read) = state.and_then(|state| state.history_read.as_mut()) else { return };
        if std::mem::take(&mut history_read.again) {
            self.read_history(channel);
            return;
        }
        let held = std::mem::take(&mut history_read.held);
        for incoming in held {
            self.enqueue(channel, Arrival::Message(incoming));
        }
        if let Some(state) = self.channels.get_mut(&channel) {
            state.history_read = None;
        }
        self.start_next(channel);
    }

    fn message(&mut self, message: &wire::DiscordMessage) {
        let Some(me) = self.shared.me.get().copied() else { return };
        let location = self.locations.get(&message.channel_id).copied().unwrap_or_default();
        let incoming = addressed_message(message, me, location, &self.shared.settings.allow);
        let state = self.channels.get_mut(&message.channel_id);
        match (incoming, state) {
            (Some(incoming), Some(ChannelState { history_read: Some(history_read), .. })) => {
                if history_read.held.len() < MAX_HELD_MESSAGES {
                    history_read.held.push(incoming);
                } else {
                    history_read.again = true;
                }
            }
            (Some(incoming), _) => self.enqueue_live(message.channel_id, Arrival::Message(incoming)),
            // Moves the cursor, so that the message is not read again.
            (None, Some(ChannelState { history_read: None, .. })) => {
                self.enqueue_live(message.channel_id, Arrival::Ignored(message.id));
            }
            (None, _) => {}
        }
    }

    /// Starts the next message of a channel, unless an answer is running or the history is being read.
    fn start_next(&mut self, channel: Snowflake) {
        let Some(state) = self.channels.get_mut(&channel) else { return };
        if state.running.is_some() || state.history_read.is_some() {
            return;
        }
        let Some(queued) = state.queue.pop_front() else { return };
        let QueuedMessage { incoming, progress, from_earlier_process } = queued;
        let stop = CancellationToken::new();
        state.running = Some(ActiveAnswer { stop: stop.clone(), since: Instant::now() });
        let location = self.locations.get(&channel).copied().unwrap_or_default();
        let shared = Arc::clone(&self.shared);
        self.spawn(BridgeTaskResult::Answered(channel), async move {
            let admitted =
                if from_earlier_process { is_still_admitted(&shared, &incoming, location).await } else { Ok(true) };
            match admitted {
                Ok(true) => match command_in(&incoming) {
                    // Recorded, but not executed by the earlier process.
                    Some(command) => shared.execute_message(&incoming, command, &ChannelActivity::default()).await,
                    None => answer(&shared, &incoming, progress, &stop).await.unwrap_or_default(),
                },
                Ok(false) => {
                    let (message, author) = (incoming.id, incoming.author);
                    tracing::warn!(%channel, %message, %author, "message not answered: its author is no longer allowed here");
                    shared.store.mark_failed(message, "its author is no longer allowed").await;
                }
                Err(_interrupted) => {}
            }
            BridgeTaskResult::Answered(channel)
        });
    }

    /// Caches the location of a thread.
    fn thread(&mut self, thread: &wire::Channel, guild: Option<Snowflake>) {
        if self.locations.len() >= MAX_CACHED_THREADS {
            self.locations.clear();
        }
        let location = ChannelLocation { guild: thread.guild_id.or(guild), parent: thread.thread_of() };
        self.locations.insert(thread.id, location);
    }

    /// Starts a task. `fallback` is its result if it panics.
    fn spawn(&mut self, fallback: BridgeTaskResult, task: impl Future<Output = BridgeTaskResult> + Send + 'static) {
        let handle = self.tasks.spawn(task);
        self.fallback_results.insert(handle.id(), fallback);
    }

    fn task_ended(&mut self, done: Result<(Id, BridgeTaskResult), JoinError>) {
        let done = match done {
            Ok((id, done)) => {
                self.fallback_results.remove(&id);
                done
            }
            // A bug. Its message is retried at the next start.
            Err(error) => {
                tracing::error!("a task of the bridge failed: {error}");
                self.fallback_results.remove(&error.id()).unwrap_or(BridgeTaskResult::Responded)
            }
        };
        match done {
            BridgeTaskResult::Answered(channel) => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.running = None;
                }
                self.start_next(channel);
            }
            BridgeTaskResult::CaughtUp(channel, missed) => self.caught_up(channel, missed),
            BridgeTaskResult::Loaded(loaded) => self.loaded(loaded),
            BridgeTaskResult::Recorded(channel, new) => self.recorded(channel, new),
            BridgeTaskResult::Responded => {}
        }
    }

    /// Waits for running tasks for a while, then interrupts them.
    async fn shut_down(mut self, stop: &BridgeShutdown) {
        /// Time that interrupted tasks get.
        const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
        let running = self.channels.values().filter(|state| state.running.is_some()).count();
        if running > 0 {
            tracing::info!(running, "waiting for running answers");
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::pin!(all);
        tokio::select! {
            () = &mut all => return,
            () = tokio::time::sleep(self.shared.settings.drain) => {}
            () = stop.now.cancelled() => {}
        }
        self.shared.interrupted.cancel();
        // Remaining tasks are stopped when they are dropped.
        let _ = tokio::time::timeout(INTERRUPT_TIMEOUT, all).await;
    }
}
