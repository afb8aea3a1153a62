//! `trunkline serve`: starts the gateway, reloads its configuration, and stops it.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use trunkline_core::model::Sandbox;
use trunkline_engine::{Caps, Engine, KeyCaps, WarmBudget};
use trunkline_process::Landlock;
use trunkline_server::auth::{self, Keys};
use trunkline_server::{ServerShutdown, serve, serve_metrics};
use trunkline_store::{LogLimits, Store};

use super::gateway::{AddressFile, is_gateway};
use super::reload::ConfigWatch;
use super::retention::{self, Retention};
use super::sessions::age;
use crate::config::{ConfigError, Environment, parse_span};
use crate::engine_args::EngineArgs;
use crate::output::say;
use crate::service::{self, ServiceManager};
use crate::setup::{LoadedConfig, runtime};
use crate::signals::{ReloadRequests, StopSignals};

/// Start the gateway: an OpenAI-compatible API for your models
#[derive(Debug, Args)]
#[command(
    after_help = "Then, for example:\n  curl http://127.0.0.1:8765/v1/chat/completions -H 'Content-Type: application/json' \
    \\\n    -d '{\"model\":\"codex\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Address to listen on, with or without a port; anything but loopback needs API keys
    #[arg(long, value_name = "ADDR", env = "TRUNKLINE_LISTEN", default_value = "127.0.0.1", value_parser = ListenAddress::parse)]
    listen: ListenAddress,
    /// Port; 0 picks a free one
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", default_value_t = 8765)]
    port: u16,
    /// File with BLAKE3 digests of API keys, one per line in hexadecimal, each optionally followed by its own limits:
    /// runs=2 queue=10 rpm=60 (for plain keys, set TRUNKLINE_API_KEYS)
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_KEYS_FILE")]
    keys_file: Option<PathBuf>,
    /// Another host name for this server, accepted in the Host header; can be repeated
    #[arg(long = "host", value_name = "NAME", env = "TRUNKLINE_HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Maximum number of concurrent runs [default: twice the cores, at least 8]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS")]
    max_runs: Option<usize>,
    /// Maximum number of concurrent runs of one model [default: as --max-runs]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS_PER_MODEL")]
    max_runs_per_model: Option<usize>,
    /// Maximum number of concurrent runs for one API key [default: as --max-runs]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS_PER_KEY")]
    max_runs_per_key: Option<usize>,
    /// Maximum number of queued requests
    #[arg(long, value_name = "N", env = "TRUNKLINE_QUEUE", default_value_t = 256)]
    queue: usize,
    /// Maximum number of queued requests of one API key [default: half of --queue]
    #[arg(long, value_name = "N", env = "TRUNKLINE_QUEUE_PER_KEY")]
    queue_per_key: Option<usize>,
    /// Longest time that a request is queued
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_QUEUE_TIMEOUT", default_value = "10m", value_parser = parse_span)]
    queue_timeout: Duration,
    /// Maximum number of requests per minute [default: unlimited]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE", value_parser = rate)]
    requests_per_minute: Option<u32>,
    /// Maximum number of requests per minute for one model [default: unlimited]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE_PER_MODEL", value_parser = rate)]
    requests_per_minute_per_model: Option<u32>,
    /// Maximum number of requests per minute for one API key [default: unlimited]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE_PER_KEY", value_parser = rate)]
    requests_per_minute_per_key: Option<u32>,
    /// Maximum number of warm CLI processes, started ahead of their turns, and of spare worktrees; 0 turns both off
    #[arg(long, value_name = "N", env = "TRUNKLINE_WARM", default_value_t = 8)]
    warm: usize,
    /// Memory limit of the warm processes, in MiB [default: a quarter of the free memory at start]
    #[arg(long, value_name = "MIB", env = "TRUNKLINE_WARM_MEMORY")]
    warm_memory: Option<u64>,
    /// Serve Prometheus metrics on this address, such as 127.0.0.1:9464. It is a separate port that needs no API key and
    /// exposes no prompts or answers [default: off]
    #[arg(long, value_name = "ADDR", env = "TRUNKLINE_METRICS", value_parser = ListenAddress::parse)]
    metrics: Option<ListenAddress>,
    /// Time between asking a CLI to stop and killing it
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_GRACE", default_value = "5s", value_parser = parse_span)]
    grace: Duration,
    /// Time for open answers to finish after a stop signal
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_DRAIN", default_value = "30s", value_parser = parse_span)]
    drain: Duration,
    /// Stop when stdin is closed, as after a signal: the gateway then ends with the program that started it, even if that
    /// is killed
    #[arg(long)]
    until_stdin_closes: bool,
    /// Delete sessions with their turns when they were not used for this long: 90d, 2w, 12h [default: never]
    #[arg(long, value_name = "AGE", env = "TRUNKLINE_RETENTION", value_parser = age)]
    retention: Option<Duration>,
    /// Delete the oldest runs beyond this number, except those that a session or a kept worktree needs [default: never]
    #[arg(long, value_name = "N", env = "TRUNKLINE_RETENTION_RUNS")]
    retention_runs: Option<u64>,
    /// Delete the oldest runs, as --retention-runs does, when the run log is larger than this [default: never]
    #[arg(long, value_name = "MIB", env = "TRUNKLINE_RETENTION_SIZE")]
    retention_size: Option<u64>,
}

