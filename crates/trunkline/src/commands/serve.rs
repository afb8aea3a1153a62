//! `trunkline serve`: the gateway.

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
use trunkline_engine::{Budget, Caps, Engine, KeyCaps};
use trunkline_process::Landlock;
use trunkline_server::auth::{self, Keys};
use trunkline_server::{Stop, serve, serve_metrics};
use trunkline_store::Store;

use super::gateway::{Beacon, is_gateway};
use super::reload::Changes;
use super::retention;
use super::sessions::age;
use crate::cli::Places;
use crate::config::{ConfigError, Surroundings, parse_span};
use crate::service::{self, Manager};
use crate::setup::{Loaded, ReloadRequests, StopSignals, runtime, say};

/// Start the gateway: an OpenAI-compatible API for the models
#[derive(Debug, Args)]
#[command(
    after_help = "Then, for example:\n  curl http://127.0.0.1:8765/v1/chat/completions -H 'Content-Type: application/json' \
    \\\n    -d '{\"model\":\"codex\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    places: Places,
    /// Address to listen on, with or without a port; anything but loopback needs API keys
    #[arg(long, value_name = "ADDR", env = "TRUNKLINE_LISTEN", default_value = "127.0.0.1", value_parser = Listen::parse)]
    listen: Listen,
    /// Port; 0 picks a free one
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", default_value_t = 8765)]
    port: u16,
    /// File of BLAKE3 digests of API keys, one in hexadecimal on each line, with limits of its own behind it if it has any:
    /// runs=2 queue=10 rpm=60 (keys themselves: TRUNKLINE_API_KEYS)
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_KEYS_FILE")]
    keys_file: Option<PathBuf>,
    /// Another name this server may be addressed by; may be given several times
    #[arg(long = "host", value_name = "NAME", env = "TRUNKLINE_HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,
    /// How many runs at once [default: twice the cores, at least 8]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS")]
    max_runs: Option<usize>,
    /// How many runs at once of one model [default: as many as of all]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS_PER_MODEL")]
    max_runs_per_model: Option<usize>,
    /// How many runs at once for one API key [default: as many as of all]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS_PER_KEY")]
    max_runs_per_key: Option<usize>,
    /// How many requests may wait for a slot
    #[arg(long, value_name = "N", env = "TRUNKLINE_QUEUE", default_value_t = 256)]
    queue: usize,
    /// How many requests of one API key may wait [default: half of the queue]
    #[arg(long, value_name = "N", env = "TRUNKLINE_QUEUE_PER_KEY")]
    queue_per_key: Option<usize>,
    /// How long a request may wait for a slot
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_QUEUE_TIMEOUT", default_value = "10m", value_parser = parse_span)]
    queue_timeout: Duration,
    /// How many requests a minute, in all [default: any number]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE", value_parser = rate)]
    requests_per_minute: Option<u32>,
    /// How many requests a minute for one model [default: any number]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE_PER_MODEL", value_parser = rate)]
    requests_per_minute_per_model: Option<u32>,
    /// How many requests a minute for one API key [default: any number]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE_PER_KEY", value_parser = rate)]
    requests_per_minute_per_key: Option<u32>,
    /// How many CLIs at most are kept running between turns, so that the next need not wait for its start; and how many
    /// worktrees; 0: none
    #[arg(long, value_name = "N", env = "TRUNKLINE_WARM", default_value_t = 8)]
    warm: usize,
    /// How much memory they may take, in MiB [default: a quarter of what is free now]
    #[arg(long, value_name = "MIB", env = "TRUNKLINE_WARM_MEMORY")]
    warm_memory: Option<u64>,
    /// Tell what is counted here, as Prometheus reads it: 127.0.0.1:9464. A port of its own, which needs no key and says
    /// nothing of what anybody said [default: nowhere]
    #[arg(long, value_name = "ADDR", env = "TRUNKLINE_METRICS", value_parser = Listen::parse)]
    metrics: Option<Listen>,
    /// Between asking a CLI to stop and killing it
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_GRACE", default_value = "5s", value_parser = parse_span)]
    grace: Duration,
    /// How long open answers may go on after a signal to stop
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_DRAIN", default_value = "30s", value_parser = parse_span)]
    drain: Duration,
    /// Stop when standard input ends, as after a signal: whoever starts the gateway takes it along, even when killed
    #[arg(long)]
    until_stdin_closes: bool,
    /// Forget sessions and what was said in them when they were not used for so long: 90d, 2w, 12h [default: never]
    #[arg(long, value_name = "AGE", env = "TRUNKLINE_RETENTION", value_parser = age)]
    retention: Option<Duration>,
}

/// The descriptors of a run: three pipes, its keeper's socket and its end, and a file or two of git's.
const FILES_OF_A_RUN: usize = 8;

/// For the store, the log, timers, and what there is to do between two runs.
const FILES_RESERVED: usize = 64;

