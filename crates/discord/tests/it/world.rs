//! A bridge in a test: its Discord, its backend, its store; it can be killed and started again.

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
    Allow, Ask, Backend, Backends, BridgeError, EventResult, Invalid, Partial, Partials, Settings, Snowflake, Stop,
    Token,
};
use trunkline_store::Store;

use crate::fake::{Discord, GUILD, TOKEN, USER};

pub(crate) struct World {
    pub(crate) discord: Discord,
    pub(crate) puppet: Arc<Puppet>,
    pub(crate) folder: TempDir,
    pub(crate) settings: Settings,
    bridge: Option<Bridge>,
}

struct Bridge {
    runtime: Runtime,
    stop: Stop,
    ended: std::sync::mpsc::Receiver<Result<(), BridgeError>>,
}

impl World {
    /// Everybody of the guild may talk, and one user directly.
    pub(crate) fn new() -> Self {
        let discord = Discord::start();
        let folder = tempfile::tempdir().unwrap();
        let allow = Allow { guilds: vec![Snowflake(GUILD)], users: Vec::new(), ..Allow::default() };
        let settings = Settings {
            api: Some(discord.api.clone()),
            gateway: Some(discord.gateway.clone()),
            system_prompt: "be brief".to_owned(),
            drain: Duration::from_secs(60),
            pace: Duration::from_millis(5),
            ..Settings::new(allow, folder.path().to_owned())
        };
        Self { discord, puppet: Arc::default(), folder, settings, bridge: None }
    }

    pub(crate) fn allowing(mut self, allow: Allow) -> Self {
        self.settings.allow = allow;
        self
    }

    /// Direct messages of the one user.
    pub(crate) fn direct(self) -> Self {
        self.allowing(Allow { users: vec![Snowflake(USER)], ..Allow::default() })
    }

    /// Starts the bridge and waits until Discord knows it.
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
        let (stop, settings) = (Stop::default(), self.settings.clone());
        let other: Arc<dyn Backend> = Arc::new(Other);
        let backends = Backends::new(Arc::<Puppet>::clone(&self.puppet)).with([other]);
        let (end, ended) = std::sync::mpsc::channel();
        let stopping = stop.clone();
        runtime.spawn(async move {
            let token = Token::new(TOKEN);
            let outcome = trunkline_discord::run(settings, &token, backends, store.clone(), stopping).await;
            store.close().await;
            let _nobody_waits = end.send(outcome);
        });
        self.bridge = Some(Bridge { runtime, stop, ended });
    }

    /// What is on record of a message: its state, its words, and what was noted of its answer.
    pub(crate) fn on_record(&self, message: u64) -> Option<(&'static str, String, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = open(self.folder.path()).await;
            let row = store.inbox_message(&message.to_string()).await.unwrap();
            store.close().await;
            let row = row?;
            let detail = row.detail.map(|detail| detail.to_string()).unwrap_or_default();
            Some((row.state.name(), row.payload.to_string(), detail))
        })
    }

    /// Ends it as a power cut would: nothing more is done.
    pub(crate) fn kill(&mut self) {
        self.bridge.take().unwrap().runtime.shutdown_timeout(Duration::from_secs(10));
        self.discord.cut();
        // Discord remembers those for minutes only.
        self.discord.look().forget_nonces();
    }

    /// Asks it to stop, and waits until it has.
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
        bridge.ended.recv_timeout(Duration::from_secs(60)).expect("the bridge ends")
    }
}

/// Keeps the database locked, as another process may, until it is dropped.
pub(crate) struct Locked {
    runtime: Runtime,
    connection: Option<SqliteConnection>,
}

impl Locked {
    pub(crate) fn new(world: &World) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = SqliteConnectOptions::new().filename(world.folder.path().join("trunkline.db"));
        let mut connection = runtime.block_on(options.busy_timeout(Duration::from_secs(60)).connect()).unwrap();
        runtime.block_on(sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection)).unwrap();
        Self { runtime, connection: Some(connection) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.runtime.block_on(connection.close()).unwrap();
        }
    }
}

pub(crate) async fn open(folder: &Path) -> Store {
    Store::open(&folder.join("trunkline.db")).await.unwrap()
}

/// A backend that does as the prompt says: words separated by a bar are steps.
#[derive(Default)]
pub(crate) struct Puppet {
    pub(crate) asked: Mutex<Vec<Asked>>,
    /// Answers that were let go of before their end.
    pub(crate) dropped: AtomicUsize,
    released: Mutex<HashSet<String>>,
    bell: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) prompt: String,
    pub(crate) system: String,
    pub(crate) session: Option<String>,
    pub(crate) history: usize,
    pub(crate) images: usize,
    pub(crate) partials: bool,
}

impl Puppet {
    /// Lets whoever holds for this word go on.
    pub(crate) fn release(&self, word: &str) {
        self.released.lock().unwrap().insert(word.to_owned());
        self.bell.notify_waiters();
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|asked| asked.prompt.clone()).collect()
    }

    async fn hold(&self, word: &str) {
        loop {
            let rung = self.bell.notified();
            if self.released.lock().unwrap().contains(word) {
                return;
            }
            rung.await;
        }
    }

    async fn act(&self, prompt: String, mut partials: Option<Partials<'_>>) -> EventResult {
        let mut tell = |partial: Partial<'_>| {
            if let Some(partials) = &mut partials {
                partials(partial);
            }
        };
        let session_id = Some(SessionId("session".to_owned()));
        let first = prompt.lines().next().unwrap_or_default().to_owned();
        for step in first.split('|') {
            match step.split_once(' ').unwrap_or((step, "")) {
                ("hold", word) => self.hold(word).await,
                ("text", text) => tell(Partial::Text(text)),
                ("tool", what) => tell(Partial::Doing(what)),
                ("done", _) => tell(Partial::Done),
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

struct Dropped<'a> {
    count: &'a AtomicUsize,
    ended: bool,
}

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Backend for Puppet {
    fn name(&self) -> &str {
        "puppet"
    }

    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }

    fn takes_images(&self) -> bool {
        true
    }

    fn execute<'a>(&'a self, ask: Ask<'a>, partials: Option<Partials<'a>>) -> BoxFuture<'a, EventResult> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(Asked {
                prompt: ask.prompt.to_owned(),
                system: ask.system_prompt.to_owned(),
                session: ask.session.map(ToString::to_string),
                history: ask.history.len(),
                images: ask.images.len(),
                partials: partials.is_some(),
            });
            let mut dropped = Dropped { count: &self.dropped, ended: false };
            let result = self.act(ask.prompt.to_owned(), partials).await;
            dropped.ended = true;
            result
        })
    }
}

/// A second one, to change to.
struct Other;

impl Backend for Other {
    fn name(&self) -> &str {
        "other"
    }

    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }

    fn execute<'a>(&'a self, ask: Ask<'a>, _partials: Option<Partials<'a>>) -> BoxFuture<'a, EventResult> {
        let text = format!("other: {}", ask.prompt);
        Box::pin(async move { EventResult { response_text: Some(text), session_id: None, is_error: false } })
    }
}