/// File descriptors of a run: three pipes, two ends of its keeper's socket, and a few files of git.
const FILES_PER_RUN: usize = 8;

/// File descriptors for the database, the log, timers and background work.
const FILES_RESERVED: usize = 64;

/// Default port of the metrics.
const DEFAULT_METRICS_PORT: u16 = 9464;

/// Connections that are accepted even if the limit of open files is too low.
const MIN_CONNECTIONS: usize = 16;

/// Time to clean up after a request to stop at once.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_millis(300);

/// Address of an argument: `127.0.0.1`, `[::1]:8765`, `localhost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenAddress {
    ip: IpAddr,
    /// Takes precedence over `--port`.
    port: Option<u16>,
}

impl ListenAddress {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.replacen("localhost", "127.0.0.1", 1);
        if let Ok(ip) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self { ip, port: None });
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self { ip: address.ip(), port: Some(address.port()) }),
            Err(_) => Err("not an address: write 127.0.0.1, 0.0.0.0:8765 or [::1]:8765".to_owned()),
        }
    }
}

/// Serves the metrics, if there is a listener for them. Never returns.
async fn metrics(listener: Option<TcpListener>, engine: &Engine) {
    match listener {
        Some(listener) => serve_metrics(listener, Engine::clone(engine)).await,
        None => std::future::pending().await,
    }
}

fn rate(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|rate| *rate > 0).ok_or_else(|| format!("{text:?} is not a number of requests"))
}

impl ServeArgs {
    fn retention(&self) -> Retention {
        let bytes = self.retention_size.map(|mib| mib << 20);
        Retention { age: self.retention, limits: LogLimits { runs: self.retention_runs, bytes } }
    }

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
        let keys = self.keys(&loaded.environment, &mut caps)?;
        let address = SocketAddr::new(self.listen.ip, self.listen.port.unwrap_or(self.port));
        auth::check_bind(address, &keys).map_err(|error| ConfigError::elsewhere(error.to_string()))?;
        let runtime = runtime()?;
        let served = runtime.block_on(self.serve(loaded, keys, caps, address));
        // Do not wait for blocking file operations that may never return.
        runtime.shutdown_background();
        served.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(self, loaded: LoadedConfig, keys: Keys, caps: Caps, address: SocketAddr) -> Result<()> {
        // Before anything else: a signal that arrives while the database is opened must not end the process.
        let reloads = ReloadRequests::listen()?;
        let _file_size_signal = handle_file_size_signal()?;
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
        let metrics_listener = self.metrics_listener().await?;
        let connections = max_connections(&caps);
        let engine = loaded.engine(caps, Some(self.grace))?;
        let store = engine.require_store(&loaded.state).await?;
        let mut config = trunkline_server::ServerConfig { keys, hosts: self.hosts.clone(), ..Default::default() };
        config.secrets = Arc::new(engine.secrets().clone());
        config.limits.drain = self.drain;
        config.limits.connections = config.limits.connections.min(connections);
        config.chats = Some(loaded.state.join(retention::CHATS));
        // Before the next line is printed: its reader may send a signal or change a file at once.
        let (signals, terminal_closed) = (StopSignals::listen()?, reloads.terminal_closed());
        let changes = ConfigWatch::start(&loaded.config_folder, reloads);
        let closed = if self.until_stdin_closes { stdin_closed() } else { CancellationToken::new() };
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
        let stop = ServerShutdown::default();
        let mut signals = signals;
        let served = async {
            tokio::join!(
                serve(listener, config, Arc::new(Engine::clone(&engine)), stop.clone()),
                drain_detached(&engine, &stop, self.drain)
            );
        };
        let retention = self.retention();
        tokio::select! {
            () = served => {}
            () = background(&loaded, &engine, changes, &retention, &store) => {}
            () = stop_on(&mut signals, [closed, terminal_closed], &stop, &manager) => {}
            () = manager.feed_watchdog() => {}
            () = metrics(metrics_listener, &engine) => {}
        }
        let forced_stop = async {
            if !stop.now.is_cancelled() {
                signals.next().await;
            }
            tokio::time::sleep(FORCED_STOP_TIMEOUT).await;
        };
        tokio::select! {
            () = engine.shutdown() => {}
            // Keepers end their processes when this process ends; worktrees are cleaned up at the next start.
            () = forced_stop => tracing::warn!("stopped without waiting for running processes"),
        }
        Ok(())
    }