/// Where metrics are told if no port is named.
const METRICS_PORT: u16 = 9464;

const FEW_CONNECTIONS: usize = 16;

/// What is left of a gateway that was told to stop at once.
const LAST_MOMENT: Duration = Duration::from_millis(300);

/// An address as people write it: `127.0.0.1`, `[::1]:8765`, `localhost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listen {
    ip: IpAddr,
    /// Wins over `--port`.
    port: Option<u16>,
}

impl Listen {
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

/// Never ends.
async fn told(counted: Option<TcpListener>, engine: &Engine) {
    match counted {
        Some(listener) => serve_metrics(listener, Engine::clone(engine)).await,
        None => std::future::pending().await,
    }
}

fn rate(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|rate| *rate > 0).ok_or_else(|| format!("{text:?} is not a number of requests"))
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        match (loaded.sandbox, Landlock::here()) {
            (Sandbox::Required, Err(missing)) => {
                let refused = format!("--sandbox required: runs cannot be confined here: {missing}");
                bail!(ConfigError::elsewhere(refused).hint("--sandbox on runs them with the CLIs' own flags alone"));
            }
            (Sandbox::On, Err(missing)) => {
                tracing::warn!("runs are not confined, only the CLIs' own flags hold: {missing}");
            }
            (Sandbox::Off, _) | (_, Ok(_)) => {}
        }
        for warning in &loaded.config.warnings {
            tracing::warn!("{warning}");
        }
        let mut caps = self.caps();
        let keys = self.keys(&loaded.around, &mut caps)?;
        let address = SocketAddr::new(self.listen.ip, self.listen.port.unwrap_or(self.port));
        auth::check_bind(address, &keys).map_err(|error| ConfigError::elsewhere(error.to_string()))?;
        let runtime = runtime()?;
        let served = runtime.block_on(self.serve(loaded, keys, caps, address));
        // A file that blocks for ever must not keep us.
        runtime.shutdown_background();
        served.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(self, loaded: Loaded, keys: Keys, caps: Caps, address: SocketAddr) -> Result<()> {
        // First of all: a signal that comes while the store is opened must not end us.
        let reloads = ReloadRequests::listen()?;
        let _file_size_limit = outlive_file_size_limit()?;
        let listener = match service::inherited(&loaded.around).context("cannot use the socket that was handed over")? {
            Some(listener) => TcpListener::from_std(listener)?,
            None => match TcpListener::bind(address).await {
                Ok(listener) => listener,
                Err(error) => return Err(not_bound(address, Listener::Api, error).await),
            },
        };
        // One that was handed over may be open to others than the address says.
        auth::check_bind(listener.local_addr()?, &keys).map_err(|error| ConfigError::elsewhere(error.to_string()))?;
        let counted = self.metrics_listener().await?;
        let files = files_for(&caps);
        let engine = loaded.engine(caps, Some(self.grace))?;
        let store = engine.remember_surely(&loaded.state).await?;
        let mut config = trunkline_server::Config { keys, hosts: self.hosts.clone(), ..Default::default() };
        config.secrets = Arc::new(engine.secrets().clone());
        config.limits.drain = self.drain;
        config.limits.connections = config.limits.connections.min(files);
        config.chats = Some(loaded.state.join(retention::CHATS));
        // Whoever reads the next line may send a signal or change a file at once.
        let (signals, terminal_closed) = (StopSignals::listen()?, reloads.terminal_closed());
        let changes = Changes::of(&loaded.place, reloads);
        let closed = if self.until_stdin_closes { stdin_closed() } else { CancellationToken::new() };
        let address = listener.local_addr()?;
        let _beacon = Beacon::light(&loaded.state, address);
        say(format!("listening on http://{address}"))?;
        let manager = Manager::of(&loaded.around);
        manager.ready();
        let models = engine.models();
        if models.names().is_empty() {
            tracing::warn!(
                "no models: write a models.json, or install an agent CLI (trunkline doctor shows which are known)"
            );
        }
        tracing::info!(models = %models.names().join(", "), "ready");
        engine.keep_warm(self.budget());
        let stop = Stop::default();
        let mut signals = signals;
        let served = async {
            tokio::join!(
                serve(listener, config, Arc::new(Engine::clone(&engine)), stop.clone()),
                drained(&engine, &stop, self.drain)
            );
        };
        tokio::select! {
            () = served => {}
            () = beside(&loaded, &engine, changes, self.retention.map(|age| (age, store))) => {}
            () = stop_on(&mut signals, [closed, terminal_closed], &stop, &manager) => {}
            () = manager.keep_telling() => {}
            () = told(counted, &engine) => {}
        }
        let patience = async {
            if !stop.now.is_cancelled() {
                signals.next().await;
            }
            tokio::time::sleep(LAST_MOMENT).await;
        };
        tokio::select! {
            () = engine.shutdown() => {}
            // The end of this process is the end of all it keeps; worktrees are put in order at the next start.
            () = patience => tracing::warn!("stopped without waiting for what still ran"),
        }
        Ok(())
    }

