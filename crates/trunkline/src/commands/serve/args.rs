//! Arguments of `trunkline serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use trunkline_engine::{Caps, KeyCaps, WarmBudget};
use trunkline_server::auth::AllowedOrigin;
use trunkline_store::LogLimits;

use super::listen::ListenAddress;
use crate::commands::retention::Retention;
use crate::commands::sessions::age;
use crate::config::parse_span;
use crate::engine_args::EngineArgs;

/// Start the gateway: an OpenAI-compatible API for your models
#[derive(Debug, Args)]
#[command(
    after_help = "Then, for example:\n  curl http://127.0.0.1:8765/v1/chat/completions -H 'Content-Type: application/json' \
    \\\n    -d '{\"model\":\"codex\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(super) engine_args: EngineArgs,
    /// Address to listen on, with or without a port; anything but loopback needs API keys
    #[arg(long, value_name = "ADDR", env = "TRUNKLINE_LISTEN", default_value = "127.0.0.1", value_parser = ListenAddress::parse)]
    pub(super) listen: ListenAddress,
    /// Port; 0 picks a free one
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", default_value_t = 8765)]
    pub(super) port: u16,
    /// File with BLAKE3 digests of API keys, one per line in hexadecimal, each optionally followed by its own limits:
    /// runs=2 queue=10 rpm=60 (for plain keys, set TRUNKLINE_API_KEYS)
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_KEYS_FILE")]
    pub(super) keys_file: Option<PathBuf>,
    /// Another host name for this server, accepted in the Host header; can be repeated
    #[arg(long = "host", value_name = "NAME", env = "TRUNKLINE_HOSTS", value_delimiter = ',')]
    pub(super) hosts: Vec<String>,
    /// Let web pages of this origin use the API with an API key, such as `https://app.example.com`; `http://localhost:*` is
    /// every port of this machine. Can be repeated; `server.allowOrigins` in models.json is the same
    #[arg(
        long = "allow-origin",
        value_name = "ORIGIN",
        env = "TRUNKLINE_ALLOW_ORIGIN",
        value_delimiter = ',',
        value_parser = AllowedOrigin::parse
    )]
    pub(super) allow_origins: Vec<AllowedOrigin>,
    /// Maximum number of concurrent runs [default: twice the cores, at least 8]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS")]
    pub(super) max_runs: Option<usize>,
    /// Maximum number of concurrent runs of one model [default: as --max-runs]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS_PER_MODEL")]
    pub(super) max_runs_per_model: Option<usize>,
    /// Maximum number of concurrent runs for one API key [default: as --max-runs]
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_RUNS_PER_KEY")]
    pub(super) max_runs_per_key: Option<usize>,
    /// Maximum number of queued requests
    #[arg(long, value_name = "N", env = "TRUNKLINE_QUEUE", default_value_t = 256)]
    pub(super) queue: usize,
    /// Maximum number of queued requests of one API key [default: half of --queue]
    #[arg(long, value_name = "N", env = "TRUNKLINE_QUEUE_PER_KEY")]
    pub(super) queue_per_key: Option<usize>,
    /// Longest time that a request is queued
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_QUEUE_TIMEOUT", default_value = "10m", value_parser = parse_span)]
    pub(super) queue_timeout: Duration,
    /// Maximum number of runs that wait for results of their clients' tools
    #[arg(long, value_name = "N", env = "TRUNKLINE_MAX_PARKED", default_value_t = 64)]
    pub(super) max_parked: usize,
    /// Maximum number of requests per minute [default: unlimited]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE", value_parser = rate)]
    pub(super) requests_per_minute: Option<u32>,
    /// Maximum number of requests per minute for one model [default: unlimited]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE_PER_MODEL", value_parser = rate)]
    pub(super) requests_per_minute_per_model: Option<u32>,
    /// Maximum number of requests per minute for one API key [default: unlimited]
    #[arg(long, value_name = "N", env = "TRUNKLINE_REQUESTS_PER_MINUTE_PER_KEY", value_parser = rate)]
    pub(super) requests_per_minute_per_key: Option<u32>,
    /// Maximum number of warm CLI processes, started ahead of their turns, and of spare worktrees; 0 turns both off
    #[arg(long, value_name = "N", env = "TRUNKLINE_WARM", default_value_t = 8)]
    pub(super) warm: usize,
    /// Memory limit of the warm processes, in MiB [default: a quarter of the free memory at start]
    #[arg(long, value_name = "MIB", env = "TRUNKLINE_WARM_MEMORY")]
    pub(super) warm_memory: Option<u64>,
    /// Serve Prometheus metrics on this address, such as 127.0.0.1:9464. It is a separate port that needs no API key and
    /// exposes no prompts or answers [default: off]
    #[arg(long, value_name = "ADDR", env = "TRUNKLINE_METRICS", value_parser = ListenAddress::parse)]
    pub(super) metrics: Option<ListenAddress>,
    /// Time between asking a CLI to stop and killing it
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_GRACE", default_value = "5s", value_parser = parse_span)]
    pub(super) grace: Duration,
    /// Time for open answers to finish after a stop signal
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_DRAIN", default_value = "30s", value_parser = parse_span)]
    pub(super) drain: Duration,
    /// Time that a run continues after its client gave up waiting, so that the client can ask again and get its answer
    #[arg(long, value_name = "TIME", env = "TRUNKLINE_REPEAT_WAIT", default_value = "30s", value_parser = parse_span)]
    pub(super) repeat_wait: Duration,
    /// Stop when stdin is closed, as after a signal: the gateway then ends with the program that started it, even if that
    /// is killed
    #[arg(long)]
    pub(super) until_stdin_closes: bool,
    /// Delete sessions with their turns when they were not used for this long: 90d, 2w, 12h [default: never]
    #[arg(long, value_name = "AGE", env = "TRUNKLINE_RETENTION", value_parser = age)]
    pub(super) retention: Option<Duration>,
    /// Delete the oldest runs beyond this number, except those that a session or a kept worktree needs [default: never]
    #[arg(long, value_name = "N", env = "TRUNKLINE_RETENTION_RUNS")]
    pub(super) retention_runs: Option<u64>,
    /// Delete the oldest runs, as --retention-runs does, when the run log is larger than this [default: never]
    #[arg(long, value_name = "MIB", env = "TRUNKLINE_RETENTION_SIZE")]
    pub(super) retention_size: Option<u64>,
}

/// Parses a number of requests per minute.
pub(super) fn rate(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|rate| *rate > 0).ok_or_else(|| format!("{text:?} is not a number of requests"))
}

impl ServeArgs {
    pub(super) fn retention(&self) -> Retention {
        let bytes = self.retention_size.map(|mib| mib << 20);
        Retention { age: self.retention, limits: LogLimits { runs: self.retention_runs, bytes } }
    }

    pub(super) fn caps(&self) -> Caps {
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
            parked: self.max_parked,
            per_minute: self.requests_per_minute,
            model_per_minute: self.requests_per_minute_per_model,
            key,
            ..usual
        }
    }

    pub(super) fn budget(&self) -> WarmBudget {
        let bytes = self.warm_memory.map_or_else(|| WarmBudget::free_memory() / 4, |mib| mib << 20);
        WarmBudget { lines: self.warm, bytes }
    }
}