    async fn metrics_listener(&self) -> Result<Option<TcpListener>> {
        let Some(listen) = self.metrics else { return Ok(None) };
        let address = SocketAddr::new(listen.ip, listen.port.unwrap_or(DEFAULT_METRICS_PORT));
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(error) => return Err(bind_error(address, ListenerPurpose::Metrics, error).await.context("metrics")),
        };
        let address = listener.local_addr()?;
        if address.ip().is_loopback() {
            tracing::info!("metrics on http://{address}/metrics");
        } else {
            tracing::warn!("metrics on http://{address}/metrics, for everyone who can reach it");
        }
        Ok(Some(listener))
    }

    fn caps(&self) -> Caps {
        let default = Caps::default();
        let runs = self.max_runs.unwrap_or(default.runs).max(1);
        let runs_per_model = self.max_runs_per_model.unwrap_or(runs).max(1);
        let usual = Caps::of(runs, self.queue);
        let key = KeyCaps {
            runs: self.max_runs_per_key.unwrap_or(runs).max(1),
            queue: self.queue_per_key.unwrap_or(usual.key.queue),
            per_minute: self.requests_per_minute_per_key,
        };
        Caps {
            runs_per_model,
            queue_timeout: self.queue_timeout,
            per_minute: self.requests_per_minute,
            model_per_minute: self.requests_per_minute_per_model,
            key,
            ..usual
        }
    }

    fn budget(&self) -> WarmBudget {
        let bytes = self.warm_memory.map_or_else(|| WarmBudget::free_memory() / 4, |mib| mib << 20);
        WarmBudget { lines: self.warm, bytes }
    }

    /// Accepted API keys. Limits of individual keys are added to `caps`.
    fn keys(&self, environment: &Environment, caps: &mut Caps) -> Result<Keys> {
        let given = environment.variable("TRUNKLINE_API_KEYS").unwrap_or_default();
        let mut keys = Keys::new(given.split(',').map(str::trim).filter(|key| !key.is_empty()));
        if let Some(path) = &self.keys_file {
            let text = fs::read_to_string(path).map_err(|error| ConfigError::new(path, error.to_string()))?;
            for (number, line) in text.lines().enumerate() {
                let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
                let Some(digest) = words.next() else { continue };
                let wrong = |what: String| ConfigError::new(path, format!("line {}: {what}", number + 1));
                let Ok(owner) = keys.add_digest(digest) else {
                    bail!(wrong("not a BLAKE3 digest in hexadecimal".to_owned()));
                };
                let own = key_caps(words, caps.key).map_err(wrong)?;
                caps.keys.insert(owner, own);
            }
        }
        Ok(keys)
    }
}

/// Purpose of an address.
#[derive(Debug, Clone, Copy)]
enum ListenerPurpose {
    Api,
    Metrics,
}

/// Error for an address that cannot be listened on, with advice.
async fn bind_error(address: SocketAddr, listener: ListenerPurpose, error: io::Error) -> anyhow::Error {
    let port = match listener {
        ListenerPurpose::Api => "another port with --port N (0 picks a free one)",
        ListenerPurpose::Metrics => "another with --metrics ADDR:PORT",
    };
    let kind = error.kind();
    let advice = if kind == io::ErrorKind::AddrInUse && is_gateway(address).await {
        format!("a trunkline gateway runs there already; use it, or choose {port}")
    } else if kind == io::ErrorKind::AddrInUse {
        format!("another program listens there; stop it, or choose {port}")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("ports below 1024 are for root; choose {port}")
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "this machine has no such address; --listen names another".to_owned()
    } else {
        format!("choose {port}")
    };
    anyhow::Error::msg(format!("cannot listen on {address}: {error}: {advice}"))
}

