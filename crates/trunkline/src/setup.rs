//! What several commands need: the log, the configuration, an engine to run turns on.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_subscriber::filter::LevelFilter;
use trunkline_core::api::Api;
use trunkline_core::model::{AGENT, Sandbox};
use trunkline_core::secret::Secrets;
use trunkline_engine::{Caps, Engine, Settings, secret_values};
use trunkline_process::{KeeperProgram, Keepers};
use trunkline_store::Store;

use crate::cli::Places;
use crate::config::{Config, ConfigError, Place, Surroundings, normal};
use crate::private;
use crate::repl::plain::plain;

/// Between asking a CLI to stop and killing it.
const GRACE: Duration = Duration::from_secs(5);

/// What a CLI gets to exit by itself after its last event.
const LINGER: Duration = Duration::from_secs(5);

/// The log goes to stderr: stdout belongs to the command. One that tells its story itself needs no log of it.
pub(crate) fn log(verbose: u8, tells: bool) {
    let level = match verbose {
        0 if tells => LevelFilter::ERROR,
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // It would tell of a stderr that is gone on stderr, and panic.
        .log_internal_errors(false)
        .init();
}

/// A line on stdout. A reader that has gone away is an error to pass on, not a panic.
pub(crate) fn say(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// A line on stderr, fit for a terminal whoever worded it. That nobody can read it is no reason to end badly.
pub(crate) fn tell(line: impl Display) {
    let _unread = writeln!(io::stderr(), "{}", plain(&line.to_string()));
}

/// A configuration and where it came from.
pub(crate) struct Loaded {
    pub(crate) around: Surroundings,
    pub(crate) place: Place,
    pub(crate) config: Config,
    pub(crate) state: PathBuf,
    pub(crate) worktrees: PathBuf,
    pub(crate) sandbox: Sandbox,
    pub(crate) git_timeout: Duration,
}

impl Loaded {
    pub(crate) fn new(places: &Places) -> Result<Self> {
        Self::within(Surroundings::read()?, places)
    }

    /// As [`new`](Self::new), for a command that has something to add to the environment.
    pub(crate) fn within(around: Surroundings, places: &Places) -> Result<Self> {
        let place = Place::find(places.config.clone(), &around)?;
        let config = Config::load(&place, &around)?;
        let state = places.state_folder(&around);
        let worktrees = normal(&around.folder.join(&places.worktrees));
        let (sandbox, git_timeout) = (places.sandbox.into(), places.git_timeout);
        Ok(Self { place, config, state, worktrees, sandbox, git_timeout, around })
    }

    /// An engine for these models, and what it cannot do without. Needs a tokio runtime.
    pub(crate) fn engine(&self, caps: Caps, grace: Option<Duration>) -> Result<Gateway> {
        self.engine_on(keepers()?, caps, grace)
    }

    /// As [`engine`](Self::engine), for a command that starts something itself, too.
    pub(crate) fn engine_on(&self, keepers: Keepers, caps: Caps, grace: Option<Duration>) -> Result<Gateway> {
        private::keep(&self.state)?;
        let mock = if self.config.wants_mock() { Some(Mock::start()?) } else { None };
        let settings = Settings {
            env: self.around.env.clone(),
            state: self.state.clone(),
            worktrees: self.worktrees.clone(),
            caps,
            sandbox: self.sandbox,
            git_timeout: self.git_timeout,
            grace: grace.unwrap_or(GRACE),
            linger: LINGER,
            secrets: Secrets::new(secrets_of(&self.around, &self.config)),
            embedded_llm: mock.as_ref().map(|mock| Arc::clone(&mock.api)),
        };
        Ok(Gateway { engine: Engine::new(settings, self.config.models.clone(), keepers), mock })
    }
}

/// An engine, and the mock LLM that the built-in agent uses where no other is set.
pub(crate) struct Gateway {
    engine: Engine,
    mock: Option<Mock>,
}

impl Deref for Gateway {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Gateway {
    /// Opens the memory of what was said, for commands that run turns. One that cannot be opened is gone without.
    pub(crate) async fn remember(&self, state: &Path) -> Option<Store> {
        match Store::open(&state.join(trunkline_store::FILE)).await {
            Ok(store) => {
                self.engine.remember_in(store.clone());
                Some(store)
            }
            Err(error) => {
                tracing::error!("sessions are remembered only until this process ends: {error}");
                None
            }
        }
    }

    /// The same for commands that people rely on to remember: one that cannot be opened is refused.
    pub(crate) async fn remember_surely(&self, state: &Path) -> Result<Store, ConfigError> {
        let store = Store::open(&state.join(trunkline_store::FILE)).await.map_err(|error| {
            let refused = ConfigError::elsewhere(error.to_string());
            error.remedy().into_iter().fold(refused, ConfigError::hint)
        })?;
        self.engine.remember_in(store.clone());
        Ok(store)
    }

    /// Ends everything and waits for it.
    pub(crate) async fn shutdown(&self) {
        self.engine.shutdown().await;
        if let Some(mock) = &self.mock {
            mock.stop.cancel();
            mock.task.wait().await;
        }
    }
}

struct Mock {
    api: Arc<Api>,
    stop: CancellationToken,
    task: TaskTracker,
}

impl Mock {
    fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot open a local port")?;
        listener.set_nonblocking(true)?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let api = Arc::new(Api { name: AGENT.to_owned(), base_url, key: None });
        let (listener, stop, task) = (TcpListener::from_std(listener)?, CancellationToken::new(), TaskTracker::new());
        task.spawn(trunkline_mock::serve(listener, trunkline_mock::MockScript::built_in().into(), stop.clone()));
        task.close();
        Ok(Self { api, stop, task })
    }
}

/// Who starts processes for this command. Needs a tokio runtime.
pub(crate) fn keepers() -> io::Result<Keepers> {
    Keepers::new(KeeperProgram::this_binary(), 1)
}

/// Everything in the environment and in a configuration that must not be shown.
pub(crate) fn secrets_of(around: &Surroundings, config: &Config) -> Vec<String> {
    let inherited = around.env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let env = config.models.all().flat_map(|model| &model.env).map(|(name, value)| (name.as_str(), value.as_str()));
    let options = config.models.all().flat_map(|model| &model.config);
    let options = options.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let values = secret_values(inherited.chain(env).chain(options));
    // A variable may hold several, separated by commas: each is one.
    let each: Vec<String> = values.iter().flat_map(|value| value.split(',')).map(|key| key.trim().to_owned()).collect();
    values.into_iter().chain(each).collect()
}

/// The signals that ask a program to end.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// From here on they are heard, and no longer end the program by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: None })
    }

    /// As [`listen`](Self::listen), and hears the terminal being closed. Without a terminal that is left as it was:
    /// `nohup` may have seen to it.
    pub(crate) fn listen_with_hangup() -> io::Result<Self> {
        let hangup = if io::stdin().is_terminal() { Some(signal(SignalKind::hangup())?) } else { None };
        Ok(Self { hangup, ..Self::listen()? })
    }

    /// The next of them. Cancel safe.
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            Some(_) = async { self.hangup.as_mut()?.recv().await } => StopSignal::Hangup,
        }
    }
}

/// SIGHUP as daemons take it: read the configuration again. From a terminal that was closed it means to stop.
pub(crate) struct ReloadRequests {
    hangup: Signal,
    terminal: bool,
    closed: CancellationToken,
}

impl ReloadRequests {
    /// From here on SIGHUP no longer ends the program by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { hangup, terminal: io::stdin().is_terminal(), closed: CancellationToken::new() })
    }

    /// Cancelled when the terminal that the program was started on is closed.
    pub(crate) fn terminal_closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Returns when the configuration is to be read again. Cancel safe.
    pub(crate) async fn next(&mut self) {
        loop {
            if self.hangup.recv().await.is_none() {
                return std::future::pending().await;
            }
            // A terminal that is gone is none any more.
            if !self.terminal || io::stdin().is_terminal() {
                return;
            }
            self.closed.cancel();
        }
    }
}

/// Which of them it was: someone at a terminal may only mean what is going on just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Terminate,
    Interrupt,
    /// The terminal is gone: nothing can be shown on it or read from it.
    Hangup,
}

/// The runtime every command that starts something lives in.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_park(trunkline_memory::before_sleep)
        .build()?)
}
