//! A loaded configuration, and an engine for it: the common ground of the commands.

use std::io;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trunkline_core::api::Api;
use trunkline_core::model::{AGENT, Sandbox};
use trunkline_core::secret::Secrets;
use trunkline_engine::{Caps, Durability, Engine, EngineSettings, secret_values};
use trunkline_process::{KeeperProgram, Keepers};
use trunkline_store::Store;

use crate::config::{Config, ConfigError, ConfigFolder, Environment, normal};
use crate::engine_args::EngineArgs;
use crate::state_folder;

/// Default time between asking a CLI to stop and killing it.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Time that a CLI has to exit by itself after its last event.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A configuration with the folders and limits it is used with.
pub(crate) struct LoadedConfig {
    pub(crate) environment: Environment,
    pub(crate) config_folder: ConfigFolder,
    pub(crate) config: Config,
    pub(crate) state: PathBuf,
    pub(crate) worktrees: PathBuf,
    pub(crate) sandbox: Sandbox,
    pub(crate) durability: Durability,
    pub(crate) git_timeout: Duration,
}

impl LoadedConfig {
    pub(crate) fn new(engine_args: &EngineArgs) -> Result<Self> {
        Self::within(Environment::read()?, engine_args)
    }

    /// Like [`new`](Self::new), with an environment that the command has changed.
    pub(crate) fn within(environment: Environment, engine_args: &EngineArgs) -> Result<Self> {
        let config_folder = ConfigFolder::find(engine_args.config.clone(), &environment)?;
        let config = Config::load(&config_folder, &environment)?;
        let state = engine_args.state_folder(&environment);
        let worktrees = normal(&environment.folder.join(&engine_args.worktrees));
        let (sandbox, git_timeout) = (engine_args.sandbox.into(), engine_args.git_timeout);
        let durability = engine_args.durability.into();
        Ok(Self { config_folder, config, state, worktrees, sandbox, durability, git_timeout, environment })
    }

    /// Builds an engine for these models. Needs a tokio runtime.
    pub(crate) fn engine(&self, caps: Caps, grace: Option<Duration>) -> Result<CliEngine> {
        self.engine_on(keepers()?, caps, grace)
    }

    /// Like [`engine`](Self::engine), for a command that starts processes itself, too.
    pub(crate) fn engine_on(&self, keepers: Keepers, caps: Caps, grace: Option<Duration>) -> Result<CliEngine> {
        state_folder::make_private(&self.state)?;
        let mock = if self.config.wants_mock() { Some(EmbeddedMock::start()?) } else { None };
        let settings = EngineSettings {
            env: self.environment.env.clone(),
            state: self.state.clone(),
            worktrees: self.worktrees.clone(),
            caps,
            sandbox: self.sandbox,
            durability: self.durability,
            git_timeout: self.git_timeout,
            grace: grace.unwrap_or(STOP_GRACE),
            linger: EXIT_TIMEOUT,
            secrets: Secrets::new(secrets_of(&self.environment, &self.config)),
            embedded_llm: mock.as_ref().map(|mock| Arc::clone(&mock.api)),
        };
        Ok(CliEngine { engine: Engine::new(settings, self.config.models.clone(), keepers), mock })
    }
}

/// An engine, and the mock LLM that the built-in agent uses if no other is configured.
pub(crate) struct CliEngine {
    engine: Engine,
    mock: Option<EmbeddedMock>,
}

impl Deref for CliEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl CliEngine {
    /// Opens the database, for commands that run turns. If it cannot be opened, an error is logged and nothing is kept.
    pub(crate) async fn remember(&self, state: &Path) -> Option<Store> {
        match Store::open(&state.join(trunkline_store::DATABASE_FILE)).await {
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

    /// Like [`remember`](Self::remember), for long-running commands: a database that cannot be opened is an error.
    pub(crate) async fn require_store(&self, state: &Path) -> Result<Store, ConfigError> {
        let store = Store::open_unindexed(&state.join(trunkline_store::DATABASE_FILE)).await.map_err(|error| {
            let refused = ConfigError::elsewhere(error.to_string());
            error.remedy().into_iter().fold(refused, ConfigError::hint)
        })?;
        self.engine.remember_and_index(store.clone());
        Ok(store)
    }

    /// Stops all runs and the mock, and waits for them.
    pub(crate) async fn shutdown(&self) {
        self.engine.shutdown().await;
        if let Some(mock) = &self.mock {
            mock.stop.cancel();
            mock.task.wait().await;
        }
    }
}

/// The built-in mock LLM, on a local port.
struct EmbeddedMock {
    api: Arc<Api>,
    stop: CancellationToken,
    task: TaskTracker,
}

impl EmbeddedMock {
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

/// The keepers, which start processes for this command. Needs a tokio runtime.
pub(crate) fn keepers() -> io::Result<Keepers> {
    Keepers::new(KeeperProgram::this_binary(), 1)
}

/// Values in the environment and in a configuration that must be masked wherever text is shown.
pub(crate) fn secrets_of(environment: &Environment, config: &Config) -> Vec<String> {
    let inherited = environment.env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let env = config.models.all().flat_map(|model| &model.env).map(|(name, value)| (name.as_str(), value.as_str()));
    let options = config.models.all().flat_map(|model| &model.config);
    let options = options.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let values = secret_values(inherited.chain(env).chain(options));
    // A variable may hold several keys, separated by commas: each is masked by itself.
    let each: Vec<String> = values.iter().flat_map(|value| value.split(',')).map(|key| key.trim().to_owned()).collect();
    let servers = config.models.all().flat_map(|model| &model.mcp_servers).flat_map(|server| server.secrets());
    values.into_iter().chain(each).chain(servers).collect()
}

/// The tokio runtime of a command.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_park(trunkline_memory::before_sleep)
        .build()?)
}
