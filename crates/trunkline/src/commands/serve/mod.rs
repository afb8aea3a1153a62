//! `trunkline serve`: starts the gateway, reloads its configuration, and stops it.

mod args;
mod keys;
mod listen;
mod origins;
mod stop;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use trunkline_core::model::Sandbox;
use trunkline_engine::{Caps, Engine};
use trunkline_process::Landlock;
use trunkline_server::auth::{self, Keys};
use trunkline_server::{LoopbackToolServer, ServerShutdown, serve, serve_metrics};
use trunkline_store::Store;

pub(crate) use self::args::ServeArgs;
use self::listen::{ListenerPurpose, bind_error, metrics_listener};
use self::origins::OriginSettings;
use super::gateway::AddressFile;
use super::reload::ConfigWatch;
use super::retention::{self, Retention};
use crate::config::ConfigError;
use crate::output::say;
use crate::service::{self, ServiceManager};
use crate::setup::{LoadedConfig, runtime};
use crate::signals::{ReloadRequests, StopSignals};

/// File descriptors of a run: three pipes, two ends of its keeper's socket, and a few files of git.
const FILES_PER_RUN: usize = 8;

/// File descriptors for the database, the log, timers and background work.
const FILES_RESERVED: usize = 64;

/// Connections that are accepted even if the limit of open files is too low.
const MIN_CONNECTIONS: usize = 16;

/// Time to clean up after a request to stop at once.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_millis(300);

/// Serves the metrics, if there is a listener for them. Never returns.
async fn metrics(listener: Option<TcpListener>, engine: &Engine) {
    match listener {
        Some(listener) => serve_metrics(listener, Engine::clone(engine)).await,
        None => std::future::pending().await,
    }
}

