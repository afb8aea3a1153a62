//! A bridge under test, with a fake FakeDiscord, a scripted backend and a store. It can be killed and restarted.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use trunkline_core::event::SessionId;
use trunkline_discord::{
    Allow, BackendRequest, BridgeError, BridgeShutdown, ChatBackend, ChatBackends, DiscordSettings, EventResult,
    InvalidBackend, Partial, Partials, Snowflake, Token,
};
use trunkline_store::{BRIDGE_FILE, DATABASE_FILE, Store};

use crate::fake::{FakeDiscord, GUILD, TOKEN, USER};

/// A bridge under test.
pub(crate) struct BridgeTest {
    pub(crate) discord: FakeDiscord,
    pub(crate) backend: Arc<ScriptedBackend>,
    pub(crate) folder: TempDir,
    pub(crate) settings: DiscordSettings,
    bridge: Option<RunningBridge>,
}

struct RunningBridge {
    runtime: Runtime,
    stop: BridgeShutdown,
    ended: std::sync::mpsc::Receiver<Result<(), BridgeError>>,
}

impl BridgeTest {
    /// A bridge that answers every user of the guild.
    pub(crate) fn new() -> Self {
        let discord = FakeDiscord::start();
        let folder = tempfile::tempdir().unwrap();
        let allow = Allow { guilds: vec![Snowflake(GUILD)], users: Vec::new(), ..Allow::default() };
        let settings = DiscordSettings {
            api: Some(discord.api.clone()),
            gateway: Some(discord.gateway.clone()),
            system_prompt: "be brief".to_owned(),
            drain: Duration::from_secs(60),
            pace: Duration::from_millis(5),
            ..DiscordSettings::new(allow, folder.path().to_owned())
        };
        Self { discord, backend: Arc::default(), folder, settings, bridge: None }
    }

    pub(crate) fn allowing(mut self, allow: Allow) -> Self {
        self.settings.allow = allow;
        self
    }

    /// Allows direct messages of [`USER`] only.
    pub(crate) fn direct(self) -> Self {
        self.allowing(Allow { users: vec![Snowflake(USER)], ..Allow::default() })
    }

    /// Starts the bridge and waits until it has identified.
    pub(crate) fn start(mut self) -> Self {
        self.restart();
        self
    }

    pub(crate) fn restart(&mut self) {
        let identified = self.discord.look().identified.len();
        self.launch();
        self.discord.until_ready(identified + 1);
    }

    pub(crate) fn launch(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = runtime.block_on(open(self.folder.path()));
        let (stop, settings) = (BridgeShutdown::default(), self.settings.clone());
        let other: Arc<dyn ChatBackend> = Arc::new(SecondBackend);
        let backends = ChatBackends::new(Arc::<ScriptedBackend>::clone(&self.backend)).with([other]);
        let (end, ended) = std::sync::mpsc::channel();
        let stopping = stop.clone();
        runtime.spawn(async move {
            let token = Token::new(TOKEN);
            let outcome = trunkline_discord::run(settings, &token, backends, store.clone(), stopping).await;
            store.close().await;
            // The test may have ended.
            let _ = end.send(outcome);
        });
        self.bridge = Some(RunningBridge { runtime, stop, ended });
    }

    /// State, payload and detail of a message in the inbox.
    pub(crate) fn inbox_entry(&self, message: u64) -> Option<(&'static str, String, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = open(self.folder.path()).await;
            let row = store.bridge().await.unwrap().inbox_message(&message.to_string()).await.unwrap();
            store.close().await;
            let row = row?;
            let detail = row.detail.map(|detail| detail.to_string()).unwrap_or_default();
            Some((row.state.name(), row.payload.to_string(), detail))
        })
    }

    /// Ends the bridge as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.bridge.take().unwrap().runtime.shutdown_timeout(Duration::from_secs(10));
        self.discord.cut();
        // Discord remembers nonces for minutes only.
        self.discord.look().forget_nonces();
    }

    /// Stops the bridge gently, and waits for its end.
    pub(crate) fn stop(&mut self) -> Result<(), BridgeError> {
        self.bridge.as_ref().unwrap().stop.gently.cancel();
        self.ended()
    }

    pub(crate) fn stop_gently(&self) {
        self.bridge.as_ref().unwrap().stop.gently.cancel();
    }

    pub(crate) fn stop_now(&mut self) -> Result<(), BridgeError> {
        self.bridge.as_ref().unwrap().stop.now.cancel();
        self.ended()
    }

    pub(crate) fn ended(&mut self) -> Result<(), BridgeError> {
        let bridge = self.bridge.take().unwrap();
        bridge.ended.recv_timeout(Duration::from_secs(60)).expect("the bridge has ended")
    }
}

/// Locks the database of the bridge, as another process may, until it is dropped.
pub(crate) struct DatabaseLock {
    runtime: Runtime,
    connection: Option<SqliteConnection>,
}