/// Limits after a digest: `runs=2 queue=10 rpm=60`.
fn key_caps<'a>(words: impl Iterator<Item = &'a str>, usual: KeyCaps) -> Result<KeyCaps, String> {
    let mut caps = usual;
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<usize>().map_err(|_| format!("{word:?}: write a number, as in {name}=10"));
        match name {
            "runs" => caps.runs = number()?.max(1),
            "queue" => caps.queue = number()?,
            "rpm" => caps.per_minute = Some(rate(value)?),
            _ => return Err(format!("unknown limit {word:?}: runs, queue and rpm are known")),
        }
    }
    Ok(caps)
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

/// Background work: removes leftovers of dead gateways, reloads the configuration, enforces retention and returns memory.
/// Never returns.
async fn background(
    loaded: &LoadedConfig,
    engine: &Engine,
    changes: ConfigWatch,
    retention: &Retention,
    store: &Store,
) {
    let reloaded = changes.follow(&loaded.environment, engine);
    let retained = retention.enforce(store, &loaded.state);
    tokio::join!(engine.keep_sweeping(), engine.give_back_memory(), reloaded, retained);
}

/// Waits for runs without a client after a stop signal, for as long as open answers may take.
async fn drain_detached(engine: &Engine, stop: &ServerShutdown, drain: Duration) {
    stop.gently.cancelled().await;
    engine.retire();
    tokio::select! {
        () = engine.settled() => {}
        () = tokio::time::sleep(drain) => {}
        () = stop.now.cancelled() => {}
    }
}

/// The first signal drains, the second stops at once. A closed stdin or terminal counts as the first, never as the second.
/// Never returns.
async fn stop_on(
    signals: &mut StopSignals,
    closed: [CancellationToken; 2],
    stop: &ServerShutdown,
    manager: &ServiceManager,
) {
    let [stdin, terminal] = closed;
    for (token, how) in [(&stop.gently, "; send the signal again to stop now"), (&stop.now, " now")] {
        tokio::select! {
            _ = signals.next() => {}
            () = stdin.cancelled(), if !stop.gently.is_cancelled() => {}
            () = terminal.cancelled(), if !stop.gently.is_cancelled() => {}
        }
        tracing::info!("stopping{how}");
        manager.stopping();
        token.cancel();
    }
    std::future::pending().await
}

/// Handles SIGXFSZ, so that a write beyond `ulimit -f` is an error and does not end this process. Child processes are not
/// affected: a handler is not inherited.
fn handle_file_size_signal() -> io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// Token that is cancelled when stdin is closed. Input is discarded.
fn stdin_closed() -> CancellationToken {
    let closed = CancellationToken::new();
    let end = closed.clone();
    // A separate thread that is never joined: a read of stdin cannot be cancelled.
    drop(thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end.cancel();
    }));
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_limits_of_a_key() {
        let usual = KeyCaps { runs: 8, queue: 128, per_minute: None };
        let read = |text: &str| key_caps(text.split_whitespace(), usual);
        assert_eq!(read(""), Ok(usual));
        assert_eq!(read("rpm=60 runs=2"), Ok(KeyCaps { runs: 2, per_minute: Some(60), ..usual }));
        assert_eq!(read("queue=0"), Ok(KeyCaps { queue: 0, ..usual }));
        for wrong in ["rpm=0", "runs=many", "runs", "rps=1", "alice"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parses_addresses() {
        let parsed = |text: &str| ListenAddress::parse(text).map(|listen| (listen.ip.to_string(), listen.port)).ok();
        for (text, ip, port) in [
            ("127.0.0.1", "127.0.0.1", None),
            ("localhost:0", "127.0.0.1", Some(0)),
            ("::1", "::1", None),
            ("[::1]", "::1", None),
            ("[::1]:80", "::1", Some(80)),
            ("0.0.0.0:8765", "0.0.0.0", Some(8765)),
        ] {
            assert_eq!(parsed(text), Some((ip.to_owned(), port)), "{text}");
        }
        assert_eq!(parsed("example.com"), None);
    }
}