impl ServeArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = LoadedConfig::new(&self.engine_args)?;
        match (loaded.sandbox, Landlock::here()) {
            (Sandbox::Required, Err(missing)) => {
                let refused = format!("--sandbox required: runs cannot be confined here: {missing}");
                bail!(ConfigError::elsewhere(refused).hint("--sandbox on relies on the CLIs' own flags instead"));
            }
            (Sandbox::On, Err(missing)) => {
                tracing::warn!("runs are not confined, permissions rely on the CLIs' own flags: {missing}");
            }
            (Sandbox::Off, _) | (_, Ok(_)) => {}
        }
        for warning in &loaded.config.warnings {
            tracing::warn!("{warning}");
        }
        let mut caps = self.caps();
        let keys = keys::read(&loaded.environment, self.keys_file.as_deref(), &mut caps)?;
        let address = SocketAddr::new(self.listen.ip, self.listen.port.unwrap_or(self.port));
        auth::check_bind(address, &keys).map_err(|error| ConfigError::elsewhere(error.to_string()))?;
        let origins = OriginSettings::new(self.allow_origins.clone(), keys.clone(), &loaded.config)?;
        let runtime = runtime()?;
        let served = runtime.block_on(self.serve(loaded, keys, origins, caps, address));
        // Do not wait for blocking file operations that may never return.
        runtime.shutdown_background();
        served.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(
        self,
        loaded: LoadedConfig,
        keys: Keys,
        origins: OriginSettings,
        caps: Caps,
        address: SocketAddr,
    ) -> Result<()> {
        // Before anything else: a signal that arrives while the database is opened must not end the process.
        let reloads = ReloadRequests::listen()?;
        let _file_size_signal = stop::handle_file_size_signal()?;
        let listener =
            match service::inherited(&loaded.environment).context("cannot use the socket of the service manager")? {
                Some(listener) => TcpListener::from_std(listener)?,
                None => match TcpListener::bind(address).await {
                    Ok(listener) => listener,
                    Err(error) => return Err(bind_error(address, ListenerPurpose::Api, error).await),
                },
            };
        // A socket of the service manager may have another address than the arguments.
        auth::check_bind(listener.local_addr()?, &keys).map_err(|error| ConfigError::elsewhere(error.to_string()))?;
        let metrics_listener = match self.metrics {
            Some(listen) => Some(metrics_listener(listen).await?),
            None => None,
        };
        let connections = max_connections(&caps);
        let engine = loaded.engine(caps, Some(self.grace))?;
        let tool_server = Arc::new(LoopbackToolServer::new(engine.tool_ports()));
        engine.serve_tools(Arc::<LoopbackToolServer>::clone(&tool_server));
        let store = engine.require_store(&loaded.state).await?;
        let mut config = trunkline_server::ServerConfig { keys, hosts: self.hosts.clone(), ..Default::default() };
        config.origins = origins.allowed.clone();
        config.secrets = Arc::new(engine.secrets().clone());
        config.limits.drain = self.drain;
        config.limits.repeat_wait = self.repeat_wait;
        config.limits.connections = config.limits.connections.min(connections);
        config.chats = Some(loaded.state.join(retention::CHATS));
        // Before the next line is printed: its reader may send a signal or change a file at once.
        let (signals, terminal_closed) = (StopSignals::listen()?, reloads.terminal_closed());
        let changes = ConfigWatch::start(&loaded.config_folder, reloads);
        let closed = if self.until_stdin_closes { stop::stdin_closed() } else { CancellationToken::new() };
        let address = listener.local_addr()?;
        let _address_file = AddressFile::write(&loaded.state, address);
        say(format!("listening on http://{address}"))?;
        let manager = ServiceManager::of(&loaded.environment);
        manager.ready();
        let models = engine.models();
        if models.names().is_empty() {
            tracing::warn!(
                "no models: write a models.json, or install an agent CLI (trunkline doctor shows which are known)"
            );
        }
        tracing::info!(models = %models.names().join(", "), "ready");
        engine.keep_warm(self.budget());
        let shutdown = ServerShutdown::default();
        let mut signals = signals;
        let served = async {
            tokio::join!(
                serve(listener, config, Arc::new(Engine::clone(&engine)), shutdown.clone()),
                stop::drain_detached(&engine, &shutdown, self.drain)
            );
        };
        let retention = self.retention();
        tokio::select! {
            () = served => {}
            () = background(&loaded, &engine, changes, &origins, &retention, &store) => {}
            () = stop::stop_on(&mut signals, [closed, terminal_closed], &shutdown, &manager) => {}
            () = manager.feed_watchdog() => {}
            () = metrics(metrics_listener, &engine) => {}
        }
        let forced_stop = async {
            if !shutdown.now.is_cancelled() {
                signals.next().await;
            }
            tokio::time::sleep(FORCED_STOP_TIMEOUT).await;
        };
        tokio::select! {
            () = async { engine.shutdown().await; tool_server.stop().await } => {}
            // Keepers end their processes when this process ends; worktrees are cleaned up at the next start.
            () = forced_stop => tracing::warn!("stopped without waiting for running processes"),
        }
        Ok(())
    }
}

/// Background work: removes leftovers of dead gateways, reloads the configuration, enforces retention and returns memory.
/// Never returns.
async fn background(
    loaded: &LoadedConfig,
    engine: &Engine,
    changes: ConfigWatch,
    origins: &OriginSettings,
    retention: &Retention,
    store: &Store,
) {
    let reloaded = changes.follow(&loaded.environment, engine, |config| origins.reload(config));
    let retained = retention.enforce(store, &loaded.state);
    tokio::join!(engine.keep_sweeping(), engine.give_back_memory(), reloaded, retained);
}

/// Number of connections that the limit of open files allows besides the runs and a reserve. Raises the limit as far as
/// possible first; child processes get the original one.
fn max_connections(caps: &Caps) -> usize {
    let files = trunkline_process::raise_open_files();
    let (runs, reserved) = (caps.runs.saturating_mul(FILES_PER_RUN), FILES_RESERVED);
    let left = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(runs.saturating_add(reserved));
    if left < MIN_CONNECTIONS {
        tracing::warn!(files, "the limit of open files is low: raise it (ulimit -n), or lower --max-runs");
    }
    left.max(MIN_CONNECTIONS)
}