impl DatabaseLock {
    pub(crate) fn new(world: &BridgeTest) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = SqliteConnectOptions::new().filename(world.folder.path().join(BRIDGE_FILE));
        let mut connection = runtime.block_on(options.busy_timeout(Duration::from_secs(60)).connect()).unwrap();
        runtime.block_on(sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection)).unwrap();
        Self { runtime, connection: Some(connection) }
    }
}

impl Drop for DatabaseLock {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.runtime.block_on(connection.close()).unwrap();
        }
    }
}

pub(crate) async fn open(folder: &Path) -> Store {
    Store::open(&folder.join(DATABASE_FILE)).await.unwrap()
}

/// A backend that executes its prompt: steps are separated by a bar.
#[derive(Default)]
pub(crate) struct ScriptedBackend {
    pub(crate) requests: Mutex<Vec<ReceivedRequest>>,
    /// Number of answers that were dropped before their end.
    pub(crate) dropped: AtomicUsize,
    released: Mutex<HashSet<String>>,
    release_signal: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    pub(crate) prompt: String,
    pub(crate) system: String,
    pub(crate) session: Option<String>,
    pub(crate) history: usize,
    pub(crate) images: usize,
    pub(crate) partials: bool,
}

impl ScriptedBackend {
    /// Lets steps that wait for this word continue.
    pub(crate) fn release(&self, word: &str) {
        self.released.lock().unwrap().insert(word.to_owned());
        self.release_signal.notify_waiters();
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.prompt.clone()).collect()
    }

    async fn hold(&self, word: &str) {
        loop {
            let released = self.release_signal.notified();
            if self.released.lock().unwrap().contains(word) {
                return;
            }
            released.await;
        }
    }

    async fn act(&self, prompt: String, mut partials: Option<Partials<'_>>) -> EventResult {
        let mut report = |partial: Partial<'_>| {
            if let Some(partials) = &mut partials {
                partials(partial);
            }
        };
        let session_id = Some(SessionId("session".into()));
        let first = prompt.lines().next().unwrap_or_default().to_owned();
        for step in first.split('|') {
            match step.split_once(' ').unwrap_or((step, "")) {
                ("hold", word) => self.hold(word).await,
                ("text", text) => report(Partial::Text(text)),
                ("tool", what) => report(Partial::ToolStarted(what)),
                ("done", _) => report(Partial::ToolFinished),
                ("fail", why) => return EventResult::error(why),
                ("forget", _) => return EventResult { response_text: Some("forgot".into()), ..EventResult::default() },
                ("long", lines) => {
                    let text: String =
                        (0..lines.parse::<usize>().unwrap()).map(|line| format!("this is line {line}\n")).collect();
                    return EventResult { response_text: Some(text), session_id, is_error: false };
                }
                ("ping", _) => {
                    let response_text = Some("@everyone look, <@40>".to_owned());
                    return EventResult { response_text, session_id, is_error: false };
                }
                _ => {}
            }
        }
        EventResult { response_text: Some(format!("re: {prompt}")), session_id, is_error: false }
    }
}

struct DropCounter<'a> {
    count: &'a AtomicUsize,
    ended: bool,
}

impl Drop for DropCounter<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl ChatBackend for ScriptedBackend {
    fn name(&self) -> &str {
        "scripted"
    }

    fn validate(&self) -> Result<(), InvalidBackend> {
        Ok(())
    }

    fn takes_images(&self) -> bool {
        true
    }

    fn execute<'a>(
        &'a self,
        request: BackendRequest<'a>,
        partials: Option<Partials<'a>>,
    ) -> BoxFuture<'a, EventResult> {
        Box::pin(async move {
            self.requests.lock().unwrap().push(ReceivedRequest {
                prompt: request.prompt.to_owned(),
                system: request.system_prompt.to_owned(),
                session: request.session.map(ToString::to_string),
                history: request.history.len(),
                images: request.images.len(),
                partials: partials.is_some(),
            });
            let mut dropped = DropCounter { count: &self.dropped, ended: false };
            let result = self.act(request.prompt.to_owned(), partials).await;
            dropped.ended = true;
            result
        })
    }
}

/// A second backend, for changes of the model.
struct SecondBackend;

impl ChatBackend for SecondBackend {
    fn name(&self) -> &str {
        "other"
    }

    fn validate(&self) -> Result<(), InvalidBackend> {
        Ok(())
    }

    fn execute<'a>(
        &'a self,
        request: BackendRequest<'a>,
        _partials: Option<Partials<'a>>,
    ) -> BoxFuture<'a, EventResult> {
        let text = format!("other: {}", request.prompt);
        Box::pin(async move { EventResult { response_text: Some(text), session_id: None, is_error: false } })
    }
}