    async fn metrics_listener(&self) -> Result<Option<TcpListener>> {
        let Some(listen) = self.metrics else { return Ok(None) };
        let address = SocketAddr::new(listen.ip, listen.port.unwrap_or(METRICS_PORT));
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(error) => return Err(not_bound(address, Listener::Metrics, error).await.context("metrics")),
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

    fn budget(&self) -> Budget {
        let bytes = self.warm_memory.map_or_else(|| Budget::free_memory() / 4, |mib| mib << 20);
        Budget { lines: self.warm, bytes }
    }

    /// Who may come in, and what is said of some of them alone.
    fn keys(&self, around: &Surroundings, caps: &mut Caps) -> Result<Keys> {
        let given = around.variable("TRUNKLINE_API_KEYS").unwrap_or_default();
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

/// What an address is for.
#[derive(Debug, Clone, Copy)]
enum Listener {
    Api,
    Metrics,
}

/// Why an address cannot be listened on, and which flag chooses another.
async fn not_bound(address: SocketAddr, listener: Listener, error: io::Error) -> anyhow::Error {
    let port = match listener {
        Listener::Api => "another port with --port N (0 picks a free one)",
        Listener::Metrics => "another with --metrics ADDR:PORT",
    };
    let kind = error.kind();
    let advice = if kind == io::ErrorKind::AddrInUse && is_gateway(address).await {
        format!("a trunkline gateway runs there already; use it, or choose {port}")
    } else if kind == io::ErrorKind::AddrInUse {
        format!("another program listens there; end it, or choose {port}")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("ports below 1024 are for root; choose {port}")
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "this machine has no such address; --listen names another".to_owned()
    } else {
        format!("choose {port}")
    };
    anyhow::Error::msg(format!("cannot listen on {address}: {error}: {advice}"))
}

/// What stands behind a digest: `runs=2 queue=10 rpm=60`.
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

/// How many connections the limit of open files leaves, once the runs and a reserve have theirs. The limit is raised as far
/// as it goes before that; programs that we start get the one that we were given.
fn files_for(caps: &Caps) -> usize {
    let files = trunkline_process::raise_open_files();
    let (runs, keep) = (caps.runs.saturating_mul(FILES_OF_A_RUN), FILES_RESERVED);
    let left = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(runs.saturating_add(keep));
    if left < FEW_CONNECTIONS {
        tracing::warn!(files, "few open files are allowed: raise the limit (ulimit -n) or lower --max-runs");
    }
    left.max(FEW_CONNECTIONS)
}

/// Work beside the server, which never ends by itself: sweeps what dead gateways leave, follows changes of the
/// configuration, forgets what is old and gives memory back.
async fn beside(loaded: &Loaded, engine: &Engine, changes: Changes, retention: Option<(Duration, Store)>) {
    let followed = changes.follow(&loaded.around, engine);
    let forgotten = async {
        if let Some((age, store)) = retention {
            retention::keep_to(age, &store, &loaded.state).await;
        }
    };
    tokio::join!(engine.keep_sweeping(), engine.give_back_memory(), followed, forgotten);
}

/// Runs that go on without a client get as long as the open answers.
async fn drained(engine: &Engine, stop: &Stop, drain: Duration) {
    stop.gently.cancelled().await;
    engine.retire();
    tokio::select! {
        () = engine.settled() => {}
        () = tokio::time::sleep(drain) => {}
        () = stop.now.cancelled() => {}
    }
}

/// The first signal drains, the second ends at once. The end of stdin, or of the terminal, may stand in for the first, and
/// is never the second. Never returns.
async fn stop_on(signals: &mut StopSignals, closed: [CancellationToken; 2], stop: &Stop, manager: &Manager) {
    let [stdin, terminal] = closed;
    for (token, how) in [(&stop.gently, "; once more to stop at once"), (&stop.now, " now")] {
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

/// A write beyond `ulimit -f` is then an error like any other, and not the end of this process. Programs that we start are
/// not concerned: a signal that is handled is not handled in them.
fn outlive_file_size_limit() -> io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// Cancelled when nobody holds the other end of stdin any more. What comes through it is not for us.
fn stdin_closed() -> CancellationToken {
    let closed = CancellationToken::new();
    let end = closed.clone();
    // A thread of its own: a read of stdin cannot be called off, and nobody waits for it.
    drop(thread::spawn(move || {
        let _unread = io::copy(&mut io::stdin().lock(), &mut io::sink());
        end.cancel();
    }));
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_key() {
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
    fn addresses() {
        let parsed = |text: &str| Listen::parse(text).map(|listen| (listen.ip.to_string(), listen.port)).ok();
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
